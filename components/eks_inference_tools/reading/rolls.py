"""Finds the nodes that an update exchanges: those of managed node groups by EKS, those that drift by Karpenter. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from eks_inference_tools.reading.after_update import follows
from eks_inference_tools.reading.node_groups import LAUNCH_TEMPLATE_TYPE, NODE_GROUP_TYPE, node_groups
from eks_inference_tools.reading.node_pools import NODE_CLASS_TYPE, NODE_POOL_TYPE, NodePool, node_pools
from eks_inference_tools.reading.objects import name_of
from eks_inference_tools.reading.scalars import whole
from stackgraph.diff.graphs import ResourceChange, StackDiff
from stackgraph.graph.document import Resource
from stackgraph.graph.values import at, items, text, texts, unique

_MOST_NAMES = 3
_ANY_BUDGET = "10%"
"""Of a NodePool without a budget (kubernetes-sigs/karpenter 2266468, pkg/apis/v1/nodepool.go)."""


@dataclass(frozen=True)
class Roll:
    """Nodes of a pool, called ``name``, which are replaced ``at_once`` at a time.

    ``successor_first``: a node ends after its successor stands. ``forced``: pods that nobody may disturb are no obstacle.
    ``blocked`` says why they stay as they are, all the same.
    """

    name: str
    because: tuple[str, ...]
    at_once: str
    successor_first: bool
    by_karpenter: bool = False
    forced: bool = True
    blocked: str = ""

    @property
    def words(self) -> str:
        more = len(self.because) - _MOST_NAMES
        names = ", ".join(self.because[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        if self.blocked:
            return f"{self.name} stay as they are, because {self.blocked} ({names})"
        who = "drift, and Karpenter replaces them" if self.by_karpenter else "are replaced"
        when = "after its successor stands" if self.successor_first else "before its successor starts"
        return f"{self.name} {who}, {self.at_once} at a time, each {when} ({names})"


def nodes_of(pool: Resource) -> str:
    """``nodes of gpu``: a NodePool is called as in the cluster."""
    return f"nodes of {name_of(pool)}"


def rolled(diff: StackDiff) -> Mapping[str, Roll]:
    """Returns how nodes are exchanged, by the URN of their pool. Pools that are replaced themselves are not among them."""
    if diff.head is None:
        return {}
    updated = [change for change in diff.changes if change.kind == "update"]
    why = {change.urn: _why(change) for change in updated if change.resource.type in _KINDS}
    found: dict[str, Roll] = {}
    for group in node_groups(diff.head):
        templates = group.resource.property_dependencies.get("launchTemplate", ())
        because = (*why.get(group.urn, ()), *("launch template" for urn in templates if why.get(urn)))
        if because and diff.by_urn[group.urn].kind not in ("create", "replace"):
            given = group.resource.inputs.get("updateConfig")
            share = text(at(given, "maxUnavailablePercentage"))
            at_once = f"{share} %" if share else text(at(given, "maxUnavailable")) or "1"
            found[group.urn] = Roll(
                nodes_of(group.resource), unique(because), at_once, text(at(given, "updateStrategy")) != "MINIMAL"
            )
    for pool in node_pools(diff.head):
        because = (*why.get(pool.urn, ()), *(why.get(pool.node_class.resource.urn, ()) if pool.node_class else ()))
        if because and diff.by_urn[pool.urn].kind not in ("create", "replace"):
            at_once, blocked = _budget(pool)
            forced = at(pool.resource.inputs, "spec", "template", "spec", "terminationGracePeriod") is not None
            found[pool.urn] = Roll(nodes_of(pool.resource), because, at_once, True, True, forced, blocked)
    return found


_KINDS = (NODE_GROUP_TYPE, LAUNCH_TEMPLATE_TYPE, NODE_POOL_TYPE, NODE_CLASS_TYPE)


def _why(change: ResourceChange) -> tuple[str, ...]:
    return unique(one.name for row, one in follows(change) if row.then == "roll")


def _budget(pool: NodePool) -> tuple[str, str]:
    """Returns how many nodes drift at a time, and what keeps all of them. Budgets with a schedule hold at their hours."""
    budgets = items(at(pool.resource.inputs, "spec", "disruption", "budgets"))
    drift = [one for one in budgets if not texts(at(one, "reasons")) or "Drifted" in texts(at(one, "reasons"))]
    always = [text(at(one, "nodes")) or _ANY_BUDGET for one in drift if at(one, "schedule") is None]
    if {"0", "0%"} & {*always}:
        return "0", "a disruption budget allows none to end"
    most = whole(at(pool.limits, "nodes"))
    if pool.replicas and most is not None and most <= pool.replicas:
        return "0", f"limits.nodes {most} leaves no room for a successor"
    return (always[0] if always or budgets else _ANY_BUDGET) if len(always) < 2 else "as budgets allow", ""
