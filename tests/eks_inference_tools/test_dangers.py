"""What a comparison warns of about clusters, nodes, models and servers."""

import copy
import re
from dataclasses import replace
from typing import Any

import pytest

from conftest import recorded
from edits import CHAT, OPEN_WEBUI, TWO, endpoint, pool
from eks_inference.catalog.prices import Price
from eks_inference_tools.comparison import eks_compared
from eks_inference_tools.cost.estimate import Estimate, Priced
from eks_inference_tools.cost.money import leaves_budget
from eks_inference_tools.cost.price_book import Charge
from eks_inference_tools.reading.cluster_words import NodeCapacity
from eks_inference_tools.reading.clusters import PLATFORM
from eks_inference_tools.reading.dangers import _of_nodes
from eks_inference_tools.reading.object_kinds import name_of
from eks_inference_tools.reading.rollouts import _kept, at_once
from eks_inference_tools.timeline.outages import _ends, _way
from eks_inference_tools.timeline.pod_phases import PodStart
from eks_inference_tools.timeline.rolls import UNDISTURBED, Roll, rolled
from stackgraph.diff.comparison_domain import Danger, Weight
from stackgraph.diff.dangers import dangers
from stackgraph.diff.graphs import PropertyChange, ResourceChange, compare
from stackgraph.graph.document import Graph, Resource
from variants import merge, recorded_with

BUCKET = "aws:s3/bucket:Bucket"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"


def resource(name: str, type_: str, *, parent: str = "", **given: Any) -> Resource:
    chain = f"{parent.split('::')[2]}$" if parent else ""
    urn = f"urn:pulumi:s::p::{chain}{type_}::{name}"
    inputs = given.pop("inputs", {})
    return Resource(urn=urn, type=type_, name=name, parent=parent, inputs=inputs, **given)


def graph(*resources: Resource) -> Graph:
    return Graph("p", "s", tuple(sorted(resources, key=lambda one: one.urn)))


def kinds_of_danger(before: Resource | None, after: Resource | None, *others: Resource) -> list[str]:
    diff = compare(graph(*filter(None, (before, *others))), graph(*filter(None, (after, *others))))
    return [danger.kind for danger in dangers(diff, eks_compared())]


def test_clusters_and_nodes_are_told_by_name():
    cluster = resource("c", "eks:index:Cluster", inputs={"name": "c", "endpointPublicAccess": False}, custom=False, remote=True)
    assert kinds_of_danger(cluster, replace(cluster, inputs={**cluster.inputs, "name": "d"})) == ["cluster-replaced"]
    nodes = resource("n", NODE_GROUP, inputs={"instanceTypes": ["a"], "scalingConfig": {"desiredSize": 3}})
    assert kinds_of_danger(nodes, replace(nodes, inputs={**nodes.inputs, "instanceTypes": ["b"]})) == [
        "nodes-replaced",
        "instance-type-changed",
    ]
    fewer = replace(nodes, inputs={**nodes.inputs, "scalingConfig": {"desiredSize": 2}})
    assert kinds_of_danger(nodes, fewer) == ["capacity-down"]
    assert kinds_of_danger(nodes, None) == ["nodes-deleted"]


def test_a_control_plane_goes_one_version_up_at_a_time():
    cluster = resource("c", "eks:index:Cluster", inputs={"version": "1.34", "endpointPublicAccess": False}, remote=True)
    for version, expected in (("1.35", ["no-way-back"]), ("1.36", ["refused"]), ("1.33", ["refused"])):
        assert kinds_of_danger(cluster, replace(cluster, inputs={**cluster.inputs, "version": version})) == expected


@pytest.mark.thorough
def test_nodes_of_a_template_that_changes_are_exchanged():
    diff = compare(recorded("gpu-opt350m"), recorded_with({"pools": {"core": {"root_volume_gib": 120}}}, "gpu-opt350m"))
    (danger,) = dangers(diff, eks_compared())
    assert danger.kind == "nodes-rolled"
    assert "gpu-opt350m-core-nodes" in danger.what
    assert "launch template" in danger.what


def test_fewer_pods_are_a_danger_and_another_image_that_stops_nothing_is_none():
    def server(image: str, replicas: int) -> Resource:
        container = {"name": "a", "image": image, "resources": {"limits": {"nvidia.com/gpu": 1}}}
        template = {"spec": {"containers": [container]}}
        return resource("one", DEPLOYMENT, inputs={"spec": {"replicas": replicas, "template": template}})

    assert kinds_of_danger(server("a:1", 2), server("a:2", 2)) == []
    assert kinds_of_danger(server("a:1", 2), server("a:1", 0)) == ["capacity-down"]
    assert kinds_of_danger(server("a:1", 2), server("a:1", 3)) == []


def test_a_cluster_or_service_opened_to_everybody_is_a_danger():
    closed = resource("c", "eks:index:Cluster", inputs={"endpointPublicAccess": False}, remote=True)
    opened_ = replace(closed, inputs={"endpointPublicAccess": True, "publicAccessCidrs": ["0.0.0.0/0"]})
    assert kinds_of_danger(closed, opened_) == ["opened"]
    assert kinds_of_danger(closed, replace(closed, inputs={})) == ["opened"], "EKS opens what nothing is said of"
    narrow = replace(closed, inputs={"endpointPublicAccess": True, "publicAccessCidrs": ["203.0.113.0/24"]})
    assert kinds_of_danger(closed, narrow) == []
    service = resource("s", "kubernetes:core/v1:Service", inputs={"spec": {"type": "ClusterIP"}})
    assert kinds_of_danger(service, replace(service, inputs={"spec": {"type": "LoadBalancer"}})) == ["opened"]


def test_another_task_is_told_since_clients_have_to_ask_elsewhere():
    alone = {"clients": {"smoke_test": None}, "load_test": None}
    graphs = [
        recorded_with({**alone, "servers": {"qwen3": edit}}, "smoke-gpu") for edit in ({}, {"task": "embed"}, {"disk_gib": 40})
    ]
    told = [
        [danger.what for danger in dangers(compare(graphs[0], head), eks_compared()) if danger.kind == "task-changed"]
        for head in graphs[1:]
    ]
    assert told == [["qwen3 has another task (the model's own → embed): clients ask it at other paths"], []]


def test_a_kubernetes_upgrade_replaces_nothing_and_rolls_nodes():
    diff = compare(recorded("gpu-opt350m"), recorded_with({"cluster": {"version": "1.36"}}, "gpu-opt350m"))
    assert diff.counts["replace"] == diff.counts["delete"] == diff.counts["create"] == 0
    assert {danger.kind for danger in dangers(diff, eks_compared())} == {"nodes-rolled", "server-stopped", "no-way-back"}


def test_a_cluster_is_named_before_the_data_that_goes_with_it_and_only_once():
    cluster = resource("c", "eks:index:Cluster", custom=False, remote=True)
    others = [resource("a", BUCKET), resource("v", "aws:ec2/vpc:Vpc")]
    found = dangers(compare(graph(cluster, *others), graph()), eks_compared())
    assert [danger.kind for danger in found] == ["cluster-deleted", "data-deleted", "deleted"]
    assert found[-1].what == "ec2.Vpc v is deleted"


@pytest.mark.thorough
def test_a_zone_more_replaces_no_accelerators_and_leaves_the_control_plane_alone():
    diff = compare(recorded("inf2-llama2"), recorded_with({"network": {"zones": 3}}, "inf2-llama2"))
    replaced = [change.resource.name for change in diff.of_kind("replace") if change.resource.type == NODE_GROUP]
    assert replaced == ["inf2-llama2-core-nodes"]
    (cluster,) = recorded("inf2-llama2").of_type("eks:index:Cluster")
    assert diff.by_urn[cluster.urn].kind == "same"


@pytest.mark.thorough
def test_a_cluster_does_not_move_to_another_network():
    diff = compare(recorded("inf2-llama2"), recorded_with({"network": {"cidr": "10.3.0.0/16"}}, "inf2-llama2"))
    found = dangers(diff, eks_compared())
    assert found[0].what.startswith(
        "cluster inf2-llama2-control-plane: EKS moves no cluster to another VPC, and its own is replaced:"
    )
    assert not [danger for danger in found if "outage" in danger.effects], "nothing that needs the cluster is reached"


def test_a_remote_cluster_goes_with_its_network_to_another_region():
    def within(region: str) -> Graph:
        network = resource("net", "aws:ec2/vpc:Vpc", inputs={"region": region})
        inputs, refers = {"vpcId": "<net.id>", "endpointPublicAccess": False}, {"vpcId": (network.urn,)}
        return graph(network, resource("c", "eks:index:Cluster", inputs=inputs, remote=True, property_dependencies=refers))

    found = dangers(compare(within("us-west-2"), within("us-east-2")), eks_compared())
    assert [one.what for one in found if "cluster" in one.kind] == ["cluster c is replaced, with all that runs in it (region)"]
    assert "refused" not in {danger.kind for danger in found}


def test_a_control_plane_keeps_its_zones():
    def subnet(zone: str) -> Resource:
        return resource(f"net-{zone}", "aws:ec2/subnet:Subnet", inputs={"availabilityZoneId": zone})

    def in_zones(*zones: str) -> Graph:
        subnets = [subnet(zone) for zone in zones]
        tokens = [f"<{subnet.name}.id>" for subnet in subnets]
        inputs = {"privateSubnetIds": tokens, "endpointPublicAccess": False}
        refers = {"privateSubnetIds": tuple(subnet.urn for subnet in subnets)}
        return graph(*subnets, resource("c", "eks:index:Cluster", inputs=inputs, remote=True, property_dependencies=refers))

    for zones, expected in ((("az2", "az1"), []), (("az1", "az3"), ["refused"]), (("az1", "az2", "az3"), ["refused"])):
        found = dangers(compare(in_zones("az1", "az2"), in_zones(*zones)), eks_compared())
        assert [danger.kind for danger in found if danger.kind == "refused"] == expected


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("stack", "pool", "rollout", "stops"),
    [
        ("gpu-nixl", "gpu", "recreate", {"decode", "prefill"}),
        ("gpu-nixl", "gpu", "second_group", set()),
        ("trn2-nixl", "trn2", "recreate", {"decode", "prefill"}),
    ],
)
def test_a_server_that_stops_before_its_successor_starts_is_a_danger(stack: str, pool: str, rollout: str, stops: set[str]):
    """Devices that pods claim count as those that they request."""
    room = {"pools": {pool: {"size": 4}}}
    before, after = (
        recorded_with({**room, "servers": {"llama3-70b": {"rollout": rollout, "max_model_len": length}}}, stack)
        for length in (8192, 4096)
    )
    found = [danger for danger in dangers(compare(before, after), eks_compared()) if danger.kind == "server-stopped"]
    assert {role for role in ("decode", "prefill", "router") for danger in found if f"({role})" in danger.what} == stops
    assert all(re.search(r"answers nothing for .* ends \(.*\) before its successor has", danger.what) for danger in found)
    assert all("`rollout: second_group`: the nodes that stand have room" in danger.avoid for danger in found)
    assert len({danger.avoid for danger in found}) == bool(stops)  # one group for both


KEYS = '{"team-a": "a-key-of-team-a-in-a-test"}'
AT_LEAST_TWO = {"replicas": {"min": 2}}
SERVERS: list[tuple[str, str, dict[str, Any], dict[str, Any], bool]] = [
    ("smoke-gpu", "qwen3", {}, {"max_num_seqs": 128}, True),
    ("smoke-gpu", "qwen3", {}, {"extra_env": {"VLLM_LOGGING_LEVEL": "DEBUG"}}, True),
    ("smoke-gpu", "qwen3", {"replicas": 2}, {"max_num_seqs": 128}, False),
    ("smoke-gpu", "qwen3", {}, {"replicas": 2}, False),
    ("inf2-llama2", "llama2-a", {}, {"max_num_seqs": 12}, True),
    ("gpu-opt350m", "triton-server", {}, {"gpu_memory_utilization": 0.6}, True),
    ("gpu-opt350m", "triton-server", {"autoscaling": {"min": 2}}, {"gpu_memory_utilization": 0.6}, False),
    ("inf2-llama3", "vllm-llama3-inf2", {}, {"max_num_seqs": 16}, True),
    ("inf2-llama3", "vllm-llama3-inf2", AT_LEAST_TWO, {"max_num_seqs": 16}, False),
    ("inf2-llama3", "vllm-llama3-inf2", {}, AT_LEAST_TWO, False),
    # The autoscaler adds pods later than the Deployment rolls, and takes them later away.
    ("gpu-opt350m", "triton-server", {}, {"autoscaling": {"min": 2}, "cpu": "2500m"}, True),
    ("gpu-opt350m", "triton-server", {"autoscaling": {"min": 2}}, {"autoscaling": {"min": 1}, "cpu": "2500m"}, False),
]
"""Stack, server, what it has before, what changes, and whether nothing of it answers for a while."""
_FIRST = (0, 2, 11)
"""A Deployment that stops, one that does not, and an autoscaler."""


@pytest.mark.parametrize(
    ("stack", "server", "has", "edit", "stops"),
    [pytest.param(*row, marks=() if place in _FIRST else pytest.mark.thorough) for place, row in enumerate(SERVERS)],
)
def test_a_server_whose_only_pod_is_updated_is_told_with_its_cold_start(
    stack: str, server: str, has: dict[str, Any], edit: dict[str, Any], stops: bool
):
    room = {"pools": {"gpu": {"size": 2}}} if stack == "smoke-gpu" else {}
    found = stopped(*(recorded_with({**room, "servers": {server: one}}, stack) for one in (has, {**has, **edit})))
    assert [danger.what.partition(" answers nothing for ")[0] for danger in found] == [server] * stops
    for danger in found:
        assert re.search(r" for (at least )?\d+ (min|s)", danger.what), danger.what
        assert danger.weight is Weight.REPLACED


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("189a5b5f8f0d94cf", "other", "its only replica ends before its successor has downloaded, compiled and loaded"),
        ("MODEL_REVISION: main", "MODEL_REVISION: v2", "its only replica ends before its successor has downloaded and loaded"),
        ("num_cpus: 30", "num_cpus: 29", "its only replica ends before its successor has loaded"),
        ("max_replicas: 3", "max_replicas: 2", "vllm/vllm-llama3-inf2: at most 2 replicas of VLLMDeployment instead of 3"),
        ("target_ongoing_requests: 8", "target_ongoing_requests: 9", ""),
    ],
)
def test_a_replica_starts_in_a_ray_worker_that_stays(old: str, new: str, said: str):
    """With its image, so it pulls nothing, and its weights."""
    before = recorded("inf2-llama3")
    (ray,) = (one for one in before.resources if one.type.endswith(":RayService"))
    spec = {**ray.inputs["spec"], "serveConfigV2": ray.inputs["spec"]["serveConfigV2"].replace(old, new)}
    other = replace(ray, inputs={**ray.inputs, "spec": spec})
    after = replace(before, resources=tuple(other if one is ray else one for one in before.resources))
    found = dangers(compare(before, after), eks_compared())
    assert [danger.what[-len(said) :] for danger in found] == [said] * bool(said)
    assert all("a second server behind an endpoint: 1 node more" in danger.avoid for danger in found if danger.effects)


def stopped(before: Graph, after: Graph) -> list[Danger]:
    return [danger for danger in dangers(compare(before, after), eks_compared()) if danger.kind == "server-stopped"]


@pytest.mark.parametrize(
    ("spec", "stops"),
    [
        ({"replicas": 1}, False),  # 25 % of one pod: one more, none less
        ({"replicas": 3}, False),
        ({"replicas": 3, "strategy": {"type": "Recreate"}}, True),
        ({"replicas": 1, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}, True),
        ({"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}, False),
        ({"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "50%"}}}, False),
        ({"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "100%"}}}, True),
        ({"replicas": 1, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}, True),  # Kubernetes makes it one
    ],
)
def test_any_deployment_with_devices_is_judged_by_its_strategy(spec: dict[str, Any], stops: bool):
    def deployment(image: str) -> Resource:
        container = {"name": "c", "image": image, "resources": {"limits": {"nvidia.com/gpu": 1}}}
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
        return resource("d", DEPLOYMENT, inputs={"metadata": {"name": "d"}, "spec": {**spec, "template": template}})

    assert ("server-stopped" in kinds_of_danger(deployment("i:1"), deployment("i:2"))) == stops


@pytest.mark.thorough
def test_graphs_that_are_kept_are_not_compiled_again():
    """Settings of the model change the place of the graphs; a variable of the runtime does not. Llama 3 8B has a typical time."""
    model = {"model": {"id": "NousResearch/Meta-Llama-3-8B-Instruct"}}
    before, kept, compiled = (
        recorded_with({"servers": {"llama2-a": {**model, **edit}}}, "inf2-llama2")
        for edit in ({}, {"extra_env": {"NEURON_RT_LOG_LEVEL": "ERROR"}}, {"max_num_seqs": 12})
    )
    [without], [with_compiler] = stopped(before, kept), stopped(before, compiled)
    assert "for at least 3 min 6 s" in without.what  # the download alone: how long a start with graphs takes nobody has said
    assert "for 3 min (by" in with_compiler.what


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ({"gpu": {"root_volume_gib": 200}}, "its only pod ends with its node of smoke-gpu-gpu-nodes before"),
        pytest.param(
            {"gpu": {"instance_types": ["g6.2xlarge"]}},
            "its only pod ends with the nodes of smoke-gpu-gpu-nodes before",
            marks=pytest.mark.thorough,
        ),
        pytest.param({"core": {"root_volume_gib": 60}}, "", marks=pytest.mark.thorough),
    ],
)
def test_a_server_whose_nodes_are_replaced_is_told_with_the_pull_of_its_image(pools: dict[str, Any], said: str):
    found = stopped(recorded("smoke-gpu"), recorded_with({"pools": pools}, "smoke-gpu"))
    assert len(found) == bool(said)
    assert all(said in danger.what and "pulled its image" in danger.what for danger in found)
    assert all(re.search(r"for at least [3-9] min", danger.what) for danger in found), found


@pytest.mark.thorough
def test_a_server_whose_nodes_go_and_whose_pool_is_another_kind_is_told():
    after = recorded_with({"pools": {"gpu": {"kind": "karpenter", "size": None, "root_volume_gib": None}}}, "smoke-gpu")
    (found,) = stopped(recorded("smoke-gpu"), after)
    assert "its only pod ends with the nodes of smoke-gpu-gpu-nodes before its successor has got a node" in found.what


@pytest.mark.thorough
def test_two_pods_outlast_nodes_that_are_replaced_one_by_one():
    room = {"pools": {"gpu": {"size": 2}}, "servers": {"qwen3": {"replicas": 2}}}
    before, after = (
        recorded_with({**room, "pools": {"gpu": {"size": 2, "root_volume_gib": gib}}}, "smoke-gpu") for gib in (100, 200)
    )
    assert not stopped(before, after)


@pytest.mark.parametrize(
    ("has", "edit", "takes"),
    [
        ({}, {"servers": {"qwen3": {"max_num_seqs": 128}}}, "1 node more of gpu (g6.xlarge), $0.80/h meanwhile, 4 vCPU of "),
        ({"pools": {"gpu": {"size": 2}}}, {"servers": {"qwen3": {"max_num_seqs": 128}}}, "the nodes that stand have room"),
        # As many nodes as are reserved.
        (
            {"pools": {"gpu": {"capacity_reservation_id": "cr-0123456789abcdef0", "zone_ids": ["usw2-az1"]}}},
            {"servers": {"qwen3": {"max_num_seqs": 128}}},
            "for which no pool here has room",
        ),
        # The one node with its four devices goes with everything on it.
        (
            {"pools": {"gpu": {"instance_types": ["g6.12xlarge"]}}},
            {"pools": {"gpu": {"root_volume_gib": 200}}},
            "1 node more of gpu (g6.12xlarge)",
        ),
    ],
)
def test_what_avoids_an_outage_is_tried_on_the_nodes_of_the_stack(has: dict[str, Any], edit: dict[str, Any], takes: str):
    after = copy.deepcopy(has)
    merge(after, edit)
    (found,) = stopped(recorded_with(has, "smoke-gpu"), recorded_with(after, "smoke-gpu"))
    assert takes in found.avoid
    assert found.avoid.startswith("qwen3: ")


@pytest.mark.parametrize(("nodes", "kind"), [(2, "server-gone"), (1, "server-waits")])
def test_a_server_that_goes_is_told_and_its_new_name_is_pointed_to(nodes: int, kind: str):
    """The new one waits for ever where it finds room only once the old one is gone."""
    room = {"pools": {"gpu": {"size": nodes}}}
    before, after = (
        recorded_with({**room, **servers}, "smoke-gpu") for servers in ({}, {"servers": {"qwen3": None, "chat": CHAT}})
    )
    (found,) = [danger for danger in dangers(compare(before, after), eks_compared()) if danger.kind.startswith("server-")]
    assert found.kind == kind
    assert "`renamed_from: qwen3` makes chat replace it" in found.avoid
    assert found.effects == (("outage",) if kind == "server-gone" else ())


@pytest.mark.parametrize(("cpu", "waits"), [("200m", False), ("700m", True), ("3", False)])
def test_an_update_of_any_deployment_that_has_no_room_beside_itself_waits_for_ever(cpu: str, waits: bool):
    """Not one that has no room by itself: nodes that the program does not make may take it."""
    graph = recorded_with({**pool("core", size=1), **endpoint("qwen3")}, "smoke-gpu")
    (proxy,) = (one for one in graph.resources if one.name == "chat-deployment")

    def with_proxy(changed: str) -> Graph:
        inputs = copy.deepcopy(proxy.inputs)
        inputs["spec"]["replicas"] = 1
        inputs["spec"]["template"]["metadata"]["annotations"] = {"changed": changed}
        inputs["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
        return replace(graph, resources=tuple(replace(one, inputs=inputs) if one is proxy else one for one in graph.resources))

    told = dangers(compare(with_proxy("a"), with_proxy("b")), eks_compared())
    waiting = [danger.what for danger in told if danger.kind == "server-waits"]
    assert all(re.match("Deployment chat/chat waits for ever, .* and what runs answers on$", what) for what in waiting)
    assert len(waiting) == waits


LWS = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"
ROLLING = {"rolloutStrategy": {"rollingUpdateConfiguration": {"maxUnavailable": 2}}}


@pytest.mark.parametrize(
    ("type_", "spec", "pods", "away"),
    [
        (DEPLOYMENT, {}, 3, 0),
        (DEPLOYMENT, {}, 4, 1),
        (LWS, {}, 4, 1),
        (LWS, ROLLING, 4, 2),
        (LWS, {"rolloutStrategy": {"rollingUpdateConfiguration": {"maxUnavailable": 2, "maxSurge": 1}}}, 4, 0),
        ("kubernetes:apps/v1:StatefulSet", ROLLING, 4, 1),
    ],
)
def test_an_update_takes_so_many_pods_away_first(type_: str, spec: dict[str, Any], pods: int, away: int):
    assert at_once(resource("d", type_, inputs={"spec": spec}), pods) == away


def test_a_budget_keeps_every_pod_or_not():
    kept = [{"minAvailable": 3}, {"minAvailable": "67%"}, {"maxUnavailable": 0}, {"maxUnavailable": "0%"}]
    assert [_kept(spec, 3).rpartition(" of ")[2] for spec in kept] == ["3"] * 4
    some_go = [{"minAvailable": 2}, {"minAvailable": "66%"}, {"maxUnavailable": 1}, {"maxUnavailable": "1%"}, {}]
    assert not any(_kept(spec, 3) for spec in some_go)


def test_words_about_servers_that_stop():
    def changed(type_: str, *path: str, **spec: Any) -> ResourceChange:
        one = resource("d", type_, inputs={"spec": spec})
        return ResourceChange("update", one, one, (PropertyChange(path, 1, 2),))

    ray, second = "kubernetes:ray.io/v1:RayService", "a second server behind an endpoint"
    disk = {"spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}}
    assert _way(changed(DEPLOYMENT), 1, is_model=False) == "a second replica or maxSurge: 1"
    assert _way(changed(DEPLOYMENT), 2, is_model=False) == "maxUnavailable: 1"
    assert _way(changed(DEPLOYMENT, template=disk), 1, is_model=False) == _way(changed(ray), 1, is_model=False) == ""
    assert _way(changed(DEPLOYMENT), 1, is_model=True) == f"surge: 1, a second replica or {second}"
    assert _way(changed(DEPLOYMENT, strategy={"type": "Recreate"}), 1, is_model=True) == second
    assert _way(changed(ray, "spec", "serveConfigV2"), 1, is_model=True) == _way(changed(LWS), 1, is_model=True) == second
    assert _way(changed(ray, "spec", "rayClusterConfig"), 1, is_model=True) == f"`upgrade: new_cluster` or {second}"
    alone = {"metadata": {"annotations": {UNDISTURBED: "true"}}}
    small, large = (PodStart("server", instance_type=one) for one in ("g6.xlarge", "g6.2xlarge"))
    rolls = [Roll("n", ""), Roll("n", "", blocked=True), Roll("n", "", forced=False), Roll("n", "", by_type=True)]
    assert [_ends(roll, alone, small, small) for roll in (None, *rolls)] == [False, True, False, False, False]
    assert [_ends(roll, None, small, large) for roll in (None, *rolls)] == [False, True, False, True, True]


@pytest.mark.parametrize(
    ("replicas", "most", "told"),
    [(3, 4, "3 pods instead of 1–4"), (4, 4, ""), (0, 1, "0 pods instead of 1"), (9, "<a.b>", "9 pods instead of 1–<a.b>")],
)
def test_what_no_autoscaler_scales_any_more_has_the_pods_of_its_object(replicas: int, most: int | str, told: str):
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": most}
    scaler = resource("h", "kubernetes:autoscaling/v2:HorizontalPodAutoscaler", inputs={"spec": spec})
    deployment = resource("d", DEPLOYMENT, inputs={"metadata": {"name": "d"}, "spec": {"replicas": replicas}})
    found = dangers(compare(graph(scaler, deployment), graph(deployment)), eks_compared())
    assert [danger.what for danger in found if danger.kind == "capacity-down"] == [f"Deployment d: {told} by HPA"] * bool(told)


def test_lower_limits_of_nodes_are_told():
    old = NodeCapacity("u", "n", "Karpenter", limits={"cpu": "8", "memory": "64Gi", "nodes": "2"})
    told = [danger.what for danger in _of_nodes(old, replace(old, limits={"cpu": "7", "memory": "32Gi", "nodes": "2"}))]
    assert told == ["nodes of n: at most 7 cpu instead of 8"]


@pytest.mark.parametrize(
    ("budgets", "nodes", "told"),
    [
        *(((None, 730), (1, 1), False), ((None, 729), (1, 1), True), ((729, 729), (1, 1), False), ((729, 729), (1, 2), True)),
        *(((729, 729), (3, 2), False), ((730, 729), (1, 1), True), ((728, 729), (1, 1), False), ((729, None), (1, 2), False)),
    ],
)
def test_costs_beyond_a_budget_are_told_when_they_grow(budgets: tuple[float | None, ...], nodes: tuple[int, ...], told: bool):
    """A node costs $730 a month."""
    before, after = (graph(resource("p", PLATFORM, inputs={"budgetUsdPerMonth": budget})) for budget in budgets)
    price, charge = Price("m", "r", 1, "hour", "", ""), Charge("nodes", "", "", "m", "r", "", (0, 0, 0))
    old, new = (Estimate((Priced(replace(charge, amounts=(0, many, 9)), price),), (), ()) for many in nodes)
    assert [danger.kind for danger in leaves_budget(before, after, old, new)] == ["over-budget"] * told


def test_a_claim_that_pods_keep_is_not_gone_before_its_successor_comes():
    """Not one that no pods use any more."""
    graph = recorded_with({**OPEN_WEBUI, "load_test": None}, "smoke-gpu")
    (claim,) = (one for one in graph.resources if one.type.endswith(":PersistentVolumeClaim"))
    other = replace(claim, inputs={**claim.inputs, "spec": {**claim.inputs["spec"], "storageClassName": "other"}})
    head = replace(graph, resources=tuple(other if one is claim else one for one in graph.resources))
    (web,) = (one for one in head.resources if one.type.endswith(":Deployment") and name_of(one) == "open-webui")
    without = copy.deepcopy(web)
    without.inputs["spec"]["template"]["spec"]["volumes"] = []

    def told(after: Graph) -> list[str]:
        return [danger.what for danger in dangers(compare(graph, after), eks_compared()) if danger.kind == "refused"]

    (what,) = told(head)
    assert what.startswith("PersistentVolumeClaim openwebui/open-webui stays while Deployment openwebui/open-webui uses it")
    assert told(replace(head, resources=tuple(without if one is web else one for one in head.resources))) == []


RANK = {**CHAT, "model": {"id": "BAAI/bge-reranker-v2-m3"}, "task": "rerank"}
CLIENTS = {"chat": {"servers": ["qwen3", "other", "rank"]}}


@pytest.mark.parametrize(
    ("edit", "kind", "says"),
    [
        ({"endpoints": None}, "endpoint-gone", "chat is removed: nothing answers at its address any more"),
        (
            {"endpoints": {"chat": {"servers": ["qwen3", "other"]}}},
            "model-gone",
            "chat answers requests for BAAI/bge-reranker-v2-m3 with 404: none of its servers has the name any more",
        ),
        (
            {"endpoints": {"chat": {"servers": ["qwen3", "rank"]}}},
            "capacity-down",
            "chat: 1 server instead of 2 for Qwen/Qwen3-0.6B, without other",
        ),
        ({"endpoints": {"chat": {"keys": False}}}, "opened", "chat no longer asks its clients for a key"),
        (
            {"endpoints": {"chat": {"client_namespaces": {"team": "a"}}}},
            "shut",
            "NetworkPolicy chat/chat no longer lets in pods of every namespace",
        ),
        ({"endpoints": {"chat": {"models": {"Qwen/Qwen3-0.6B": {"qwen3": 50, "other": 50}}}}}, "", ""),
    ],
)
def test_clients_of_an_endpoint_are_told_what_they_lose(edit: dict[str, Any], kind: str, says: str):
    """Who asks for a model that no server of an endpoint has is answered with an error, whichever servers run."""
    room = {"pools": {"gpu": {"size": 3}}, "servers": {"other": CHAT, "rank": RANK}, "endpoints": CLIENTS, "clients": {}}
    after = copy.deepcopy(room)
    merge(after, edit)
    graphs = [recorded_with(one, "smoke-gpu", {"eks-inference:endpointKeys": KEYS}) for one in (room, after)]
    found = [danger for danger in dangers(compare(*graphs), eks_compared()) if danger.kind != "deleted"]
    assert [(danger.kind, danger.what) for danger in found] == ([(kind, says)] if kind else [])
    assert all(("outage" in danger.effects) == kind.endswith("-gone") for danger in found)


@pytest.mark.parametrize("both", [False, True])
def test_a_server_that_is_away_is_no_outage_while_an_endpoint_asks_another(both: bool):
    """Which is what the tool offers to avoid one."""
    servers = {"other": CHAT}
    room = {"pools": {"gpu": {"size": 2}}, "servers": servers, "endpoints": {"chat": {"servers": ["qwen3", "other"]}}}
    after = copy.deepcopy(room)
    merge(after, {"servers": {name: {"max_num_seqs": 128} for name in ("qwen3", *(["other"] if both else []))}})
    graphs = [recorded_with(one, "smoke-gpu", {"eks-inference:endpointKeys": KEYS}) for one in (room, after)]
    found = {danger.subject: danger for danger in stopped(*graphs)}
    assert found.keys() == ({"qwen3", "other"} if both else {"qwen3"})
    assert all(("outage" in danger.effects) == both for danger in found.values())
    assert found["qwen3"].what.endswith("; chat asks other instead") == (not both)


def test_a_larger_successor_needs_room_beside_what_runs():
    """One device runs and two come: a node of four has room for both, and for no second one of two."""
    node = {"pools": {"gpu": {"instance_types": ["g6.12xlarge"]}}}
    others = {"devices": 2, "tensor_parallel": 2}
    before, after = (recorded_with({**node, "servers": {"qwen3": edit}}, "smoke-gpu") for edit in ({}, others))
    (found,) = stopped(before, after)
    assert "the nodes that stand have room" in found.avoid
    (back,) = stopped(after, before)
    assert "the nodes that stand have room" in back.avoid


@pytest.mark.thorough
def test_a_server_that_becomes_another_kind_of_object_is_told():
    room = {"pools": {"trn2": {"size": 3}}}
    one = {"servers": {"llama3-70b": {"instances": 1}}}
    before, after = (recorded_with({**room, **edit}, "trn2-di-pair") for edit in ({}, one))
    (found,) = stopped(before, after)
    assert re.search("llama3-70b is made anew.*: Deployment .* in place of LeaderWorkerSet .*, which .* deletes last", found.what)
    assert found.effects == ("outage",)


def sized(graph: Graph, group: str, nodes: int, pods: int = 1) -> Graph:
    """The graph with a node group of this size, and Deployments of model servers of so many pods."""
    size = {"minSize": min(nodes, 2), "desiredSize": nodes, "maxSize": max(2 * nodes, 1)}
    resources = (
        replace(one, inputs={**one.inputs, "scalingConfig": size})
        if one.name == f"{graph.stack}-{group}-nodes"
        else replace(one, inputs={**one.inputs, "spec": {**one.inputs["spec"], "replicas": pods}})
        if one.name == "qwen3-deployment"
        else one
        for one in graph.resources
    )
    return replace(graph, resources=tuple(resources))


@pytest.mark.parametrize(
    ("stack", "group", "sizes", "pods", "said"),
    [
        ("smoke-gpu", "gpu", (3, 2), 1, ["server-may-stop .*: its only pod ends, if AWS chooses its node of .*, before its"]),
        ("smoke-gpu", "gpu", (3, 1), 2, ["server-may-stop .*: its pods end, if AWS chooses their nodes of .*, before their"]),
        ("smoke-gpu", "gpu", (3, 2), 2, []),
        ("smoke-gpu", "gpu", (2, 3), 1, []),
        ("inf2-llama3", "core", (3, 4), 1, []),
        (
            "inf2-llama3",
            "core",
            (3, 2),
            1,
            [
                "server-may-stop .* may answer nothing .*: its workers end with the Ray head, if AWS chooses its node of",
                "pods-may-move .*k8s-neuron-scheduler, .*open-webui may not answer while pods move",
            ],
        ),
    ],
)
def test_pods_that_a_smaller_node_group_may_take_along_are_told(
    stack: str, group: str, sizes: tuple[int, int], pods: int, said: list[str]
):
    """AWS chooses the nodes."""
    sides = [sized(recorded(stack), group, nodes, pods) for nodes in sizes]
    found = [f"{danger.kind} {danger.what}" for danger in dangers(compare(*sides), eks_compared()) if "-may-" in danger.kind]
    assert len(found) == len(said)
    assert all(map(re.match, said, found)), found


ONE, NONE = {"nodes": "1"}, {"nodes": "0"}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"disruption": {}}, "10% at a time"),
        ({"disruption": {"budgets": [ONE]}}, "1 at a time"),
        ({"disruption": {"budgets": [ONE, {"nodes": "20%"}]}}, "as fast as budgets allow"),
        ({"disruption": {"budgets": [NONE]}}, "stay as they are: a disruption budget allows none to end"),
        ({"disruption": {"budgets": [ONE, {**NONE, "schedule": "@daily", "duration": "8h"}]}}, "1 at a time"),
        ({"disruption": {"budgets": [ONE, {**NONE, "reasons": ["Empty"]}]}}, "1 at a time"),
        ({"disruption": {}, "replicas": 2, "limits": {"nodes": 2}}, "stay as they are: limits.nodes 2 leaves no room"),
        ({"disruption": {}, "replicas": 2, "limits": {"nodes": 3}}, "10% at a time"),
        ({"disruption": {}, "replicas": 1}, "10% at a time"),
        ({"disruption": {}, "replicas": 0}, ""),
    ],
)
def test_how_nodes_of_karpenter_drift_follows_from_budgets_and_limits(spec: dict[str, Any], says: str):
    def graph(labels: dict[str, str]) -> Graph:
        def edited(one: Resource) -> Resource:
            template = one.inputs["spec"]["template"]
            template = {**template, "metadata": {**template.get("metadata", {}), "labels": labels}}
            return replace(one, inputs={**one.inputs, "spec": {**one.inputs["spec"], "template": template, **spec}})

        found = recorded("inf2-llama3")
        return replace(found, resources=tuple(edited(one) if one.type.endswith(":NodePool") else one for one in found.resources))

    told = [roll.words for roll in rolled(compare(graph({"a": "b"}), graph({"a": "c"}))).values()]
    assert bool(told) is bool(says)
    assert all(says in words for words in told), told


def test_a_server_that_loses_its_nodes_answers_nothing_any_more():
    before = recorded("smoke-gpu")
    (found,) = stopped(before, sized(before, "gpu", 0))
    assert found.what == "qwen3 no longer answers: no pool has a node for it"
    assert found.effects == ("outage",)


@pytest.mark.parametrize(("sizes", "told"), [((1, 1), True), ((1, 0), True), ((0, 0), False), ((0, 1), False)])
def test_a_capacity_block_is_updated_while_it_has_no_node(sizes: tuple[int, int], told: bool):
    """In one update the version comes before the size. Another template counts as another version does."""

    def block(size: int, version: str, disk: int = 100) -> Graph:
        mappings = [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": disk}}]
        template = resource("t", "aws:ec2/launchTemplate:LaunchTemplate", inputs={"blockDeviceMappings": mappings})
        inputs = {
            "capacityType": "CAPACITY_BLOCK",
            "scalingConfig": {"minSize": size, "desiredSize": size, "maxSize": 1},
            "version": version,
            "launchTemplate": {"id": "<t.id>", "version": "<t.latestVersion>"},
        }
        refers = {"launchTemplate": (template.urn,)}
        return graph(template, resource("p5", NODE_GROUP, inputs=inputs, property_dependencies=refers))

    for head in (block(sizes[1], "1.36"), block(sizes[1], "1.35", disk=200)):
        found = dangers(compare(block(sizes[0], "1.35"), head), eks_compared())
        lines = [danger.what for danger in found if danger.kind == "nodes-rolled"]
        assert len(lines) == told
        assert all("at size 0 only" in line and "successor" not in line for line in lines)


def test_nodes_of_pools_that_others_use_are_told_and_those_that_nobody_needs_are_not():
    """Trainium's pool of the stack serves nothing; a program that only has pools has them for pods of others."""
    edit = {"tags": {"team": "ml"}}
    whole = recorded("inf2-llama3"), recorded_with(edit, "inf2-llama3")
    pools = tuple(replace(one, resources=tuple(r for r in one.resources if not _runs(r))) for one in whole)
    found = [
        {one.subject for one in dangers(compare(*pair), eks_compared()) if one.kind == "nodes-rolled"} for pair in (whole, pools)
    ]
    assert "nodes of trainium-trn1" not in found[0]
    assert {"nodes of inferentia-inf2", "nodes of trainium-trn1"} <= found[1]


def _runs(resource: Resource) -> bool:
    return resource.type.endswith((":Deployment", ":Job", ":RayService", ":Release", ":Addon"))


@pytest.mark.parametrize(
    ("force", "may_go", "kinds"),
    [
        (True, 0, ["nodes-rolled", "nodes-rolled"]),
        (False, 0, ["nodes-stuck", "nodes-rolled"]),
        (False, 1, ["nodes-rolled"]),
    ],
)
def test_a_budget_that_lets_no_pod_go_keeps_nodes_that_eks_exchanges(force: bool, may_go: int, kinds: list[str]):
    def with_budget(graph: Graph) -> Graph:
        found = []
        for one in graph.resources:
            inputs = copy.deepcopy(dict(one.inputs))
            if one.type.endswith(":PodDisruptionBudget"):
                inputs["spec"]["maxUnavailable"] = may_go
            if one.type == NODE_GROUP:
                inputs["forceUpdateVersion"] = force
            found.append(replace(one, inputs=inputs))
        return replace(graph, resources=tuple(found))

    before, after = ({**TWO, **pool("gpu", size=2, **edit)} for edit in ({}, {"root_volume_gib": 200}))
    diff = compare(*(with_budget(recorded_with(edit, "smoke-gpu")) for edit in (before, after)))
    found = [*dangers(diff, eks_compared())]
    assert [danger.kind for danger in found] == kinds
    told = " ".join(danger.what for danger in found)
    assert ("lets no pod of Deployment qwen3/qwen3 go (maxUnavailable 0 of 2)" in told) == (not may_go)
    assert ("`pulumi up` fails" in told) == (kinds[0] == "nodes-stuck")


def test_what_goes_with_its_namespace_or_definition_is_told():
    names = {"group": "example.com", "names": {"kind": "Model"}}
    namespace = resource("n", "kubernetes:core/v1:Namespace", inputs={"metadata": {"name": "team"}})
    definition = resource("d", "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition", inputs={"spec": names})
    stay = [
        resource("claim", "kubernetes:core/v1:PersistentVolumeClaim", inputs={"metadata": {"name": "c", "namespace": "team"}}),
        resource("model", "kubernetes:example.com/v1:Model", inputs={"metadata": {"name": "m", "namespace": "other"}}),
    ]
    for one, inside, effects in ((namespace, "team/c", ("outage", "loss")), (definition, "other/m", ("outage",))):
        (found,) = dangers(compare(graph(one, *stay), graph(*stay)), eks_compared())
        assert (found.kind, found.effects) == ("deleted-with", effects)
        assert inside in found.what
        kept = replace(one, options={"retainOnDelete": True})
        assert "deleted-with" not in kinds_of_danger(kept, None, *stay)
        assert "deleted-with" not in [d.kind for d in dangers(compare(graph(one, *stay), graph()), eks_compared())]


@pytest.mark.parametrize(
    ("name", "kind", "effects"),
    [("keda", "keda.sh/v1alpha1:ScaledObject", ()), ("karpenter-crd", "karpenter.sh/v1:NodePool", ("outage",))],
)
def test_what_goes_with_the_definitions_of_a_chart_is_told(name: str, kind: str, effects: tuple[str, ...]):
    def chart(namespace: str):
        return resource("r", "kubernetes:helm.sh/v3:Release", inputs={"chart": name, "name": "r", "namespace": namespace})

    stays = resource("o", f"kubernetes:{kind}", inputs={"metadata": {"name": "o", "namespace": "team"}})
    (found,) = dangers(compare(graph(chart("a"), stays), graph(stays)), eks_compared())
    assert (found.kind, found.effects) == ("deleted-with", effects)
    assert f"{kind.rpartition(':')[2]} team/o" in found.what
    (found,) = dangers(compare(graph(chart("a"), stays), graph(chart("b"), stays)), eks_compared())
    assert (found.kind, "Helm refuses" in found.what) == ("refused", True)
    assert "deleted-with" not in [danger.kind for danger in dangers(compare(graph(chart("a"), stays), graph()), eks_compared())]


def test_devices_that_nothing_offers_any_more_are_told():
    off = recorded_with({"accelerators": {"nvidia": False}}, "smoke-gpu")
    (found,) = dangers(compare(recorded("smoke-gpu"), off), eks_compared())
    assert found.kind == "devices-gone"
    assert "none of the pods of Deployment qwen3/qwen3 starts again" in found.what
    assert [danger.kind for danger in dangers(compare(off, recorded("smoke-gpu")), eks_compared())] == []
