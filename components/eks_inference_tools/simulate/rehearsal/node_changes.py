"""What AWS does to nodes when a change asks for it: starts, drains, exchanges and ends them.

Which nodes of managed groups go and in which order is decided as ``diff`` decides it (timeline/rolls.py); what that does to pods
is not: evictions are the API server's own. Karpenter decides about its nodes itself.

Sources: EKS user guide, "Understand each phase of node updates", "Delete a managed node group".
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from eks_inference.place.placement import KARPENTER_POOL_LABEL, NODE_GROUP_LABEL
from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL
from eks_inference_tools.placing.started_nodes import NodeNames, SimulatedNode, managed_nodes, manifest
from eks_inference_tools.reading.live_objects import (
    Object,
    Seen,
    condition_of,
    is_leaving,
    is_ready,
    labels_of,
    name_of,
    node_of,
    title_of,
)
from eks_inference_tools.reading.object_kinds import BUDGETS, NODES, PODS
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal
from eks_inference_tools.simulate.rehearsal.clock import OF, Clock
from eks_inference_tools.simulate.rollout.operations import Operation
from eks_inference_tools.timeline.rolls import Roll
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at

_PATIENCE_SECONDS = 15 * 60.0
"""After which EKS ends what a budget keeps, with force, or on a node of a group that is deleted or gets smaller."""
_CLAIMS = "nodeclaims.karpenter.sh"
_UNTIL_DRIFT_ROUNDS = 40
"""Of 0.25 s: Karpenter sees a changed pool at once, and one that it is ready after its restart within seconds."""

Course = Callable[[Api], Iterator[str]]
"""Makes changes, and yields in each round what it waits for."""


@dataclass
class Nodes(Operation):
    """A change of nodes."""

    course: Course

    def begin(self, api: Api) -> None:
        self._running = self.course(api)

    def reads(self, api: Api) -> Iterable[str]:
        return (NODES, PODS)

    def waits_for(self, api: Api, seen: Seen) -> str:
        return next(self._running, "")


def started(nodes: Sequence[Object], clock: Clock | None = None, seconds: float = 0) -> Course:
    def course(api: Api) -> Iterator[str]:
        if clock:
            clock.now += seconds
        for node in nodes:
            api.create(node)
        while late := {name_of(node) for node in nodes} - {name_of(item) for item in api.list(NODES) if is_ready(item)}:
            yield f"nodes that are not ready: {', '.join(sorted(late))}"

    return course


def ended(names: Callable[[Api], Sequence[str]], clock: Clock | None = None) -> Course:
    """They are drained together. With a clock, pods that a budget keeps end once EKS has waited for them in vain."""

    def course(api: Api) -> Iterator[str]:
        gone = names(api)
        for name in gone:
            api.patch({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}, {"spec": {"unschedulable": True}})
        while words := evicted(api, gone):
            left = [pod for pod in api.list(PODS) if node_of(pod) in gone and _goes(pod)]
            if clock and left and all(_is_kept(pod, api) for pod in left):
                clock.now += _PATIENCE_SECONDS
                while any(OF in (at(pod, "metadata", "annotations") or {}) and _starts(pod) for pod in api.list(PODS)):
                    yield words  # what becomes ready while EKS waits
                for pod in left:
                    api.delete(PODS, name_of(pod), pod["metadata"]["namespace"])
            yield words
        for name in gone:
            api.delete(NODES, name)
        for pod in api.list(PODS):  # of DaemonSets: nobody else ends them before the garbage collector does after 40 s
            if node_of(pod) in gone:
                api.delete(PODS, name_of(pod), pod["metadata"]["namespace"], gracePeriodSeconds=0)

    return course


def exchanged(roll: Roll, group: str, graph: Graph, clock: Clock) -> Course:
    """A node after another, or as many at once as the group allows; ``graph`` is the one with its new settings.

    For a node that is ready before another ends for it, no pod waits.
    """

    def course(api: Api) -> Iterator[str]:
        old = of_pool(api, group)
        step = roll.at_once(len(old))
        for first in range(0, len(old), step):
            some = old[first : first + step]
            fresh = _successors(api, some, group, graph)
            if roll.successor_first:
                clock.stands.update(map(name_of, fresh))
                yield from started(fresh)(api)
            yield from ended(lambda api, some=some: [name_of(one) for one in some], None if roll.patient else clock)(api)
            if not roll.successor_first:
                yield from started(fresh)(api)

    return course


def drifted(pool: str, stands: set[str]) -> Course:
    """What Karpenter does by itself: waits until no node of the pool drifts or ends."""

    def course(api: Api) -> Iterator[str]:
        for _ in range(_UNTIL_DRIFT_ROUNDS):
            if _drifting(api, pool):
                break
            yield f"drift of the nodes of {pool}"
        while some := _drifting(api, pool):
            stands.update(name_of(one) for one in of_pool(api, pool) if is_ready(one))
            yield f"nodes that drift or end: {', '.join(some)}"

    return course


def claims(api: Api) -> Sequence[Object]:
    return api.list(_CLAIMS) if api.knows(_CLAIMS) else []


def _drifting(api: Api, pool: str) -> list[str]:
    of_it = [claim for claim in claims(api) if labels_of(claim).get(KARPENTER_POOL_LABEL) == pool]
    return sorted(name_of(one) for one in of_it if is_leaving(one) or drifts(one))


def drifts(claim: Object) -> bool:
    return at(condition_of(claim, "Drifted"), "status") == "True"


def of_pool(api: Api, pool: str) -> list[Object]:
    return [
        one for one in api.list(NODES) if pool in (labels_of(one).get(NODE_GROUP_LABEL), labels_of(one).get(KARPENTER_POOL_LABEL))
    ]


def busiest(api: Api, pool: str) -> list[str]:
    """The nodes of a pool, those with most pods first. Of a smaller group AWS may end any: those are the worst."""
    pods = Counter(node_of(item) for item in api.list(PODS) if _goes(item) and is_ready(item))
    return sorted(map(name_of, of_pool(api, pool)), key=lambda name: -pods[name])


def new_nodes(graph: Graph, group: str, taken: Iterable[str]) -> list[Object]:
    """The nodes of a managed group as a graph starts them, under names that nobody has."""
    names = NodeNames(taken)
    nodes = [managed_node for managed_node in managed_nodes(graph) if managed_node.labels.get(NODE_GROUP_LABEL) == group]
    return [manifest(_named(node, names)) for node in nodes]


def _named(node: SimulatedNode, names: NodeNames) -> SimulatedNode:
    return node.kind.node(names.new(node.kind.shape.pool), node.zone)


def _successors(api: Api, old: Sequence[Object], group: str, graph: Graph) -> list[Object]:
    """What takes the places of nodes."""
    names = NodeNames(name_of(item) for item in api.list(NODES))
    managed = [managed_node for managed_node in managed_nodes(graph) if managed_node.labels.get(NODE_GROUP_LABEL) == group]
    found = []
    for one in old:  # in the same zone, where volumes are
        like = next((each for each in managed if each.zone.labels().items() <= labels_of(one).items()), managed[0])
        found.append(manifest(_named(like, names)))
    return found


def evicted(api: Api, names: Collection[str]) -> str:
    """Evicts what is on nodes, in one round of several; returns what is left and why."""
    left = []
    for pod in api.list(PODS):
        if node_of(pod) in names and _goes(pod):
            where = {"name": name_of(pod), "namespace": pod["metadata"]["namespace"]}
            why = ""
            if not is_leaving(pod):
                try:
                    api.create_sub(pod, "eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": where})
                except ApiRefusal as refusal:
                    why = f": {refusal.message}" if refusal.status == 429 else ""
            left.append(f"{title_of(pod)}{why}")
    return f"nodes that are not drained ({', '.join(names)}): {', '.join(left)}" if left else ""


def _starts(pod: Object) -> bool:
    return bool(node_of(pod)) and not is_ready(pod) and not is_leaving(pod)


def _is_kept(pod: Object, api: Api) -> bool:
    """Whether a budget keeps a pod however many of its like are ready."""
    return any(
        budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and (at(budget, "spec", "selector", "matchLabels") or {}).items() <= labels_of(pod).items()
        and at(budget, "status", "desiredHealthy") >= at(budget, "status", "expectedPods")
        for budget in api.list(BUDGETS)
        if at(budget, "status", "expectedPods")
    )


def _goes(pod: Object) -> bool:
    """Not those of DaemonSets, and those that stand in for charts, which nothing would make again."""
    owners = {at(one, "kind") for one in at(pod, "metadata", "ownerReferences") or ()}
    return "DaemonSet" not in owners and STANDS_IN_FOR_LABEL not in labels_of(pod)
