"""A component takes only what belongs to one cluster, network and region: every parameter of every component is crossed."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pulumi
import pytest

import eks_inference
from eks_inference import (
    ClusterAddons,
    ClusterAddonsSpec,
    ClusterSpec,
    DraDriver,
    EfaPlugin,
    EfsStoreSpec,
    EksCluster,
    ExistingCluster,
    ExistingEfaPlugin,
    ExistingKarpenter,
    ExistingKeda,
    ExistingKubeRayOperator,
    ExistingLeaderWorkerSets,
    ExistingLoadBalancerController,
    ExistingNeuronScheduler,
    ExistingPool,
    ExistingPrometheus,
    ExistingPrometheusAdapter,
    ExistingStore,
    ExistingVpc,
    FileSystemDriver,
    FluentBit,
    FluentBitSpec,
    HubModel,
    Karpenter,
    KarpenterSpec,
    Keda,
    KedaOperatorSpec,
    KubeRayOperator,
    KubeRayOperatorSpec,
    LeaderWorkerSetController,
    LoadBalancerController,
    LoadBalancerControllerSpec,
    ManagedPool,
    ManagedPoolSpec,
    ModelEndpoint,
    NetworkSpec,
    NeuronPlugin,
    NeuronScheduler,
    NeuronSpec,
    NvidiaDevicePlugin,
    NvidiaSpec,
    Placement,
    PrometheusSpec,
    PrometheusStack,
    SharedStore,
    SpecError,
    StackSettings,
    Subnet,
    TritonServer,
    TritonServerSpec,
    VllmServer,
    VllmServerSpec,
    Vpc,
)
from eks_inference.component import Component, Handle, _members
from eks_inference.faults import Fault
from eks_inference.place.wiring import home_of, strangers
from handles import existing_cluster
from stackgraph.recorder.recording import record

World = Mapping[str, tuple[Any, ...]]
"""Handles of one cluster, by the type that a constructor asks for. The first is a component, the others are of what exists."""

NO_HOME = {"ResourceOptions", "SecretRef", "Output", "Resource"}
"""What belongs to no cluster."""


def world(name: str, cluster: str, region: str) -> World:
    settings = StackSettings(region=region)
    vpc = Vpc(f"{name}-net", NetworkSpec(zones=2), settings=settings)
    team = pulumi.ComponentResource(f"team:index:{name}", name)
    control_plane = EksCluster(cluster, ClusterSpec(), network=vpc, settings=settings, opts=pulumi.ResourceOptions(parent=team))
    pool = ManagedPool(
        f"{name}-core", ManagedPoolSpec(instance_types=("m5.2xlarge",), size=2), cluster=control_plane, network=vpc
    )
    gpus = ManagedPool(f"{name}-gpu", ManagedPoolSpec(instance_types=("g5.xlarge",), size=1), cluster=control_plane, network=vpc)
    core = pool.placement()
    on: Any = {"cluster": ClusterAddons(f"{name}-addons", ClusterAddonsSpec(), cluster=control_plane, core=core)}
    on_core: Any = {**on, "placement": core}
    existing_vpc = ExistingVpc(f"vpc-{name}", [Subnet(zone.zone_id, "subnet-1") for zone in vpc.private_subnets])
    existing = ExistingCluster(
        cluster, "1.35", settings, control_plane.provider, "https://x", "Q0E=", "sg-1", network=existing_vpc
    )
    of_existing = ExistingPool("core", {"team": "x"}, ["m5.2xlarge"], cluster=existing)
    neuron = NeuronPlugin(f"{name}-neuron", NeuronSpec(), cluster=on["cluster"])
    nvidia = NvidiaDevicePlugin(f"{name}-nvidia", NvidiaSpec(), cluster=on["cluster"])
    scheduler = NeuronScheduler(f"{name}-scheduler", plugin=neuron, placement=core)
    prometheus = PrometheusStack(f"{name}-prometheus", PrometheusSpec(), **on_core)
    existing_prometheus = ExistingPrometheus(existing, "monitoring", url="http://prometheus")
    driver = FileSystemDriver(f"{name}-efs", "efs", cluster=on["cluster"])
    store = SharedStore(f"{name}-store", EfsStoreSpec(kind="efs"), **on, network=vpc, driver=driver)
    model = HubModel(id="facebook/opt-350m")
    vllm = VllmServer(
        f"{name}-vllm",
        VllmServerSpec.model_validate(
            {"kind": "vllm", "model": {"id": "facebook/opt-350m"}, "engine": "cuda-vllm-0.30"}
            | {"tensor_parallel": 1, "max_num_seqs": 32, "max_model_len": 2048}
        ),
        **on,
        placement=gpus.placement(),
    )
    triton = TritonServer(f"{name}-triton", TritonServerSpec(model=model), **on, placement=gpus.placement())
    adapter = ExistingPrometheusAdapter(cluster=existing)
    endpoint = ModelEndpoint(f"{name}-endpoint", {"keys": False}, **on_core, servers={"vllm": vllm})
    return {
        "Cluster": (on["cluster"], existing),
        "ControlPlane": (on["cluster"], control_plane, existing),
        "Network": (vpc, existing_vpc),
        "StackSettings": (settings,),
        "Placement": (core, of_existing.placement()),
        "NodeAutoscaler": (
            Karpenter(f"{name}-karpenter", KarpenterSpec(), **on_core),
            ExistingKarpenter("role", cluster=existing),
        ),
        "DeviceScheduler": (scheduler, ExistingNeuronScheduler(cluster=existing)),
        "NeuronPlugin": (neuron,),
        "NvidiaDevicePlugin": (nvidia,),
        "GpuPlugin": (nvidia,),
        "DraDriver": (DraDriver(f"{name}-claims", devices="neuron", **on),),
        "DeviceDriver": (DraDriver(f"{name}-efa-claims", devices="efa", **on),),
        "EfaDevices": (EfaPlugin(f"{name}-efa", **on), ExistingEfaPlugin(cluster=existing)),
        "Metrics": (prometheus, existing_prometheus),
        "QueriedMetrics": (prometheus, existing_prometheus),
        "PrometheusStack": (prometheus,),
        "Backend": (Keda(f"{name}-keda", KedaOperatorSpec(), **on_core), ExistingKeda(cluster=existing), adapter),
        "RayOperator": (
            KubeRayOperator(f"{name}-ray", KubeRayOperatorSpec(), **on_core),
            ExistingKubeRayOperator(cluster=existing),
        ),
        "LeaderWorkerSets": (LeaderWorkerSetController(f"{name}-lws", **on_core), ExistingLeaderWorkerSets(cluster=existing)),
        "LoadBalancers": (
            LoadBalancerController(f"{name}-balancers", LoadBalancerControllerSpec(), **on_core, network=vpc),
            ExistingLoadBalancerController(cluster=existing),
        ),
        "Fronted": (endpoint,),
        "FileSystemDriver": (driver,),
        "Store": (store, ExistingStore("efs.csi.aws.com", "fs-1", cluster=existing)),
        "ModelServer": (vllm, triton),
        "Server": (vllm, triton),
        "ModelEndpoint": (endpoint,),
        "TritonServer": (triton,),
        "ScaledServer": (vllm, triton),
        "VllmPods": (vllm, triton),
        "RayPods": (vllm,),
    }


def public(base: type) -> list[Any]:
    found = (getattr(eks_inference, name) for name in dir(eks_inference))
    return sorted({one for one in found if isinstance(one, type) and issubclass(one, base)}, key=lambda one: one.__name__)


def asked(constructor: Any) -> dict[str, str]:
    """The parameters that take a handle, and its type."""
    found = {}
    for name, annotation in inspect.get_annotations(constructor, eval_str=True).items():
        for member in _members(annotation):
            inner = [*getattr(member, "__args__", ()), member]
            for each in inner:
                if not isinstance(each, type) or each.__module__ == "builtins" or each.__name__ in NO_HOME:
                    continue
                handle = issubclass(each, Component | Handle | Placement | StackSettings) or getattr(each, "_is_protocol", False)
                if handle and each.__module__.startswith("eks_inference") and name != "return":
                    found[name] = each.__name__
    return found


def wrong(component: Any, arguments: Mapping[str, Any]) -> list[Fault]:
    """What the wiring of arguments lacks. Specs are left out, so nothing is made."""
    try:
        component(**arguments)
    except SpecError as error:
        return [fault for fault in error.faults if "belongs to another" in fault.message]
    raise AssertionError("a component without a name was made")


def crossed(here: World, there: World, *, other_region: bool) -> Iterator[str]:
    """Gives every parameter in turn a handle of another cluster; yields what was not refused, or wrongly."""
    for component in public(Component):
        every = asked(component.__init__)

        def passed(name: str, handle: Any, component: Any = component) -> Any:
            return {"x": handle} if "Mapping" in str(inspect.get_annotations(component.__init__, eval_str=True)[name]) else handle

        alike = {name: passed(name, here[type_][0]) for name, type_ in every.items()}
        if told := wrong(component, alike):
            yield f"{component.__name__} refuses what belongs together: {told}"
        for name, type_ in every.items() if len(every) > 1 else ():
            for stranger in there[type_]:
                told = wrong(component, {**alike, name: passed(name, stranger)})
                if (component, other_region) == (EksCluster, False):
                    continue  # a cluster may be in any network of its region
                lead = name in ("cluster", "settings") or (name == next(iter(every)) and not {"cluster", "settings"} & {*every})
                places = {fault.path[0] for fault in told}
                if places != (set(every) - {name} if lead else {name}):
                    yield f"{component.__name__}: {name}={stranger!r} of another cluster: {told}"


@pytest.mark.thorough
@pytest.mark.parametrize("other", [("b", "us-west-2"), ("a", "us-east-1")], ids=" in ".join)
def test_no_component_takes_what_belongs_to_another_cluster(other: tuple[str, str]):
    found: list[str] = []

    record(
        lambda: found.extend(
            crossed(world("one", "a", "us-west-2"), world("other", *other), other_region=other[1] != "us-west-2")
        )
    )
    assert not found, "\n".join(found)


def test_what_may_be_shared_is_taken():
    """Two clusters in one VPC, also as an existing one; handles that do not say where they belong; an id known only later."""

    def program() -> None:
        settings = StackSettings(region="us-west-2")
        vpc = Vpc("net", NetworkSpec(zones=2), settings=settings)
        core = ManagedPoolSpec(instance_types=("m5.2xlarge",), size=2)
        narrow = ExistingVpc(vpc.vpc_id, vpc.private_subnets[:1])
        later = ExistingVpc(pulumi.Output.from_input("vpc-1"), vpc.private_subnets)
        for name in ("a", "b"):
            cluster = EksCluster(name, ClusterSpec(), network=vpc, settings=settings)
            for network in (vpc, narrow, later):
                ManagedPool(f"{name}-{[vpc, narrow, later].index(network)}", core, cluster=cluster, network=network)
            anywhere = ExistingPool("core", {"team": "x"}, ["m5.2xlarge"])
            ClusterAddons(f"{name}-addons", ClusterAddonsSpec(), cluster=cluster, core=anywhere.placement())

    assert len(record(program).of_type("aws:eks/nodeGroup:NodeGroup")) == 6


@pytest.mark.parametrize(("zone", "region"), [("euw1-az3", "eu-west-1"), ("usw2-az3", "us-west-2")])
def test_an_existing_pool_is_in_the_region_of_its_zones(zone: str, region: str):
    pool = ExistingPool("core", {"team": "x"}, ["m5.2xlarge"], zone_ids=[zone])
    assert home_of(pool.placement()).region == region
    arguments = {"cluster": StackSettings(region="us-west-2"), "placement": pool.placement()}
    assert [fault.path for fault in strangers(arguments)] == [("placement",)] * (region != "us-west-2")


@pytest.mark.parametrize("other", ["vpc-1", "vpc-2"])
def test_networks_are_compared_by_their_ids(other: str):
    own, network = (ExistingVpc(one, [Subnet("usw2-az1", "subnet-1")]) for one in ("vpc-1", other))
    told = [(fault.path, fault.message) for fault in strangers({"cluster": own, "network": network})]
    assert told == [(("network",), "belongs to another network than cluster")] * (other != "vpc-1")


def test_every_handle_can_say_its_cluster():
    apart = {"ExistingVpc", "Subnet", "ExistingCluster"}
    assert {one.__name__ for one in public(Handle) if "cluster" not in one.__dataclass_fields__} == apart


@pytest.mark.parametrize(
    ("addons", "lacks"),
    [
        (None, set()),
        ((), {"eks-pod-identity-agent", "aws-ebs-csi-driver"}),
        (("aws-ebs-csi-driver",), {"eks-pod-identity-agent"}),
        (("eks-pod-identity-agent", "aws-ebs-csi-driver"), set()),
    ],
)
def test_an_existing_cluster_lacks_the_addons_that_it_does_not_name(addons: tuple[str, ...] | None, lacks: set[str]):
    missed: set[str] = set()

    def program() -> None:
        cluster = replace(existing_cluster(), addons=addons)
        core = ExistingPool("core", {"team": "x"}, ["m5.2xlarge"]).placement()
        for make in (
            lambda: FluentBit("logs", FluentBitSpec(), cluster=cluster),
            lambda: PrometheusStack("metrics", PrometheusSpec(), cluster=cluster, placement=core),
        ):
            try:
                make()
            except SpecError as error:
                missed.update(fault.allowed for fault in error.faults)

    record(program)
    assert missed == lacks
