"""Outputs of created resources, as the recorder makes them up; what it leaves unknown is absent."""

import importlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from pulumi.runtime import rpc

from stackgraph.recorder import symbols, wire
from stackgraph.recorder.lazy_sdk import lazy_sdks

_LOADING = threading.Lock()
"""The SDKs load what they need on first use, and the engine asks for many resources at once."""


def outputs(
    name: str, type_: str, known: Mapping[str, Any], reference: Callable[[str], Any] = lambda type_: None
) -> dict[str, Any]:
    """``reference`` gives the value of an output that is a resource of a type; None if there is no such resource."""
    package, module = type_.split(":")[:2]
    with _LOADING, lazy_sdks():
        importlib.import_module(f"pulumi_{package}")
        table = getattr(rpc.get_resource_module(package, module, ""), "mod_info", None)
        if table is None:
            return dict(known)
        importlib.import_module(table["fqn"])
        made = symbols.symbolic_outputs(name, type_, known, lambda _, cls: reference(symbols.type_of(cls) or ""))
    return _without_unknown({**known, **made})


def _without_unknown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_unknown(item) for key, item in value.items() if item is not None and item != wire.UNKNOWN}
    return value
