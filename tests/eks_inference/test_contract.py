"""The contract of a component, over all public components: signature, specs as mappings, Outputs in and out, parents."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pytest

import eks_inference
from conftest import PROJECT, ROOT, recorded
from eks_inference import InferencePlatform, SpecError, StackSettings
from eks_inference.component import Component, carried
from eks_inference.place.nodes import allocatable
from eks_inference.serving.storage import private_bucket
from eks_inference.specs.base import Given, Spec
from eks_inference_tools.check.registry import check_graph
from graphs import stands_on
from handles import existing_cluster, existing_vpc
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record

COMPONENTS = [
    one for name in dir(eks_inference) if isinstance(one := getattr(eks_inference, name), type) and issubclass(one, Component)
]
PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
CONFIG = {"aws:region": "us-west-2"}


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda one: one.__name__)
def test_name_spec_and_options_come_by_position_and_what_it_stands_on_by_name(component: type):
    parameters = list(inspect.signature(component.__init__).parameters.values())[1:]
    by_position = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    # The name of a platform is the one of its spec. A driver is specified by the kind of its file system.
    spec = {"spec", "file_system"} & {parameter.name for parameter in parameters}
    assert by_position == [*(() if component is InferencePlatform else ("name",)), *spec, "opts"]
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters[len(by_position) :])
    assert parameters[len(by_position) - 1].default is None


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda one: one.__name__)
def test_every_spec_may_be_a_mapping(component: type):
    if (expected := inspect.get_annotations(component.__init__, eval_str=True).get("spec")) is not None:
        assert get_args(expected)[-1] == get_args(Given)[-1]


STACKS_OF_ALL = ("gpu-opt350m", "inf2-llama3", "trn2-di")
"""Stacks that together have most components."""


@pytest.mark.thorough
def test_a_stack_of_mappings_is_a_stack_of_specs(monkeypatch: pytest.MonkeyPatch):
    """Each component gets the mapping of its spec, and registers the same."""
    plain = {stack: recorded(stack) for stack in STACKS_OF_ALL}
    asked: set[type] = set()

    def of_mapping(component: Any) -> Any:
        def made(name: str, spec: Any, *given: Any, **named: Any) -> Any:
            asked.add(component)
            assert isinstance(spec, Spec)
            return component(name, spec.model_dump(mode="json", exclude_unset=True), *given, **named)

        return made

    for module in (
        "platform",
        "storage.component",
        *(f"serving.{kind}.kind" for kind in ("triton", "ray_serve", "disaggregated")),
    ):
        path = f"eks_inference.{module}"
        for name, one in vars(__import__(path, fromlist=["*"])).items():
            imported = one in COMPONENTS and (one.__module__ != path or path.endswith("storage.component"))
            if imported and "spec" in one.__init__.__annotations__:
                monkeypatch.setattr(f"{path}.{name}", of_mapping(one))
    for stack, graph in plain.items():
        config = PROJECT.config(PROJECT.stack_file(stack)).values
        again = record(PROJECT.main, project=PROJECT.name, stack=stack, config=config, root=ROOT)
        assert [replace(one, source="") for one in again.resources] == [replace(one, source="") for one in graph.resources]
    assert len(asked) > 15


@pytest.mark.parametrize("stack", STACKS_OF_ALL)
def test_whatever_a_component_makes_is_its_child(stack: str):
    tops = {one.urn for one in recorded(stack).resources if not one.parent or one.type == "pulumi:pulumi:Stack"}
    roots = [resource for resource in recorded(stack).resources if resource.parent in tops and not resource.is_provider]
    assert [root.type for root in roots] == ["eks-inference:index:InferencePlatform"]


PLAIN_ADDRESSES = {"url", "host", "grpc_address", "metrics_job"}
"""Addresses that a preview knows, which plans are made of; ``endpoint`` and ``grpc_endpoint`` are the same with their edges."""


def public_attributes(made: Any) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in vars(made).items() if not name.startswith("_"))


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS_OF_ALL)
def test_no_component_hands_out_an_address_without_its_edges(stack: str, monkeypatch: pytest.MonkeyPatch):
    made: list[Component] = []
    claim = Component._claim
    monkeypatch.setattr(Component, "_claim", lambda self, *given: (made.append(self), claim(self, *given))[1])
    config = PROJECT.config(PROJECT.stack_file(stack)).values
    record(PROJECT.main, project=PROJECT.name, stack=stack, config=config, root=ROOT)
    bare = [
        (type(component).__name__, name, value)
        for component in made
        for name, value in public_attributes(component)
        if isinstance(value, str) and name not in PLAIN_ADDRESSES
        if any(part in value for part in ("://", ".svc", "arn:", "<"))
    ]
    assert not bare
    for component in made:
        for name in ("endpoint", "grpc_endpoint", "queue_name", "repository_name", "log_group_name"):
            assert not hasattr(component, name) or isinstance(getattr(component, name), pulumi.Output), (component, name)


# -- Outputs of the same program -------------------------------------------------------------------------------------------------

LATE = {
    "ClusterSpec.admins",
    "ClusterSpec.viewers",
    "ExistingPlacementGroup.name",
    "ExistingSubnetSpec.id",
    "ExistingVpcSpec.id",
    "ExistingVpcSpec.private_subnets",
    "ExistingVpcSpec.public_subnets",
    "GatewaySpec.certificate_arn",
    "GatewaySpec.hosted_zone_id",
    "GatewaySpec.web_acl_arn",
    "ImageIdAmi.id",
    "KarpenterSpec.s3_read_buckets",
    "ManagedPoolSpec.capacity_reservation_group_arn",
    "ManagedPoolSpec.capacity_reservation_id",
    "ManagedPoolSpec.s3_read_buckets",
    "ManagedPoolSpec.ssh_key_name",
    "S3CompileCache.bucket",
    "S3Repository.bucket",
    "SharedSettings.kms_key_arn",
    "SharedSettings.permissions_boundary_arn",
    "SharedSettings.tags",
    "SnsReceiver.kms_key_arn",
    "SnsReceiver.topic_arn",
}


def specs(of: type[Spec] = Spec) -> Iterator[type[Spec]]:
    for one in of.__subclasses__():
        yield one
        yield from specs(one)


def holds_output(annotation: Any) -> bool:
    found = [annotation, *getattr(annotation, "__metadata__", ())]
    return any(type(one).__name__ == "_OrOutput" for one in found) or any(map(holds_output, get_args(annotation)))


def test_the_fields_that_take_an_output_are_known():
    late = {
        f"{spec.__name__}.{name}"
        for spec in {*specs()}
        if spec.__module__.startswith("eks_inference.") and spec.__name__ != "OfKinds"
        for name in vars(spec).get("__annotations__", ())
        if name in spec.model_fields
        and (
            holds_output(spec.model_fields[name].annotation)
            or any(type(one).__name__ == "_OrOutput" for one in spec.model_fields[name].metadata)
        )
    }
    assert late == LATE


def test_outputs_of_the_same_program_become_dependencies():
    """Every late field gets the Output of a resource; what is made of it depends on that resource."""
    graph = record(Path(__file__).parent / "late_values.py", config=CONFIG)
    known = {resource.name: resource for resource in graph.resources}

    def made_after(name: str) -> set[str]:
        return {resource.type.rpartition(":")[2] for resource in graph.resources if stands_on(graph, resource, known[name])}

    assert {"Cluster", "LaunchTemplate", "RolePolicy", "StorageClass"} <= made_after("key")
    assert {"Role"} <= made_after("boundary")
    assert {"Vpc", "Subnet", "EC2NodeClass"} <= made_after("ci")
    assert {"RolePolicy", "Release"} <= made_after("topic")
    assert {"RolePolicy"} <= made_after("weights")
    for name in ("certificate", "firewall"):
        assert {"Ingress"} <= made_after(name), name
    assert {"Record"} <= made_after("zone")
    for name in ("pair", "reservation", "group", "image", "placement"):
        assert {"LaunchTemplate"} <= made_after(name), name


def test_an_output_that_no_rule_can_read_is_not_judged():
    def program() -> None:
        core = {"kind": "managed", "instance_types": ["m5.large"], "size": 2}
        key = aws.kms.Key("key")
        InferencePlatform(
            {"name": "chat", "core_pool": "core", "pools": {"core": core}, "kms_key_arn": key.arn}, region="us-west-2"
        )

    said = [str(warning) for warning in record(program).warnings]
    assert [one for one in said if one.startswith("kms_key_arn: not judged: partition and region")]


def test_what_uses_an_endpoint_comes_after_the_server():
    graph = record(Path(__file__).parent / "programs" / "own_cluster.py", config=CONFIG)
    assert graph.outputs["endpoint"] == "http://qwen3.qwen3.svc.cluster.local:8000/v1"

    def program() -> None:
        namespace = k8s.core.v1.Namespace("server")
        known = carried("http://server", [namespace])
        k8s.core.v1.ConfigMap("client", data={"url": known})

    graph = record(program)
    client = next(resource for resource in graph.resources if resource.name == "client")
    assert client.inputs["data"] == {"url": "http://server"}
    assert [urn.rpartition("::")[2] for urn in client.property_dependencies["data"]] == ["server"]


# -- programs of teams ---------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.stem)
def test_the_program_of_a_team_is_not_refused(program: Path):
    graph: Graph = record(program, config=CONFIG)
    assert not [finding.summary for finding in check_graph(graph, {}).findings if finding.stops]
    assert any(resource.type.startswith("eks-inference:index:") for resource in graph.resources)


# -- handles and settings ----------------------------------------------------------------------------------------------------


def test_a_region_that_nobody_says_is_missing_and_else_the_one_of_the_stack():
    regions: list[str] = []
    record(lambda: regions.append(StackSettings().region), config=CONFIG)
    assert regions == ["us-west-2"]

    def nobody() -> None:
        with pytest.raises(SpecError, match="the region is missing: set aws:region"):
            StackSettings()

    record(nobody)


def test_a_cluster_of_pulumi_aws_is_named_once_and_reached_by_a_token():
    def program() -> None:
        own = aws.eks.Cluster("own", role_arn="r", vpc_config={"subnet_ids": []})
        settings = StackSettings(region="us-west-2")
        for cluster, name in ((own, None), ("prod", "other")):
            with pytest.raises(SpecError) as caught:
                eks_inference.ExistingCluster.from_aws(cluster, name=name, version="1.35", settings=settings)
            assert caught.value.faults[0].path == ("name",)
        found = eks_inference.ExistingCluster.from_aws(own, name="platform", version="1.35", settings=settings)
        assert found.ready == (own,)

    provider = next(resource for resource in record(program).resources if resource.name == "own-k8s")
    assert "get-token" in provider.inputs["kubeconfig"]
    assert "platform" in provider.inputs["kubeconfig"]
    assert provider.dependencies


def test_resources_of_a_placement_are_whole_devices_and_a_share_of_the_node():
    inf2 = eks_inference.ExistingPool("inf2", {"a": "b"}, ["inf2.24xlarge"]).placement()
    assert inf2.resources()["limits"]["aws.amazon.com/neuron"] == "6"
    half, whole = inf2.resources(1)["requests"], inf2.resources()["requests"]
    assert int(half["cpu"]) * 6 <= int(whole["cpu"]) + 6
    assert inf2.resources(1, cpu="2", memory="8Gi")["requests"] == {"cpu": "2", "memory": "8Gi", "aws.amazon.com/neuron": "1"}
    with pytest.raises(SpecError, match="cannot give a pod this many"):
        inf2.resources(7)
    cpu = eks_inference.ExistingPool("core", {"a": "b"}, ["m5.large"]).placement()
    assert set(cpu.resources()["limits"]) == {"cpu", "memory"}


def test_resources_of_a_placement_are_what_its_nodes_can_give():
    place = eks_inference.ExistingPool("gpu", {"a": "b"}, ["g5.12xlarge"]).placement()
    given: Any = {"devices": True, "cpu": 2, "memory": "1Ti"}
    with pytest.raises(SpecError) as refused:
        place.resources(**given)
    assert {fault.path[0] for fault in refused.value.faults} == set(given)
    for wrong in ("1x", "-1", "", "0", "49"):
        with pytest.raises(SpecError, match="up to 4"):
            place.resources(cpu=wrong)
    for devices in (0, 5):
        with pytest.raises(SpecError, match="allowed: 1, 2, 3, 4"):
            place.resources(devices)
    most = f"{allocatable(place.instance_type, {}).cpu_millis}m"
    assert [place.resources(1, cpu=cpu)["limits"]["cpu"] for cpu in ("1m", most)] == ["1m", most]
    less = replace(place, kubelet={"systemReserved": {"cpu": "8", "memory": "40Gi"}}).resources()["requests"]
    assert int(less["cpu"]) == int(place.resources()["requests"]["cpu"]) - 8
    assert int(less["memory"].removesuffix("Gi")) == int(place.resources()["requests"]["memory"].removesuffix("Gi")) - 40


@pytest.mark.thorough
@pytest.mark.parametrize("retain", [True, False])
def test_retain_keeps_stores_and_what_keeps_them_private(retain: bool):
    def program() -> None:
        cluster = existing_cluster(retain=retain)
        private_bucket("cache", cluster, pulumi.ComponentResource("t:t:T", "t"))
        driver = eks_inference.FileSystemDriver("efs", "efs", cluster=cluster)
        eks_inference.SharedStore("store", {"kind": "efs"}, cluster=cluster, network=existing_vpc(), driver=driver)
        lustre = eks_inference.FileSystemDriver("lustre", "fsx_lustre", cluster=cluster)
        spec = {"kind": "fsx_lustre", "zone_id": "usw2-az1"}
        if retain:
            with pytest.raises(SpecError, match="keep its network from being deleted"):
                eks_inference.SharedStore("l", spec, cluster=cluster, network=existing_vpc(), driver=lustre)

    graph = record(program)
    kept = {resource.type.rpartition(":")[2] for resource in graph.resources if resource.options.get("retainOnDelete")}
    assert kept == ({"Bucket", "BucketPublicAccessBlock", "BucketPolicy", "FileSystem"} if retain else set())
    (bucket,) = graph.of_type("aws:s3/bucket:Bucket")
    assert bucket.inputs["forceDestroy"] is not retain
