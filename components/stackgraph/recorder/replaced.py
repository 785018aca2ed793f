"""Puts functions in the place of others while a program runs."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any


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
