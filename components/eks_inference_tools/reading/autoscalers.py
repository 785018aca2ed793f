"""What changes the number of pods: HPAs and KEDA's ScaledObjects. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from eks_inference_tools.reading.pod_templates import group_kind
from eks_inference_tools.reading.scalars import span
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, text


@dataclass(frozen=True)
class Autoscaler:
    """An HPA or a ScaledObject. ``target`` is namespace, kind and name of what it scales, ``bounds`` and ``by`` are words."""

    urn: str
    kind: str
    namespace: str
    name: str
    target: tuple[str, str, str]
    bounds: str
    by: str


def autoscalers(graph: Graph) -> Iterator[Autoscaler]:
    """Everything that changes the number of pods, in the graph's order."""
    for resource in graph.resources:
        kind = group_kind(resource)[1] if is_kubernetes_object(resource) else ""
        if kind not in ("HorizontalPodAutoscaler", "ScaledObject"):
            continue
        spec, metadata = resource.inputs.get("spec"), resource.inputs.get("metadata")
        target = at(spec, "scaleTargetRef")
        if kind == "ScaledObject":
            # KEDA's defaults; the kind, too, may be left out.
            low, high, by = at(spec, "minReplicaCount") or 0, at(spec, "maxReplicaCount") or 100, "KEDA"
        else:
            low, high, by = at(spec, "minReplicas") or 1, at(spec, "maxReplicas"), "HPA"
        namespace = text(at(metadata, "namespace"))
        scaled = (namespace, text(at(target, "kind")) or "Deployment", text(at(target, "name")))
        name = text(at(metadata, "name")) or text(resource.name)
        yield Autoscaler(resource.urn, kind, namespace, name, scaled, span(low, high), by)
