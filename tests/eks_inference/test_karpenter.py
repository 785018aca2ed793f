"""Karpenter: the controller with what it needs in AWS, and the pools it fills."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pulumi
import pytest
import yaml

from eks_inference.aws import iam
from eks_inference.faults import SpecError
from eks_inference.place.placement import POOL_LABEL, Placement, Taint
from eks_inference.pools import karpenter_plan as plan
from eks_inference.pools.karpenter import ExistingKarpenter, Karpenter, NodeAutoscaler
from eks_inference.pools.karpenter_pool import KarpenterPool
from eks_inference.pools.node_monitoring import NodeMonitoringAgent
from eks_inference.pools.plan import placement_of
from eks_inference.pools.spec import KarpenterPoolSpec, KarpenterSpec
from golden import assert_golden
from graphs import foundations
from handles import existing_cluster, existing_vpc, placement, stack_settings
from stackgraph.graph.document import Graph, Resource
from stackgraph.recorder.recording import record
from variants import recorded_with

KEY = "arn:aws:kms:us-west-2:123456789012:key/12345678-1234-1234-1234-123456789012"
NODE_ROLE = "arn:aws:iam::123456789012:role/karpenter-node-role-1234567"

JUPYTER = {"key": "hub.jupyter.org/dedicated", "value": "user"}


def pool_spec(**given: Any) -> KarpenterPoolSpec:
    families = {} if "instance_types" in given else {"instance_families": ["inf2"]}
    return KarpenterPoolSpec.model_validate({"kind": "karpenter", **families, **given})


class Surroundings:
    """A cluster, a network and a core pool of the same program, each with a resource that has to come first."""

    def __init__(self, core_nodes: int = 2, **given: Any) -> None:
        routes, addon, nodes = (pulumi.CustomResource("test:index:Ready", name) for name in ("routes", "vpc-cni", "core-nodes"))
        self.network = replace(existing_vpc(zones=2), ready=(routes,))
        self.core = replace(placement("m5.2xlarge", pool="core", max_nodes=core_nodes), ready=(nodes,))
        self.cluster = replace(existing_cluster("llama", **given), ready=(addon,))

    def karpenter(self, **given: Any) -> Karpenter:
        return Karpenter("karpenter", KarpenterSpec.model_validate(given), cluster=self.cluster, placement=self.core)

    def pool(self, name: str, spec: KarpenterPoolSpec, karpenter: NodeAutoscaler, pool: str | None = None) -> KarpenterPool:
        return KarpenterPool(name, spec, cluster=self.cluster, network=self.network, karpenter=karpenter, pool=pool)


def graph_of(spec: KarpenterPoolSpec, controller: dict[str, Any] | None = None, **given: Any) -> Graph:
    def build() -> None:
        around = Surroundings(**given)
        around.pool("inf2", spec, around.karpenter(**(controller or {})))

    return record(build, project="p", stack="s", config={"aws:region": "us-west-2"})


def the(graph: Graph, kind: str) -> Resource:
    (found,) = (resource for resource in graph.resources if resource.type.endswith(kind))
    return found


# -- what a user may write -------------------------------------------------------------------------------------------------------


def refusal_of(make: Callable[[], object]) -> str:
    with pytest.raises(SpecError) as caught:
        make()
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"instance_families": ["inf3"]}, "instance family 'inf3' is not in the catalog; nearest: inf2"),
        ({"instance_families": []}, "either instance_types or instance_families"),
        ({"instance_families": ["inf2"], "instance_types": ["inf2.xlarge"]}, "either instance_types or instance_families"),
        ({"instance_families": ["m5", "inf2"]}, "differ in accelerator"),
        ({"expire_after": "30d"}, "expire_after"),
        ({"expire_after": "59m59s"}, "nodes would end after 59m59s"),
        # The controller may only read parameters of AWS.
        ({"ami": {"kind": "ssm_parameter", "name": "/golden/neuron"}}, "ami"),
        *(({"cpu_limit": limit}, "cpu_limit") for limit in (0, -1, True, 1e-9)),
    ],
    ids=str,
)
def test_what_no_pool_can_be_is_refused_with_the_reason(given: dict[str, Any], said: str):
    assert said in refusal_of(lambda: pool_spec(**given))


@pytest.mark.parametrize("lifetime", ["60m", "Never"])
def test_nodes_may_live_an_hour_or_for_ever(lifetime: str):
    assert pool_spec(expire_after=lifetime).expire_after == lifetime


def test_root_disks_and_parallel_pulls_reach_the_node_class():
    node_class = the(graph_of(pool_spec(fast_image_pull=True, root_volume_mib_s=1000)), ":EC2NodeClass").inputs["spec"]
    disk = node_class["blockDeviceMappings"][0]["ebs"]
    assert (disk["throughput"], disk["iops"]) == (1000, 4000)
    assert yaml.safe_load(node_class["userData"])["spec"] == {"featureGates": {"FastImagePull": True}}


def test_nodes_may_never_expire():
    assert pool_spec(expire_after="Never").expire_after == "Never"


def test_without_internet_karpenter_asks_neither_iam_nor_the_price_list():
    def build() -> None:
        around = Surroundings()
        network = replace(around.network, isolated=True)
        karpenter = Karpenter("karpenter", KarpenterSpec(), cluster=around.cluster, placement=around.core, network=network)
        around.pool("inf2", pool_spec(), karpenter)

    graph = record(build, project="p", stack="s", config={"aws:region": "us-west-2"})
    assert the(graph, "InstanceProfile").inputs["role"] == "<karpenter-node-role.name>"
    node_class = the(graph, "EC2NodeClass").inputs["spec"]
    assert node_class["instanceProfile"] == "<karpenter-node-profile.name>"
    assert "role" not in node_class, "Karpenter would make an instance profile itself"
    assert graph.named("karpenter-release").inputs["values"]["settings"]["isolatedVPC"] is True


# -- the controller's permissions ------------------------------------------------------------------------------------------------


def policies(**given: Any) -> dict[str, iam.Document]:
    known = plan.controller_policies(cluster="llama", settings=stack_settings(**given), queue_name="llama-karpenter")
    profiles = plan.instance_profiles_policy(cluster="llama", settings=stack_settings(**given), node_role_arn=NODE_ROLE)
    return {**known, "instance-profiles": profiles}


def test_permissions_of_the_controller():
    assert_golden("pools/karpenter-controller-policies.json", json.dumps(policies(kms_key_arn=KEY), indent=2))


def test_permissions_fit_into_one_role():
    """IAM quota: 10,240 characters of inline policies a role."""
    longest = stack_settings(region="ap-southeast-2", kms_key_arn=KEY)
    cluster = "a" * 40
    documents = [
        *plan.controller_policies(cluster=cluster, settings=longest, queue_name=f"{cluster}-karpenter").values(),
        plan.instance_profiles_policy(cluster=cluster, settings=longest, node_role_arn=NODE_ROLE),
    ]
    assert sum(len(iam.policy_json(document)) for document in documents) < 10_240


def test_the_volume_key_is_lent_only_when_there_is_one():
    assert "volume-key" not in policies()
    assert {s["Resource"] for s in policies(kms_key_arn=KEY)["volume-key"]["Statement"]} == {KEY}


def test_arns_are_of_the_regions_partition():
    text = json.dumps(policies(region="cn-north-1"))
    assert "arn:aws:" not in text.replace(NODE_ROLE, "")
    assert "ec2.amazonaws.com.cn" in text


# -- interruptions ---------------------------------------------------------------------------------------------------------------


# -- the controller --------------------------------------------------------------------------------------------------------------


def test_values_of_the_user_come_last():
    given = {"values": {"logLevel": "debug", "settings": {"featureGates": {"nodeRepair": True}}}}
    values = graph_of(pool_spec(), given).named("karpenter-release").inputs["values"]
    assert values["logLevel"] == "debug"
    assert values["settings"]["clusterName"] == "llama"
    assert values["settings"]["featureGates"] == {"nodeRepair": True}


def test_replicas_that_find_no_node_are_refused():
    with pytest.raises(Exception, match=r"karpenter.replicas: pool core has too few nodes .*given: 2; allowed: at most 1"):
        graph_of(pool_spec(), core_nodes=1)
    graph_of(pool_spec(), {"replicas": 1}, core_nodes=1)


def test_long_names_stay_within_what_aws_takes():
    def build() -> None:
        around = Surroundings()
        Karpenter(f"{'s' * 40}-karpenter", KarpenterSpec(), cluster=around.cluster, placement=around.core)

    graph = record(build)
    for resource in graph.resources:
        if resource.type in ("aws:iam/role:Role", "aws:cloudwatch/eventRule:EventRule"):
            assert len(resource.name) + 8 <= 64, resource.name


# -- order -----------------------------------------------------------------------------------------------------------------------


def test_what_the_controller_uses_outlives_it():
    graph = graph_of(pool_spec(), {"s3_read_buckets": ["models"]}, kms_key_arn=KEY)
    aws = {r.name for r in graph.resources if r.package == "aws"}
    assert aws <= {graph.by_urn[urn].name for urn in foundations(graph, graph.named("karpenter-release").urn)}
    assert any(name.endswith("-s3-read") for name in aws)


def test_repair_is_a_feature_gate_of_the_controller():
    values = graph_of(pool_spec()).named("karpenter-release").inputs["values"]
    assert "featureGates" not in values["settings"]
    repairing = graph_of(pool_spec(), {"node_repair": True}).named("karpenter-release").inputs["values"]
    assert repairing["settings"]["featureGates"] == {"nodeRepair": True}


def test_the_agent_that_sees_failed_accelerators_reaches_tainted_nodes():
    graph = record(lambda: NodeMonitoringAgent("agent", cluster=existing_cluster()))
    (addon,) = graph.of_type("aws:eks/addon:Addon")
    assert (addon.inputs["addonName"], addon.inputs["addonVersion"]) == ("eks-node-monitoring-agent", "v1.6.6-eksbuild.1")
    assert json.loads(addon.inputs["configurationValues"]) == {"dcgmAgent": {"tolerations": [{"operator": "Exists"}]}}


@pytest.mark.thorough
def test_only_a_stack_that_repairs_nodes_has_the_agent(llama3: Graph):
    agent = "eks-inference:index:NodeMonitoringAgent"
    assert not llama3.of_type(agent)
    assert len(recorded_with({"karpenter": {"node_repair": True}}).of_type(agent)) == 1


# -- pools -----------------------------------------------------------------------------------------------------------------------


def test_subnets_and_group_are_given_by_id():
    spec = graph_of(pool_spec(zone_ids=("usw2-az2",))).named("inf2-class").inputs["spec"]
    assert spec["subnetSelectorTerms"] == [{"id": "subnet-private-usw2-az2"}]
    assert spec["securityGroupSelectorTerms"] == [{"id": "sg-cluster"}]
    assert spec["role"] == "<karpenter-node-role.name>"


def test_the_image_is_pinned_to_a_day():
    def term(spec: KarpenterPoolSpec) -> dict[str, str]:
        return graph_of(spec).named("inf2-class").inputs["spec"]["amiSelectorTerms"][0]

    assert term(pool_spec()) == {"alias": "al2023@v20260714"}
    assert term(pool_spec(ami={"kind": "release", "release_version": "1.35.1-20260304"})) == {"alias": "al2023@v20260304"}
    assert term(pool_spec(ami={"kind": "image_id", "id": "ami-0123456789abcdef0"})) == {"id": "ami-0123456789abcdef0"}


def test_kubelet_settings_and_metadata_reach_the_class():
    spec = graph_of(pool_spec(kubelet={"maxPods": 30}, metadata_hop_limit=2)).named("inf2-class").inputs["spec"]
    assert spec["kubelet"] == {"maxPods": 30}
    assert (spec["metadataOptions"]["httpTokens"], spec["metadataOptions"]["httpPutResponseHopLimit"]) == ("required", 2)


def test_limits_and_weight_can_be_left_out():
    spec = graph_of(pool_spec(cpu_limit=None)).named("inf2-pool").inputs["spec"]
    assert not {"limits", "weight"} & spec.keys()


# -- a fixed number of nodes -----------------------------------------------------------------------------------------------------


def fixed(**given: Any) -> Graph:
    return graph_of(pool_spec(**given), {"static_capacity": True})


def test_the_controller_keeps_fixed_pools_when_asked_to():
    values = fixed(replicas=1).named("karpenter-release").inputs["values"]
    assert values["settings"]["featureGates"] == {"staticCapacity": True}


def test_a_pool_of_a_fixed_number_of_nodes_has_no_settings_of_pools_that_follow_pods():
    pool = fixed(replicas=2, cpu_limit="1000", node_limit=3).named("inf2-pool")
    assert pool.inputs["spec"]["replicas"] == 2
    assert pool.inputs["spec"]["limits"] == {"nodes": "3"}
    assert not {"disruption", "weight"} & pool.inputs["spec"].keys()


def test_a_pool_that_changes_between_both_modes_is_replaced():
    """The API server refuses the change."""
    two, three, follows = (fixed(replicas=nodes).named("inf2-pool").options for nodes in (2, 3, None))
    assert two["replacementTrigger"] == three["replacementTrigger"] != follows["replacementTrigger"]
    assert two["deleteBeforeReplace"] is follows["deleteBeforeReplace"] is True


@pytest.mark.parametrize(
    "given",
    [
        {"cpu_limit": "8"},
        {"memory_limit": "8Gi"},
        {"weight": 1},
        {"consolidation_policy": "WhenEmptyOrUnderutilized"},
        {"consolidate_after": "1h"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_settings_of_pools_that_follow_pods_are_refused_beside_replicas(given: dict[str, Any]):
    with pytest.raises(ValueError, match=f"leave out {next(iter(given))}, or replicas"):
        pool_spec(replicas=1, **given)


def test_a_node_limit_is_for_pools_of_both_modes():
    assert graph_of(pool_spec(node_limit=4)).named("inf2-pool").inputs["spec"]["limits"]["nodes"] == "4"


def test_a_placement_on_a_fixed_pool_knows_its_nodes():
    assert placement_of("inf2", pool_spec(replicas=2), "inf2.8xlarge", "1.35").max_nodes == 2


@pytest.mark.parametrize(("given", "limit"), [(100, "100"), (0.5, "0.5"), ("500m", "500m")])
def test_cpu_may_be_a_number_as_in_kubernetes(given: Any, limit: str):
    assert pool_spec(cpu_limit=given).cpu_limit == limit


def test_zones_the_network_lacks_are_refused():
    with pytest.raises(Exception, match="no private subnet there") as caught:
        graph_of(pool_spec(zone_ids=("usw2-az3",)))
    assert isinstance(caught.value.__cause__, SpecError)


def test_a_placement_names_one_type_of_the_family():
    found: list[Placement] = []

    def build() -> None:
        around = Surroundings()
        pool = around.pool("llama-inf2", pool_spec(extra_taints=[JUPYTER]), ExistingKarpenter("nodes"), pool="inf2")
        found.append(pool.placement("inf2.8xlarge"))
        with pytest.raises(ValueError, match="pool inf2 has several instance types"):
            pool.placement()

    record(build)
    chosen = found[0]
    assert chosen.node_selector == {POOL_LABEL: "inf2", "node.kubernetes.io/instance-type": "inf2.8xlarge"}
    assert chosen.taints == (
        Taint("aws.amazon.com/neuron", "true", "NoSchedule"),
        Taint("hub.jupyter.org/dedicated", "user", "NoSchedule"),
    )
    assert chosen.max_nodes is None
    assert chosen.zone_ids == ("usw2-az1", "usw2-az2")
    assert [type(resource).__name__ for resource in chosen.ready] == ["CustomResource"]
