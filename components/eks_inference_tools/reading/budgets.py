"""Reads disruption budgets, and the pods of which they let none go. Pure.

Source: Kubernetes, Specifying a Disruption Budget: with as many pods available as one demands, no eviction ever succeeds.
"""

from collections.abc import Iterator
from typing import Any

from eks_inference_tools.reading.autoscalers import autoscalers
from eks_inference_tools.reading.kinds import group_kind, namespace_of
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from eks_inference_tools.reading.scalars import whole
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at, is_token, table, text


def budgeted(graph: Graph) -> Iterator[tuple[Resource, PodTemplate, str]]:
    """Yields budgets, the templates of their pods with a known number of pods, and why none of these may go, or nothing.

    A Job ends by itself; an autoscaler decides the number.
    """
    budgets = [one for one in graph.resources if is_kubernetes_object(one) and group_kind(one)[1] == "PodDisruptionBudget"]
    if not budgets:
        return
    scaled, pods = {autoscaler.target for autoscaler in autoscalers(graph)}, [*pod_templates(graph)]
    for budget in budgets:
        selector, spec = at(budget.inputs, "spec", "selector"), budget.inputs.get("spec")
        if is_token(selector) or is_token(at(selector, "matchLabels")) or at(selector, "matchExpressions"):
            continue
        for template in pods:
            ends_or_grows = template.kind in ("Job", "Pod") or (template.given_namespace, template.kind, template.name) in scaled
            beside = template.namespace == (namespace_of(budget) or "default")
            if template.pods and beside and not ends_or_grows and template.has_labels(table(at(selector, "matchLabels"))):
                yield budget, template, _kept(spec, template.pods)


def _kept(spec: Any, pods: int) -> str:
    """Percentages are rounded up."""
    for key in ("minAvailable", "maxUnavailable"):
        given = at(spec, key)
        share = text(given).removesuffix("%") if text(given).endswith("%") else ""
        number = -(-int(share) * pods // 100) if share.isdecimal() else whole(given)
        if number is not None and (number >= pods if key == "minAvailable" else number == 0):
            return f"{key} {text(given)} of {pods}"
    return ""
