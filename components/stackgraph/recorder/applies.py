"""What a program takes of what nobody knows: an ``apply`` that fails on a placeholder, and values that it takes at once, such as
encrypted configuration as JSON.
"""

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pulumi
from pulumi import _types
from pulumi.config import ConfigTypeError
from pulumi.output import Output, _OutputData

from stackgraph.recorder.process import replaced

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
