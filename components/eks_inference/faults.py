"""Faults in user input. All are reported at once, each with what was given, what is allowed and how to fix it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches


@dataclass(frozen=True)
class Fault:
    """One fault. ``path`` is the key path in the stack object (``("pools", "core", "size")``); list indexes are ints."""

    path: tuple[str | int, ...]
    message: str
    given: str = ""
    allowed: str = ""
    hint: str = ""
    config_key: str = ""
    """Set when the fault concerns a configuration key other than the stack object, such as a missing secret."""
    rule: str = ""
    """Id of the rule that found the fault; ``check --explain`` accepts it."""
    working: tuple[str, ...] = ()
    """The arithmetic behind the fault, one line per step."""

    def __str__(self) -> str:
        return "; ".join(self._parts("; ")) + (f" ({self.hint})" if self.hint else "")

    def render(self) -> str:
        """Returns the fault for people to read, one line per part."""
        hint = [f"hint: {self.hint}"] if self.hint else []
        return "\n    ".join([*self._parts("\n             "), *hint])

    def _parts(self, separator: str) -> list[str]:
        """Returns the headline and the labelled details; ``separator`` stands between the steps of the arithmetic."""
        place = self.config_key or format_path(self.path)
        details = {"given": self.given, "allowed": self.allowed, "because": separator.join(self.working)}
        headline = ": ".join(part for part in (place, self.rule, self.message) if part)
        return [headline, *(f"{label}: {text}" for label, text in details.items() if text)]


class SpecError(ValueError):
    """User input that cannot be built. Carries every fault found, not only the first."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: Sequence[Fault] = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


@contextmanager
def faults_under(*path: str | int) -> Iterator[None]:
    """Prefixes the paths of faults raised inside: a component knows only the keys of its own section."""
    try:
        yield
    except SpecError as error:
        raise SpecError([replace(fault, path=(*path, *fault.path)) for fault in error.faults]) from error


def did_you_mean(given: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns a hint with the known name closest to a misspelt one, or an empty text when none is close."""
    known = list(known)
    nearest = get_close_matches(given, known, n=1, cutoff=cutoff) or [one for one in known if one.startswith(f"{given}_")]
    return f"did you mean '{nearest[0]}'?" if nearest else ""


def format_path(path: Sequence[str | int]) -> str:
    """Returns a key path as text, e.g. ``pools.core.instance_types[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text
