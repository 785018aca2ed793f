"""A value that a stack object leaves open, what it resolves to, and why. Pure."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Resolved:
    """A key that the stack object lacks. ``path`` is its place in it, ``why`` the row or rule that decides, in words."""

    path: tuple[str, ...]
    value: Any
    why: str
