"""Rules: small pure functions that judge what would run, and show the arithmetic.

A rule is written beside what it judges (``<domain>/rules.py``):

    @rule("NEU006", "Attention heads divide evenly among the cores.", fix="…", source="…")
    def heads_divide(server: ServingFacts) -> Iterator[Judgement]:
        ...

The type of the function's one argument, its *subject*, says what the rule is about. A rule yields one judgement for each thing
it looked at, whether it holds or not, so that ``check --explain`` can show the numbers of a rule that is kept; it yields nothing
where it does not apply. ``preflight`` finds the subjects of a stack; constructors of components judge their own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from eks_inference.faults import Fault, SpecError, format_path

Severity = Literal["error", "warning"]
Path = tuple[str | int, ...]
S = TypeVar("S")


@dataclass(frozen=True)
class Judgement:
    """What a rule found out about one thing.

    ``path`` is the key of the stack object it is about (empty for what only the graph shows: then ``resource`` is a URN).
    ``working`` is the arithmetic, a line a step, with this stack's numbers. The other texts are for the report of a broken rule:
    ``message`` says what is wrong; ``fix`` and ``severity`` are the rule's own when empty.
    """

    holds: bool
    path: Path
    working: tuple[str, ...]
    message: str = ""
    given: str = ""
    allowed: str = ""
    fix: str = ""
    severity: Severity | None = None
    resource: str = ""


@dataclass(frozen=True)
class Rule(Generic[S]):
    """One rule. ``id`` is what a stack file silences it by and never changes; ``source`` says where its facts come from."""

    id: str
    meaning: str
    severity: Severity
    fix: str
    source: str
    subject: type[S]
    judge: Callable[[S], Iterable[Judgement]]


@dataclass(frozen=True)
class ReadRule:
    """A rule that reading a stack file keeps: what breaks it cannot be read into a spec, so it cannot be silenced either.

    The validator that refuses raises ``PydanticCustomError`` with the id as its type, and the fault then carries it.
    """

    id: str
    meaning: str
    fix: str
    source: str
    severity: Severity = "error"


@dataclass(frozen=True)
class Finding:
    """A rule that does not hold. ``reason`` is why the stack file silences it; empty: it does not."""

    rule: Rule[Any]
    judgement: Judgement
    reason: str = ""

    @property
    def severity(self) -> Severity:
        return self.judgement.severity or self.rule.severity

    @property
    def stops(self) -> bool:
        """Whether nothing may be deployed with it."""
        return self.severity == "error" and not self.reason

    @property
    def summary(self) -> str:
        """One line: place, rule, what is wrong, what to do. ``check`` has the rest."""
        found = self.judgement
        place = format_path(found.path) or found.resource.rpartition("::")[2]
        return f"{place}: {self.rule.id}: {found.message} ({found.fix or self.rule.fix})"

    @property
    def fault(self) -> Fault:
        found = self.judgement
        return Fault(
            found.path,
            found.message,
            given=found.given,
            allowed=found.allowed,
            hint=found.fix or self.rule.fix,
            rule=self.rule.id,
            working=found.working,
        )


def rule(
    id_: str, meaning: str, *, fix: str, source: str, severity: Severity = "error"
) -> Callable[[Callable[[S], Iterable[Judgement]]], Rule[S]]:
    """Make a rule of a function; its subject is the type its argument is annotated with."""

    def made(judge: Callable[[S], Iterable[Judgement]]) -> Rule[S]:
        subject = next(iter(judge.__annotations__.values()))
        return Rule(id_, meaning, severity, fix, source, subject, judge)

    return made


def findings(rules: Iterable[Rule[Any]], subject: object, silenced: Mapping[str, str]) -> Iterator[Finding]:
    """What the rules about such subjects have against this one. ``silenced`` has reasons by rule id."""
    for one in rules:
        if isinstance(subject, one.subject):
            for judgement in one.judge(subject):
                if not judgement.holds:
                    yield Finding(one, judgement, silenced.get(one.id, ""))


def refuse(rules: Iterable[Rule[Any]], subject: object, silenced: Mapping[str, str]) -> None:
    """Raise ``SpecError`` with every error the rules have against a subject; for constructors of components."""
    faults = [finding.fault for finding in findings(rules, subject, silenced) if finding.stops]
    if faults:
        raise SpecError(faults)
