"""Nodes that Karpenter would start, and its stand-in and that of the device plugins on a cluster that only is a list."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import recorded
from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.place.placement import HOSTNAME_LABEL, POOL_LABEL, ZONE_LABEL
from eks_inference.place.quantity import amount as quantity
from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL, footprints
from eks_inference_tools.placing.nodes import NodeKind, karpenter_kinds, managed_nodes, manifest
from eks_inference_tools.placing.provisioning import PodToPlace, Room, Start, choose, counted, exact_shape
from eks_inference_tools.reading.devices import OFFERED_BY
from eks_inference_tools.reading.kinds import DAEMON_SETS, NODE_CLASSES, NODE_POOLS, NODES, PODS, STORAGE_CLASSES, VOLUME_CLAIMS
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.simulate.control_plane.api import Api
from eks_inference_tools.simulate.stand_ins.devices import DevicePlugins
from eks_inference_tools.simulate.stand_ins.karpenter import Karpenter
from eks_inference_tools.verify.nodes import karpenter_object
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at
from vectors.graph import chart, cluster, graph, resource

NEURON_TAINT = {"key": DEVICE_RESOURCE, "value": "true", "effect": "NoSchedule"}
NEURON_TOLERATION = {"key": DEVICE_RESOURCE, "operator": "Exists"}


def pool(name: str, *families: str, taints: Sequence[Any] = (), requirements: Sequence[Any] = (), **spec: Any) -> Resource:
    template = {
        "metadata": {"labels": {POOL_LABEL: name}},
        "spec": {
            "nodeClassRef": {"name": "class"},
            "requirements": [
                {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": list(families)},
                *requirements,
            ],
            "taints": list(taints),
        },
    }
    body = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }
    return resource("kubernetes:karpenter.sh/v1:NodePool", name, body)


CLASS_SPEC = {"amiSelectorTerms": [{"alias": "al2023@v20260714"}], "subnetSelectorTerms": [{"id": "a"}, {"id": "b"}]}
NODE_CLASS = resource(
    "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass",
    "class",
    {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "class"}, "spec": CLASS_SPEC},
)


def kinds_of(*pools: Resource) -> tuple[NodeKind, ...]:
    return karpenter_kinds(graph(cluster(), NODE_CLASS, *pools).graph)


def spec(*, selector: Mapping[str, str] | None = None, tolerations: Sequence[Any] = (), **requests: str | int) -> dict[str, Any]:
    amounts = {name.replace("__", "/").replace("_", "."): str(amount) for name, amount in requests.items()}
    containers = [{"name": "server", "image": "registry.example/server", "resources": {"requests": amounts}}]
    return {"containers": containers, "nodeSelector": dict(selector or {}), "tolerations": list(tolerations)}


def pod(name: str = "server", **asked: Any) -> PodToPlace:
    return PodToPlace(name, name, PodSpec(spec(**asked)))


def types(starts: Iterable[Start]) -> list[str]:
    return [start.node.kind.instance.name for start in starts]


M5 = pool("default", "m5")
INF2 = pool("inf2", "inf2", taints=[NEURON_TAINT])
ON_INF2: dict[str, Any] = {"tolerations": [NEURON_TOLERATION]}


# -- what is started -------------------------------------------------------------------------------------------------------------


def test_a_pod_gets_the_smallest_type_that_takes_it() -> None:
    assert types(choose([pod(cpu=1)], kinds_of(M5), (), ())) == ["m5.large"]
    assert types(choose([pod(cpu=3)], kinds_of(M5), (), ())) == ["m5.xlarge"]
    assert types(choose([pod(cpu=1, memory="100Gi")], kinds_of(M5), (), ())) == ["m5.8xlarge"]


def test_what_daemon_sets_take_is_counted() -> None:
    daemon = {**spec(cpu="200m"), "tolerations": [{"operator": "Exists"}]}
    assert types(choose([pod(cpu="1900m")], kinds_of(M5), (), ())) == ["m5.large"]
    assert types(choose([pod(cpu="1900m")], kinds_of(M5), (PodSpec(daemon),), ())) == ["m5.xlarge"]
    elsewhere = {**daemon, "nodeSelector": {POOL_LABEL: "other"}}
    assert types(choose([pod(cpu="1900m")], kinds_of(M5), (PodSpec(elsewhere),), ())) == ["m5.large"]


def test_devices_count_before_a_plugin_offers_them() -> None:
    asked = {"aws_amazon_com__neuron": 12, **ON_INF2}
    (start,) = choose([pod(**asked)], kinds_of(M5, INF2), (), ())
    assert start.node.kind.instance.name == "inf2.48xlarge"
    assert start.node.devices == {DEVICE_RESOURCE: 12, CORE_RESOURCE: 24}
    assert DEVICE_RESOURCE not in start.node.kind.allocatable


def test_pods_share_a_node_as_long_as_there_is_a_type_that_holds_them() -> None:
    pods = [pod(f"server-{number}", aws_amazon_com__neuron=4, **ON_INF2) for number in range(4)]
    starts = choose(pods, kinds_of(INF2), (), ())
    assert types(starts) == ["inf2.48xlarge", "inf2.24xlarge"]
    assert sorted(len(start.pods) for start in starts) == [1, 3]


def test_pods_that_no_pool_takes_start_nothing() -> None:
    assert choose([pod(cpu=1000)], kinds_of(M5), (), ()) == ()
    assert choose([pod(aws_amazon_com__neuron=1)], kinds_of(INF2), (), ()) == (), "the taint is not tolerated"
    assert choose([pod(selector={"team": "x"})], kinds_of(M5), (), ()) == (), "no node has the label"
    assert choose([pod(nvidia_com__gpu=1)], kinds_of(M5, INF2), (), ()) == ()
    assert choose([pod(cpu=1)], (), (), ()) == ()


def test_the_pool_of_the_greatest_weight_comes_first() -> None:
    light, heavy = pool("a-light", "m5", weight=10), pool("heavy", "c5", weight=50)
    assert types(choose([pod(cpu=1)], kinds_of(light, heavy), (), ())) == ["c5.large"]
    assert types(choose([pod(cpu=1, selector={POOL_LABEL: "a-light"})], kinds_of(light, heavy), (), ())) == ["m5.large"]


def test_a_pod_has_its_choice_of_what_the_pool_leaves_open() -> None:
    either = pool("either", "m5", requirements=[capacity("spot", "on-demand")])

    def capacity_of(asked: PodToPlace) -> str:
        (start,) = choose([asked], kinds_of(either), (), ())
        return start.node.labels["karpenter.sh/capacity-type"]

    assert capacity_of(pod(cpu=1)) == "spot"
    assert capacity_of(pod(cpu=1, selector={"karpenter.sh/capacity-type": "on-demand"})) == "on-demand"


def capacity(*values: str) -> dict[str, Any]:
    return {"key": "karpenter.sh/capacity-type", "operator": "In", "values": list(values)}


def test_a_pod_starts_a_node_in_the_zone_of_its_volume() -> None:
    zones = [zone.name for zone in kinds_of(M5)[0].zones]
    for zone in zones:
        term = {"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": [zone]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
        volumes = (PodSpec({"affinity": affinity}),)
        (start,) = choose([PodToPlace("p", "p", PodSpec(spec(cpu=1)), volumes=volumes)], kinds_of(M5), (), ())
        assert start.node.zone.name == zone
    assert len(zones) == 2


def test_pods_that_keep_apart_get_a_node_each() -> None:
    apart = {"labelSelector": {"matchLabels": {"app": "server"}}, "topologyKey": HOSTNAME_LABEL}
    body = {
        **spec(cpu=1),
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
    }
    pods = [PodToPlace(name, name, PodSpec(body), {"app": "server"}) for name in ("a", "b")]
    assert len(choose(pods, kinds_of(M5), (), ())) == 2


def test_a_node_that_is_there_is_used_first() -> None:
    (start,) = choose([pod(cpu=1)], kinds_of(M5), (), ())
    free = {"cpu": Decimal(1), "memory": Decimal(2**30), "pods": Decimal(10)}
    room = Room(exact_shape(start.node.labels, start.node.kind.taints), free)
    assert choose([pod("a", cpu="500m"), pod("b", cpu="500m")], kinds_of(M5), (), [room]) == ()
    assert types(choose([pod("c", cpu="500m")], kinds_of(M5), (), [room])) == ["m5.large"], "it is full"


@pytest.mark.thorough
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 12), st.booleans()), max_size=4))
def test_pods_of_one_spec_go_where_pods_with_equal_ones_go(asked: list[tuple[int, int, bool]]) -> None:
    """Of one spec, nodes that had no room once are not tried again."""
    shared = [(spec_of(cpu, apart), number) for cpu, number, apart in asked]
    one = [pod_of(each, f"{kind}-{of}") for kind, (each, number) in enumerate(shared) for of in range(number)]
    equal = [replace(each, spec=PodSpec(each.spec.document)) for each in one]
    found, expected = (choose(pods, kinds_of(M5), (), ()) for pods in (one, equal))
    assert [(start.node.name, [each.uid for each in start.pods]) for start in found] == [
        (start.node.name, [each.uid for each in start.pods]) for start in expected
    ]


def spec_of(cpu: int, apart: bool) -> PodSpec:
    terms = [{"labelSelector": {"matchLabels": {"app": "server"}}, "topologyKey": HOSTNAME_LABEL}] if apart else []
    return PodSpec({**spec(cpu=cpu), "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})


def pod_of(given: PodSpec, name: str) -> PodToPlace:
    return PodToPlace(name, name, given, {"app": "server"})


def test_a_label_that_a_node_lacks_keeps_a_pod_off_it() -> None:
    room = Room(exact_shape({POOL_LABEL: "core"}, ()), {"cpu": Decimal(8), "pods": Decimal(10)})
    assert not room.takes(pod(cpu=1, selector={"karpenter.sh/nodepool": "default"}))
    assert room.takes(pod(cpu=1, selector={POOL_LABEL: "core"}))


def test_limits_hold() -> None:
    limited = pool("default", "m5", limits={"cpu": "8"})
    pods = [pod(f"p{number}", cpu=3, selector={"node.kubernetes.io/instance-type": "m5.xlarge"}) for number in range(3)]
    assert types(choose(pods, kinds_of(limited), (), ())) == ["m5.xlarge", "m5.xlarge"]
    assert choose(pods, kinds_of(limited), (), (), used={"default": {"cpu": Decimal(6)}}) == ()
    devices = pool("inf2", "inf2", taints=[NEURON_TAINT], limits={DEVICE_RESOURCE: "1"})
    assert types(choose([pod(aws_amazon_com__neuron=1, **ON_INF2)], kinds_of(devices), (), ())) == ["inf2.xlarge"]
    assert choose([pod(aws_amazon_com__neuron=2, **ON_INF2)], kinds_of(devices), (), ()) == ()


def test_interfaces_are_there_for_pods_that_ask_for_them() -> None:
    trn1 = pool("trn1", "trn1", taints=[NEURON_TAINT])
    asked = {"aws_amazon_com__neuron": 16, **ON_INF2}
    (without,) = choose([pod(**asked)], kinds_of(trn1), (), ())
    (with_efa,) = choose([pod(**asked, vpc_amazonaws_com__efa=8)], kinds_of(trn1), (), ())
    assert EFA_RESOURCE not in without.node.devices
    assert with_efa.node.devices[EFA_RESOURCE] == 8


def test_names_are_not_given_twice() -> None:
    pods = [pod(f"p{number}", cpu=90) for number in range(3)]
    starts = choose(pods, kinds_of(M5), (), (), names=["default-2"])
    assert [start.node.name for start in starts] == ["default-1", "default-3", "default-4"]


ASKED = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.integers(1, 100),
        "memory": st.integers(1, 400).map(lambda gib: f"{gib}Gi"),
        "aws_amazon_com__neuron": st.integers(1, 13),
        "tolerations": st.sampled_from([[], [NEURON_TOLERATION]]),
    },
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.integers(0, 500).map(str),
        DEVICE_RESOURCE: st.integers(0, 40).map(str),
        "nodes": st.integers(0, 5).map(str),
    },
)


APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": "server"}}}
        ]
    }
}


@given(st.lists(st.tuples(ASKED, st.integers(1, 4), st.booleans()), max_size=4), LIMITS)
def test_pods_of_one_template_get_the_nodes_that_they_get_one_by_one(
    drawn: list[tuple[dict[str, Any], int, bool]], limits: dict[str, str]
) -> None:
    kinds = kinds_of(pool("default", "m5", limits=limits), pool("inf2", "inf2", taints=[NEURON_TAINT]))
    together, alone = [], []
    for template, (asked, number, apart) in enumerate(drawn):
        shared, labels = PodSpec({**spec(**asked), **({"affinity": APART} if apart else {})}), {"app": "server"}
        for one in range(number):
            uid = f"{template}-{one}"
            together.append(PodToPlace(uid, uid, shared, labels))
            alone.append(PodToPlace(uid, uid, PodSpec(shared.document), dict(labels)))
    found = [choose(pods, kinds, (), []) for pods in (together, alone)]
    first, second = ([(start.node.name, types([start]), [pod.uid for pod in start.pods]) for start in one] for one in found)
    assert first == second


@given(st.lists(ASKED, max_size=8), st.lists(LIMITS, min_size=2, max_size=2))
def test_no_limit_is_exceeded_and_no_pod_is_left_that_fits(asked: list[dict[str, Any]], limits: list[dict[str, str]]) -> None:
    kinds = kinds_of(pool("default", "m5", limits=limits[0]), pool("inf2", "inf2", taints=[NEURON_TAINT], limits=limits[1]))
    pods = [pod(f"p{number}", **one) for number, one in enumerate(asked)]
    daemon = {**spec(cpu="500m"), "tolerations": [{"operator": "Exists"}]}
    used: dict[str, dict[str, Decimal]] = {}
    rooms: list[Room] = []
    waiting = pods
    for _ in range(len(pods) + 1):  # a pass counts a planned node as the largest it may become
        starts = choose(waiting, kinds, (PodSpec(daemon),), rooms, used, names=[f"x-{number}" for number in range(len(rooms))])
        placed = [one for start in starts for one in start.pods]
        assert len({one.uid for one in placed}) == len(placed)
        for start in starts:
            (kind,) = (one for one in kinds if one.instance.name == start.node.kind.instance.name)
            total = used.setdefault(start.node.kind.shape.pool, {})
            for name, amount in counted(kind).items():
                total[name] = total.get(name, Decimal()) + amount
            assert_holds(start, daemon)
            rooms.append(full(start))
        waiting = [one for one in waiting if one not in placed]
        if not starts:
            break
    for name, given_limits in zip(("default", "inf2"), limits, strict=True):
        for resource_, limit in given_limits.items():
            assert used.get(name, {}).get(resource_, Decimal()) <= Decimal(limit)
    for one in waiting:
        for kind in kinds:
            alone = choose([one], [kind], (PodSpec(daemon),), (), used)
            assert alone == (), "a node for it alone would be within limits"


def full(start: Start) -> Room:
    return Room(exact_shape(start.node.labels, start.node.kind.taints), {})


def assert_holds(start: Start, daemon: Mapping[str, Any]) -> None:
    """The node has room for its pods and the DaemonSet's, counted anew."""
    room = Room(exact_shape(start.node.labels, start.node.kind.taints), {})
    amounts = {**start.node.kind.allocatable, **{name: str(number) for name, number in start.node.devices.items()}}
    for name, amount in amounts.items():
        room.free[name] = quantity(amount)
    for one in (PodToPlace("daemon", "daemon", PodSpec(daemon)), *start.pods):
        assert room.takes(one)
        room.put(one)


# -- stand-ins -------------------------------------------------------------------------------------------------------------------


class Recorder:
    """In the place of an API server: keeps what it is told."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.patched: list[tuple[str, Any]] = []

    def create(self, item: dict[str, Any]) -> None:
        self.created.append(item)

    def patch(self, item: Mapping[str, Any], body: Any, **how: Any) -> None:
        assert how["subresource"] == "status"
        self.patched.append((item["metadata"]["name"], body))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pending(name: str = "server", namespace: str = "there", **asked: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": spec(**asked),
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}],
        },
    }


def objects(of: Graph, kind: str) -> list[dict[str, Any]]:
    return [
        {**one.inputs, "metadata": {**one.inputs["metadata"], "generation": 2}}
        for one in of.resources
        if one.inputs.get("kind") == kind
    ]


def seen(of: Graph, pods: Sequence[Any] = (), nodes: Sequence[Any] = (), **others: Sequence[Any]) -> dict[str, list[Any]]:
    return {
        PODS: list(pods),
        NODES: list(nodes),
        NODE_POOLS: objects(of, "NodePool"),
        NODE_CLASSES: objects(of, "EC2NodeClass"),
        DAEMON_SETS: [],
        VOLUME_CLAIMS: [],
        STORAGE_CLASSES: [],
        "persistentvolumes": [],
        **{name: list(items) for name, items in others.items()},
    }


GRAPH = graph(cluster(), NODE_CLASS, M5, INF2).graph


def karpenter(of: Graph = GRAPH) -> tuple[Karpenter, Clock]:
    clock = Clock()
    return Karpenter(of, clock), clock


def rounds(stand_in: Karpenter, clock: Clock, now: Mapping[str, Any], *, times: int = 5) -> Recorder:
    """Rounds of a quarter of a second, in which nothing else happens; the last is when a second has passed."""
    api = Recorder()
    for _ in range(times):
        stand_in.reconcile(cast(Any, now), cast(Api, api))
        clock.now += 0.25
    return api


def test_the_stand_in_starts_a_node_that_then_takes_the_pod() -> None:
    stand_in, clock = karpenter()
    first = rounds(stand_in, clock, seen(GRAPH, [pending(cpu=1)]))
    assert [node["metadata"]["name"] for node in first.created] == ["default-1"]
    # The scheduler has not looked again yet: the node is there, and nothing more is started.
    assert rounds(stand_in, clock, seen(GRAPH, [pending(cpu=1)], first.created)).created == []


def test_a_node_that_is_not_ready_and_offers_no_device_yet_is_waited_for() -> None:
    stand_in, clock = karpenter()
    waits = pending(aws_amazon_com__neuron=1, **ON_INF2)
    (node,) = rounds(stand_in, clock, seen(GRAPH, [waits])).created
    node["spec"]["taints"].append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    assert rounds(stand_in, clock, seen(GRAPH, [waits], [node])).created == []
    other = pending("other", aws_amazon_com__neuron=1, **ON_INF2)
    assert len(rounds(stand_in, clock, seen(GRAPH, [waits, other], [node])).created) == 1


def test_pods_that_wait_are_gathered() -> None:
    stand_in, clock = karpenter()
    api = Recorder()
    for number in range(8):  # one more pod each quarter of a second
        stand_in.reconcile(seen(GRAPH, [pending(f"p{one}", cpu=1) for one in range(number + 1)]), cast(Api, api))
        clock.now += 0.25
    assert api.created == []
    clock.now += 1
    stand_in.reconcile(seen(GRAPH, [pending(f"p{one}", cpu=1) for one in range(8)]), cast(Api, api))
    assert [node["metadata"]["labels"]["node.kubernetes.io/instance-type"] for node in api.created] == ["m5.4xlarge"]


def test_pods_that_keep_coming_are_gathered_ten_seconds_at_most() -> None:
    stand_in, clock = karpenter()
    api = Recorder()
    for number in range(42):
        stand_in.reconcile(seen(GRAPH, [pending(f"p{one}", cpu="10m") for one in range(number + 1)]), cast(Api, api))
        clock.now += 0.25
    assert api.created


def changed(item: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    first, *_, last = keys = path.split(".")
    inside = item[first] if len(keys) > 1 else item
    return {**item, first: {**inside, last: value}} if len(keys) > 1 else {**item, last: value}


@pytest.mark.parametrize(
    "other",
    [
        changed(pending(cpu=1), "metadata.deletionTimestamp", "2026-11-21T00:00:00Z"),
        changed(pending(cpu=1), "metadata.ownerReferences", [{"kind": "DaemonSet", "controller": True}]),
        changed(pending(cpu=1), "spec.nodeName", "core-1"),
        changed(pending(cpu=1), "status.conditions", [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
        changed(pending(cpu=1), "status.conditions", []),
        changed(pending(cpu=1), "spec.volumes", [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]),
    ],
    ids=["leaving", "of a DaemonSet", "placed", "gated", "not judged yet", "without its claim"],
)
def test_no_node_is_started_for_other_pods(other: dict[str, Any]) -> None:
    stand_in, clock = karpenter()
    assert rounds(stand_in, clock, seen(GRAPH, [other])).created == []


def claiming() -> dict[str, Any]:
    return changed(pending(cpu=1), "spec.volumes", [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])


def claim(**of: Any) -> dict[str, Any]:
    return {"metadata": {"name": "data", "namespace": "there"}, "spec": {"storageClassName": "gp3", **of}}


LATE = {"metadata": {"name": "gp3"}, "volumeBindingMode": "WaitForFirstConsumer"}


def test_a_claim_that_waits_for_its_pod_is_waited_for_by_nobody() -> None:
    stand_in, clock = karpenter()
    late = {VOLUME_CLAIMS: [claim()], STORAGE_CLASSES: [LATE]}
    assert rounds(stand_in, clock, seen(GRAPH, [claiming()], **late)).created
    at_once = {VOLUME_CLAIMS: [claim()], STORAGE_CLASSES: [{**LATE, "volumeBindingMode": "Immediate"}]}
    assert not rounds(stand_in, clock, seen(GRAPH, [claiming()], **at_once)).created


def test_a_node_is_started_where_the_volume_is() -> None:
    stand_in, clock = karpenter()
    zone = kinds_of(M5)[0].zones[1].name
    terms = [{"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": [zone]}]}]
    volume = {"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}
    now = seen(GRAPH, [claiming()], **{VOLUME_CLAIMS: [claim(volumeName="pv")], "persistentvolumes": [volume]})
    (node,) = rounds(stand_in, clock, now).created
    assert node["metadata"]["labels"][ZONE_LABEL] == zone
    unseen = seen(GRAPH, [claiming()], **{VOLUME_CLAIMS: [claim(volumeName="pv")]})
    assert not rounds(stand_in, clock, unseen).created


def test_pools_that_are_not_there_yet_start_nothing() -> None:
    stand_in, clock = karpenter()
    now = seen(GRAPH, [pending(cpu=1)])
    assert not rounds(stand_in, clock, {**now, NODE_POOLS: []}).created


def test_nodes_that_are_there_count_against_limits() -> None:
    limited = graph(cluster(), NODE_CLASS, pool("default", "m5", limits={"cpu": "2"})).graph
    stand_in, clock = karpenter(limited)
    (node,) = rounds(stand_in, clock, seen(limited, [pending(cpu=1)])).created
    other = pending("other", cpu=1)
    bound = changed(pending(cpu=1), "spec.nodeName", node["metadata"]["name"])
    assert rounds(stand_in, clock, seen(limited, [bound, other], [node])).created == []


def test_room_on_other_nodes_is_used_as_they_are() -> None:
    stand_in, clock = karpenter()
    core = {
        "metadata": {"name": "core-1", "labels": {}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }
    assert not rounds(stand_in, clock, seen(GRAPH, [pending(cpu=2)], [core])).created
    assert rounds(stand_in, clock, seen(GRAPH, [pending(cpu=2)], [{**core, "spec": {"unschedulable": True}}])).created


def test_pools_and_classes_become_ready_as_verify_wants_it() -> None:
    stand_in, clock = karpenter()
    api = rounds(stand_in, clock, seen(GRAPH), times=1)
    assert sorted(name for name, _ in api.patched) == ["class", "default", "inf2"]
    for name, patch in api.patched:
        (operation,) = patch
        item = {"metadata": {"name": name, "generation": 2}, "status": operation["value"]}
        assert karpenter_object(NODE_CLASSES if name == "class" else NODE_POOLS, item).verdict == "ok"
    told = {
        resource_: [
            {**item, "status": next(patch[0]["value"] for name, patch in api.patched if name == item["metadata"]["name"])}
            for item in objects(GRAPH, kind)
        ]
        for resource_, kind in ((NODE_POOLS, "NodePool"), (NODE_CLASSES, "EC2NodeClass"))
    }
    assert rounds(stand_in, clock, {**seen(GRAPH), **told}, times=1).patched == [], "said once"


def test_nothing_happens_before_karpenter_itself_runs() -> None:
    release = resource(
        "kubernetes:helm.sh/v3:Release", "karpenter", {"chart": "oci://public.ecr.aws/karpenter/karpenter", "name": "karpenter"}
    )
    of = graph(cluster(), NODE_CLASS, M5, release).graph
    stand_in, clock = karpenter(of)
    assert not rounds(stand_in, clock, seen(of, [pending(cpu=1)])).created
    own = {
        "metadata": {"name": "karpenter-0", "namespace": "kube-system", "labels": {STANDS_IN_FOR_LABEL: "karpenter"}},
        "status": {"phase": "Running"},
    }
    assert rounds(stand_in, clock, seen(of, [pending(cpu=1), own])).created


def fixed_pool(replicas: int = 2, gate: bool | None = True, **limits: str) -> Graph:
    two = pool("default", "m5", replicas=replicas, limits=limits)
    values = {"settings": {"featureGates": {"staticCapacity": gate}}}
    release = resource(
        "kubernetes:helm.sh/v3:Release", "karpenter", {"chart": "karpenter", "name": "karpenter", "values": values}
    )
    return graph(cluster(), NODE_CLASS, two, *(() if gate is None else (release,))).graph


RUNS = {
    "metadata": {"name": "karpenter-0", "namespace": "kube-system", "labels": {STANDS_IN_FOR_LABEL: "karpenter"}},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("of", "nodes"),
    [
        (fixed_pool(), 2),
        (fixed_pool(gate=None), 2),
        (fixed_pool(gate=False), 0),
        (fixed_pool(3, nodes="1"), 1),
        (fixed_pool(0), 0),
    ],
    ids=["gate on", "karpenter outside", "gate off", "limit", "none"],
)
def test_a_fixed_pool_gets_its_nodes_without_pods(of: Graph, nodes: int) -> None:
    stand_in, clock = karpenter(of)
    made = rounds(stand_in, clock, seen(of, [RUNS]), times=1).created
    assert [node["metadata"]["name"] for node in made] == [f"default-{number}" for number in range(1, nodes + 1)]
    assert rounds(stand_in, clock, seen(of, [RUNS], made)).created == []


def test_pods_get_no_node_of_a_fixed_pool_beyond_its_number() -> None:
    stand_in, clock = karpenter(of := fixed_pool())
    made = rounds(stand_in, clock, seen(of, [RUNS]), times=1).created
    assert (
        rounds(stand_in, clock, seen(of, [RUNS, pending(cpu=1), *(pending(f"p{one}", cpu=2) for one in range(4))], made)).created
        == []
    )


def test_a_graph_without_pools_of_karpenter_needs_nothing_read() -> None:
    assert Karpenter(recorded("inf2-llama2")).reads == ()
    Karpenter(recorded("inf2-llama2")).reconcile({}, cast(Api, Recorder()))


def test_the_pods_of_the_shipped_stack_get_their_nodes() -> None:
    of = recorded("inf2-llama3")
    daemons = [item for items in footprints(of).values() for item in items if item["kind"] == "DaemonSet"]
    asked = {"aws_amazon_com__neuron": 1, "cpu": 30, "memory": "100Gi", "selector": {POOL_LABEL: "inferentia-inf2"}, **ON_INF2}
    (start,) = choose([pod(**asked)], karpenter_kinds(of), [PodSpec(at(one, "spec", "template", "spec")) for one in daemons], ())
    assert start.node.kind.instance.name == "inf2.8xlarge"


# -- device plugins --------------------------------------------------------------------------------------------------------------


def ready(node: dict[str, Any], status: str = "True") -> dict[str, Any]:
    return {**node, "status": {**node["status"], "conditions": [{"type": "Ready", "status": status}]}}


def running(image: str, on: str, phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {"name": f"plugin-{on}", "namespace": "kube-system"},
        "spec": {"nodeName": on, "containers": [{"image": image}]},
        "status": {"phase": phase},
    }


def offered(of: Graph, *pods: dict[str, Any], nodes: Sequence[Any] | None = None) -> dict[str, dict[str, str]]:
    api = Recorder()
    nodes = [ready(manifest(node)) for node in managed_nodes(of)] if nodes is None else nodes
    DevicePlugins(of).reconcile({NODES: list(nodes), PODS: list(pods)}, cast(Api, api))
    assert all(body["status"]["capacity"] == body["status"]["allocatable"] for _, body in api.patched)
    return {name: body["status"]["allocatable"] for name, body in api.patched}


NEURON_PLUGIN = "public.ecr.aws/neuron/neuron-device-plugin:2.31.0.0"
EFA_PLUGIN = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.20"


def test_devices_are_offered_by_the_plugin_that_runs_on_the_node() -> None:
    of = recorded("trn2-di-pair")
    assert offered(of) == {}
    assert offered(of, running(NEURON_PLUGIN, "trn2-1")) == {"trn2-1": {DEVICE_RESOURCE: "16", CORE_RESOURCE: "64"}}
    assert offered(of, running(EFA_PLUGIN, "trn2-2")) == {"trn2-2": {EFA_RESOURCE: "16"}}
    assert offered(of, running(NEURON_PLUGIN, "core-1")) == {}, "it has no devices"
    assert offered(of, running(NEURON_PLUGIN, "trn2-1", "Pending")) == {}


def test_a_node_that_is_not_ready_offers_nothing() -> None:
    of = recorded("trn2-di-pair")
    nodes = [ready(manifest(node), "False") for node in managed_nodes(of)]
    assert offered(of, running(NEURON_PLUGIN, "trn2-1"), nodes=nodes) == {}


def test_what_is_offered_is_not_said_again() -> None:
    of = recorded("trn2-di-pair")
    nodes = [ready(manifest(node)) for node in managed_nodes(of)]
    for node in nodes:
        node["status"] = {**node["status"], "allocatable": {**node["status"]["allocatable"], DEVICE_RESOURCE: "16"}}
    assert offered(of, running(NEURON_PLUGIN, "trn2-1"), nodes=nodes) == {"trn2-1": {CORE_RESOURCE: "64"}}


def test_gpus_are_offered_by_their_plugin_or_by_the_chart_that_brings_one() -> None:
    of = recorded("gpu-opt350m")
    assert offered(of, running("nvcr.io/nvidia/k8s-device-plugin:v0.20.0", "gpu-1")) == {"gpu-1": {GPU_RESOURCE: "1"}}
    nodes = [ready(manifest(node)) for node in managed_nodes(of)]
    by_chart = graph(chart("oci://registry.example/gpu-operator")).graph
    assert offered(by_chart, nodes=nodes).keys() == {"gpu-1", "gpu-2", "gpu-3", "gpu-4"}


def test_the_chart_of_efa_offers_nothing_on_nodes_whose_taint_it_does_not_tolerate() -> None:
    nodes = [ready(manifest(node)) for node in managed_nodes(recorded("trn2-di-pair"))]

    def by_chart(**values: Any) -> dict[str, dict[str, str]]:
        return offered(graph(chart("oci://registry.example/aws-efa-k8s-device-plugin", **values)).graph, nodes=nodes)

    assert by_chart() == {}
    assert by_chart(tolerations=[{"operator": "Exists"}]).keys() == {"trn2-1", "trn2-2"}


def test_every_device_of_a_node_has_a_plugin() -> None:
    of = recorded("trn2-di-pair")
    assert all(name in OFFERED_BY for node in managed_nodes(of) for name in node.devices)
