"""Converts property values between the engine's wire format, plain Python data, and the form of graphs.

Special values are maps with a signature key, as in ``pulumi/sdk/go/common/resource/plugin/rpc.go``; the constants come from the
installed SDK. ``decode`` and ``encode`` preserve them. ``canonical`` makes the form of graphs, with secrets redacted.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from google.protobuf import struct_pb2
from pulumi import RunError
from pulumi.runtime import rpc

from stackgraph.graph import values
from stackgraph.graph.values import leaves

UNKNOWN = rpc.UNKNOWN
SIGNATURE = rpc._special_sig_key
SECRET = rpc._special_secret_sig
OUTPUT = rpc._special_output_value_sig
RESOURCE = rpc._special_resource_sig
ASSET = rpc._special_asset_sig
ARCHIVE = rpc._special_archive_sig


class Secrets(set[str]):
    """Strings found inside secrets, to remove from messages. ``digest`` makes the digests that graphs keep of secrets."""

    def __init__(self, digest: Callable[[Any], str] | None = None) -> None:
        super().__init__()
        self._digest = digest

    def redact(self, value: Any) -> str:
        """The placeholder for a secret. Remembers the strings inside."""
        # Shorter strings would blank out ordinary words of messages.
        self.update(leaf for leaf in leaves(value) if isinstance(leaf, str) and len(leaf) >= 4 and leaf != UNKNOWN)
        return values.Sealed(self._digest(value)) if self._digest else values.SECRET

    def scrub(self, text: str) -> str:
        """The text with ``[secret]`` in place of everything that was marked secret."""
        for secret in sorted(self, key=len, reverse=True):
            text = text.replace(secret, values.SECRET)
        return text


def decode(value: struct_pb2.Struct) -> dict[str, Any]:
    """A Struct as plain data. Whole numbers become ints: the wire format only has doubles."""
    return {key: decode_value(item) for key, item in value.fields.items()}


def decode_value(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    found: Any = getattr(value, kind) if kind else None
    if kind == "struct_value":
        return decode(found)
    if kind == "list_value":
        return [decode_value(item) for item in found.values]
    if kind == "number_value":
        return int(found) if found.is_integer() else found
    return None if kind == "null_value" else found


def encode(value: Mapping[str, Any]) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(value)
    return struct


def downgrade_outputs(value: Any) -> Any:
    """The value with output values replaced by their content: a plain value, a secret or an unknown."""
    if isinstance(value, dict):
        if value.get(SIGNATURE) == OUTPUT:
            inner = downgrade_outputs(value["value"]) if "value" in value else UNKNOWN
            return {SIGNATURE: SECRET, "value": inner} if value.get("secret") else inner
        return {key: downgrade_outputs(item) for key, item in value.items()}
    if isinstance(value, list):
        return [downgrade_outputs(item) for item in value]
    return value


def upgrade_to_outputs(properties: Mapping[str, Any], dependencies: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """The properties with dependencies in an output value that carries them, so that transforms keep them."""
    result = {}
    for key, value in properties.items():
        result[key] = _special_to_output(value)
        if missing := set(dependencies.get(key, ())) - output_dependencies(value):
            wrapped = result[key]
            if not (isinstance(wrapped, dict) and wrapped.get(SIGNATURE) == OUTPUT):
                wrapped = {SIGNATURE: OUTPUT, "value": wrapped}
            result[key] = wrapped | {"dependencies": sorted(missing.union(wrapped.get("dependencies", ())))}
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
    """The URNs of all dependencies of output values inside the value."""
    if isinstance(value, dict):
        found = set(value.get("dependencies", ())) if value.get(SIGNATURE) == OUTPUT else set()
        return found.union(*(output_dependencies(item) for key, item in value.items() if key != "dependencies"))
    if isinstance(value, list):
        return set().union(*(output_dependencies(item) for item in value))
    return set()


def as_secret(value: Any) -> Any:
    secret = isinstance(value, dict) and value.get(SIGNATURE) == SECRET
    return value if secret else {SIGNATURE: SECRET, "value": value}


def revealed(value: Any) -> Any:
    """The value with the content of secrets in their place."""
    if isinstance(value, dict):
        secret = value.get(SIGNATURE) == SECRET
        return revealed(value["value"]) if secret else {key: revealed(item) for key, item in value.items()}
    return [revealed(item) for item in value] if isinstance(value, list) else value


def has_unknown(value: Any) -> bool:
    """Whether a value without output values contains an unknown."""
    return UNKNOWN in leaves(value)


def refused_files(value: Any) -> Iterator[str]:
    """The files that assets and archives inside the value name and that the engine refuses, each with the reason."""
    if isinstance(value, dict) and value.get(SIGNATURE) in (ASSET, ARCHIVE) and (path := value.get("path")):
        if not os.path.exists(path):
            yield f"{path}, which does not exist (it may have to be built first)"
        elif value[SIGNATURE] == ASSET and os.path.isdir(path):
            yield f"{path}, which is a folder: only an archive may be one"
        elif value[SIGNATURE] == ARCHIVE and not (os.path.isdir(path) or path.endswith(_PACKED)):
            yield f"{path}, which is no archive: that is a folder or ends in {', '.join(_PACKED)}"
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from refused_files(item)


_PACKED = (".zip", ".tar", ".tar.gz", ".tgz", ".jar")
"""What the names of packed archives end in (``detectArchiveFormat`` of the engine)."""


def no_json(value: Any, *path: str | int) -> Iterator[str]:
    """Yields the numbers inside the value that JSON lacks, each with its place. The engine stores its state as JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{'.'.join(map(str, path))} is {value}, a number that the engine cannot store: JSON has none of this kind"
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from no_json(item, *path, key)


def canonical(value: Any, secrets: Secrets, *place: str) -> Any:
    """The value in the form of graphs. Adds strings inside secrets to ``secrets``.

    Raises ``RunError`` for numbers that JSON lacks; ``place`` says what the value is of.
    """
    try:
        return _canonical(value, secrets)
    except _NoJson:
        raise RunError("; ".join(no_json(value, *place))) from None


class _NoJson(Exception):
    """A number that JSON lacks."""


def _canonical(value: Any, secrets: Secrets) -> Any:
    if isinstance(value, str):
        return values.UNKNOWN if value == UNKNOWN else value
    if isinstance(value, dict):
        signature = value.get(SIGNATURE)
        if signature is None:
            return {key: _canonical(value[key], secrets) for key in sorted(value)}
        if signature == SECRET:
            return secrets.redact(value["value"])
        if signature == RESOURCE:
            return {"resource": value["urn"]}
        if signature in (ASSET, ARCHIVE):
            kind = "asset" if signature == ASSET else "archive"
            return {kind: {key: _canonical(item, secrets) for key, item in sorted(value.items()) if key != SIGNATURE}}
        return _canonical(downgrade_outputs(value), secrets)
    if isinstance(value, list):
        return [_canonical(item, secrets) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise _NoJson
    return value
