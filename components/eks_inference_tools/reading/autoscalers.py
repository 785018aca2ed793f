"""Reads autoscalers from a graph: HorizontalPodAutoscalers and ScaledObjects of KEDA. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from eks_inference_tools.reading.object_kinds import group_kind, name_of, namespace_of
from eks_inference_tools.reading.scalars import whole
from stackgraph.graph.describe import is_kubernetes_object, span
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, text


@dataclass(frozen=True)
class Autoscaler:
    """An autoscaler. ``target`` is namespace, kind and name of the scaled object. ``bounds`` and ``by`` are for display.

    ``least`` and ``most`` are replicas, None when they are unknown.
    """

    urn: str
    kind: str
    namespace: str
    name: str
    target: tuple[str, str, str]
    bounds: str
    by: str
    least: int | None
    most: int | None


def autoscalers(graph: Graph) -> Iterator[Autoscaler]:
    """The autoscalers, in the order of the graph."""
    for resource in graph.resources:
        kind = group_kind(resource)[1] if is_kubernetes_object(resource) else ""
        if kind not in ("HorizontalPodAutoscaler", "ScaledObject"):
            continue
        spec = resource.inputs.get("spec")
        target = at(spec, "scaleTargetRef")
        if kind == "ScaledObject":
            # The defaults of KEDA. It also defaults the target's kind, to Deployment.
            low, high, by = at(spec, "minReplicaCount") or 0, at(spec, "maxReplicaCount") or 100, "KEDA"
        else:
            low, high, by = at(spec, "minReplicas") or 1, at(spec, "maxReplicas"), "HPA"
        namespace = namespace_of(resource)
        scaled = (namespace, text(at(target, "kind")) or "Deployment", text(at(target, "name")))
        yield Autoscaler(resource.urn, kind, namespace, name_of(resource), scaled, span(low, high), by, whole(low), whole(high))
