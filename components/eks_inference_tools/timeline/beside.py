"""Tries whether a second of a server has room beside the first, which is what spares its users an outage. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from eks_inference.catalog.quotas import quota_of
from eks_inference_tools.cost.estimate import Estimate
from eks_inference_tools.cost.words import money
from eks_inference_tools.placing.placed import PlacedNode, Placing
from eks_inference_tools.reading.clusters import parts
from eks_inference_tools.reading.kinds import name_of
from eks_inference_tools.reading.node_groups import node_groups
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import joined, table
from stackgraph.graph.wording import counted

Room = Callable[[tuple[str, ...], str, bool], str]
"""From the URNs of what runs servers, the ways to run a second of each, and whether that needs another node: what it takes."""

_MOST_NODES = 4
"""How many nodes more are tried."""
_SECOND = "-beside"


def room(graph: Graph, cost: Estimate) -> Room:
    """Tries a graph at its own sizes, with the nodes that Karpenter starts for it, and with more nodes in its node groups."""

    @cache
    def of(servers: tuple[str, ...], ways: str, elsewhere: bool) -> str:
        both = [graph.by_urn[urn] for urn in servers]
        inside = next((part.graph for part in parts(graph) if servers[0] in part.graph.by_urn), graph)
        before, doubled = Placing(inside).at(), _doubled(inside, both)
        pools = sorted({node.urn for node in before.nodes if any(pod.template.urn in servers for pod in node.pods)})
        grown = (_grown(doubled, pool, more) for more in range(1, _MOST_NODES + 1) for pool in pools)
        for one in (doubled, *grown):
            after = Placing(one).at()
            apart = not elsewhere or sum(node.urn in pools for node in after.nodes) > 1
            if apart and len(after.unplaced) <= len(before.unplaced):
                return f"{ways}: {_takes(before.nodes, after.nodes, cost)}"
        return f"{ways}, for which no pool here has room"

    return of


def _doubled(graph: Graph, servers: Iterable[Resource]) -> Graph:
    """The graph with a second one of each, which no autoscaler knows by its name."""
    seconds = [replace(one, urn=one.urn + _SECOND, inputs=_renamed(one)) for one in servers]
    return replace(graph, resources=tuple(sorted((*graph.resources, *seconds), key=lambda one: one.urn)))


def _renamed(one: Resource) -> dict[str, Any]:
    return {**one.inputs, "metadata": {**table(one.inputs.get("metadata")), "name": name_of(one) + _SECOND}}


def _grown(graph: Graph, pool: str, more: int) -> Graph:
    """The graph with more nodes in a node group."""
    groups = {group.urn: (group.sizes[1] or 0) + more for group in node_groups(graph) if group.urn == pool}
    size = {urn: {"minSize": number, "desiredSize": number, "maxSize": number} for urn, number in groups.items()}
    grown = (replace(r, inputs={**r.inputs, "scalingConfig": size[r.urn]}) if r.urn in size else r for r in graph.resources)
    return replace(graph, resources=tuple(grown))


def _takes(before: Iterable[PlacedNode], after: Iterable[PlacedNode], cost: Estimate) -> str:
    fresh = Counter((n.urn, n.instance, n.capacity_type, n.pool) for n in after)
    fresh -= Counter((n.urn, n.instance, n.capacity_type, n.pool) for n in before)
    if not fresh:
        return "the nodes that stand have room"
    found = []
    for (urn, instance, capacity, pool), number in fresh.items():
        price, limit = (
            cost.price_of(urn, instance.name),
            quota_of(instance.name, capacity.lower().replace("-", "_") or "on_demand"),
        )
        usd = f"{money(price.usd * number)}/h meanwhile" if price else "without a price"
        vcpus = f"{number * instance.vcpus} vCPU of {limit.title}" if limit else f"{number * instance.vcpus} vCPU"
        nodes = counted(number, "node")
        found.append(joined(f"{nodes} more of {pool} ({instance.name})", usd, vcpus, by=", "))
    return " and ".join(found)
