"""Nodes that Karpenter would start, what EC2 has for Karpenter itself, and device plugins on a cluster that only is a list."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import recorded
from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.place.nodes import amount as quantity
from eks_inference.place.placement import HOSTNAME_LABEL, POOL_LABEL, ZONE_LABEL
from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL, footprints
from eks_inference_tools.placing.provisioning import PodToPlace, Room, Start, choose, counted, exact_shape
from eks_inference_tools.placing.started_nodes import NodeKind, karpenter_kinds, managed_nodes, manifest
from eks_inference_tools.reading.devices import OFFERED_BY
from eks_inference_tools.reading.object_kinds import NODE_CLASSES, NODES, PODS
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api
from eks_inference_tools.simulate.stand_ins.device_plugins import DevicePlugins
from eks_inference_tools.simulate.stand_ins.karpenter import Karpenter, machines
from eks_inference_tools.verify.node_checks import karpenter_object
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
    either: list[dict[str, Any]] = []
    for zone in zones:
        term = {"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": [zone]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
        volumes = (PodSpec({"affinity": affinity}),)
        (start,) = choose([PodToPlace("p", "p", PodSpec(spec(cpu=1)), volumes=volumes)], kinds_of(M5), (), ())
        assert start.node.zone.name == zone
        either.append(term)
    assert len(zones) == 2
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": either}}}
    assert len(PodSpec({"affinity": affinity}).places) == 2


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
        placed = [pod_to_place for start in starts for pod_to_place in start.pods]
        assert len({pod_to_place.uid for pod_to_place in placed}) == len(placed)
        for start in starts:
            (kind,) = (kind for kind in kinds if kind.instance.name == start.node.kind.instance.name)
            total = used.setdefault(start.node.kind.shape.pool, {})
            for name, amount in counted(kind).items():
                total[name] = total.get(name, Decimal()) + amount
            assert_holds(start, daemon)
            rooms.append(full(start))
        waiting = [pod_to_place for pod_to_place in waiting if pod_to_place not in placed]
        if not starts:
            break
    for name, given_limits in zip(("default", "inf2"), limits, strict=True):
        for resource_, limit in given_limits.items():
            assert used.get(name, {}).get(resource_, Decimal()) <= Decimal(limit)
    for pod_to_place in waiting:
        for kind in kinds:
            alone = choose([pod_to_place], [kind], (PodSpec(daemon),), (), used)
            assert alone == (), "a node for it alone would be within limits"


def full(start: Start) -> Room:
    return Room(exact_shape(start.node.labels, start.node.kind.taints), {})


def assert_holds(start: Start, daemon: Mapping[str, Any]) -> None:
    """The node has room for its pods and the DaemonSet's, counted anew."""
    room = Room(exact_shape(start.node.labels, start.node.kind.taints), {})
    amounts = {**start.node.kind.allocatable, **{name: str(number) for name, number in start.node.devices.items()}}
    for name, amount in amounts.items():
        room.free[name] = quantity(amount)
    for pod_to_place in (PodToPlace("daemon", "daemon", PodSpec(daemon)), *start.pods):
        assert room.takes(pod_to_place)
        room.put(pod_to_place)


# -- stand-ins -------------------------------------------------------------------------------------------------------------------


class Recorder:
    """In the place of an API server: keeps what it is told."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.patched: list[tuple[str, Any]] = []
        self.deleted: list[tuple[str, int]] = []

    def delete(self, resource: str, name: str, namespace: str, *, gracePeriodSeconds: int) -> None:
        assert resource == PODS
        self.deleted.append((f"{namespace}/{name}", gracePeriodSeconds))

    def create(self, item: dict[str, Any]) -> None:
        self.created.append(item)

    def patch(self, item: Mapping[str, Any], body: Any, **how: Any) -> None:
        assert how["subresource"] == "status"
        self.patched.append((item["metadata"]["name"], body))


GRAPH = graph(cluster(), NODE_CLASS, M5, INF2).graph


class Started:
    """A control plane that only notes what is started on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kubeconfig = folder, folder / "kubeconfig"
        self.processes = self.toolchain = self
        self.argv: dict[str, list[Any]] = {}

    def path(self, tool: str) -> Path:
        return Path("/built", tool)

    def start(self, name: str, argv: list[Any]) -> None:
        self.argv[name] = argv

    def stop(self, name: str) -> None:
        del self.argv[name]


def seen(of: Graph, *pods: dict[str, Any]) -> dict[str, list[Any]]:
    classes = [one.inputs for one in of.resources if one.inputs.get("kind") == "EC2NodeClass"]
    return {
        PODS: list(pods),
        NODES: [{"metadata": {"name": "here"}}],
        NODE_CLASSES: [{**one, "metadata": {**one["metadata"], "generation": 2}} for one in classes],
    }


def following(of: Graph, plane: Started) -> Karpenter:
    stand_in = Karpenter(cast(ControlPlane, plane))
    stand_in.follow(of)
    return stand_in


def test_karpenter_runs_with_what_ec2_has_and_its_classes_are_ready_as_verify_wants_it(tmp_path: Path) -> None:
    plane, api = Started(tmp_path), Recorder()
    stand_in = following(GRAPH, plane)
    for _ in range(2):
        stand_in.reconcile(seen(GRAPH), cast(Api, api))
    program, file, kubeconfig = plane.argv["karpenter-on-kwok"]
    assert (program, kubeconfig) == (Path("/built/karpenter-on-kwok"), plane.kubeconfig)
    assert json.loads(file.read_text())["machines"].keys() == {"default", "inf2"}
    name, ((operation,)) = api.patched[0]
    assert (
        karpenter_object(NODE_CLASSES, {"metadata": {"name": name, "generation": 2}, "status": operation["value"]}).verdict
        == "ok"
    )
    stand_in.close()
    assert not plane.argv


def release(**gates: bool) -> Resource:
    values = {"settings": {"featureGates": gates}}
    return resource("kubernetes:helm.sh/v3:Release", "karpenter", {"chart": "karpenter", "name": "karpenter", "values": values})


def test_karpenter_runs_once_the_pods_of_its_chart_do_and_with_their_feature_gates(tmp_path: Path) -> None:
    of = graph(cluster(), NODE_CLASS, M5, release(staticCapacity=True, spotToSpotConsolidation=False)).graph
    plane, api = Started(tmp_path), Recorder()
    stand_in = following(of, plane)
    stand_in.reconcile(seen(of), cast(Api, api))
    assert (plane.argv, api.patched) == ({}, [])
    runs = {"metadata": {"name": "karpenter-0", "labels": {STANDS_IN_FOR_LABEL: "karpenter"}}, "status": {"phase": "Running"}}
    stand_in.reconcile(seen(of, runs), cast(Api, api))
    assert plane.argv["karpenter-on-kwok"][3:] == ["--feature-gates=StaticCapacity=true,SpotToSpotConsolidation=false"]


def test_karpenter_starts_again_for_other_pools_and_only_then(tmp_path: Path) -> None:
    plane, api = Started(tmp_path), Recorder()
    stand_in = following(GRAPH, plane)
    stand_in.reconcile(seen(GRAPH), cast(Api, api))
    (first,) = plane.argv.values()
    stand_in.follow(GRAPH)
    stand_in.reconcile(seen(GRAPH), cast(Api, api))
    assert plane.argv["karpenter-on-kwok"] is first
    less = graph(cluster(), NODE_CLASS, M5).graph
    stand_in.follow(less)
    stand_in.reconcile(seen(less), cast(Api, api))
    (second,) = plane.argv.values()
    assert second is not first
    assert json.loads(second[1].read_text())["machines"].keys() == {"default"}


def test_pods_of_nodes_that_karpenter_ended_go_at_once_also_after_its_chart_has_gone(tmp_path: Path) -> None:
    of = graph(cluster(), NODE_CLASS, M5, release()).graph
    api, leaving = Recorder(), {"namespace": "default", "deletionTimestamp": "2026-11-28T00:00:00Z"}
    pods = [
        {"metadata": {**leaving, "name": "ends"}, "spec": {"nodeName": "gone"}},
        {"metadata": {**leaving, "name": "kubelet-ends-it"}, "spec": {"nodeName": "here"}},
        {"metadata": {**leaving, "name": "unscheduled"}, "spec": {}},
        {"metadata": {"namespace": "default", "name": "stays"}, "spec": {"nodeName": "gone"}},
    ]
    following(of, Started(tmp_path)).reconcile(seen(of, *pods), cast(Api, api))
    assert api.deleted == [("default/ends", 0)]


def test_what_ec2_has_for_a_pool_is_what_the_catalog_knows_of_its_types() -> None:
    of = machines(kinds_of(INF2))["inf2"]
    (one,) = (each for each in of if each["name"] == "inf2.24xlarge")
    assert {each["name"] for each in of} >= {"inf2.xlarge", "inf2.48xlarge"}
    assert one["capacity"][DEVICE_RESOURCE] == one["allocatable"][DEVICE_RESOURCE] == "6"
    assert DEVICE_RESOURCE not in one["registers"], "its plugin says so later"
    assert quantity(one["allocatable"]["memory"]) < quantity(one["capacity"]["memory"])
    assert one["labels"]["karpenter.k8s.aws/instance-family"] == ["inf2"]
    assert POOL_LABEL not in one["labels"], "it is the NodePool's"
    prices = {offer["labels"]["karpenter.sh/capacity-type"]: offer["price"] for offer in one["offerings"]}
    assert prices.get("spot", 0) < prices["on-demand"]
    assert len({offer["labels"][ZONE_LABEL] for offer in one["offerings"]}) > 1


def test_a_graph_without_pools_of_karpenter_needs_nothing_read(tmp_path: Path) -> None:
    stand_in = following(recorded("inf2-llama2"), Started(tmp_path))
    assert stand_in.reads == ()
    stand_in.reconcile({}, cast(Api, Recorder()))


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
