"""Faults in what a user wrote: all of them at once, each with what was given, what is allowed and how to mend it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One fault. ``path`` leads to the key in the stack object (``("pools", "core", "size")``); list positions are ints."""

    path: tuple[str | int, ...]
    message: str
    given: str = ""
    allowed: str = ""
    hint: str = ""

    def __str__(self) -> str:
        parts = [f"{format_path(self.path)}: {self.message}" if self.path else self.message]
        parts += [f"given: {self.given}"] if self.given else []
        parts += [f"allowed: {self.allowed}"] if self.allowed else []
        return "; ".join(parts) + (f" ({self.hint})" if self.hint else "")


class SpecError(ValueError):
    """What a user wrote cannot be built. Carries every fault found, not only the first."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: Sequence[Fault] = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


def format_path(path: Sequence[str | int]) -> str:
    """``pools.core.instance_types[0]``"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text
