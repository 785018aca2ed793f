"""Charges of nodes, by pool. Pure.

Nodes of managed node groups and NodePools with replicas are as many as given. Karpenter's are those that the pods ask for, placed
as the scheduler would (``placing/``).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from eks_inference_tools.cost.charges import Charge, Found, Uncounted
from eks_inference_tools.cost.disks import node_disks
from eks_inference_tools.cost.price_book import Capacity
from eks_inference_tools.placing.placed import PlacedNode, Placement
from eks_inference_tools.placing.placeholders import known_region
from eks_inference_tools.reading.graph_facts import makes_other_nodes
from eks_inference_tools.reading.node_groups import NodeGroup, node_groups
from eks_inference_tools.reading.node_pools import node_pools
from stackgraph.graph.document import Graph
from stackgraph.graph.values import text

_BOUGHT: Mapping[str, Capacity] = {"SPOT": "spot", "spot": "spot", "reserved": "reserved"}


def node_charges(graph: Graph, placements: Sequence[Placement]) -> Found:
    """Yields the charges of a cluster's nodes and their disks; ``placements`` are the nodes at each scale."""
    groups = {group.urn: group for group in node_groups(graph)}
    counted: dict[tuple[str, str, str, Capacity], list[int]] = defaultdict(lambda: [0, 0, 0])
    for scale, placement in enumerate(placements):
        for node in placement.nodes:
            counted[node.urn, node.pool, node.instance.name, _capacity(node, groups.get(node.urn))][scale] += 1
    for (urn, pool, type_, capacity), (least, initial, most) in counted.items():
        region = known_region(graph, graph.by_urn.get(urn))
        yield Charge("nodes", pool, type_, type_, region, urn, (least, initial, most), capacity)
    templates = {urn: group.template for urn, group in groups.items()}
    yield from node_disks(graph, {**templates, **{pool.urn: pool.node_class for pool in node_pools(graph)}}, placements)
    placed = {urn for urn, *_ in counted}
    for group in groups.values():
        if group.urn not in placed and group.sizes[2] != 0:
            yield Uncounted(f"nodes of {group.pool}", "their number is unknown, or their type is not in the catalog", group.urn)
    yield from _unseen(graph, placements)


def _unseen(graph: Graph, placements: Sequence[Placement]) -> Found:
    unplaced = {pod.template: None for placement in placements for pod in placement.unplaced}
    for template in unplaced:
        yield Uncounted(f"nodes for {template.title}", "no pool of the catalog's types takes all of its pods", template.urn)
    for template in {template: None for placement in placements for template in placement.uncounted}:
        yield Uncounted(f"nodes for {template.title}", "only a cluster knows how many pods it has", template.urn)
    for resource in graph.resources:
        if makes_other_nodes(resource):
            why = f"{resource.type} starts nodes that no preview knows"
            yield Uncounted(f"nodes of {text(resource.name)}", why, resource.urn)


def _capacity(node: PlacedNode, group: NodeGroup | None) -> Capacity:
    if group is None:
        return _BOUGHT.get(node.capacity_type, "on_demand")
    reserved = group.is_capacity_block or (group.template is not None and group.template.names_reservation)
    return "reserved" if reserved else _BOUGHT.get(group.capacity_type, "on_demand")
