"""What is otherwise in this process while a program runs: functions in the place of others, what would end it or close its files,
work that is spared, and Python's garbage collector.
"""

import atexit
import contextlib
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from pulumi import _types, output
from pulumi.runtime import rpc


@contextlib.contextmanager
def replaced(functions: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replaces attributes of modules and classes inside the context. Each has its owner, its name and what takes its place."""
    functions = tuple(functions)
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in functions]
    for owner, name, function in functions:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)


class Ended(SystemExit):
    """The program did something that ends the process or replaces it. Its text says what."""


def process_kept() -> contextlib.AbstractContextManager[None]:
    """Makes functions that end this process raise ``SystemExit`` or ``Ended``, and leaves open the files that are open now.

    Child processes of the program, such as those of ``multiprocessing``, end as always. Other threads than the calling one close
    files as always: they may be in the middle of starting a process of the command, which waits until files are closed.
    """
    here, thread = os.getpid(), threading.get_ident()
    before = frozenset(map(int, os.listdir("/dev/fd"))) if os.path.isdir("/dev/fd") else frozenset((0, 1, 2))
    close, closerange = os.close, os.closerange

    def elsewhere() -> bool:
        return os.getpid() != here or threading.get_ident() != thread

    def kept(fd: int) -> None:
        if fd not in before or elsewhere():
            close(fd)

    def kept_range(low: int, high: int) -> None:
        if elsewhere():
            closerange(low, high)
            return
        borders = [low - 1, *sorted(fd for fd in before if low <= fd < high), high]
        for last, following in pairwise(borders):
            if last + 1 < following:  # an empty range would be a range without end
                closerange(last + 1, following)

    ends = {name: _raising(name, getattr(os, name), ends, here) for name, ends in _ENDS.items() if hasattr(os, name)}
    changed: dict[str, Callable[..., Any]] = {"close": kept, "closerange": kept_range, **ends}
    # os takes its functions from a module of the platform, which programs may call too.
    places = [(module, name, made) for module in (os, sys.modules.get("posix", os)) for name, made in changed.items()]
    # What a program puts in their place ends with it: a command reads its own data with them.
    shared = [(json, name, vars(json)[name]) for name in ("dump", "dumps", "load", "loads")]
    return replaced(
        [*places, *shared, (signal, "raise_signal", _raising("raise_signal", signal.raise_signal, lambda *_: True, here))]
    )


def _raising(name: str, really: Callable[..., Any], ends: Callable[..., bool], here: int) -> Callable[..., Any]:
    """Returns the function for programs: where it would end the process that recording began in, it raises."""

    def call(*arguments: Any, **named: Any) -> Any:
        if os.getpid() != here or not ends(*arguments, **named):
            return really(*arguments, **named)
        shown = ", ".join(repr(argument) for argument in arguments if isinstance(argument, str | int))
        raise Ended(f"{'signal' if name == 'raise_signal' else 'os'}.{name}({shown})")

    return call


def _signals_itself(process: int, number: int) -> bool:
    return number != 0 and process in (os.getpid(), 0, -1, -os.getpgrp())


_ENDS: dict[str, Callable[..., bool]] = {
    "_exit": lambda *_: True,
    "abort": lambda: True,
    "execv": lambda *_: True,
    "execve": lambda *_, **__: True,
    "kill": _signals_itself,
    "killpg": lambda group, number: number != 0 and group in (0, os.getpgrp()),
}
"""Functions of ``os`` by whether a call of them ends this process."""


# It asks the same types again and again what they hold, and looks for unknowns in texts and numbers, which hold none.

_OF_TYPES = ("_is_optional_type", "_is_union_type", "unwrap_optional_type", "unwrap_type")
"""Functions of ``pulumi._types`` whose results depend on nothing but the type they are given."""

_PLAIN = (str, int, float, type(None))

# By function, and by id of a type, which is kept as well. Unions in another order are equal, but not for the SDK.
_known: dict[str, dict[int, tuple[Any, Any]]] = {name: {} for name in _OF_TYPES}


def repetition_spared() -> contextlib.AbstractContextManager[None]:
    """Makes those functions remember their results, and others return at once."""
    look = rpc.contains_unknowns

    def contains_unknowns(value: Any) -> bool:
        return not isinstance(value, _PLAIN) and look(value)

    remembering = [(_types, name, partial(_remembered, _known[name], getattr(_types, name))) for name in _OF_TYPES]
    return replaced(
        [*remembering, (rpc, "contains_unknowns", contains_unknowns), (output, "contains_unknowns", contains_unknowns)]
    )


def _remembered(known: dict[int, tuple[Any, Any]], function: Callable[[Any], Any], type_: Any) -> Any:
    found = known.get(id(type_))
    if found is None:
        found = known[id(type_)] = (type_, function(type_))
    return found[1]


@contextlib.contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Disables the collector inside the context and restores its state afterwards.

    A recording leaves little garbage (about 10 MB for 170 resources), while each collection traverses all live objects, whose
    number only grows: a third of a recording's time, a twentieth of a whole command's (``bench/preview.py``).
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


# Skip the final collection: the process returns its memory anyway.
atexit.register(gc.disable)
