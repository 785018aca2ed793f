"""Rules DRA… about claims of devices in a recorded graph."""

from collections.abc import Iterator
from decimal import Decimal

from eks_inference.catalog.claims import most_devices_per_claim
from eks_inference.rules import Judgement, not_judged, rule
from eks_inference_tools.reading.clusters import is_auto
from eks_inference_tools.reading.device_claims import GROUP, OF_KIND, asked, shown
from eks_inference_tools.reading.graph_facts import GraphFacts, makes_other_nodes
from eks_inference_tools.reading.objects import group_kind
from eks_inference_tools.reading.scalars import number
from stackgraph.graph.values import at, unique


@rule(
    "DRA008",
    "No claim asks for more devices than a scheduler allocates to one.",
    fix="divide the devices among several claims of the pod",
    source="Kubernetes 1.35, pkg/apis/resource/types.go: AllocationResultsMaxSize",
)
def claims_are_small_enough(facts: GraphFacts) -> Iterator[Judgement]:
    most = most_devices_per_claim()
    for kind in ("ResourceClaimTemplate", "ResourceClaim"):
        for resource in facts.objects.get(kind, ()):
            if group_kind(resource)[0] != GROUP:
                continue
            spec = resource.inputs.get("spec")
            counts = asked(at(spec, "spec") if kind == "ResourceClaimTemplate" else spec)
            total = sum(counts.values(), Decimal())
            yield Judgement(
                holds=total <= most,
                path=(),
                working=(f"{kind} {resource.name}: {number(total)} devices, at most {most}",),
                message=f"{kind} {resource.name} asks for {number(total)} devices, and pods with it stay Pending",
                given=number(total),
                allowed=f"at most {most}",
                resource=resource.urn,
            )


@rule(
    "DRA009",
    "Pods with claims have nodes that nothing has to start for them.",
    fix="run them on a managed node group or on a NodePool with replicas, or let a device plugin offer the devices",
    source="EKS user guide, Manage hardware devices: no claims with Auto Mode; Manage Neuron devices: Karpenter with static "
    "capacity only; Karpenter 1.15, DRA (alpha): nodes for claims of GPUs and EFA interfaces with settings.enableDRA",
)
def claims_have_nodes(facts: GraphFacts) -> Iterator[Judgement]:
    auto = [cluster.name for cluster in facts.clusters if is_auto(cluster)]
    elsewhere = [one.name for one in facts.graph.resources if makes_other_nodes(one) and one.name not in auto]
    for pod in facts.pods:
        shapes = facts.shapes_for(pod)
        if not pod.claimed or not (shapes or auto):
            continue
        standing = [shape for shape in shapes if not shape.by_karpenter or shape.max_nodes is not None]
        if not standing and elsewhere:
            why = f"nodes of {', '.join(elsewhere)} are unknown"
            yield not_judged("nodes of claims", pod.title, (), why=why, fix="see that a node with the devices is there")
            continue
        starts = f"Auto Mode of {', '.join(auto)}" if auto else "Karpenter"
        neuron = OF_KIND["neuron"] in pod.claimed
        yield Judgement(
            holds=bool(standing),
            path=(),
            working=(
                f"{pod.title} claims {', '.join(map(shown, pod.claimed))}; nodes that stand: "
                + (", ".join(unique(shape.title for shape in standing)) or "none that it can run on"),
            ),
            message=f"{starts} starts no node for the claims of {pod.title}, which stays Pending",
            given=", ".join(map(shown, pod.claimed)),
            severity="error" if auto or neuron else "warning",
            resource=pod.urn,
        )
