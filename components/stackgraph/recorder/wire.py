"""The engine's wire format for property values, as plain Python data.

Special values are maps with a signature key, as in ``pulumi/sdk/go/common/resource/plugin/rpc.go``; the constants come from the
installed SDK. ``decode`` and ``encode`` keep them; ``canonical`` is the form graphs hold: secrets redacted, unknowns as text.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from google.protobuf import struct_pb2
from pulumi.runtime import rpc

from stackgraph.graph import tokens

UNKNOWN = rpc.UNKNOWN
SIGNATURE = rpc._special_sig_key
SECRET = rpc._special_secret_sig
OUTPUT = rpc._special_output_value_sig
RESOURCE = rpc._special_resource_sig
ASSET = rpc._special_asset_sig
ARCHIVE = rpc._special_archive_sig


class Secrets(set[str]):
    """Texts found inside secrets, to be scrubbed from messages. Where there is a ``digest``, it stands in their place."""

    def __init__(self, digest: Callable[[Any], str] | None = None) -> None:
        super().__init__()
        self._digest = digest

    def redact(self, value: Any) -> str:
        self.update(_texts(value))
        return tokens.Sealed(self._digest(value)) if self._digest else tokens.SECRET

    def scrub(self, text: str) -> str:
        """The text without anything that was marked secret."""
        for secret in sorted(self, key=len, reverse=True):
            text = text.replace(secret, tokens.SECRET)
        return text


def decode(value: struct_pb2.Struct) -> dict[str, Any]:
    """A Struct as plain data. Whole numbers become ints again: the wire only knows doubles."""
    return {key: decode_value(item) for key, item in value.fields.items()}


def decode_value(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return value.string_value
    if kind == "struct_value":
        return decode(value.struct_value)
    if kind == "list_value":
        return [decode_value(item) for item in value.list_value.values]
    if kind == "bool_value":
        return value.bool_value
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    return None


def encode(value: Mapping[str, Any]) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(value)
    return struct


def downgrade_outputs(value: Any) -> Any:
    """Replace output values by what they hold: the plain value, a secret or an unknown."""
    if isinstance(value, dict):
        if value.get(SIGNATURE) == OUTPUT:
            inner = downgrade_outputs(value["value"]) if "value" in value else UNKNOWN
            return {SIGNATURE: SECRET, "value": inner} if value.get("secret") else inner
        return {key: downgrade_outputs(item) for key, item in value.items()}
    if isinstance(value, list):
        return [downgrade_outputs(item) for item in value]
    return value


def upgrade_to_outputs(properties: Mapping[str, Any], dependencies: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Wrap each property in an output value that carries its dependencies, so that transforms keep them."""
    result = {}
    for key, value in properties.items():
        missing = set(dependencies.get(key, ())) - output_dependencies(value)
        if not missing:
            result[key] = _special_to_output(value)
            continue
        wrapped = _special_to_output(value)
        if not (isinstance(wrapped, dict) and wrapped.get(SIGNATURE) == OUTPUT):
            wrapped = {SIGNATURE: OUTPUT, "value": wrapped}
        wrapped["dependencies"] = sorted({*wrapped.get("dependencies", ()), *missing})
        result[key] = wrapped
    return result


def _special_to_output(value: Any) -> Any:
    if value == UNKNOWN:
        return {SIGNATURE: OUTPUT}
    if isinstance(value, dict):
        if value.get(SIGNATURE) == SECRET:
            inner = value["value"]
            return {SIGNATURE: OUTPUT, "secret": True} | ({} if inner == UNKNOWN else {"value": inner})
        if SIGNATURE in value:
            return value
        return {key: _special_to_output(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_special_to_output(item) for item in value]
    return value


def output_dependencies(value: Any) -> set[str]:
    """URNs that output values anywhere inside name as dependencies."""
    if isinstance(value, dict):
        found = set(value.get("dependencies", ())) if value.get(SIGNATURE) == OUTPUT else set()
        return found.union(*(output_dependencies(item) for key, item in value.items() if key != "dependencies"))
    if isinstance(value, list):
        return set().union(*(output_dependencies(item) for item in value))
    return set()


def is_secret(value: Any) -> bool:
    return isinstance(value, dict) and value.get(SIGNATURE) == SECRET


def as_secret(value: Any) -> Any:
    return value if is_secret(value) else {SIGNATURE: SECRET, "value": value}


def has_unknown(value: Any) -> bool:
    """Whether anything in a value without output values is not known yet."""
    if isinstance(value, dict):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(has_unknown(item) for item in value)
    return value == UNKNOWN


def canonical(value: Any, secrets: Secrets) -> Any:
    """The value as graphs hold it. Texts found inside secrets are added to ``secrets``, to be scrubbed from messages."""
    if isinstance(value, str):
        return tokens.UNKNOWN if value == UNKNOWN else value
    if isinstance(value, dict):
        signature = value.get(SIGNATURE)
        if signature is None:
            return {key: canonical(value[key], secrets) for key in sorted(value)}
        if signature == SECRET:
            return secrets.redact(value["value"])
        if signature == RESOURCE:
            return {"resource": value["urn"]}
        if signature in (ASSET, ARCHIVE):
            kind = "asset" if signature == ASSET else "archive"
            return {kind: {key: canonical(item, secrets) for key, item in sorted(value.items()) if key != SIGNATURE}}
        return canonical(downgrade_outputs(value), secrets)
    if isinstance(value, list):
        return [canonical(item, secrets) for item in value]
    return value


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        # Shorter texts would blank out ordinary words when messages are scrubbed.
        if len(value) >= 4 and value != UNKNOWN:
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
