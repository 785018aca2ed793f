"""What the rules say of a stack's spec."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.faults import Fault
from eks_inference.rules import Finding, Judgement, Rule
from eks_inference.stack import registry
from eks_inference.stack.facts import subjects
from eks_inference.stack.spec import StackSpec


@dataclass(frozen=True)
class Verdict:
    """Everything the rules said. ``judgements`` also has those that hold; ``silenced`` has reasons by rule id."""

    rules: tuple[Rule[Any], ...]
    judgements: tuple[tuple[Rule[Any], Judgement], ...]
    silenced: Mapping[str, str]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What does not hold: errors first, silenced last, otherwise by rule. What two pods of a server share is said once."""
        found = dict.fromkeys(
            Finding(rule, judgement, self.silenced.get(rule.id, "")) for rule, judgement in self.judgements if not judgement.holds
        )
        return tuple(sorted(found, key=lambda one: (bool(one.reason), one.severity != "error", one.rule.id)))

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What stops the stack."""
        return tuple(finding.fault for finding in self.findings if finding.stops)

    @property
    def idle(self) -> tuple[str, ...]:
        """Silenced rules that had nothing against the stack: the entry can go."""
        used = {finding.rule.id for finding in self.findings if finding.reason}
        return tuple(sorted(self.silenced.keys() & {rule.id for rule in self.rules} - used))

    def __add__(self, other: "Verdict") -> "Verdict":
        """Both together: of the spec, and of the graph it records."""
        return Verdict((*self.rules, *other.rules), (*self.judgements, *other.judgements), self.silenced)


def check_spec(spec: StackSpec, region: str) -> Verdict:
    """What the rules that need only the spec say."""
    rules = registry.spec_rules()
    return Verdict(rules, judged(rules, subjects(spec, region)), spec.silenced)


def judged(rules: Iterable[Rule[Any]], about: Iterable[object]) -> tuple[tuple[Rule[Any], Judgement], ...]:
    """What each rule says of each subject that it is about."""
    return tuple(
        (one, judgement)
        for subject in about
        for one in rules
        if isinstance(subject, one.subject)
        for judgement in one.judge(subject)
    )
