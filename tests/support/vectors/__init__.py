"""A passing and a failing subject for every rule."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Vector:
    """``passes`` and ``fails`` make the subject of one rule; ``says`` is part of what the rule says of the failing one."""

    passes: Callable[[], Any]
    fails: Callable[[], Any]
    says: str
