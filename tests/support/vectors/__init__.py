"""Provides a passing and a failing subject for every rule."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Vector:
    """``passes`` and ``fails`` build a subject of the rule; ``says`` is part of the rule's message about the failing one."""

    passes: Callable[[], Any]
    fails: Callable[[], Any]
    says: str
