"""Collects all rules: those of the library about specs, and those of this folder about recorded graphs.

Rules about specs load every spec, which takes half of the time of a command that looks at a small program of somebody else.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from eks_inference.faults import Fault
from eks_inference.rules import ReadRule, Rule, Verdict, gathered, judged

if TYPE_CHECKING:
    from stackgraph.graph.document import Graph

_MODULES = (
    "eks_inference_tools.check.aws_rules",
    "eks_inference_tools.check.cluster_object_rules",
    "eks_inference_tools.check.cluster_rules",
    "eks_inference_tools.check.device_rules",
    "eks_inference_tools.check.limit_rules",
    "eks_inference_tools.check.placement_rules",
    "eks_inference_tools.check.pod_rules",
    "eks_inference_tools.check.secret_rules",
    "eks_inference_tools.check.value_rules",
)


def graph_rules() -> tuple[Rule[Any], ...]:
    """Rules about recorded graphs, in the order of their ids."""
    return gathered(_MODULES)


def all_rules() -> Mapping[str, Rule[Any] | ReadRule]:
    """All rules by id, sorted."""
    from eks_inference.stack.registry import read_rules, spec_rules

    every = sorted((*spec_rules(), *graph_rules(), *read_rules()), key=lambda one: one.id)
    found = {one.id: one for one in every}
    assert len(found) == len(every), "two rules have the same id"
    return found


def check_graph(graph: "Graph", silenced: Mapping[str, str]) -> Verdict:
    """Judges each cluster of a graph, as it is after all transforms. What belongs to no cluster is judged once."""
    from eks_inference_tools.reading.clusters import parts
    from eks_inference_tools.reading.graph_facts import GraphFacts

    rules = graph_rules()
    subjects = tuple(GraphFacts(part.graph) for part in parts(graph))
    return Verdict(rules, tuple(dict.fromkeys(judged(rules, subjects))), silenced, subjects)


def unknown_ids(silenced: Mapping[str, str], *, config_key: str = "") -> Iterator[Fault]:
    """A fault for each silenced rule that does not exist. Its author meant another one.

    ``config_key`` is the configuration key that silences; empty: the stack object does.
    """
    known = all_rules() if silenced else {}
    for id_ in silenced:
        if id_ not in known:
            nearest = get_close_matches(id_, known, n=1)
            hint = f"did you mean '{nearest[0]}' ({known[nearest[0]].meaning})?" if nearest else ""
            path = () if config_key else ("silenced", id_)
            yield Fault(path, "there is no rule with this id", given=id_, hint=hint, config_key=config_key)
