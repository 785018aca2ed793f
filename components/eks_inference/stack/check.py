"""Judge a stack: its spec alone, or also the graph it records."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from eks_inference.faults import Fault
from eks_inference.rules import Finding, Judgement, Rule
from eks_inference.stack import registry
from eks_inference.stack.facts import subjects
from eks_inference.stack.spec import StackSpec

if TYPE_CHECKING:
    from stackgraph.graph.document import Graph


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
        """What stops the stack; silencing a rule that does not exist does too."""
        return (*self._unknown(), *(finding.fault for finding in self.findings if finding.stops))

    @property
    def idle(self) -> tuple[str, ...]:
        """Silenced rules that had nothing against the stack: the entry can go."""
        used = {finding.rule.id for finding in self.findings if finding.reason}
        return tuple(sorted(self.silenced.keys() & {rule.id for rule in self.rules} - used))

    def __add__(self, other: "Verdict") -> "Verdict":
        """Both together: of the spec, and of the graph it records."""
        return Verdict((*self.rules, *other.rules), (*self.judgements, *other.judgements), self.silenced)

    def _unknown(self) -> Iterable[Fault]:
        known = registry.all_rules() if self.silenced.keys() - {rule.id for rule in self.rules} else {}
        for id_ in self.silenced:
            if known and id_ not in known:
                nearest = get_close_matches(id_, known, n=1)
                hint = f"did you mean '{nearest[0]}' ({known[nearest[0]].meaning})?" if nearest else ""
                yield Fault(("silenced", id_), "there is no rule of this id", given=id_, hint=hint)


def check_spec(spec: StackSpec, region: str) -> Verdict:
    """What the rules that need only the spec say."""
    rules = registry.spec_rules()
    return Verdict(rules, tuple(_judged(rules, subjects(spec, region))), spec.silenced)


def check_graph(graph: "Graph", silenced: Mapping[str, str]) -> Verdict:
    """What the rules about graphs say, after all transforms."""
    from eks_inference_tools.reading.graph_facts import GraphFacts

    rules = registry.graph_rules()
    return Verdict(rules, tuple(_judged(rules, [GraphFacts(graph)])), silenced)


def _judged(rules: Iterable[Rule[Any]], about: Iterable[object]) -> list[tuple[Rule[Any], Judgement]]:
    return [
        (one, judgement)
        for subject in about
        for one in rules
        if isinstance(subject, one.subject)
        for judgement in one.judge(subject)
    ]
