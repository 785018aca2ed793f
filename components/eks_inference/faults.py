"""Faults in what a user wrote: all of them at once, each with what was given, what is allowed and how to mend it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from stackgraph.problems import Problem


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
        place = self.config_key or format_path(self.path)
        message = f"{self.rule}: {self.message}" if self.rule else self.message
        parts = [f"{place}: {message}" if place else message]
        parts += [f"given: {self.given}"] if self.given else []
        parts += [f"allowed: {self.allowed}"] if self.allowed else []
        parts += [f"because: {'; '.join(self.working)}"] if self.working else []
        return "; ".join(parts) + (f" ({self.hint})" if self.hint else "")

    def render(self) -> str:
        """The same with a line for each part, for people."""
        place = self.config_key or format_path(self.path)
        return Problem(
            self.message,
            key=place,
            given=self.given,
            allowed=self.allowed,
            hint=self.hint,
            rule=self.rule,
            working=self.working,
        ).render()


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
