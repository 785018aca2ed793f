"""Rules EFA… about nodes and pods with EFA."""

from collections.abc import Iterator

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.device_claims import CLAIMED, OF_KIND
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.node_groups import LaunchTemplate, NodeGroup
from eks_inference_tools.reading.scalars import number
from stackgraph.graph.document import Resource
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, texts, unique


@rule(
    "EFA004",
    "A pod requests EFA interfaces in proportion to its share of the node's devices.",
    fix="request all interfaces with all devices, half with half; the launch template sets how many a node has",
    source="aws-neuron-sdk, disaggregated inference: 16 devices with 16 interfaces, 8 with 8; Karpenter attaches all or none",
)
def interfaces_of_its_share(facts: GraphFacts) -> Iterator[Judgement]:
    for pod in facts.pods:
        efa = next((name for name in (EFA_RESOURCE, OF_KIND["efa"]) if pod.requests.get(name)), "")
        asked = pod.requests.get(efa)
        for shape in facts.shapes_for(pod) if asked else ():
            devices = next(
                (name for name in (DEVICE_RESOURCE, GPU_RESOURCE, *CLAIMED) if name != efa and pod.requests.get(name)), None
            )
            of_node = shape.offers.get(devices) if devices else None
            # K8S003 judges requests that exceed what the node has.
            if not asked or not devices or not of_node or not shape.efa or asked > shape.efa or pod.requests[devices] > of_node:
                continue
            mine = pod.requests[devices]
            due = number(shape.efa * mine / of_node)
            yield Judgement(
                # Multiply instead of dividing: a third of a node has no exact decimal.
                holds=asked * of_node == shape.efa * mine,
                path=(),
                working=(
                    f"{pod.title} on {shape.title}: {number(mine)} of {number(of_node)} {devices}",
                    f"{shape.efa} interfaces x {number(mine)} / {number(of_node)} = {due}; it requests {number(asked)}",
                ),
                message=f"{pod.title} requests {number(asked)} EFA interfaces, but its share of {shape.title} is {due}",
                given=number(asked),
                allowed=due,
                # Pods that share a node may leave interfaces to one another.
                severity="error" if mine == of_node else "warning",
                resource=pod.urn,
            )


@rule(
    "EFA005",
    "Nodes with EFA share one subnet, and their security group allows all traffic to itself in both directions.",
    fix="give the pool one subnet, and its interfaces a security group with all-protocol rules to itself, ingress and egress",
    source="EC2 user guide, EFA: EFA traffic is not IP, so 0.0.0.0/0 does not cover it; awsome-distributed-ai issue 546, "
    "gardener provider-aws issue 1832",
)
def efa_nodes_reach_each_other(facts: GraphFacts) -> Iterator[Judgement]:
    for group in facts.node_groups:
        template = group.template
        if template is None or template.resource is None or not template.efa_interfaces:
            continue
        title, subnets = group.title, group.subnet_ids
        yield Judgement(
            holds=len(subnets) <= 1,
            path=(),
            working=(f"{title}: {template.efa_interfaces} EFA interfaces a node, {len(subnets)} subnets",),
            message=f"{title} has EFA and starts nodes in {len(subnets)} subnets: EFA does not cross them",
            given=", ".join(subnets),
            allowed="one subnet",
            resource=group.urn,
        )
        yield from _groups_open_to_themselves(facts, template, template.resource, title)
        yield from _placed_together(group, template, template.resource)


def _groups_open_to_themselves(
    facts: GraphFacts, template: LaunchTemplate, resource: Resource, title: str
) -> Iterator[Judgement]:
    known = facts.security_groups
    named = [one for interface in template.interfaces for one in texts(at(interface, "securityGroups"))]
    groups = unique(known.named_by(resource, "networkInterfaces", named))
    if not groups:
        return
    to_itself = {(one.group, one.ingress) for one in known.rules if one.everything and one.itself}
    directions = (("ingress", True), ("egress", False))
    lacking = {
        group: [direction for direction, ingress in directions if (group, ingress) not in to_itself]
        for group in groups
        if group in known.made
    }
    # EKS gives the cluster's own group such rules. The rules of groups outside the graph are unknown.
    elsewhere = [group for group in groups if group not in known.made]
    names = {group: known.made[group].name for group in lacking}
    said = "; ".join(
        f"{names[group]}: {' and '.join(what) + ' to itself missing' if what else 'both ways'}" for group, what in lacking.items()
    )
    yield Judgement(
        holds=bool(elsewhere) or not all(lacking.values()),
        path=(),
        working=(f"{title}, template {resource.name}: {said or 'groups outside the graph'}",),
        message=f"{title} has EFA, but no security group of its template {resource.name} allows it: {said}",
        given=", ".join(names.values()),
        allowed="all protocols to itself, ingress and egress",
        resource=resource.urn,
    )


def _placed_together(group: NodeGroup, template: LaunchTemplate, resource: Resource) -> Iterator[Judgement]:
    most, title, placement = group.sizes[2], group.title, template.placement_group
    if most is None or most < 2 or template.names_reservation or group.is_capacity_block:
        return
    yield Judgement(
        holds=bool(placement) or is_token(at(template.document, "placement")),
        path=(),
        working=(f"{title}: up to {most} nodes with EFA, placement group {placement or 'none'}",),
        message=f"{title} has up to {most} nodes with EFA and no placement group: they may be far apart",
        fix="set a placement group with strategy cluster in the launch template",
        given="no placement group",
        severity="warning",
        resource=resource.urn,
    )
