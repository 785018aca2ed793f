"""Runs the rules on a stack's spec."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from eks_inference.faults import Fault, SpecError
from eks_inference.rules import Finding, Judgement, NotJudged, Rule, judged, left_open
from eks_inference.settings import region_fault
from eks_inference.stack import registry
from eks_inference.stack.facts import stack_facts
from eks_inference.stack.references import reference_faults
from eks_inference.stack.spec import StackSpec


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
        return tuple(sorted(found, key=lambda one: (bool(one.reason), one.severity != "error", one.rule.id)))

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


def check_spec(spec: StackSpec, region: str) -> Verdict:
    """Returns the verdict of the rules that need only the spec.

    Raises ``SpecError`` for a region that cannot be, and for names that lead nowhere, which a program may give as well.
    """
    # Without the region no rule about zones can judge. A region that the catalog lacks needs zone_ids.
    if fault := region_fault(region, in_catalog=not spec.network.zone_ids):
        raise SpecError([replace(fault, config_key="aws:region")])
    if faults := list(reference_faults(spec)):
        raise SpecError(faults)
    rules = registry.spec_rules()
    subjects = tuple(stack_facts(spec, region))
    return Verdict(rules, judged(rules, subjects), spec.silenced, subjects)
