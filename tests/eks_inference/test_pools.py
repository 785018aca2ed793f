"""Node pools that EKS manages: specs, plans, and the resources they become."""

import base64
import email
import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pulumi
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.aws import iam, naming
from eks_inference.catalog import versions, zones
from eks_inference.catalog.instances import instance_type, instance_types
from eks_inference.cluster.plan import control_plane_zones
from eks_inference.faults import SpecError
from eks_inference.network.plan import choose_zones
from eks_inference.network.spec import NetworkSpec
from eks_inference.place.nodes import Allocatable, allocatable, free_inodes
from eks_inference.place.placement import DEVICES_LABEL, POOL_LABEL, Placement, Taint
from eks_inference.pools import node_rules, plan
from eks_inference.pools.existing import ExistingPool
from eks_inference.pools.managed import ManagedPool
from eks_inference.pools.node_spec import KubeletSpec
from eks_inference.pools.rules import (
    PoolFacts,
    image_of_the_cluster_version,
    kubelet_leaves_room,
    limits_hold_a_node,
    reservation_in_one_zone,
    zones_offer_the_family,
)
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec
from golden import assert_golden
from handles import existing_cluster, existing_vpc
from stackgraph.graph.document import Graph, Resource
from stackgraph.recorder.recording import record

KEY = "arn:aws:kms:us-west-2:123456789012:key/12345678-1234-1234-1234-123456789012"
NEURON = Taint("aws.amazon.com/neuron", "true", "NoSchedule")
NVIDIA = Taint("nvidia.com/gpu", "true", "NoSchedule")


def managed(*types: str, **given: Any) -> ManagedPoolSpec:
    return ManagedPoolSpec.model_validate({"instance_types": types or ("inf2.8xlarge",), "size": 1, **given})


def refusal_of(make: Callable[[], object]) -> str:
    """What the user reads when the spec is refused."""
    with pytest.raises(SpecError) as caught:
        make()
    return str(caught.value)


# -- what a user may write -------------------------------------------------------------------------------------------------------


def test_a_misspelt_instance_type_is_refused_once_with_the_nearest():
    refusal = refusal_of(lambda: managed("inf2.8xlage"))
    assert refusal.startswith("instance_types[0]: ")
    assert "instance type 'inf2.8xlage' is not in the catalog; nearest: inf2.8xlarge" in refusal
    assert "\n" not in refusal


AMIS = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/neuron/recommended/image_id"


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"instance_types": ()}, "give at least one"),
        ({"instance_types": ("inf2.8xlarge", "m5.large")}, "differ in accelerator"),
        ({"ami": {"kind": "ssm_parameter", "name": AMIS}}, "use {kind: release}"),
        ({"size": 9, "autoscaled": {"min": 1, "max": 4}}, "size 9 is not between 1 and 4"),
        ({"extra_labels": {"node.kubernetes.io/instance-type": "x"}}, "is the node's own; placements rely on it"),
        ({"extra_labels": {DEVICES_LABEL: "plugin"}}, "says what offers the devices: set devices instead"),
        ({"extra_labels": {"team": ""}}, "no label with an empty value: team"),
        ({"extra_labels": {"t" * 63: "x", "example.com/" + "l" * 52: "x"}}, "with their prefix: example.com/" + "l" * 52),
        ({"instance_types": ("m5.large",), "devices": "claims"}, "pools with accelerators or EFA interfaces; leave it out"),
        ({"extra_taints": [{"key": f"k{number}"} for number in range(51)]}, "extra_taints: 51 given, at most 50"),
        ({"extra_taints": [{"key": "a"}, {"key": "a"}]}, "taints given more than once: a:NoSchedule"),
        *(
            ({"extra_labels": {label: "x"}}, label)
            for label in (POOL_LABEL, "node-role.kubernetes.io/gpu", "karpenter.sh/nodepool", "eks.amazonaws.com/x")
        ),
    ],
)
def test_what_no_pool_can_be_is_refused_with_the_reason(given_: dict[str, Any], said: str):
    assert said in refusal_of(lambda: managed(**given_))


@pytest.mark.parametrize(
    "ami",
    [
        "AL2_x86_64_GPU",
        {"kind": "release", "ami_type": "AL2_x86_64_GPU"},
        {
            "kind": "ssm_parameter",
            "name": "/aws/service/eks/optimized-ami/1.29/amazon-linux-2-gpu/recommended/image_id",
        },
    ],
)
def test_amazon_linux_2_is_refused_with_the_reason(ami: object):
    refusal = refusal_of(lambda: managed(ami=ami))
    assert "Amazon Linux 2 is refused" in refusal
    assert "26 November 2025" in refusal
    assert "kind: release" in refusal


def test_a_capacity_block_needs_reservation_type_and_zone():
    block = {"capacity_type": "capacity_block"}
    reservation = {"capacity_reservation_id": "cr-0123456789abcdef0"}
    assert "needs its capacity_reservation_id" in refusal_of(lambda: managed("trn2.48xlarge", **block))
    assert "one zone" in refusal_of(lambda: managed("trn2.48xlarge", **block, **reservation))
    assert managed("trn2.48xlarge", **block, **reservation, zone_ids=("usw2-az3",)).capacity_reservation_id


def test_as_many_taints_and_as_long_labels_as_eks_takes_are_allowed():
    same = [{"key": "a"}, {"key": "a", "effect": "NoExecute"}]
    given_ = {"extra_labels": {"example.com/" + "l" * 51: "x"}, "devices": "claims"}
    assert len(managed(**given_, extra_taints=[*same, *({"key": f"k{number}"} for number in range(48))]).extra_taints) == 50


def test_labels_of_the_sources_are_allowed():
    labels = {"hub.jupyter.org/node-purpose": "user", "nvidia.com/gpu.present": "true", "node.kubernetes.io/lifecycle": "spot"}
    assert managed(extra_labels=labels).extra_labels == labels


@pytest.mark.parametrize("wrong", ["us-west-2a", "usw2-az0", "usw22-az1", "usw2-az12", "usw2-lax1-az1"])
def test_pools_and_networks_refuse_what_is_no_zone_id(wrong: str):
    assert "zone_ids" in refusal_of(lambda: managed(zone_ids=(wrong,)))
    assert "zone_ids" in refusal_of(lambda: NetworkSpec(zone_ids=(wrong, "usw2-az4")))


def test_every_zone_of_the_catalog_is_a_zone_id():
    for region in zones.regions():
        zone_ids = zones.region_zone_ids(region)
        assert managed(zone_ids=zone_ids).zone_ids == zone_ids


# -- labels, taints, images ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance", "expected"),
    [("inf2.8xlarge", (NEURON,)), ("trn2.48xlarge", (NEURON,)), ("g4dn.xlarge", (NVIDIA,)), ("m5.large", ())],
)
def test_accelerators_are_tainted_and_the_core_pool_is_not(instance: str, expected: tuple[Taint, ...]):
    assert plan.pool_taints(managed(instance)) == expected


def test_taints_can_be_replaced_and_added_to():
    jupyter = {"key": "hub.jupyter.org/dedicated", "value": "user"}
    assert plan.pool_taints(managed(extra_taints=[jupyter])) == (
        NEURON,
        Taint("hub.jupyter.org/dedicated", "user", "NoSchedule"),
    )
    assert plan.pool_taints(managed(taints=[])) == ()


def test_an_extra_taint_overrides_the_default_of_the_same_key():
    other = {"key": "aws.amazon.com/neuron", "value": "shared"}
    assert plan.pool_taints(managed(extra_taints=[other])) == (Taint("aws.amazon.com/neuron", "shared", "NoSchedule"),)


def test_a_release_of_another_kubernetes_version_is_refused():
    spec = managed(ami={"kind": "release", "release_version": "1.34.9-20260714"})
    with pytest.raises(SpecError, match="another Kubernetes version"):
        plan.release_version(spec.ami, spec.instances()[0], "1.35")  # pyright: ignore[reportArgumentType]


def test_karpenter_names_a_release_by_its_date():
    assert plan.karpenter_ami_alias("1.35.6-20260714") == "al2023@v20260714"


def test_zones_the_network_lacks_are_named():
    with pytest.raises(SpecError, match=r"given: usw2-az3; allowed: usw2-az1, usw2-az2"):
        plan.pool_zones(managed(zone_ids=["usw2-az2", "usw2-az3"]), ["usw2-az1", "usw2-az2", "usw2-az2"], "us-west-2")


def test_a_group_with_accelerators_stays_in_two_zones_that_offer_its_type():
    where = ("usw2-az4", "usw2-az1", "usw2-az2", "usw2-az3")
    assert plan.pool_zones(managed("inf2.48xlarge"), where, "us-west-2") == ("usw2-az4", "usw2-az1")
    assert plan.pool_zones(managed("g4dn.xlarge"), where, "us-west-2") == ("usw2-az1",), "az4 does not offer it"
    assert plan.pool_zones(managed("m5.xlarge"), where, "us-west-2") == where
    assert plan.pool_zones(managed("g4dn.xlarge", zone_ids=where[1:]), where, "us-west-2") == where[1:]
    assert plan.pool_zones(managed("g4dn.xlarge"), where, "xx-none-1") == where[:2]


@given(st.data())
def test_a_zone_that_is_added_replaces_no_group_with_accelerators_and_moves_no_control_plane(data: st.DataObject):
    region = data.draw(st.sampled_from(sorted(zones.regions())))
    some = ("inf2.48xlarge", "trn1.32xlarge", "g5.xlarge", "g4dn.xlarge", "p5.48xlarge", "m5.xlarge")
    wanted = data.draw(st.lists(st.sampled_from(some), unique=True))
    types = [name for name in wanted if zones.zone_ids(region, instance_type(name).family)]
    families = [instance_type(name).family for name in types]
    grown = []
    for count in range(2, len(zones.region_zone_ids(region)) + 1):
        with suppress(SpecError):
            grown.append(choose_zones(region, families, count))
    for before, after in itertools.pairwise(grown):
        assert after[: len(before)] == before
        assert control_plane_zones(after) == control_plane_zones(before)
        for name in types:
            if instance_type(name).accelerator:
                spec = managed(name)
                assert plan.pool_zones(spec, after, region) == plan.pool_zones(spec, before, region)


# -- what pods can use of a node -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cpu_millis", "memory_mib"),
    # Karpenter v1.14, "Instance types" reference, section Resources of each type.
    [
        ("inf2.8xlarge", 31850, 118312),
        ("inf2.48xlarge", 191450, 718987),
        ("trn1.32xlarge", 127610, 481894),
        ("trn2.48xlarge", 191450, 1938410),
        ("g4dn.xlarge", 3920, 14481),
        ("m5.2xlarge", 7910, 29317),
        ("m6i.large", 1930, 6903),
    ],
)
def test_allocatable_agrees_with_the_published_figures(name: str, cpu_millis: int, memory_mib: int):
    left = allocatable(instance_type(name))
    assert (left.cpu_millis, left.memory_mib) == (cpu_millis, memory_mib)


@given(st.sampled_from(list(instance_types().values())))
def test_something_is_left_of_every_node_and_something_is_kept_back(instance: Any):
    room = allocatable(instance)
    assert 0 < room.cpu_millis < instance.vcpus * 1000
    assert 0 < room.memory_mib < instance.memory_mib


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"podPidsLimit": -1, "evictionMaxPodGracePeriod": -1, "registryPullQPS": 0, "registryBurst": 0}, ""),
        ({"evictionHard": {"nodefs.available": "100%"}, "shutdownGracePeriod": "0", "maxParallelImagePulls": 1}, ""),
        ({"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1.5h30s"}}, ""),
        ({"cpuManagerPolicy": "static"}, ""),
        ({"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "0"}, "systemReserved": {"cpu": "100m"}}, ""),
        ({"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "0"}}, "has CPU above 0"),
        ({"serializeImagePulls": False, "maxParallelImagePulls": 2}, ""),
        ({"serializeImagePulls": True, "maxParallelImagePulls": 2}, "above 1 only if serializeImagePulls is false"),
        ({"evictionSoft": {"memory.available": "1Gi"}}, "have the same signals; only one has: memory.available"),
        ({"kubeReserved": {"memory": "450m"}}, "memory: 450m is less than one: m means thousandths"),
        ({"imageGCLowThresholdPercent": 84}, ""),
        ({"imageGCLowThresholdPercent": 85}, r"imageGCLowThresholdPercent \(85\) is below imageGCHighThresholdPercent \(85\)"),
        ({"imageGCHighThresholdPercent": 80}, r"imageGCLowThresholdPercent \(80\) is below"),
        ({"containerLogMaxSize": "1m"}, "is not an amount of memory"),
        ({"podPidsLimit": 0}, "at least 100, or -1 for no limit"),
        ({"podPidsLimit": -2}, "podPidsLimit"),
        ({"registryBurst": 0}, "lets no image be pulled"),
        ({"shutdownGracePeriod": "2m", "shutdownGracePeriodCriticalPods": "120s"}, ""),
        ({"shutdownGracePeriodCriticalPods": "1s"}, ""),
        ({"evictionHard": {"memory.available": "101%"}}, "memory.available"),
        ({"evictionMaxPodGracePeriod": -2}, "evictionMaxPodGracePeriod"),
    ],
)
def test_settings_of_the_kubelet_are_those_that_it_takes(settings: dict[str, Any], complaint: str):
    if complaint:
        with pytest.raises(SpecError, match=complaint):
            KubeletSpec.model_validate(settings)
    else:
        assert KubeletSpec.model_validate(settings).settings() == settings


def test_a_threshold_of_the_whole_memory_reserves_nothing():
    small = instance_type("inf2.xlarge")
    off, zero = (allocatable(small, {"evictionHard": {"memory.available": share}}) for share in ("100%", "0"))
    assert off == zero


def test_settings_of_the_kubelet_replace_what_is_reserved_one_by_one():
    """g4dn.xlarge: 4 cores less 80m; 16384 MiB x 0.925 less 255 + 11 x 29 and 100."""
    one = instance_type("g4dn.xlarge")
    assert allocatable(one, {"systemReserved": {"cpu": "1", "memory": "1Gi"}}) == Allocatable(2920, 14481 - 1024, 29)
    assert allocatable(one, {"kubeReserved": {"cpu": "500m"}}) == Allocatable(3500, 14481, 29)
    assert allocatable(one, {"evictionHard": {"memory.available": "10%"}}).memory_mib == int(15155.2 * 0.9 - 255 - 11 * 29)
    assert allocatable(one, {"maxPods": 20}).pods == 20
    assert allocatable(one, {"maxPods": 20, "podsPerCore": 4}).pods == 16
    assert allocatable(one, {"kubeReserved": {"cpu": "<unknown>"}, "maxPods": "<unknown>"}) == allocatable(one)


# -- user data -------------------------------------------------------------------------------------------------------------------


FACTS = plan.ClusterFacts("llama", "https://0F1E.gr7.us-west-2.eks.amazonaws.com", "TFMwdExTMUNSVWRKVGc9PQ==", "172.20.0.0/16")


def node_config(user_data: str | None) -> dict[str, Any]:
    """The one NodeConfig in the user data, read as nodeadm reads it: MIME parts by media type, then YAML."""
    assert user_data is not None
    parts = [part for part in email.message_from_string(user_data).walk() if not part.is_multipart()]
    assert [part.get_content_type() for part in parts] == ["application/node.eks.aws"]
    return yaml.safe_load(str(parts[0].get_payload()))


def test_a_plain_pool_has_nothing_to_say_to_an_image_of_eks():
    assert plan.user_data(managed("m5.2xlarge"), pool="core") is None
    assert plan.user_data(managed("inf2.8xlarge"), pool="inf2") is None


def test_user_data_with_kubelet_settings():
    spec = managed("inf2.48xlarge", kubelet={"imageGCHighThresholdPercent": 90, "registryPullQPS": 50})
    assert_golden("pools/user-data-kubelet.txt", plan.user_data(spec, pool="inf2") or "")


def test_user_data_with_local_disks():
    assert_golden("pools/user-data-trn1-raid0.txt", plan.user_data(managed("trn1.32xlarge"), pool="trn1") or "")


def test_user_data_of_an_own_image_says_everything():
    spec = managed(
        "trn1.32xlarge",
        ami={"kind": "image_id", "id": "ami-0123456789abcdef0"},
        extra_labels={"instance-type": "trn1-32xl"},
        kubelet={"maxPods": 110},
    )
    text = plan.user_data(spec, pool="trn1", cluster=FACTS)
    assert_golden("pools/user-data-own-image.txt", text or "")
    said = node_config(text)["spec"]
    assert said["cluster"]["name"] == "llama"
    assert said["kubelet"]["flags"] == ["--node-labels=eks-inference/pool=trn1,instance-type=trn1-32xl"]
    assert said["kubelet"]["config"] == {"registerWithTaints": [NEURON.manifest()], "maxPods": 110}


QUANTITIES = st.from_regex(r"[1-9][0-9]{0,2}(Mi|Gi)?", fullmatch=True)
RESERVED = {
    "cpu": st.from_regex(r"[1-9][0-9]{0,2}m?", fullmatch=True),
    "memory": QUANTITIES,
    "ephemeral-storage": QUANTITIES,
    "pid": QUANTITIES,
}
KUBELET = st.fixed_dictionaries(
    {},
    optional={
        "maxPods": st.integers(1, 250),
        "systemReserved": st.fixed_dictionaries({}, optional=RESERVED),
        "evictionHard": st.dictionaries(st.sampled_from(["memory.available", "nodefs.available"]), QUANTITIES | st.just("5%")),
        "registryPullQPS": st.integers(0, 100),
        "serializeImagePulls": st.booleans(),
        "cpuManagerPolicy": st.sampled_from(["none", "static"]),
    },
).filter(bool)


@given(KUBELET)
def test_user_data_carries_kubelet_settings_unharmed(kubelet: dict[str, Any]):
    text = plan.user_data(managed(kubelet=kubelet), pool="inf2")
    assert node_config(text)["spec"]["kubelet"]["config"] == kubelet


# -- IAM documents ---------------------------------------------------------------------------------------------------------------


def test_ec2_is_named_after_its_partition():
    assert iam.ec2_service("aws-us-gov") == "ec2.amazonaws.com"
    assert iam.ec2_service("aws-cn") == "ec2.amazonaws.com.cn"


def test_reading_a_bucket_is_reading_nothing_else():
    statements = iam.s3_read(["models"], "aws-cn")["Statement"]
    assert [statement["Resource"] for statement in statements] == [["arn:aws-cn:s3:::models"], ["arn:aws-cn:s3:::models/*"]]
    assert {action for statement in statements for action in statement["Action"]} == {
        "s3:GetBucketLocation",
        "s3:ListBucket",
        "s3:GetObject",
    }


# -- resources -------------------------------------------------------------------------------------------------------------------


class Surroundings:
    """A cluster and a network of the same program, each with a resource that pools have to wait for."""

    def __init__(self, **settings: Any) -> None:
        routes, addon = (pulumi.CustomResource("test:index:Ready", name) for name in ("routes", "vpc-cni"))
        self.network = replace(existing_vpc(), ready=(routes,))
        self.cluster = replace(existing_cluster("llama", **settings), ready=(addon,))


def graph_of(spec: ManagedPoolSpec, name: str = "neuron", pool: str | None = None, **settings: Any) -> Graph:
    def build() -> None:
        around = Surroundings(**settings)
        ManagedPool(name, spec, cluster=around.cluster, network=around.network, pool=pool)

    return record(build, project="p", stack="s", config={"aws:region": "us-west-2"})


def placement_of(spec: ManagedPoolSpec, wanted: str | None = None) -> Placement:
    found: list[Placement] = []

    def build() -> None:
        around = Surroundings()
        found.append(ManagedPool("neuron", spec, cluster=around.cluster, network=around.network).placement(wanted))

    record(build)
    return found[0]


def node_group(graph: Graph) -> Resource:
    (group,) = graph.of_type("aws:eks/nodeGroup:NodeGroup")
    return group


def launch_template(graph: Graph) -> dict[str, Any]:
    (template,) = graph.of_type("aws:ec2/launchTemplate:LaunchTemplate")
    return dict(template.inputs)


def test_an_inferentia_pool():
    spec = managed("inf2.48xlarge", root_volume_gib=1024, s3_read_buckets=["models"], ssh_key_name="ops")
    graph = graph_of(spec, "inf2", tags={"team": "ml"})
    shown = {
        kind: graph.of_type(kind)[0].inputs for kind in ("aws:ec2/launchTemplate:LaunchTemplate", "aws:eks/nodeGroup:NodeGroup")
    }
    shown["aws:iam/rolePolicy:RolePolicy"] = json.loads(graph.named("inf2-node-role-s3-read").inputs["policy"])
    assert_golden("pools/managed-inf2.json", json.dumps(shown, indent=2, sort_keys=True))


@pytest.mark.parametrize(
    ("types", "given", "paid"),
    [
        (("inf2.8xlarge",), {}, {"throughput": 600}),
        (("m5.xlarge",), {}, {}),
        (("trn1.32xlarge",), {}, {}),
        (("m5.xlarge",), {"root_volume_mib_s": 300}, {"throughput": 300}),
        (("inf2.8xlarge",), {"root_volume_mib_s": 1000}, {"throughput": 1000, "iops": 4000}),
        (("inf2.8xlarge",), {"root_volume_mib_s": 1000, "root_volume_iops": 16000}, {"throughput": 1000, "iops": 16000}),
        (("inf2.8xlarge",), {"root_volume_mib_s": 125}, {}),
    ],
)
def test_the_root_disk_is_paid_for_where_models_are_loaded_from_it(
    types: tuple[str, ...], given: dict[str, int], paid: dict[str, int]
):
    disk = launch_template(graph_of(managed(*types, **given)))["blockDeviceMappings"][0]["ebs"]
    assert {key: disk[key] for key in ("throughput", "iops") if key in disk} == paid


@pytest.mark.parametrize(
    ("types", "given", "speed"), [("inf2.8xlarge", {}, 600), ("inf2.8xlarge", {"root_volume_mib_s": 2000}, 1192)]
)
def test_a_placement_knows_how_fast_models_come_onto_the_node(types: str, given: dict[str, int], speed: int):
    assert placement_of(managed(types, **given)).disk_mib_s == speed


def test_the_speed_of_local_disks_is_unknown():
    assert placement_of(managed("trn1.32xlarge")).disk_mib_s is None


def test_parallel_pulls_are_a_feature_gate_of_nodeadm():
    assert node_config(plan.user_data(managed(fast_image_pull=True), pool="p"))["spec"] == {
        "featureGates": {"FastImagePull": True}
    }


RELEASES = [
    ("inf2.xlarge", "1.35.6-20260714", []),
    ("inf2.xlarge", "1.33.3-20250915", ["nodes of inf2.xlarge ignore fast_image_pull"]),
    ("inf2.8xlarge", "1.33.3-20250819", ["nodes of this release ignore fast_image_pull"]),
    ("inf2.8xlarge", "1.35.4-20260505", ["nodes of this release do not join the cluster with parallel image pulls"]),
    ("trn1.32xlarge", "1.35.6-20260714", []),
    ("trn1.32xlarge", "1.33.3-20251209", ["at 125 MiB/s a parallel pull may take longer than a plain one"]),
    ("m5.large", "1.35.6-20260714", ["nodes of m5.large ignore fast_image_pull", "at 125 MiB/s a parallel pull may take longer"]),
]


@pytest.mark.parametrize(("instance", "release", "said"), RELEASES)
def test_parallel_pulls_depend_on_release_size_and_disk(instance: str, release: str, said: list[str]):
    spec = managed(instance, fast_image_pull=True, ami={"kind": "release", "release_version": release})
    judged = node_rules.parallel_pulls_help.judge(PoolFacts("p", spec, release[:4], "us-west-2"))
    broken = [judgement.message for judgement in judged if not judgement.holds]
    assert len(broken) == len(said)
    assert all(message.startswith(start) for message, start in zip(broken, said, strict=True))


def test_long_names_stay_within_what_aws_takes():
    """A stack and a pool of forty characters each; Pulumi adds eight."""
    graph = graph_of(managed(), f"{'s' * 40}-{'p' * 40}", pool="p" * 40)
    limits = {"aws:iam/role:Role": 64, "aws:eks/nodeGroup:NodeGroup": 63, "aws:ec2/launchTemplate:LaunchTemplate": 128}
    for kind, limit in limits.items():
        assert len(graph.of_type(kind)[0].name) + 8 <= limit


@given(st.text("abc-", min_size=1, max_size=90), st.text("abc-", min_size=1, max_size=90))
def test_shortened_names_stay_different(one: str, other: str):
    assert (naming.within(64, one) == naming.within(64, other)) == (one == other)


def test_taints_are_in_the_spelling_of_eks():
    evict = {"key": "maintenance", "effect": "NoExecute"}
    assert node_group(graph_of(managed(extra_taints=[evict]))).inputs["taints"] == [
        {"key": "aws.amazon.com/neuron", "value": "true", "effect": "NO_SCHEDULE"},
        {"key": "maintenance", "value": "", "effect": "NO_EXECUTE"},
    ]


def test_image_and_version_are_pinned():
    inputs = node_group(graph_of(managed("g4dn.xlarge"))).inputs
    assert (inputs["amiType"], inputs["version"]) == ("AL2023_x86_64_NVIDIA", "1.35")
    assert inputs["releaseVersion"] == versions.ami_release("AL2023_x86_64_NVIDIA", "1.35")
    given = managed(ami={"kind": "release", "release_version": "1.35.1-20260304"})
    assert node_group(graph_of(given)).inputs["releaseVersion"] == "1.35.1-20260304"


@pytest.mark.parametrize(
    ("size", "bounds"), [(3, {"desiredSize": 3, "minSize": 3, "maxSize": 3}), (0, {"desiredSize": 0, "minSize": 0, "maxSize": 1})]
)
def test_size_is_fixed(size: int, bounds: dict[str, int]):
    group = node_group(graph_of(managed(size=size)))
    assert group.inputs["scalingConfig"] == bounds
    assert "ignoreChanges" not in group.options


def test_an_external_autoscaler_owns_the_size():
    group = node_group(graph_of(managed(autoscaled={"min": 0, "max": 4})))
    assert group.inputs["scalingConfig"] == {"desiredSize": 1, "minSize": 0, "maxSize": 4}
    assert group.options["ignoreChanges"] == ["scalingConfig.desiredSize"]


def test_nodes_are_confined_to_the_zones_given():
    assert node_group(graph_of(managed(zone_ids=("usw2-az3", "usw2-az1")))).inputs["subnetIds"] == [
        "subnet-private-usw2-az1",
        "subnet-private-usw2-az3",
    ]


def test_metadata_needs_a_token_and_stays_on_the_node():
    options = launch_template(graph_of(managed()))["metadataOptions"]
    assert options == {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1}
    assert launch_template(graph_of(managed(metadata_hop_limit=2)))["metadataOptions"]["httpPutResponseHopLimit"] == 2


@pytest.mark.parametrize(("instance", "gib"), [("m5.2xlarge", 100), ("trn1.32xlarge", 500)])
def test_root_disks_are_encrypted_and_large_enough_for_images(instance: str, gib: int):
    (disk,) = launch_template(graph_of(managed(instance), kms_key_arn=KEY))["blockDeviceMappings"]
    assert disk["deviceName"] == "/dev/xvda"
    assert disk["ebs"] == {
        "volumeSize": gib,
        "volumeType": "gp3",
        "encrypted": "true",
        "kmsKeyId": KEY,
        "deleteOnTermination": "true",
    }


def test_an_own_image_is_told_the_cluster_and_eks_is_told_no_version():
    graph = graph_of(managed(ami={"kind": "image_id", "id": "ami-0123456789abcdef0"}))
    assert launch_template(graph)["imageId"] == "ami-0123456789abcdef0"
    assert not {"amiType", "version", "releaseVersion"} & node_group(graph).inputs.keys()
    cluster = node_config(base64.b64decode(launch_template(graph)["userData"]).decode())["spec"]["cluster"]
    assert cluster == {
        "name": "llama",
        "apiServerEndpoint": "https://cluster.example",
        "certificateAuthority": "Q0E=",
        "cidr": "172.20.0.0/16",
    }


def test_an_image_behind_a_parameter_is_read_while_deploying_and_is_no_secret():
    graph = graph_of(managed(ami={"kind": "ssm_parameter", "name": "/golden/neuron"}))
    (parameter,) = graph.of_type("aws:ssm/parameter:Parameter")
    assert parameter.options["read"] == "/golden/neuron"
    assert launch_template(graph)["imageId"] == "<neuron-image.value>"


def test_a_capacity_block_stands_in_the_template():
    spec = managed(
        "trn2.48xlarge",
        capacity_type="capacity_block",
        capacity_reservation_id="cr-0123456789abcdef0",
        zone_ids=("usw2-az3",),
    )
    graph = graph_of(spec)
    template = launch_template(graph)
    assert template["instanceType"] == "trn2.48xlarge"
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    target = template["capacityReservationSpecification"]["capacityReservationTarget"]
    assert target == {"capacityReservationId": "cr-0123456789abcdef0"}
    assert node_group(graph).inputs["capacityType"] == "CAPACITY_BLOCK"
    assert "instanceTypes" not in node_group(graph).inputs


def test_nothing_is_asked_of_an_account():
    """Strict recording leaves unknown what only a deployment knows; the template's text is unknown then, the group is not."""

    def build() -> None:
        around = Surroundings()
        ManagedPool("neuron", managed("trn1.32xlarge"), cluster=around.cluster, network=around.network)

    assert node_group(record(build, strict=True)).inputs["releaseVersion"] == "1.35.6-20260714"


# -- placements ------------------------------------------------------------------------------------------------------------------


def test_a_placement_answers_the_pools_label_and_taints():
    placement = placement_of(managed(size=4, zone_ids=("usw2-az3",)))
    assert placement.node_selector == {POOL_LABEL: "neuron"}
    assert placement.tolerations() == [NEURON.toleration()]
    assert (placement.instance_type.name, placement.max_nodes, placement.zone_ids) == ("inf2.8xlarge", 4, ("usw2-az3",))
    assert [type(resource).__name__ for resource in placement.ready] == ["NodeGroup"]


def test_a_placement_can_use_what_the_autoscaler_may_add():
    assert placement_of(managed(autoscaled={"min": 0, "max": 4})).max_nodes == 4


def test_a_pool_of_several_types_asks_which():
    spec = managed("m5.large", "m5.xlarge")
    with pytest.raises(Exception, match=r"several instance types .*: m5.large, m5.xlarge"):
        placement_of(spec)
    selector = placement_of(spec, "m5.xlarge").node_selector
    assert selector == {POOL_LABEL: "neuron", "node.kubernetes.io/instance-type": "m5.xlarge"}


def test_a_type_the_pool_lacks_is_refused_with_those_it_has():
    with pytest.raises(ValueError, match=r"pool gpus has no such instance type; given: inf2.xlarge; allowed: g4dn.xlarge"):
        ExistingPool("gpus", {"role": "gpu"}, ["g4dn.xlarge"]).placement("inf2.xlarge")


def test_an_existing_pool_is_selected_by_its_own_label():
    placement = ExistingPool("gpus", {"role": "gpu"}, ["g4dn.xlarge"], taints=(NVIDIA,), max_nodes=2).placement()
    assert placement.node_selector == {"role": "gpu"}
    assert placement.tolerations() == [NVIDIA.toleration()]
    assert placement.max_nodes == 2


@pytest.mark.parametrize(
    ("types", "severities"), [(["g6f.xlarge"], [None]), (["g6.xlarge", "g6f.xlarge"], ["warning"]), (["g6.xlarge"], [])]
)
def test_a_pool_with_some_whole_gpus_starts_nodes_of_those(types: list[str], severities: list[str | None]) -> None:
    pool = KarpenterPoolSpec.model_validate({"instance_types": types})
    said = node_rules.karpenter_counts_gpus.judge(PoolFacts("gpu", pool, "1.35", "us-west-2"))
    assert [judgement.severity for judgement in said if not judgement.holds] == severities


def test_a_threshold_of_inodes_is_below_what_a_disk_has() -> None:
    share, number = ({"evictionHard": {"nodefs.inodesFree": kept}} for kept in ("5%", "100000000"))
    assert free_inodes(50, number) < 0 < free_inodes(50, share) < free_inodes(50, {}) == 26214400


GROUP = "arn:aws:resource-groups:us-east-2:123456789012:group/reserved"


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        ({"kubelet": {"evictionHard": {"imagefs.available": "90%"}}}, {"disk"}),
        ({"kubelet": {"evictionHard": {"imagefs.available": "60%"}}}, set()),
        ({"capacity_reservation_group_arn": GROUP}, {"zones of the group"}),
        ({"capacity_reservation_group_arn": GROUP, "zone_ids": ["use2-az1", "use2-az2"]}, set()),
    ],
    ids=str,
)
def test_what_leaves_a_node_little_disk_or_its_zone_open_is_not_judged(changes: dict[str, Any], unjudged: set[str]) -> None:
    spec = ManagedPoolSpec.model_validate({"instance_types": ["m5.large"], "size": 1, **changes})
    pool = PoolFacts("core", spec, "1.35", "us-east-2", ("use2-az1", "use2-az2"))
    found = [judgement for rule in (kubelet_leaves_room, reservation_in_one_zone) for judgement in rule.judge(pool)]
    assert {judgement.unjudged.what for judgement in found if judgement.unjudged} == unjudged
    assert all(judgement.holds for judgement in found)


@pytest.mark.parametrize(
    ("rule", "types", "given_", "what"),
    [
        (image_of_the_cluster_version, ["m5.large"], {}, "the machine image"),
        (node_rules.parallel_pulls_help, ["inf2.8xlarge"], {"fast_image_pull": True}, "parallel image pulls"),
        (node_rules.nodes_work_with_drivers, ["trn2.48xlarge"], {"devices": "claims"}, "the release of nodes"),
    ],
)
def test_what_an_image_of_your_own_contains_is_not_judged(rule: Any, types: list[str], given_: dict[str, Any], what: str) -> None:
    own = {"ami": {"kind": "image_id", "id": "ami-0123456789abcdef0"}}
    ours, yours = (list(rule.judge(PoolFacts("p", managed(*types, **given_, **ami), "1.34", "us-west-2"))) for ami in ({}, own))
    assert [one.unjudged.what for one in yours if one.unjudged] == [what]
    assert not any(one.unjudged for one in ours)


@pytest.mark.parametrize(("region", "unjudged"), [("us-west-2", []), ("xx-none-1", ["zones"])])
def test_zones_of_a_region_that_the_catalog_lacks_are_not_judged(region: str, unjudged: list[str]) -> None:
    judged = zones_offer_the_family.judge(PoolFacts("p", managed("inf2.8xlarge"), "1.35", region, ("usw2-az1",)))
    assert [one.unjudged.what for one in judged if one.unjudged] == unjudged


@pytest.mark.parametrize(("limit", "refused"), [("16Gi", []), ("15Gi", ["no node fits the pool's limit of 15 GiB"])])
def test_a_limit_of_memory_has_room_for_the_smallest_node(limit: str, refused: list[str]) -> None:
    spec = KarpenterPoolSpec.model_validate({"instance_families": ["inf2"], "memory_limit": limit})
    judged = limits_hold_a_node.judge(PoolFacts("p", spec, "1.35", "us-west-2"))
    assert [(one.message, one.path[-1], one.allowed) for one in judged if not one.holds] == [
        (message, "memory_limit", "at least 16Gi") for message in refused
    ]
