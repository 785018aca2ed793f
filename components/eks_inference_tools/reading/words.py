"""Describes clusters, nodes and pods in a few words, for every view."""

from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference_tools.reading.capacity import NodeCapacity
from eks_inference_tools.reading.clusters import Cluster
from eks_inference_tools.reading.scalars import span
from eks_inference_tools.reading.workloads import Workload
from stackgraph.graph.describe import Words
from stackgraph.graph.values import at, joined, text, texts, unique


def cluster_version(cluster: Cluster) -> str:
    """``Kubernetes 1.35``."""
    return f"Kubernetes {cluster.version}" if cluster.version else ""


def nodes(capacity: NodeCapacity) -> str:
    """The number of nodes and their instance types: ``2 (1–4) × inf2.8xlarge``, ``as needed × any inf2``."""
    families = f"any {'/'.join(few(capacity.families))}" if capacity.families else ""
    types = " or ".join(unique((*few(capacity.instance_types), families))) or "any instance type"
    return f"{capacity.size or ('as needed' if capacity.manager == 'Karpenter' else '?')} × {types}"


def node_kind(capacity: NodeCapacity) -> str:
    """``node group, on-demand``."""
    return joined(capacity.manager, " or ".join(capacity.capacity_types), by=", ")


def node_traits(capacity: NodeCapacity) -> tuple[str, ...]:
    """The other traits of nodes: limits, image, disk, interfaces, requirements."""
    limits = [f"{value} {key}".strip() for key, value in capacity.limits.items()]
    unlimited = "no limit" if capacity.manager == "Karpenter" and not limits else ""
    return unique(
        (
            f"at most {' and '.join(limits)}" if limits else unlimited,
            capacity.image,
            capacity.root_disk,
            capacity.interfaces,
            *capacity.requirements,
        )
    )


def asks(workload: Workload) -> tuple[str, ...]:
    """The requests of one pod, accelerators first: ``neuron 1``, ``cpu 30``."""
    accelerators = [f"{resource.rpartition('/')[2]} {amount}" for resource, amount in workload.accelerators.items()]
    others = [f"{kind} {amount}" for kind, amount in (("cpu", workload.cpu), ("memory", workload.memory)) if amount]
    return (*accelerators, *others)


def selected_nodes(workload: Workload) -> tuple[str, ...]:
    """The node labels that a pod requires."""
    return tuple(label(key, "/".join(few(value.split(", ")))) for key, value in workload.node_selector.items())


def label(key: str, value: str) -> str:
    """A label without its domain: ``instance-type=inf2.8xlarge``."""
    return "=".join(unique((key.rpartition("/")[2], value)))


def few(names: Sequence[str], limit: int = 3) -> Sequence[str]:
    """The first names and the number of the others. A single further name is shown instead of counted."""
    return names if len(names) <= limit + 1 else (*names[:limit], f"{len(names) - limit} more")


# -- resources -------------------------------------------------------------------------------------------------------------------


def _node_group(inputs: Mapping[str, Any]) -> str:
    return joined(text(at(inputs, "scalingConfig", "desiredSize")), ", ".join(texts(inputs.get("instanceTypes"))), by=" × ")


def _scaled_object(inputs: Mapping[str, Any]) -> str:
    spec = inputs.get("spec")
    bounds = span(at(spec, "minReplicaCount"), at(spec, "maxReplicaCount"))
    return joined(bounds, at(spec, "scaleTargetRef", "name"), by=" × ")


WORDS: Words = {
    "aws:eks/nodeGroup:NodeGroup": _node_group,
    "kubernetes:keda.sh/v1alpha1:ScaledObject": _scaled_object,
}
