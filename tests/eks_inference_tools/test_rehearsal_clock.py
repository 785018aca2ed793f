"""The clock of a rehearsal, and its courses of nodes, on a cluster in memory."""

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import pytest

from conftest import recorded
from eks_inference.place.placement import KARPENTER_POOL_LABEL, NODE_GROUP_LABEL
from eks_inference_tools.reading.object_kinds import BUDGETS
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal
from eks_inference_tools.simulate.rehearsal.clock import HELD, OF, Clock, held
from eks_inference_tools.simulate.rehearsal.node_changes import drifted, ended, exchanged
from eks_inference_tools.simulate.world.api_objects import cluster_objects
from eks_inference_tools.timeline.pod_phases import phases
from eks_inference_tools.timeline.rolls import Roll
from eks_inference_tools.timeline.timeline import Timeline, timeline
from stackgraph.graph.values import at

STACK = "smoke-gpu"
GROUP = "smoke-gpu-gpu-nodes"


class Cluster:
    """Nodes and pods. Nodes are ready at once; an eviction ends a pod unless a budget has it."""

    def __init__(self) -> None:
        self.there: dict[str, dict[str, Any]] = {"nodes": {}, "pods": {}, BUDGETS: {}}
        self.calls: list[str] = []
        self.budget = set[str]()

    def list(self, resource: str) -> list[dict[str, Any]]:
        return copy.deepcopy([*self.there[resource].values()])

    def knows(self, resource: str) -> bool:
        return resource in self.there

    def create(self, item: dict[str, Any]) -> None:
        name = item["metadata"]["name"]
        self.calls.append(f"start {name}")
        self.there["nodes"][name] = {**item, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    def patch(self, item: dict[str, Any], body: dict[str, Any]) -> None:
        if item["kind"] == "Node":
            self.calls.append(f"cordon {item['metadata']['name']}")
        else:
            del self.there["pods"][item["metadata"]["name"]]["metadata"]["annotations"][HELD]

    def create_sub(self, pod: dict[str, Any], subresource: str, body: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        if name in self.budget:
            raise ApiRefusal(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
        self.calls.append(f"evict {name}")
        del self.there["pods"][name]

    def delete(self, resource: str, name: str, namespace: str = "", **options: int) -> None:
        self.calls.append(f"end {name}")
        del self.there[resource][name]

    def pod(self, name: str, urn: str, node: str, image: str, *, ready: bool) -> None:
        annotations = {OF: urn} | ({} if ready else {HELD: "true"})
        self.there["pods"][name] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "demo", "uid": name, "annotations": annotations},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": image}]},
            "status": {"phase": "Running" if ready else "Pending", "conditions": [{"type": "Ready", "status": str(ready)}]},
        }

    @property
    def api(self) -> Api:
        return cast(Api, self)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@cache
def times() -> Timeline:
    return timeline(recorded(STACK))


def rounds(clock: Clock, cluster: Cluster) -> Iterator[bool]:
    for _ in range(100):
        yield clock.observe({"pods": cluster.list("pods")})


@pytest.mark.parametrize("there", [False, True])
def test_a_pod_is_held_back_for_its_cold_start_on_its_node(cluster: Cluster, there: bool):
    """Where the image ran on the node before, nobody pulls it."""
    ((urn, name),) = times().servers.items()
    clock = Clock(cluster.api, times().servers, times().starts)
    cluster.pod("old", urn, "gpu-1", "server:1", ready=True)
    clock.observe({"pods": cluster.list("pods")})
    clock.start({"gpu-1", "gpu-2"})
    del cluster.there["pods"]["old"]
    cluster.pod("new", urn, "gpu-1" if there else "gpu-2", "server:1", ready=False)
    quiet = next(number for number, _ in enumerate(rounds(clock, cluster)) if HELD not in at_annotations(cluster, "new"))
    assert quiet > 8, "controllers have had their time"
    expected = sum(phase.time.p50 for phase in phases(times().starts[urn]) if phase.time and not (there and phase.name == "pull"))
    assert clock.now == pytest.approx(expected)
    assert [counts for _, counts in clock.samples] == [{name: 1}, {name: 0}]


def at_annotations(cluster: Cluster, pod: str) -> dict[str, str]:
    return at(cluster.there["pods"][pod], "metadata", "annotations")


def test_before_its_start_time_stands_and_nothing_is_held_back(cluster: Cluster):
    clock = Clock(cluster.api, times().servers, times().starts)
    cluster.pod("new", next(iter(times().servers)), "gpu-1", "server:1", ready=False)
    assert clock.observe({"pods": cluster.list("pods")})
    assert HELD not in at_annotations(cluster, "new")
    assert clock.now == 0


def test_pods_of_servers_are_held_back_and_no_others():
    graph = recorded(STACK)
    objects = cluster_objects(graph)
    changed = {one.urn for one, other in zip(objects, held(graph, objects, times().starts), strict=True) if one != other}
    assert changed == {*times().starts}
    assert objects == cluster_objects(graph), "the graph is left alone"


def node(cluster: Cluster, name: str) -> None:
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {NODE_GROUP_LABEL: GROUP}}})


@pytest.mark.parametrize("successor_first", [True, False])
def test_nodes_are_exchanged_one_after_another(cluster: Cluster, successor_first: bool):
    for name in ("gpu-1", "gpu-2"):
        node(cluster, name)
        cluster.pod(f"on-{name}", "urn", name, "server:1", ready=True)
    cluster.calls.clear()
    clock = Clock(cluster.api, {}, {})
    done = [*exchanged(Roll(GROUP, "", successor_first), GROUP, recorded(STACK), clock)(cluster.api)]
    each = [["cordon {0}", "evict on-{0}", "end {0}"], ["start {1}"]]
    order = [*each[1], *each[0]] if successor_first else [*each[0], *each[1]]
    pairs = [("gpu-1", "gpu-3"), ("gpu-2", "gpu-4")] if successor_first else [("gpu-1", "gpu-1"), ("gpu-2", "gpu-2")]
    ends = [words.format(*pair) for pair in pairs for words in order]
    assert [call for call in cluster.calls if "start" not in call] == [call for call in ends if "start" not in call]
    assert cluster.calls.index("end gpu-1") > cluster.calls.index("evict on-gpu-1")
    starts = [number for number, call in enumerate(cluster.calls) if call.startswith("start")]
    assert (starts[0] < cluster.calls.index("evict on-gpu-1")) == successor_first
    assert len(starts) == len(pairs)
    assert bool(clock.stands) == successor_first
    assert done


def claim(name: str, pool: str, drifts: bool) -> dict[str, Any]:
    said = [{"type": "Drifted", "status": "True"}] if drifts else []
    return {"metadata": {"name": name, "labels": {KARPENTER_POOL_LABEL: pool}}, "status": {"conditions": said}}


def test_what_karpenter_exchanges_is_waited_for(cluster: Cluster):
    claims = cluster.there["nodeclaims.karpenter.sh"] = {"old": claim("old", "inf2", False), "other": claim("other", "x", True)}
    stands = set[str]()
    running = drifted("inf2", stands)(cluster.api)
    assert next(running) == "drift of the nodes of inf2"
    claims["old"] = claim("old", "inf2", True)
    cluster.create({"metadata": {"name": "new", "labels": {KARPENTER_POOL_LABEL: "inf2"}}})
    assert next(running) == "nodes that drift or end: old"
    claims["old"]["metadata"]["deletionTimestamp"] = "2026-11-28T00:00:00Z"
    claims["old"]["status"] = {}
    assert next(running) == "nodes that drift or end: old"
    claims["new"] = claim("new", "inf2", False)
    del claims["old"]
    assert [*running] == []
    assert stands == {"new"}


def test_a_rehearsal_does_not_wait_for_ever_for_a_drift_that_does_not_come(cluster: Cluster):
    cluster.there["nodeclaims.karpenter.sh"] = {"old": claim("old", "inf2", False)}
    assert 0 < len([*drifted("inf2", set())(cluster.api)]) <= 60


def test_a_pool_waits_seconds_for_the_end_of_its_nodes_and_all_else_is_as_it_was():
    pools = [cluster_object for cluster_object in cluster_objects(recorded("inf2-llama3")) if cluster_object.kind == "NodePool"]
    for before, after in zip(pools, held(recorded("inf2-llama3"), pools, ()), strict=True):
        was, now = (copy.deepcopy(cluster_object.manifest["spec"]["template"]["spec"]) for cluster_object in (before, after))
        assert (was.pop("terminationGracePeriod"), now.pop("terminationGracePeriod")) == ("2h", "1s")
        assert was == now


def test_a_budget_keeps_a_node_and_is_quoted(cluster: Cluster):
    node(cluster, "gpu-1")
    cluster.pod("on-it", "urn", "gpu-1", "server:1", ready=True)
    cluster.budget.add("on-it")
    running = ended(lambda api: ["gpu-1"])(cluster.api)
    words = (
        "nodes that are not drained (gpu-1): Pod demo/on-it: Cannot evict pod as it would violate the pod's disruption budget."
    )
    assert [next(running) for _ in range(3)] == [words] * 3
    cluster.budget.clear()
    assert next(running) == "nodes that are not drained (gpu-1): Pod demo/on-it"
    assert [*running] == []
    assert "end gpu-1" in cluster.calls


def keep(cluster: Cluster, *, healthy: int) -> None:
    """A budget over all pods, of which there is one."""
    spec = {"selector": {"matchLabels": {}}}
    status = {"desiredHealthy": healthy, "expectedPods": 1}
    cluster.there[BUDGETS]["kept"] = {"metadata": {"name": "kept", "namespace": "demo"}, "spec": spec, "status": status}


@pytest.mark.parametrize("healthy", [0, 1])
def test_eks_ends_what_a_budget_keeps_once_it_has_waited(cluster: Cluster, healthy: int):
    """One that only waits for another pod is not ended."""
    node(cluster, "gpu-1")
    cluster.pod("on-it", "urn", "gpu-1", "server:1", ready=True)
    cluster.budget.add("on-it")
    keep(cluster, healthy=healthy)
    clock = Clock(cluster.api, {}, {})
    running = ended(lambda api: ["gpu-1"], clock)(cluster.api)
    assert "Cannot evict pod" in next(running)
    assert ("on-it" in cluster.there["pods"], clock.now) == ((False, 900) if healthy else (True, 0))
    if healthy:
        assert [*running] == []


@pytest.mark.parametrize(("most", "nodes", "at_once"), [("1", 5, 1), ("3", 5, 3), ("33 %", 6, 2), ("10%", 3, 1), ("100%", 4, 4)])
def test_as_many_nodes_go_at_once_as_the_pool_allows(most: str, nodes: int, at_once: int):
    assert Roll(GROUP, "", most=most).at_once(nodes) == at_once
