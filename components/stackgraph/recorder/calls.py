"""Tells the monitor what a program's call of a provider function does not: its result type, its form, its place, its secrets."""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pulumi.runtime
from pulumi.output import UNKNOWN, Unknown
from pulumi.runtime import rpc

from stackgraph.graph.values import mapped
from stackgraph.recorder.replaced import replaced

_MODULE = sys.modules["pulumi.runtime.invoke"]  # the package exports a function of the same name


@dataclass
class Call:
    """A call of a function. ``result_type`` is the SDK's class of the result, ``frame`` the file and line that calls.

    ``prompt``: the program gets the result at once, and no output.
    """

    result_type: type | None = None
    prompt: bool = False
    frame: tuple[str, int] | None = None
    shown: Mapping[str, Any] | None = None
    """The arguments, with secrets redacted."""


class _Unseen(dict[str, Any]):
    """The result that an SDK awaits of a function that nobody answers: whatever it looks up is unknown.

    The engine's SDKs take no result for an empty one, and a chart would seem to consist of nothing.
    """

    def __bool__(self) -> bool:
        return True

    def __missing__(self, key: str) -> Any:
        return UNKNOWN

    def get(self, key: str, default: Any = None) -> Any:
        return UNKNOWN


class _Number(Unknown):
    """A number or truth that is unknown. The result types of SDKs accept what is false."""

    def __bool__(self) -> bool:
        return False


_CALL: ContextVar[Call] = ContextVar("call")


def current_call() -> Call:
    """The call that the monitor answers."""
    return _CALL.get(Call())


def observed(
    redact: Callable[[Any], dict[str, Any]], place: Callable[[], tuple[str, int] | None]
) -> contextlib.AbstractContextManager[None]:
    """Notes calls inside the context. ``redact`` takes arguments as they go over the wire; ``place`` is of the caller."""

    def unwrapped(struct: Any) -> Any:
        # The SDK's function calls itself for values inside.
        if (call := _CALL.get(None)) is not None and call.shown is None:
            call.shown = redact(struct)
        return unwrap(struct)

    def read(*given: Any, **named: Any) -> tuple[Any, bool]:
        result, secret = deserialize(*given, **named)
        return mapped(result, lambda leaf: _Number() if isinstance(leaf, Unknown) else leaf), secret

    def noting(function: Callable[..., Any], *, prompt: bool) -> Callable[..., Any]:
        def call(tok: str, props: Any, opts: Any = None, typ: type | None = None, *rest: Any, **named: Any) -> Any:
            noted = _CALL.set(Call(typ, prompt, place()))
            try:
                return function(tok, props, opts, typ, *rest, **named)
            finally:
                _CALL.reset(noted)

        async def call_later(*given: Any, **named: Any) -> Any:
            _CALL.set(Call(frame=place()))
            result = await function(*given, **named)
            return _Unseen() if result is None else result

        return functools.wraps(function)(call_later if inspect.iscoroutinefunction(function) else call)

    unwrap, deserialize = rpc._unwrap_rpc_secret_struct_properties, rpc.deserialize_properties_unwrap_secrets
    noted = {
        name: noting(getattr(_MODULE, name), prompt=name == "invoke") for name in ("invoke", "invoke_output", "invoke_async")
    }
    return replaced(
        [
            (rpc, "_unwrap_rpc_secret_struct_properties", unwrapped),
            (rpc, "deserialize_properties_unwrap_secrets", read),
            *((place, name, noted[name]) for place in (_MODULE, pulumi.runtime) for name in noted if hasattr(place, name)),
        ]
    )
