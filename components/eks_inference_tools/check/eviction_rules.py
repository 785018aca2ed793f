"""Rule about PodDisruptionBudgets: a drain of a node has to come to an end."""

from collections.abc import Iterator
from typing import Any

from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.objects import namespace_of, title_of
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.scalars import whole
from stackgraph.graph.document import Resource
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, table, text


@rule(
    "K8S021",
    "A disruption budget lets a drain take a pod.",
    severity="warning",
    fix="set maxUnavailable: 1, or a minAvailable below the number of pods; a group of one pod needs no budget",
    source="Kubernetes, Specifying a Disruption Budget: with as many pods available as it demands, no eviction ever succeeds",
)
def budgets_let_go(facts: GraphFacts) -> Iterator[Judgement]:
    for budget in facts.objects.get("PodDisruptionBudget", ()):
        for template in _chosen(budget, facts):
            kept = _kept(budget.inputs.get("spec"), template.pods or 0)
            yield Judgement(
                holds=not kept,
                path=(),
                working=(f"{title_of(budget)}: {template.title} has {template.pods} pods; {kept or 'one may go'}",),
                message=f"{title_of(budget)} lets no pod of {template.title} go: {kept}",
                given=kept,
                allowed="one pod may go",
                resource=budget.urn,
            )


def _chosen(budget: Resource, facts: GraphFacts) -> Iterator[PodTemplate]:
    """Templates of the budget's pods with a known number of pods. A Job ends by itself; an autoscaler decides the number."""
    selector = at(budget.inputs, "spec", "selector")
    if is_token(selector) or is_token(at(selector, "matchLabels")) or at(selector, "matchExpressions"):
        return
    scaled = {one.target for one in facts.autoscalers}
    for template in facts.pods:
        ends_or_grows = template.kind in ("Job", "Pod") or (template.given_namespace, template.kind, template.name) in scaled
        beside = template.namespace == (namespace_of(budget) or "default")
        if template.pods and beside and not ends_or_grows and template.has_labels(table(at(selector, "matchLabels"))):
            yield template


def _kept(spec: Any, pods: int) -> str:
    """Why no pod may go, or nothing. Percentages are rounded up."""
    for key in ("minAvailable", "maxUnavailable"):
        given = at(spec, key)
        share = text(given).removesuffix("%") if text(given).endswith("%") else ""
        number = -(-int(share) * pods // 100) if share.isdecimal() else whole(given)
        if number is not None and (number >= pods if key == "minAvailable" else number == 0):
            return f"{key} {text(given)} of {pods}"
    return ""
