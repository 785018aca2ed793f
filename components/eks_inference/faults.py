"""Faults in what a user wrote: all of them at once, each with what was given, what is allowed and how to fix it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Fault:
    """One fault. ``path`` leads to the key in the stack object (``("pools", "core", "size")``); list positions are ints."""

    path: tuple[str | int, ...]
    message: str
    given: str = ""
    allowed: str = ""
    hint: str = ""
    config_key: str = ""
    """Set when the fault is about another configuration key than the stack object, e.g. a missing secret."""
    rule: str = ""
    """Id of the rule that found it; ``check --explain`` takes it."""
    working: tuple[str, ...] = ()
    """The arithmetic behind it, a line a step."""

    def __str__(self) -> str:
        return "; ".join([self._head, *self._details("; ")]) + (f" ({self.hint})" if self.hint else "")

    def render(self) -> str:
        """The same with a line for each part, for people."""
        details = self._details("\n             ")
        details += [f"hint: {self.hint}"] if self.hint else []
        return "\n    ".join([self._head, *details])

    @property
    def _head(self) -> str:
        place = self.config_key or format_path(self.path)
        return ": ".join(part for part in (place, self.rule, self.message) if part)

    def _details(self, step: str) -> list[str]:
        """What was given, what is allowed and why; ``step`` separates the steps of the arithmetic."""
        details = {"given": self.given, "allowed": self.allowed, "because": step.join(self.working)}
        return [f"{label}: {text}" for label, text in details.items() if text]


class SpecError(ValueError):
    """What a user wrote cannot be built. Carries every fault found, not only the first."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: Sequence[Fault] = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


@contextmanager
def faults_under(*path: str | int) -> Iterator[None]:
    """Faults of one section, which only knows its own keys, become faults of the stack."""
    try:
        yield
    except SpecError as error:
        raise SpecError([replace(fault, path=(*path, *fault.path)) for fault in error.faults]) from error


def format_path(path: Sequence[str | int]) -> str:
    """``pools.core.instance_types[0]``"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text
