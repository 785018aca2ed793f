"""Every rule there is: those about specs, which the library keeps by itself, and those about recorded graphs."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from eks_inference.faults import Fault
from eks_inference.rules import ReadRule, Rule
from eks_inference.stack.check import Verdict, judged
from eks_inference.stack.registry import gathered, read_rules, spec_rules

if TYPE_CHECKING:
    from stackgraph.graph.document import Graph

_MODULES = (
    "eks_inference_tools.check.aws_rules",
    "eks_inference_tools.check.chart_rules",
    "eks_inference_tools.check.cluster_object_rules",
    "eks_inference_tools.check.efa_rules",
    "eks_inference_tools.check.neuron_rules",
    "eks_inference_tools.check.node_group_rules",
    "eks_inference_tools.check.placement_rules",
    "eks_inference_tools.check.pod_rules",
    "eks_inference_tools.check.secret_rules",
)


def graph_rules() -> tuple[Rule[Any], ...]:
    """Rules about the recorded graph, by id."""
    return gathered(_MODULES)


def all_rules() -> Mapping[str, Rule[Any] | ReadRule]:
    """Every rule by its id, sorted."""
    every = sorted((*spec_rules(), *graph_rules(), *read_rules()), key=lambda one: one.id)
    found = {one.id: one for one in every}
    if len(found) < len(every):
        raise AssertionError("a rule id is given twice")
    return found


def check_graph(graph: "Graph", silenced: Mapping[str, str]) -> Verdict:
    """What the rules about graphs say, after all transforms."""
    from eks_inference_tools.reading.graph_facts import GraphFacts

    rules = graph_rules()
    return Verdict(rules, judged(rules, [GraphFacts(graph)]), silenced)


def unknown_ids(silenced: Mapping[str, str]) -> Iterator[Fault]:
    """Silenced rules that do not exist: whoever wrote the id meant another one."""
    known = all_rules() if silenced else {}
    for id_ in silenced:
        if id_ not in known:
            nearest = get_close_matches(id_, known, n=1)
            hint = f"did you mean '{nearest[0]}' ({known[nearest[0]].meaning})?" if nearest else ""
            yield Fault(("silenced", id_), "there is no rule of this id", given=id_, hint=hint)
