"""Readable placeholders for outputs that only a deployment knows, ``<net-vpc.id>``, and what a program takes of them: an
``apply`` that fails on one, and values that it takes at once, such as encrypted configuration as JSON.

The SDK's type metadata says which outputs of a resource are strings, so an ``apply`` on them runs in a preview as it will in a
deployment. Numbers, lists and outputs of unknown shape stay unknown.
"""

import contextlib
import functools
import inspect
import json
import re
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, get_args, get_origin

import pulumi
from pulumi import _types
from pulumi.config import ConfigTypeError
from pulumi.output import Output, _OutputData
from pulumi.runtime import rpc

from stackgraph.recorder import wire
from stackgraph.recorder.process import replaced

# Nested outputs of AWS and EKS resources that programs read (certificateAuthority.data, vpcConfig.clusterSecurityGroupId,
# core.endpoint) are at most this deep. Types of Kubernetes objects go far deeper, but programs do not read unknowns there.
_DEPTH = 2


def token(name: str, *path: str) -> str:
    return f"<{'.'.join((name, *path))}>"


def resource_class(type_: str) -> type | None:
    """The SDK class of a resource type; None if the program has imported no SDK with that type."""
    package, _, rest = type_.partition(":")
    module = rpc.get_resource_module(package, rest.split(":")[0], "")
    # Every generated SDK passes this table to `register_resource_module`; the code generator defines its layout.
    table = getattr(module, "mod_info", {})
    return getattr(sys.modules.get(table.get("fqn", "")), table.get("classes", {}).get(type_, ""), None)


@cache
def type_of(cls: type) -> str | None:
    """The type token of an SDK class."""
    package, _, _ = cls.__module__.rpartition(".")
    tables = (getattr(module, "mod_info", {}) for modules in rpc._RESOURCE_MODULES.values() for module in modules)
    classes = (item for table in tables if table.get("fqn") == package for item in table["classes"].items())
    return next((type_ for type_, name in classes if name == cls.__name__), None)


def symbolic_outputs(
    name: str, type_: str, inputs: Mapping[str, Any], reference: Callable[[str, type], Any] | None = None
) -> dict[str, Any]:
    """Placeholders for the outputs of a resource that its inputs do not provide.

    ``reference`` returns the value of an output that is itself a resource, as remote components have; without it, such outputs
    stay unknown.
    """
    cls = resource_class(type_)
    if cls is None:
        return {}
    found = {}
    for prop, shape in _shape(cls, _DEPTH).items():
        value = _fill(shape, inputs.get(prop), name, (prop,), reference)
        if value != wire.UNKNOWN:
            found[prop] = value
    return found


def _fill(shape: Any, known: Any, name: str, path: tuple[str, ...], reference: Callable[[str, type], Any] | None) -> Any:
    if isinstance(shape, dict):
        if known is not None and (not isinstance(known, dict) or wire.SIGNATURE in known):
            return known
        known = known or {}
        filled = {key: _fill(inner, known.get(key), name, (*path, key), reference) for key, inner in shape.items()}
        return {**known, **filled}
    if known is not None and known != wire.UNKNOWN:
        return known
    if shape is str:
        return token(name, *path)
    if isinstance(shape, type) and reference is not None:
        return reference(path[-1], shape)
    return wire.UNKNOWN


def is_made_up(text: str, names: Collection[str]) -> bool:
    """Whether a placeholder is inside the text: of a resource or function with one of the names, or of a secret with one."""
    return any(
        found in names or any(found[: dot.start()] in names for dot in re.finditer(r"\.", found))
        for found in re.findall(r"<([^<>]+)>", text)
    )


def as_provided(type_: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs as a provider would return them, in the types that the SDK expects of outputs.

    An object where a text is expected is JSON text, as ``policy`` of AWS resources. Any other difference is unknown.
    """
    cls = resource_class(type_) if any(isinstance(value, dict | list) for value in inputs.values()) else None
    hints = _hints(cls) if cls else {}
    return {key: _provided(value, hints.get(key)) for key, value in inputs.items()}


def _provided(value: Any, hint: Any) -> Any:
    if not isinstance(value, dict | list) or hint is None:
        return value
    if isinstance(value, dict) and wire.SIGNATURE in value:
        return value | {"value": _provided(value["value"], hint)} if value[wire.SIGNATURE] == wire.SECRET else value
    hint = _types.unwrap_optional_type(hint)
    if hint is str:
        plain = wire.revealed(value)
        text = wire.UNKNOWN if wire.has_unknown(plain) else json.dumps(plain, separators=(",", ":"), sort_keys=True)
        return text if plain == value else wire.as_secret(text)
    if isinstance(value, dict) and _types.is_output_type(hint):
        hints = _hints(hint)
        return {key: _provided(item, hints.get(key)) for key, item in value.items()}
    kind = get_origin(hint) or hint
    if not inspect.isclass(kind) or hint is object:  # Any, a union
        return value
    inner = get_args(hint)[-1] if get_args(hint) else None
    if isinstance(value, dict) and issubclass(kind, Mapping):
        return {key: _provided(item, inner) for key, item in value.items()}
    if isinstance(value, list) and issubclass(kind, Sequence):
        return [_provided(item, inner) for item in value]
    return wire.UNKNOWN


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    """The types of a resource's outputs, or of a nested output type's properties, by wire name."""
    return _types.resource_types(cls) if issubclass(cls, pulumi.Resource) else _types.output_type_types(cls)


@cache
def _shape(cls: type, depth: int) -> dict[str, Any]:
    """By output: ``str``, a resource class, a dict for a nested output type, or None if it stays unknown."""
    is_resource = issubclass(cls, pulumi.Resource)
    return {prop: _shape_of(typ, depth) for prop, typ in _hints(cls).items() if not (is_resource and prop in ("id", "urn"))}


def _shape_of(typ: Any, depth: int) -> Any:
    typ = _types.unwrap_optional_type(typ)
    if typ is str:
        return str
    if inspect.isclass(typ):
        if issubclass(typ, pulumi.Resource):
            return typ
        if depth > 0 and _types.is_output_type(typ):
            return _shape(typ, depth - 1)
    return None


_SECRETS = [f"{how}_secret_{kind}" for how in ("get", "require") for kind in ("bool", "int", "float", "object")]


async def unknown(*, secret: bool = False) -> _OutputData[Any]:
    """The data of an output that nobody knows."""
    return _OutputData(resources=set(), value=None, is_known=False, is_secret=secret)


def taken_early(made_up: Callable[[str], bool], taken: Callable[[str, str], None]) -> contextlib.AbstractContextManager[None]:
    """Makes what a program reads of a placeholder for a secret unknown.

    ``made_up`` recognizes one. ``taken`` learns which outputs of a ``StackReference``, by its name, the program takes at once.
    """

    def reading(read: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(read)
        def secret(*given: Any, **named: Any) -> Any:
            try:
                return read(*given, **named)
            except ConfigTypeError as error:
                if not made_up(error.value):
                    raise
                return Output._from_data(unknown(secret=True))

        return secret

    def details(self: pulumi.StackReference, name: str) -> Any:
        taken(self.pulumi_resource_name, name)
        return get_output_details(self, name)

    get_output_details = pulumi.StackReference.get_output_details
    secrets = [(pulumi.Config, name, reading(getattr(pulumi.Config, name))) for name in _SECRETS]
    return replaced([*secrets, (pulumi.StackReference, "get_output_details", details)])


_SOURCES = "_stackgraph_sources"


def forgiving(
    made_up: Callable[[str], bool], warn: Callable[[BaseException, bool], None], computed: set[str]
) -> contextlib.AbstractContextManager[None]:
    """Makes the result of a failing ``apply`` unknown where a placeholder went in. ``made_up`` recognizes one inside a text;
    ``warn`` is told of the failure, and whether a secret went in. Adds to ``computed`` the texts that an ``apply`` makes of a
    placeholder without one inside.

    An ``apply`` that fails on other values still fails, and so does one that ends the program.
    """
    apply, gather = Output.apply, Output.all

    def from_placeholder(output: Any) -> bool:
        """Whether a placeholder is in an output, or in what it was made from."""
        waiting, seen = [output], set()
        while waiting:
            one = waiting.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            waiting += one.__dict__.get(_SOURCES, ())
            data = one._data
            if data.done() and not data.cancelled() and not data.exception() and any(map(made_up, _texts(data.result().value))):
                return True
        return False

    def noted(value: Any, result: Any) -> Any:
        given = set(_texts(value))
        if any(one in computed or made_up(one) for one in given):
            computed.update(text for text in _texts(result) if text not in given and not made_up(text))
        return result

    def forgiven(output: Any, error: Exception) -> Any:
        if not from_placeholder(output):
            raise error
        secret = output._data.result().is_secret
        if not (secret and isinstance(error, pulumi.RunError)):  # a program's own words about a secret that a placeholder is not
            warn(error, secret)
        return Output._from_data(unknown())

    def applied(self: Any, func: Callable[[Any], Any], run_with_unknowns: bool = False) -> Any:
        async def awaited(value: Any, later: Awaitable[Any]) -> Any:
            try:
                return noted(value, await later)
            except Exception as error:
                return forgiven(self, error)

        def called(value: Any) -> Any:
            try:
                result = func(value)
            except Exception as error:
                return forgiven(self, error)
            if isinstance(result, Output):
                return result
            return awaited(value, result) if inspect.isawaitable(result) else noted(value, result)

        made = apply(self, called, run_with_unknowns)
        made.__dict__[_SOURCES] = (self,)
        return made

    def gathered(*given: Any, **named: Any) -> Any:
        made = gather(*given, **named)
        made.__dict__[_SOURCES] = [value for value in (*given, *named.values()) if isinstance(value, Output)]
        return made

    return replaced([(Output, "apply", applied), (Output, "all", staticmethod(gathered))])


def _texts(value: Any) -> Iterator[str]:
    """The texts inside a value, also in the results of functions, which are objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for pair in dict.items(value):  # results of functions may have properties called so
            yield from _texts(pair)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif _types.is_output_type(type(value)):
        yield from _texts(vars(value))
