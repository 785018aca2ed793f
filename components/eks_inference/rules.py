"""Rules: small pure functions that judge what would be deployed and show the arithmetic.

A rule lives in the domain it judges (``<domain>/rules.py``):

    @rule("NEU006", "Attention heads divide evenly among the cores.", fix="…", source="…")
    def heads_divide(server: ServingFacts) -> Iterator[Judgement]:
        ...

The type of the function's one argument, its *subject*, decides what the rule applies to. A rule yields one judgement for each
thing it examined, whether or not the rule holds, so that ``check --explain`` can show the numbers either way. It yields nothing
where it does not apply, and ``not_judged`` where it applies but lacks a fact: a verdict claims no more than was judged.
``stack/facts.py`` finds the subjects of a stack; component constructors judge their own.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from eks_inference.faults import Fault, SpecError, format_path

Severity = Literal["error", "warning"]
Path = tuple[str | int, ...]
S = TypeVar("S")


class Unjudged(NamedTuple):
    """What a rule could not judge: ``what`` (``"memory"``) of ``of`` (a model, an image)."""

    what: str
    of: str


@dataclass(frozen=True)
class NotJudged:
    """What rules could not judge of one thing, why, and how to have it judged.

    ``path`` is the key path in the spec: of the stack object, or of the component that ``resource``, a URN, names.
    """

    path: Path
    what: tuple[str, ...]
    of: str
    why: str
    fix: str
    resource: str = ""

    @property
    def summary(self) -> str:
        """One line."""
        found = f"{format_path(self.path)}: not judged: {', '.join(self.what)} of {self.of}: {self.why}"
        return f"{found} ({self.fix})" if self.fix else found

    @classmethod
    def read(cls, text: str) -> "NotJudged | None":
        """What a component told in one line. None: the line tells something else."""
        found = re.fullmatch("(.*?): not judged: (.*?) of (.*?): (.*)", text, re.DOTALL)
        return cls((found[1],), (found[2],), found[3], found[4], "") if found else None


@dataclass(frozen=True)
class Judgement:
    """The result of a rule for one thing.

    ``path`` is the key path in the stack object. It is empty where only the graph shows the fault; ``resource`` is then a URN.
    ``working`` is the arithmetic with this stack's numbers, one line per step. The other texts are for the report of a broken
    rule: ``message`` says what is wrong; an empty ``fix`` or ``severity`` means the rule's own.
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
    unjudged: Unjudged | None = None
    """Set where the rule lacks a fact. ``holds`` is then true, the last line of ``working`` says why, and ``fix`` what helps."""


def not_judged(what: str, of: str, path: Path, *, why: str, fix: str) -> Judgement:
    """The judgement of a rule that applies but lacks a fact."""
    return Judgement(holds=True, path=path, working=(why,), fix=fix, unjudged=Unjudged(what, of))


@dataclass(frozen=True)
class Rule(Generic[S]):
    """One rule. Stack files silence it by ``id``, which never changes; ``source`` says where its facts come from."""

    id: str
    meaning: str
    severity: Severity
    fix: str
    source: str
    subject: type[S]
    judge: Callable[[S], Iterable[Judgement]]
    about: str
    """What the rule judges, for ``check --explain`` where it does not apply: ``model servers on NVIDIA GPUs``."""


@dataclass(frozen=True)
class ReadRule:
    """A rule that validation of the stack file enforces. Input that breaks it never becomes a spec, so nothing can silence it.

    The validator raises ``PydanticCustomError`` with the rule's id as its type; the fault then carries that id.
    """

    id: str
    meaning: str
    fix: str
    source: str
    severity: Severity = "error"


@dataclass(frozen=True)
class Finding:
    """A broken rule. ``reason`` is why the stack file silences it, or empty when it does not."""

    rule: Rule[Any]
    judgement: Judgement
    reason: str = ""

    @property
    def severity(self) -> Severity:
        return self.judgement.severity or self.rule.severity

    @property
    def stops(self) -> bool:
        """Whether the finding prevents a deployment."""
        return self.severity == "error" and not self.reason

    @property
    def summary(self) -> str:
        """One line with the place, the rule, what is wrong and what to do. ``check`` shows the rest."""
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
    id_: str, meaning: str, *, fix: str, source: str, severity: Severity = "error", about: str = ""
) -> Callable[[Callable[[S], Iterable[Judgement]]], Rule[S]]:
    """Turns a function into a rule; the annotation of its argument is the rule's subject, which says what it is ``about``."""

    def made(judge: Callable[[S], Iterable[Judgement]]) -> Rule[S]:
        subject = next(iter(judge.__annotations__.values()))
        return Rule(id_, meaning, severity, fix, source, subject, judge, about or subject.about)

    return made


def judged(rules: Iterable[Rule[Any]], subjects: Iterable[object]) -> tuple[tuple[Rule[Any], Judgement], ...]:
    """Returns the judgements of each rule on each subject of its type, each once: two servers of a pair may be judged alike.

    Faults of a subject that is ``elsewhere``, where that is not empty, begin with it.
    """
    made = (
        (one, judgement, getattr(subject, "elsewhere", ""))
        for subject in subjects
        for one in rules
        if isinstance(subject, one.subject)
        for judgement in one.judge(subject)
    )
    found: dict[tuple[str, Judgement], tuple[Rule[Any], Judgement]] = {}
    for one, judgement, where in made:
        told = replace(judgement, message=f"{where}: {judgement.message}") if where and not judgement.holds else judgement
        found.setdefault((one.id, judgement), (one, told))
    return tuple(found.values())


def left_open(judgements: Iterable[Judgement]) -> tuple[NotJudged, ...]:
    """Returns what judgements leave open, one entry for each thing and reason."""
    found: dict[tuple[Path, str, str, str], list[str]] = {}
    for each in judgements:
        if each.unjudged:
            found.setdefault((each.path, each.unjudged.of, each.working[-1], each.fix), []).append(each.unjudged.what)
    return tuple(NotJudged(path, tuple(dict.fromkeys(what)), of, why, fix) for (path, of, why, fix), what in found.items())


def findings(rules: Iterable[Rule[Any]], subject: object, silenced: Mapping[str, str]) -> tuple[Finding, ...]:
    """Returns the rules that a subject breaks. ``silenced`` maps rule ids to reasons."""
    return Verdict(tuple(rules), judged(rules, [subject]), silenced).findings


def refuse(rules: Iterable[Rule[Any]], subject: object, silenced: Mapping[str, str]) -> list[str]:
    """Raises ``SpecError`` with every error the rules find in a subject; for constructors of components.

    Returns their warnings, and what they do not judge, each on one line.
    """
    rules = tuple(rules)
    verdict = Verdict(rules, judged(rules, [subject]), silenced)
    if verdict.faults:
        raise SpecError(verdict.faults)
    return [each.summary for each in (*(finding for finding in verdict.findings if not finding.reason), *verdict.not_judged)]


@cache
def gathered(modules: tuple[str, ...]) -> tuple[Rule[Any], ...]:
    """Returns the rules defined in these modules, sorted by id."""
    found = [value for module in modules for value in vars(import_module(module)).values() if isinstance(value, Rule)]
    return tuple(sorted(found, key=lambda one: one.id))


@dataclass(frozen=True)
class Verdict:
    """The results of all rules. ``judgements`` includes those that hold; ``silenced`` maps rule ids to reasons."""

    rules: tuple[Rule[Any], ...]
    judgements: tuple[tuple[Rule[Any], Judgement], ...]
    silenced: Mapping[str, str]
    subjects: tuple[object, ...] = ()
    """What the rules were applied to."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The broken rules: errors first, silenced ones last, otherwise by rule id. Equal findings appear once."""
        found = dict.fromkeys(
            Finding(rule, judgement, self.silenced.get(rule.id, "")) for rule, judgement in self.judgements if not judgement.holds
        )
        return tuple(sorted(found, key=lambda finding: (bool(finding.reason), finding.severity != "error", finding.rule.id)))

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults that prevent a deployment."""
        return tuple(finding.fault for finding in self.findings if finding.stops)

    @property
    def not_judged(self) -> tuple[NotJudged, ...]:
        """What the rules could not judge, for lack of a fact."""
        return left_open(judgement for _, judgement in self.judgements)

    @property
    def applied(self) -> tuple[str, ...]:
        """Ids of the rules that judged something."""
        return tuple(sorted({rule.id for rule, judgement in self.judgements if not judgement.unjudged}))

    @property
    def idle(self) -> tuple[str, ...]:
        """Silenced rules that the stack does not break: their entries can be removed."""
        used = {finding.rule.id for finding in self.findings if finding.reason}
        return tuple(sorted(self.silenced.keys() & {rule.id for rule in self.rules} - used))

    def __add__(self, other: "Verdict") -> "Verdict":
        """Combines the verdicts on the spec and on its recorded graph."""
        return Verdict(
            (*self.rules, *other.rules), (*self.judgements, *other.judgements), self.silenced, (*self.subjects, *other.subjects)
        )
