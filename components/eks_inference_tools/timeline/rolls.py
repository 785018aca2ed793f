"""Finds the nodes that an update exchanges: those of managed node groups by EKS, those that drift by Karpenter. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eks_inference_tools.reading.clusters import CLUSTER_TYPE, REMOTE_CLUSTER_TYPE, parts
from eks_inference_tools.reading.node_groups import NODE_GROUP_TYPE, NodeGroup, node_groups
from eks_inference_tools.reading.node_pools import NodePool, node_pools
from eks_inference_tools.reading.object_kinds import nodes_of
from eks_inference_tools.reading.rollouts import follows
from eks_inference_tools.reading.scalars import is_true, whole
from stackgraph.diff.comparison_domain import Weight
from stackgraph.diff.graphs import StackDiff
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, text, texts, unique
from stackgraph.graph.wording import first_of

_MOST_NAMES = 3
_ANY_BUDGET = "10%"
"""The budget of a NodePool that has none of its own (kubernetes-sigs/karpenter 2266468, pkg/apis/v1/nodepool.go)."""

UNDISTURBED = "karpenter.sh/do-not-disrupt"
"""Annotation of pods whose nodes Karpenter leaves alone ("Disruption", pod-level controls)."""


@dataclass(frozen=True)
class Roll:
    """How the nodes of a pool are exchanged, in words. ``blocked``: they stay as they are.

    ``successor_first``: a node ends after its successor stands. ``forced``: also with pods that nobody may disturb. ``by_type``:
    only nodes of types that the pool has no longer. ``most``: nodes at once, or ``10%`` of them. ``weight``: as what it is told.
    ``kept``: what becomes of pods that a disruption budget keeps. Their nodes stay if ``patient``, and the update ``fails``.
    """

    name: str
    words: str
    successor_first: bool = True
    forced: bool = True
    blocked: bool = False
    by_type: bool = False
    weight: Weight = Weight.CHANGED
    most: str = "1"
    kept: str = ""
    patient: bool = False
    fails: bool = False

    def at_once(self, nodes: int) -> int:
        share = whole(self.most.rstrip("% ")) or 1
        return max(1, math.ceil(nodes * share / 100) if "%" in self.most else share)


def rolled(diff: StackDiff) -> Mapping[str, Roll]:
    """Returns how nodes are exchanged, by the URN of their pool. Not those of pools that are replaced themselves."""
    assert diff.head is not None
    why = {change.urn: [(one.name, row.only) for row, one in follows(change) if row.then == "roll"] for change in diff.changes}
    stays = {change.urn for change in diff.changes if change.kind not in ("create", "replace")}
    found: dict[str, Roll] = {}
    # The provider updates the version first, then the size (hashicorp/terraform-provider-aws, resourceNodeGroupUpdate).
    sizes = {group.urn: group.sizes[1] for group in node_groups(diff.base)} if diff.base else {}
    for group in node_groups(diff.head):
        templates = group.resource.property_dependencies.get("launchTemplate", ())
        because = [name for name, _ in why[group.urn]]
        because += [f"launch template: {name.partition('[')[0]}" for urn in templates for name, _ in why.get(urn, ())]
        old = diff.by_urn[group.urn].before
        if because and group.urn in stays and old and sizes.get(old.urn) != 0:
            found[group.urn] = _by_eks(group, because)
    upgraded = _with_their_cluster(diff, diff.head)
    for pool in node_pools(diff.head):
        because = [*why[pool.urn], *(why[pool.node_class.resource.urn] if pool.node_class else ())]
        because += [("AMI of the cluster's new version", "")] if pool.urn in upgraded else []
        if because and pool.urn in stays and pool.replicas != 0:
            found[pool.urn] = _by_karpenter(pool, [name for name, _ in because], narrower=all(only for _, only in because))
    return found


def shrunk(diff: StackDiff) -> Mapping[str, int]:
    """Returns how many nodes managed node groups lose, by URN. AWS chooses which; a disruption budget keeps pods for 15 minutes
    (EKS user guide, "Managed node groups concepts").
    """
    groups = [change for change in diff.changes if change.kind == "update" and change.resource.type == NODE_GROUP_TYPE]
    sizes = [(group.urn, size) for group in groups for size in group.properties if size.path == ("scalingConfig", "desiredSize")]
    found = ((urn, whole(size.before), whole(size.after)) for urn, size in sizes)
    return {urn: old - new for urn, old, new in found if old and new and new < old}


def _with_their_cluster(diff: StackDiff, head: Graph) -> frozenset[str]:
    """NodePools whose AMIs an alias names, also one with a date: the cluster's version decides which those are
    (aws/karpenter-provider-aws, pkg/providers/amifamily/al2023.go, DescribeImageQuery).
    """
    types = (CLUSTER_TYPE, REMOTE_CLUSTER_TYPE)
    stay = [change for change in diff.changes if change.kind == "update" and change.resource.type in types]
    newer = {change.urn for change in stay if any(property_change.path == ("version",) for property_change in change.properties)}
    pools = [pool for part in parts(head) if newer & part.graph.by_urn.keys() for pool in node_pools(part.graph)]
    return frozenset(p.urn for p in pools if p.node_class and any(at(term, "alias") for term in p.node_class.images))


def _by_eks(group: NodeGroup, because: Sequence[str]) -> Roll:
    name, given = nodes_of(group.resource), group.resource.inputs.get("updateConfig")
    at_once = text(at(given, "maxUnavailablePercentage") or at(given, "maxUnavailable") or 1)
    share = " %" if at(given, "maxUnavailablePercentage") else ""
    first = text(at(given, "updateStrategy")) != "MINIMAL"
    when = "after its successor stands" if first else "before its successor starts"
    if group.is_capacity_block:  # EKS user guide, capacity-blocks-mng: a desired size of 0 in an upgrade
        words = f"{name}: EKS updates a capacity block at size 0 only: set that before, and the size after it ({_named(because)})"
        return Roll(name, words, first, weight=Weight.REFUSED)
    words = f"{name} are replaced, {at_once}{share} at a time, each {when} ({_named(because)})"
    fails = not is_true(group.resource.inputs.get("forceUpdateVersion"))  # PodEvictionFailure, managed-node-update-behavior
    kept = "EKS gives up after 15 min, and `pulumi up` fails" if fails else "EKS waits 15 min on each node, then ends them"
    return Roll(name, words, first, most=f"{at_once}{share}", kept=kept, patient=fails, fails=fails)


def _by_karpenter(pool: NodePool, because: Sequence[str], *, narrower: bool) -> Roll:
    """Budgets with a schedule hold at their hours only. If the choice becomes narrower, only nodes outside it drift."""
    name, said = nodes_of(pool.resource), _named(because)
    all_of, said = (f"{name} that {said} leaves out", "") if narrower else (name, f" ({said})")
    by_type = narrower and all("/instance-" in one for one in because)
    budgets = items(at(pool.resource.inputs, "spec", "disruption", "budgets"))
    drift = [one for one in budgets if "Drifted" in (texts(at(one, "reasons")) or ("Drifted",)) and not at(one, "schedule")]
    shares = [text(at(one, "nodes")) for one in drift] or ([] if budgets else [_ANY_BUDGET])
    limit = whole(at(pool.limits, "nodes"))
    full = bool(pool.replicas and limit is not None and limit <= pool.replicas)
    if full or {"0", "0%"} & {*shares}:
        blocker = f"limits.nodes {limit} leaves no room for a successor" if full else "a disruption budget allows none to end"
        return Roll(name, f"{all_of} drift and stay as they are: {blocker}{said}", blocked=True)
    at_once = f"{shares[0]} at a time" if len(shares) == 1 else "as fast as budgets allow"
    what = f"{all_of} drift, and Karpenter replaces them, {at_once}, each after its successor stands{said}"
    forced = at(pool.resource.inputs, "spec", "template", "spec", "terminationGracePeriod") is not None
    kept = "Karpenter ends them after terminationGracePeriod" if forced else "their nodes stay as they are"
    most = shares[0] if len(shares) == 1 else "1"
    return Roll(name, what, forced=forced, by_type=by_type, most=most, kept=kept, patient=not forced)


def _named(because: Sequence[str]) -> str:
    return first_of(unique(because), _MOST_NAMES)
