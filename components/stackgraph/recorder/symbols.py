"""Readable names for what only a deployment knows: ``<net-vpc.id>``.

The SDK's own type metadata says which outputs of a resource are texts, so an ``apply`` on them runs in a preview just as it will
in a deployment. Numbers, lists and everything of unknown shape stay unknown.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pulumi
from pulumi import _types
from pulumi.runtime import rpc

from stackgraph.recorder import wire

# Nested outputs of AWS and EKS resources that programs read (certificateAuthority.data, vpcConfig.clusterSecurityGroupId,
# core.endpoint) are at most this deep; the types of Kubernetes objects go far deeper and nobody reads unknowns there.
_DEPTH = 2


def token(name: str, *path: str) -> str:
    return f"<{'.'.join((name, *path))}>"


def resource_class(type_: str) -> type | None:
    """The SDK class of a resource type the program has imported; None when no SDK registered the type."""
    package, _, rest = type_.partition(":")
    module = rpc.get_resource_module(package, rest.split(":")[0], "")
    # The table every generated SDK hands to `register_resource_module`; its layout is the code generator's.
    table = getattr(module, "mod_info", {})
    return getattr(sys.modules.get(table.get("fqn", "")), table.get("classes", {}).get(type_, ""), None)


@cache
def type_of(cls: type) -> str | None:
    """The type token of an SDK class."""
    package, _, _ = cls.__module__.rpartition(".")
    for modules in rpc._RESOURCE_MODULES.values():
        for module in modules:
            table = getattr(module, "mod_info", {})
            if table.get("fqn") == package:
                for type_, name in table["classes"].items():
                    if name == cls.__name__:
                        return type_
    return None


def symbolic_outputs(
    name: str, type_: str, inputs: Mapping[str, Any], reference: Callable[[str, type], Any] | None = None
) -> dict[str, Any]:
    """Outputs of a resource that its inputs do not already tell.

    ``reference`` makes the value of an output that is itself a resource (remote components have such); without it they stay
    unknown.
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


@cache
def _shape(cls: type, depth: int) -> dict[str, Any]:
    """By output: ``str``, a resource class, a dict for a nested output type, or None for what stays unknown."""
    is_resource = issubclass(cls, pulumi.Resource)
    types = _types.resource_types(cls) if is_resource else _types.output_type_types(cls)
    return {prop: _shape_of(typ, depth) for prop, typ in types.items() if not (is_resource and prop in ("id", "urn"))}


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
