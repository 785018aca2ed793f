"""Answers the functions of providers that a program calls, without a provider: data sources, references to stacks, and what else
asks a cloud. Also tells the monitor what a call does not: its result type and its place.

In this order: a row of the answers file; what follows from arguments, provider and facts; a placeholder made from the result type
of the SDK. Whatever the answer is, the graph has it in ``Graph.functions``.
"""

import contextlib
import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, get_args, get_origin

import pulumi.runtime
from pulumi import _types
from pulumi.output import UNKNOWN, Unknown
from pulumi.runtime import rpc

from stackgraph.graph.document import STACK_REFERENCE, Answer, FunctionCall
from stackgraph.graph.values import SECRET, mapped
from stackgraph.recorder import symbols, wire
from stackgraph.recorder.answers import NO_ANSWERS, Answers
from stackgraph.recorder.process import replaced

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


class FunctionError(Exception):
    """A function whose result a program needs at once, and that nobody knows. ``source`` is ``file:line`` of the call."""

    def __init__(self, message: str, source: str) -> None:
        super().__init__(message)
        self.source = source


class Functions:
    """The functions that one program calls. With ``strict``, no placeholder stands for a result that may stay unknown."""

    def __init__(self, answers: Answers = NO_ANSWERS, *, strict: bool = False) -> None:
        self._answers = answers
        self._strict = strict
        self._called: dict[str, FunctionCall] = {}

    def called(self) -> tuple[FunctionCall, ...]:
        """Every function that was called, equal calls once, by token."""
        return tuple(sorted(self._called.values(), key=lambda called: (called.token, called.key())))

    def result(
        self, token: str, args: Mapping[str, Any], call: Call, source: str, name: str, provider: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """The result of a function; None if it stays unknown. ``name`` and ``provider`` are of its provider: name and inputs.

        Raises ``FunctionError`` if the program needs the result at once.
        """
        if token == _DECODE:  # no question: the SDK has its texts read, which may hold data of Secrets
            return _decoded(args)
        args, shown = _chart_of(token, args), _chart_of(token, call.shown or {})
        region = args.get("region") or provider.get("region")
        told = self._answers.of_function(token, args, name, region)
        known = compute(token, args, provider) if told is None else told
        if call.result_type is not None and (known is not None or call.prompt or not self._strict):
            given = {key: value for key, value in args.items() if value is not None}
            result = placeholder(call.result_type, token.rpartition(":")[2], {**given, **(known or {})}, prompt=call.prompt)
        else:
            result = None if known is None else dict(known)
        answer: Answer = "file" if told is not None else "computed" if known is not None else "placeholder"
        self._note(token, shown, "unknown" if result is None else answer, source)
        if result is None and call.prompt:
            raise FunctionError(
                f"{token} gives its result at once, and no type says what it consists of: only the provider knows it, "
                "or a row of a file named with --answers",
                source,
            )
        return result

    def outputs(self, stack: str, source: str) -> dict[str, Any] | None:
        """The outputs of another stack; None if nobody knows them. A secret one has a placeholder for its value."""
        told = self._answers.of_stack(stack)
        self._note(STACK_REFERENCE, {"name": stack}, "unknown" if told is None else "file", source)
        return told and {**told[0], **{one: wire.as_secret(symbols.token(stack, one)) for one in told[1]}}

    def method(self, token: str, source: str) -> None:
        """Notes a call of a method of a remote component. Its result is unknown."""
        self._note(token, {}, "unknown", source)

    def misspelt(self) -> Iterator[str]:
        """Warnings about rows of the answers file that fit no call, but nearly one that has no answer.

        Other rows without a call may be for other stacks.
        """
        named = [(one.args.get("name") if one.token == STACK_REFERENCE else one.token, one.answer) for one in self.called()]
        names = {str(name): answer for name, answer in named}
        unanswered = [name for name, answer in names.items() if answer in ("placeholder", "unknown")]
        for row in self._answers.rows:
            given = row.get("function") or row.get("stack", "")
            if given not in names and (nearest := get_close_matches(given, unanswered, n=1, cutoff=0.85)):
                yield f"the row of the answers file for '{given}' fits no call: did you mean '{nearest[0]}'?"

    def _note(self, token: str, args: Mapping[str, Any], answer: Answer, source: str) -> None:
        called = FunctionCall(token, args, answer, source)
        self._called.setdefault(called.key(), called)


_DECODE = "kubernetes:yaml:decode"


def compute(token: str, args: Mapping[str, Any], provider: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is known of a result without its provider, whose inputs are ``provider``."""
    package, _, name = token.partition(":")
    if package == "aws":
        from stackgraph.recorder import aws_functions

        return aws_functions.compute(name, args, provider)
    known = _KNOWN.get(token)
    return known(args, provider) if known else None


def _decoded(args: Mapping[str, Any]) -> dict[str, Any]:
    import yaml

    return {"result": [document for document in yaml.safe_load_all(args["text"]) if document]}


def _chart_of(token: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a function; of the one that renders charts, those that say which: it gets them as a JSON text."""
    if token != "kubernetes:helm:template" or args.get("jsonOpts") in (None, SECRET):
        return args
    options = json.loads(args["jsonOpts"])
    return {key: options[key] for key in ("chart", "version", "release_name", "namespace", "repo", "path") if options.get(key)}


def _project(args: Mapping[str, Any], provider: Mapping[str, Any]) -> dict[str, Any] | None:
    project = args.get("projectId") or provider.get("project")
    return {"id": f"projects/{project}", "projectId": project, "name": project} if project else None


def _client(args: Mapping[str, Any], provider: Mapping[str, Any]) -> dict[str, Any] | None:
    found = {key: provider[key] for key in ("project", "region", "zone") if provider.get(key)}
    return found or None


_KNOWN: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any] | None]] = {
    "gcp:organizations/getProject:getProject": _project,
    "gcp:organizations/getClientConfig:getClientConfig": _client,
}


_DEPTH = 4
"""The deepest nested result that programs are expected to read. Types of some SDKs contain themselves."""

_ITEMS = 3
"""The length of lists: that of the lists programs ask for most, zones of a region and subnets of a network, or more."""


def placeholder(typ: type, name: str, given: Mapping[str, Any], *, prompt: bool) -> dict[str, Any]:
    """A result of a type: what is ``given``, and placeholders for all else.

    Texts read ``<name.property>``, lists have three items, maps none. Numbers and truths are unknown; for a program that gets the
    result at once (``prompt``), they are 1 and false.
    """
    hints = {prop: _types.unwrap_optional_type(hint) for prop, hint in _types.output_type_types(typ).items()}
    made = {prop: _value(hint, (name, prop), _DEPTH, prompt) for prop, hint in hints.items()}
    return made | {key: _converted(value, hints.get(key)) for key, value in given.items()}


def _converted(value: Any, hint: Any) -> Any:
    """An argument as a provider returns it: ``"true"`` and ``"3"`` in the type of the result."""
    if isinstance(value, str) and hint is bool:
        return value == "true"
    return int(value) if isinstance(value, str) and hint is int and value.isdecimal() else value


def _value(hint: Any, path: tuple[str, ...], depth: int, prompt: bool) -> Any:
    hint = _types.unwrap_optional_type(hint)
    if inspect.isclass(hint) and _types.is_output_type(hint):
        inner = _types.output_type_types(hint) if depth else {}
        return {prop: _value(each, (*path, prop), depth - 1, prompt) for prop, each in inner.items()}
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return next(iter(hint)).value
    origin = get_origin(hint) or hint
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return {}
    if inspect.isclass(origin) and issubclass(origin, Sequence) and origin is not str:
        item, *_ = get_args(hint) or (str,)
        return [_value(item, (*path[:-1], f"{path[-1]}[{number}]"), depth - 1, prompt) for number in range(_ITEMS) if depth]
    if hint in (int, float, bool):
        return hint(hint is not bool) if prompt else wire.UNKNOWN
    return f"<{'.'.join(path)}>"
