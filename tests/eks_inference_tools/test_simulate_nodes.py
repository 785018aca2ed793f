"""Nodes of a simulation: what the graph's pools start, and what Karpenter may start."""

import base64
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import recorded
from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE, cores_of
from eks_inference.catalog.instances import instance_type, instance_types
from eks_inference.place.nodes import allocatable
from eks_inference.place.placement import INSTANCE_TYPE_LABEL, NODE_GROUP_LABEL, POOL_LABEL, ZONE_ID_LABEL, ZONE_LABEL
from eks_inference.pools import plan
from eks_inference.pools.node_spec import KubeletSpec
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference_tools.placing.started_nodes import SimulatedNode, karpenter_kinds, managed_nodes, manifest
from eks_inference_tools.reading.node_groups import UserData, user_data
from eks_inference_tools.reading.scalars import quantity
from eks_inference_tools.simulate.world.unsimulated import unsimulated
from stackgraph.graph.document import Graph, Resource
from vectors.graph import cluster, graph, node_group, resource, template, trn2_group

PREFIXES = '{"env": {"ENABLE_PREFIX_DELEGATION": "true"}}'


def graph_of(*resources: Resource) -> Graph:
    return graph(cluster(), *resources).graph


def nodes_of(*resources: Resource) -> tuple[SimulatedNode, ...]:
    return managed_nodes(graph_of(*resources))


def whys(*resources: Resource) -> str:
    return "\n".join(f"{one.subject}: {one.why}" for one in unsimulated(graph_of(*resources)))


def sized(desired: Any, *instance_types: str, **changes: Any) -> Resource:
    scaling = {"minSize": 0, "desiredSize": desired, "maxSize": 9}
    return node_group(instanceTypes=list(instance_types or ("m5.2xlarge",)), scalingConfig=scaling, **changes)


def with_subnets(group: Resource, *zones: dict[str, str]) -> tuple[Resource, ...]:
    subnets = tuple(resource("aws:ec2/subnet:Subnet", f"subnet-{number}", zone) for number, zone in enumerate(zones))
    given_to = {**group.inputs, "subnetIds": [f"<{subnet.name}.id>" for subnet in subnets]}
    provider = resource("pulumi:providers:aws", "default_7", {"region": "us-west-2"})
    needed = {**group.property_dependencies, "subnetIds": tuple(subnet.urn for subnet in subnets)}
    placed = resource(group.type, group.name, given_to, property_dependencies=needed, provider=provider.urn)
    return placed, provider, *subnets


def vpc_cni(values: str = PREFIXES) -> Resource:
    return resource("aws:eks/addon:Addon", "cni", {"addonName": "vpc-cni", "configurationValues": values})


def encoded(text: str | None) -> str:
    return base64.b64encode((text or "").encode()).decode()


# -- shipped stacks --------------------------------------------------------------------------------------------------------------


def test_every_node_of_a_stack_fits_its_instance_type(shipped: Graph) -> None:
    nodes = managed_nodes(shipped)
    assert len({node.name for node in nodes}) == len(nodes) > 0
    for node in nodes:
        room = allocatable(instance_type(node.kind.instance.name))
        assert quantity(node.kind.allocatable["cpu"]) == Decimal(room.cpu_millis) / 1000
        assert quantity(node.kind.allocatable["memory"]) == room.memory_mib * 2**20
        assert node.labels[POOL_LABEL] == node.kind.shape.pool
        assert node.labels[INSTANCE_TYPE_LABEL] == node.kind.instance.name
        assert node.labels["kubernetes.io/hostname"] == node.name
        assert node.labels[ZONE_ID_LABEL].endswith(tuple(f"az{n}" for n in range(1, 7)))
        assert all(taint.effect == "NoSchedule" for taint in node.kind.taints)


def test_a_trainium_node_has_its_devices_its_disk_and_its_interfaces() -> None:
    first, *_ = (node for node in managed_nodes(recorded("trn2-di-pair")) if node.kind.instance.name == "trn2.48xlarge")
    assert first.devices == {DEVICE_RESOURCE: 16, CORE_RESOURCE: 64, EFA_RESOURCE: 16}
    # The instance store, striped, less a tenth for eviction and the GiB that nodeadm reserves.
    assert first.kind.capacity["ephemeral-storage"] == "7600000000000"
    assert first.kind.allocatable["ephemeral-storage"] == str(7600000000000 * 9 // 10 - 2**30)
    assert first.kind.allocatable["pods"] == "250"
    assert first.kind.allocatable["hugepages-2Mi"] == "10256Mi"
    assert first.labels[NODE_GROUP_LABEL] == "trn2-di-pair-trn2-nodes"


def test_devices_wait_for_their_plugin() -> None:
    (node,) = (node for node in managed_nodes(recorded("inf2-llama2")) if node.devices)
    body = manifest(node)
    assert node.devices == {DEVICE_RESOURCE: 12, CORE_RESOURCE: 24}
    assert not {*body["status"]["capacity"], *body["status"]["allocatable"]} & {DEVICE_RESOURCE, CORE_RESOURCE}
    assert body["spec"]["taints"] == [{"key": DEVICE_RESOURCE, "value": "true", "effect": "NoSchedule"}]
    assert body["spec"]["providerID"].startswith("aws:///us-east-2a/i-0")


def test_nothing_of_a_shipped_stack_is_left_out_but_what_the_catalog_lacks(shipped: Graph) -> None:
    known = {
        "inf2-llama3": {
            "pool default: it may choose instance types that the catalog does not know: "
            "the simulated Karpenter starts none of those"
        },
        "trn2-nixl": {
            ": ResourceSlices of trn2.48xlarge: ids of groups are made up, driver versions and network layers left out",
        },
    }
    assert {f"{one.subject}: {one.why}" for one in unsimulated(shipped)} == known.get(shipped.stack, set())


# -- managed node groups ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(sorted(instance_types())), st.sampled_from(["core", "gpu", "a/b", "a-b"])),
        max_size=4,
    )
)
def test_nodes_are_as_many_as_the_groups_ask_for_and_no_larger_than_they_can_be(groups: list[tuple[int, str, str]]) -> None:
    made = [
        node_group(
            name=f"{label}-{number}",
            instanceTypes=[type_name],
            labels={POOL_LABEL: label},
            scalingConfig={"desiredSize": size, "minSize": 0, "maxSize": 5},
        )
        for number, (size, type_name, label) in enumerate(groups)
    ]
    nodes = nodes_of(*made)
    assert Counter(node.kind.instance.name for node in nodes) == Counter(name for size, name, _ in groups for _ in range(size))
    assert len({node.name for node in nodes}) == len(nodes)
    for node in nodes:
        instance = instance_type(node.kind.instance.name)
        for name, room in node.kind.allocatable.items():
            assert 0 < (quantity(room) or 0) <= (quantity(node.kind.capacity[name]) or 0), name
        assert quantity(node.kind.capacity["cpu"]) == instance.vcpus
        assert quantity(node.kind.capacity["memory"]) == instance.memory_mib * 2**20
        assert int(node.kind.allocatable["pods"]) <= min(instance.max_pods, 250)
        assert all(node.devices.values())
        assert node.devices.get(CORE_RESOURCE, 0) == cores_of(node.devices.get(DEVICE_RESOURCE, 0), instance)


def test_nodes_take_the_zones_of_the_subnets_in_turn() -> None:
    found = nodes_of(*with_subnets(sized(3), {"availabilityZoneId": "usw2-az4"}, {"availabilityZoneId": "usw2-az1"}))
    assert [(node.labels[ZONE_LABEL], node.labels[ZONE_ID_LABEL]) for node in found] == [
        ("us-west-2d", "usw2-az4"),
        ("us-west-2a", "usw2-az1"),
        ("us-west-2d", "usw2-az4"),
    ]


def test_a_zone_that_is_named_keeps_its_name_and_has_no_made_up_id() -> None:
    found = nodes_of(*with_subnets(sized(1), {"availabilityZone": "us-west-2c"}))
    assert found[0].labels[ZONE_LABEL] == "us-west-2c"
    assert ZONE_ID_LABEL not in found[0].labels


def test_zones_that_the_graph_does_not_know_are_made_up_and_said() -> None:
    assert {node.labels[ZONE_LABEL] for node in nodes_of(sized(3))} == {"us-west-2a"}
    assert "core: the zones of its subnets are not in the graph: those of its nodes are made up" in whys(sized(3))


def test_maximum_pods_are_those_of_eks() -> None:
    # 58 addresses; with prefixes far more, so the bound of EKS holds: 110 below 30 vCPUs, else 250.
    assert nodes_of(sized(1))[0].kind.allocatable["pods"] == "58"
    assert nodes_of(sized(1), vpc_cni())[0].kind.allocatable["pods"] == "110"
    assert nodes_of(sized(1), vpc_cni("{"))[0].kind.allocatable["pods"] == "58"
    assert nodes_of(sized(1, "inf2.48xlarge"))[0].kind.allocatable["pods"] == "250"
    # One number for all types of a group.
    assert nodes_of(sized(1, "inf2.48xlarge", "m5.large"))[0].kind.allocatable["pods"] == "29"


def test_maximum_pods_of_the_pool_hold_below_the_bound_of_eks() -> None:
    def of(most: int, **changes: Any) -> str:
        spec = ManagedPoolSpec(instance_types=("m5.2xlarge",), size=1, kubelet=KubeletSpec(maxPods=most))
        made = template(userData=encoded(plan.user_data(spec, pool="core")), **changes)
        return nodes_of(node_group(made), made)[0].kind.allocatable["pods"]

    assert of(30) == "30"
    assert of(200) == "110"
    assert of(200, imageId="ami-0123456789abcdef0") == "200"


def test_a_pool_of_other_logical_cores_has_other_cores() -> None:
    spec = ManagedPoolSpec(instance_types=("trn2.48xlarge",), size=1, logical_cores=1)
    made = template(userData=encoded(plan.user_data(spec, pool="trn2")))
    (node,) = nodes_of(trn2_group(made), made)
    assert node.devices == {DEVICE_RESOURCE: 16, CORE_RESOURCE: 128}


def test_disks_are_those_of_the_launch_template_or_of_eks() -> None:
    made = template(blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"volumeSize": 100}}])
    assert nodes_of(node_group(made), made)[0].kind.capacity["ephemeral-storage"] == str(100 * 2**30)
    assert nodes_of(sized(1))[0].kind.capacity["ephemeral-storage"] == str(20 * 2**30)
    assert nodes_of(sized(1, diskSize=50))[0].kind.capacity["ephemeral-storage"] == str(50 * 2**30)


def test_what_a_node_lacks_is_said() -> None:
    own = template(imageId="ami-0123456789abcdef0", userData="<unknown>")
    assert "custom image" in whys(node_group(own), own)
    assert "user data is known only after deployment" in whys(node_group(own), own)
    assert "EC2 may start m5.large instead" in whys(sized(1, "m5.2xlarge", "m5.large"))
    assert "BOTTLEROCKET" in whys(sized(1, amiType="BOTTLEROCKET_x86_64"))
    assert "the values of its labels team are not known" in whys(sized(1, labels={"team": "[secret]"}))
    reserved = template(userData=encoded("apiVersion: node.eks.aws/v1alpha1\nspec: {kubelet: {config: {reservedMemory: []}}}"))
    assert "reservedMemory" in whys(node_group(reserved), reserved)


@pytest.mark.parametrize("size", ["<unknown>", None, "many"])
def test_a_group_of_unknown_size_has_no_nodes_and_that_is_said(size: Any) -> None:
    assert nodes_of(sized(size)) == ()
    assert "its size is known only after deployment" in whys(sized(size))


def test_an_instance_type_outside_the_catalog_has_no_nodes_and_that_is_said() -> None:
    assert nodes_of(sized(2, "z9.huge")) == ()
    assert "the catalog does not know z9.huge" in whys(sized(2, "z9.huge"))
    assert nodes_of(sized(2, "<unknown>")) == ()
    assert "its instance type" in whys(sized(2, "<unknown>"))


def test_a_taint_that_only_asks_pods_to_stay_away_is_there_too() -> None:
    taints = [{"key": "spare", "effect": "PREFER_NO_SCHEDULE"}, {"key": "hidden", "value": "[secret]", "effect": "NO_SCHEDULE"}]
    (node,) = nodes_of(sized(1, taints=taints))
    assert manifest(node)["spec"]["taints"] == [{"key": "spare", "effect": "PreferNoSchedule"}]


def test_nodes_with_gpus_are_labelled_since_1_35() -> None:
    assert nodes_of(sized(1, "g4dn.xlarge"))[0].labels["nvidia.com/gpu.present"] == "true"
    assert "nvidia.com/gpu.present" not in nodes_of(sized(1, "g4dn.xlarge", version="1.34"))[0].labels
    assert "nvidia.com/gpu.present" not in nodes_of(sized(1))[0].labels


def test_names_that_only_a_deployment_knows_are_no_labels() -> None:
    (node,) = nodes_of(sized(1, nodeGroupName="<unknown>"))
    assert node.labels[NODE_GROUP_LABEL] == "core"
    assert node.name == "core-1"
    pool = node_pool(INF2)
    pool.inputs["spec"]["template"]["spec"]["nodeClassRef"] = "<class.metadata>"
    assert all(
        "<" not in value for kind in karpenter_kinds(graph_of(pool)) for value in kind.node("x", kind.zones[0]).labels.values()
    )


def test_other_makers_of_nodes_are_said() -> None:
    assert "the graph creates no nodes" in whys()
    assert "in other ways" in whys(sized(1), resource("aws:eks/fargateProfile:FargateProfile", "fargate", {}))


# -- user data -------------------------------------------------------------------------------------------------------------------


def test_user_data_that_nobody_can_read_is_told_from_none() -> None:
    assert user_data(None) == user_data("") == UserData()
    for unreadable in ("[secret]", "<unknown>", "***", ["list"], "/w==", encoded("apiVersion: node.eks.aws/v1\nspec: [}")):
        assert not user_data(unreadable).read, unreadable


def test_huge_pages_of_a_script_are_counted() -> None:
    made = template(userData=encoded("#!/bin/bash\nsysctl -w vm.nr_hugepages=1024\n"))
    assert nodes_of(node_group(made), made)[0].kind.allocatable["hugepages-2Mi"] == "2048Mi"


@given(st.text())
def test_no_user_data_is_too_odd(odd: str) -> None:
    assert isinstance(user_data(odd), UserData)
    assert isinstance(user_data(encoded(odd)), UserData)
    assert isinstance(user_data(encoded(f"MIME-Version: 1.0\n{odd}")), UserData)


# -- Karpenter -------------------------------------------------------------------------------------------------------------------


def node_pool(*requirements: tuple[str, str, list[str]], **spec: Any) -> Resource:
    template = {
        "spec": {
            "nodeClassRef": {"name": "class"},
            "requirements": [{"key": key, "operator": operator, "values": values} for key, operator, values in requirements],
        }
    }
    body = {"metadata": {"name": "pool"}, "spec": {"template": template, **spec}}
    return resource("kubernetes:karpenter.sh/v1:NodePool", "pool", body)


def node_class(**spec: Any) -> Resource:
    good = {"amiSelectorTerms": [{"alias": "al2023@v20260714"}]}
    body = {"metadata": {"name": "class"}, "spec": {**good, **spec}}
    return resource("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass", "class", body)


INF2 = ("karpenter.k8s.aws/instance-family", "In", ["inf2"])


def test_karpenter_may_start_what_the_requirements_allow() -> None:
    def types(*requirements: tuple[str, str, list[str]]) -> list[str]:
        return [kind.instance.name for kind in karpenter_kinds(graph_of(node_pool(INF2, *requirements), node_class()))]

    assert types() == ["inf2.xlarge", "inf2.8xlarge", "inf2.24xlarge", "inf2.48xlarge"]
    assert types(("karpenter.k8s.aws/instance-size", "NotIn", ["xlarge"])) == ["inf2.8xlarge", "inf2.24xlarge", "inf2.48xlarge"]
    assert types(("karpenter.k8s.aws/instance-accelerator-count", "Gt", ["1"])) == ["inf2.24xlarge", "inf2.48xlarge"]
    assert types(("karpenter.k8s.aws/instance-category", "In", ["inf"]), ("kubernetes.io/arch", "In", ["arm64"])) == []
    assert types(("karpenter.k8s.aws/instance-generation", "Lt", ["2"])) == []


def test_nodes_of_karpenter_have_its_labels() -> None:
    found = karpenter_kinds(
        graph_of(
            node_pool(INF2, ("karpenter.sh/capacity-type", "In", ["on-demand", "spot"])), node_class(kubelet={"maxPods": 30})
        )
    )
    node = found[0].node("pool-1", found[0].zones[0])
    assert node.labels["karpenter.sh/nodepool"] == "pool"
    assert node.labels["karpenter.sh/capacity-type"] == "spot"
    assert node.labels["karpenter.k8s.aws/instance-size"] == "xlarge"
    assert node.labels["karpenter.k8s.aws/ec2nodeclass"] == "class"
    assert node.kind.allocatable["pods"] == "30"


def test_disks_of_karpenters_nodes_are_those_of_the_class() -> None:
    def disk(**spec: Any) -> str:
        pool = node_pool(("node.kubernetes.io/instance-type", "In", ["trn1.2xlarge"]))
        return karpenter_kinds(graph_of(pool, node_class(**spec)))[0].capacity["ephemeral-storage"]

    root = {"rootVolume": True, "ebs": {"volumeSize": "200Gi"}}
    assert disk() == str(20 * 2**30)
    assert disk(blockDeviceMappings=[{"ebs": {"volumeSize": "50Gi"}}, root]) == str(200 * 2**30)
    assert disk(blockDeviceMappings=[root], instanceStorePolicy="RAID0") == str(474 * 10**9)


def test_what_karpenters_nodes_lack_is_said() -> None:
    assert "its EC2NodeClass is not in the graph" in whys(node_pool(INF2))
    assert "custom image" in whys(node_pool(INF2), node_class(amiSelectorTerms=[{"id": "ami-1"}]))
    assert "user data" in whys(node_pool(INF2), node_class(userData="..."))
    assert "podsPerCore" in whys(node_pool(INF2), node_class(kubelet={"podsPerCore": 4}))
