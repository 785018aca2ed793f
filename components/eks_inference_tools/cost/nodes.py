"""Charges of nodes, by pool. Pure.

Nodes of managed node groups and NodePools with replicas are as many as given. Karpenter's are those that the pods ask for, placed
as the scheduler would (``placing/``).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from eks_inference_tools.cost.charges import Charge, Found, Uncounted
from eks_inference_tools.cost.disks import node_disks, volumes_of
from eks_inference_tools.cost.price_book import Capacity
from eks_inference_tools.placing.placed import MOST_NODES, MOST_PODS, PlacedNode, Placement
from eks_inference_tools.placing.placeholders import known_region
from eks_inference_tools.reading.graph_facts import makes_other_nodes
from eks_inference_tools.reading.node_groups import NodeGroup, node_groups
from eks_inference_tools.reading.node_pools import node_pools
from eks_inference_tools.reading.pod_templates import PodTemplate
from stackgraph.graph.document import Graph
from stackgraph.graph.values import text
from stackgraph.graph.wording import counted

_MORE = f"only {MOST_NODES:,} of them count"
_WINDOWS = "Windows costs more than Linux, whose price counts"

_BOUGHT: Mapping[str, Capacity] = {"SPOT": "spot", "spot": "spot", "reserved": "reserved"}


def node_charges(graph: Graph, placements: Sequence[Placement]) -> Found:
    """Yields the charges of a cluster's nodes and their disks; ``placements`` are the nodes at each scale."""
    groups = {group.urn: group for group in node_groups(graph)}
    amounts: dict[tuple[str, str, str, Capacity], list[int]] = defaultdict(lambda: [0, 0, 0])
    for scale, placement in enumerate(placements):
        for node in placement.nodes:
            amounts[node.urn, node.pool, node.instance.name, _capacity(node, groups.get(node.urn))][scale] += 1
    for (urn, pool, type_, capacity), (least, initial, most) in amounts.items():
        region = known_region(graph, graph.by_urn.get(urn))
        yield Charge("nodes", pool, type_, type_, region, urn, (least, initial, most), capacity)
    pools = node_pools(graph)
    volumes = {urn: volumes_of(group.template, group.disk_gib) for urn, group in groups.items()}
    yield from node_disks(graph, volumes | {pool.urn: volumes_of(pool.node_class) for pool in pools}, placements)
    types = {urn: type_ for urn, _, type_, _ in amounts}
    for group in groups.values():
        for why in _doubts(group, types.get(group.urn, "")):
            yield Uncounted(f"nodes of {group.pool}", why, group.urn)
    for pool in pools:
        if (pool.replicas or 0) > MOST_NODES:
            yield Uncounted(f"nodes of {pool.name}", _MORE, pool.urn)
        if pool.replicas and pool.urn not in types:
            yield Uncounted(f"nodes of {pool.name}", "their type is not in the catalog", pool.urn)
        if pool.urn in types and pool.node_class and pool.node_class.is_windows:
            yield Uncounted(f"nodes of {pool.name}", _WINDOWS, pool.urn)
    yield from _unseen(graph, placements)


def _doubts(group: NodeGroup, type_: str) -> Iterator[str]:
    """Yields what is not known of the nodes of a group that count as nodes of a type; empty if none count."""
    if None in group.sizes or not (type_ or group.sizes[2] == 0):
        yield "their number is unknown, or their type is not in the catalog"
    if any((size or 0) > MOST_NODES for size in group.sizes):
        yield _MORE
    if type_ and type_ != group.instance_types[0]:
        yield f"{group.instance_types[0]} is not in the catalog; they count as {type_}, their next type"
    if type_ and group.ami_type.startswith("WINDOWS"):
        yield _WINDOWS
    if type_ and group.template and group.template.tenancy not in ("", "default"):
        yield "hardware of one's own has another price than that of shared hardware, which counts"


def _unseen(graph: Graph, placements: Sequence[Placement]) -> Found:
    unplaced = Counter[PodTemplate]()
    for placement in placements:
        unplaced |= Counter(pod.template for pod in placement.unplaced)
    has_pools = bool(node_groups(graph) or node_pools(graph))
    none_takes = "no pool of the catalog's types takes" if has_pools else "the program makes no pool for"
    for template, number in unplaced.items():
        why = f"{none_takes} {counted(number, 'pod')} of it"
        yield Uncounted(f"nodes for {template.title}", why, template.urn)
    for template in {template: None for placement in placements for template in placement.uncounted}:
        yield Uncounted(
            f"nodes for {template.title}",
            f"its number of pods is unknown, or all together are more than {MOST_PODS:,}",
            template.urn,
        )
    for resource in graph.resources:
        if makes_other_nodes(resource):
            why = f"{resource.type} starts nodes that no preview knows"
            yield Uncounted(f"nodes of {text(resource.name)}", why, resource.urn)


def _capacity(node: PlacedNode, group: NodeGroup | None) -> Capacity:
    if group is None:
        return _BOUGHT.get(node.capacity_type, "on_demand")
    reserved = group.is_capacity_block or (group.template is not None and group.template.names_reservation)
    return "reserved" if reserved else _BOUGHT.get(group.capacity_type, "on_demand")
