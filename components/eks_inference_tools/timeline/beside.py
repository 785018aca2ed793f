"""Tries whether what goes has room beside what comes, which is what spares users an outage. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eks_inference.catalog.quotas import quota_of
from eks_inference_tools.cost.estimate import Estimate
from eks_inference_tools.cost.money import money
from eks_inference_tools.placing.placed import PlacedNode, Placing
from eks_inference_tools.reading.clusters import parts
from eks_inference_tools.reading.node_groups import node_groups
from eks_inference_tools.reading.node_pools import node_pools
from eks_inference_tools.reading.object_kinds import name_of
from stackgraph.diff.graphs import StackDiff
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at, joined, table
from stackgraph.graph.wording import counted

_MOST_NODES = 4
"""How many nodes more are tried."""
_OLD = "-beside"


@dataclass(frozen=True, eq=False)
class Beside:
    """A deployed stack on its way to ``head``, at its own sizes and with the nodes that Karpenter starts."""

    diff: StackDiff
    head: Graph
    cost: Estimate

    @cached_property
    def unused(self) -> frozenset[str]:
        """Pools in which Karpenter starts no node for this stack at any scale, by URN; none where all its pods are others'."""
        placed = [placing.at("most", ending=True) for _, placing in self._parts]
        used = {node.urn for placement in placed for node in placement.nodes if node.by_karpenter}
        following = {pool.urn for pool in node_pools(self.head) if pool.replicas is None}
        return frozenset(following - used if used and not any(placement.unplaced for placement in placed) else ())

    def crowded(self, urn: str, olds: tuple[str, ...]) -> frozenset[str]:
        """What creates the pods that find no node while those of ``olds`` stay; nothing if a Deployment finds none by itself."""
        graph, placing = self._around(urn)
        left, alone = Placing(self._with(graph, olds)).at().unplaced, placing.at().unplaced
        if len(left) <= len(alone) or any(pod.template.urn == urn for pod in alone):
            return frozenset()
        return frozenset(pod.template.urn.removesuffix(_OLD) for pod in left)

    def room(self, servers: tuple[str, ...], ways: str, *, elsewhere: bool = False) -> str:
        """What it takes to run these, as they were, beside their successors: nodes, dollars, quota. ``ways`` are how, in words.

        ``elsewhere``: on another node. Node groups get more nodes until there is room, but for those of a reservation.
        """
        inside, placing = self._around(servers[0])
        before, both = placing.at(), self._with(inside, servers)
        pools = sorted({node.urn for node in before.nodes if any(pod.template.urn in servers for pod in node.pods)})
        fixed = {group.urn for group in node_groups(inside) if group.is_reserved}
        grown = (_grown(both, pool, more) for more in range(1, _MOST_NODES + 1) for pool in pools if pool not in fixed)
        for graph in (both, *grown):
            after = Placing(graph).at()
            apart = not elsewhere or sum(node.urn in pools for node in after.nodes) > 1
            if apart and len(after.unplaced) <= len(before.unplaced):
                return f"{ways}: {_takes(before.nodes, after.nodes, self.cost)}"
        return f"{ways}, for which no pool here has room"

    @cached_property
    def _parts(self) -> Sequence[tuple[Graph, Placing]]:
        return [(part.graph, Placing(part.graph)) for part in parts(self.head)]

    def _around(self, urn: str) -> tuple[Graph, Placing]:
        return next(part for part in self._parts if urn in part[0].by_urn)

    def _with(self, graph: Graph, urns: Iterable[str]) -> Graph:
        """The graph with what is there before, under names that no autoscaler knows. During an update, one pod has to stay."""
        olds = [one for urn in urns if (one := self.diff.by_urn[urn].before)]
        one_pod = {urn for urn in urns if self.diff.by_urn[urn].kind == "update"}
        both = (*graph.resources, *(_old(old, one_pod=old.urn in one_pod) for old in olds))
        return replace(graph, resources=tuple(sorted(both, key=lambda resource: resource.urn)))


def _old(resource: Resource, *, one_pod: bool) -> Resource:
    inputs = {**resource.inputs, "metadata": {**table(resource.inputs.get("metadata")), "name": name_of(resource) + _OLD}}
    if one_pod and at(inputs, "spec", "replicas") is not None:
        inputs["spec"] = {**inputs["spec"], "replicas": 1}
    return replace(resource, urn=resource.urn + _OLD, inputs=inputs)


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
