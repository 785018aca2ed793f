"""Neuron support: device arithmetic, the device plugin, the scheduler that hands out neighbouring devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_rows import VERSIONS
from eks_inference.accelerators.neuron import plan
from eks_inference.accelerators.neuron.component import NeuronPlugin, NeuronScheduler
from eks_inference.accelerators.neuron.plan import NeuronSpec
from eks_inference.catalog.instances import InstanceType, instance_type, instance_types
from eks_inference.place.placement import Taint
from golden import assert_golden
from handles import existing_cluster, placement
from stackgraph.graph.document import Graph, Resource
from stackgraph.recorder.recording import record

NEURON_SHAPES = [shape for shape in instance_types().values() if shape.accelerator == "neuron"]
neuron_shapes = st.sampled_from(NEURON_SHAPES)


# -- device arithmetic ----------------------------------------------------------------------------------------------------------


@given(neuron_shapes, st.integers(1, 16))
@pytest.mark.thorough
def test_the_scheduler_is_needed_exactly_between_one_and_all(shape: InstanceType, devices: int) -> None:
    assert plan.needs_scheduler(devices, shape) == (devices in range(2, shape.devices))


@pytest.mark.parametrize(
    ("name", "devices", "needed"),
    [
        ("inf2.8xlarge", 1, False),
        ("inf2.24xlarge", 6, False),
        ("inf2.48xlarge", 1, False),
        ("inf2.48xlarge", 4, True),  # the three servers of the Llama-2 system
        ("inf2.48xlarge", 12, False),
        ("trn2.48xlarge", 8, True),
        ("trn2.48xlarge", 16, False),
    ],
)
def test_scheduler_by_known_case(name: str, devices: int, needed: bool) -> None:
    assert plan.needs_scheduler(devices, instance_type(name)) is needed


@given(neuron_shapes, st.integers(1, 64))
def test_devices_for_cores_is_the_smallest_legal_number_that_holds_them(shape: InstanceType, cores: int) -> None:
    if cores > plan.cores_of(shape.devices, shape):
        with pytest.raises(ValueError, match=f"{shape.name} has .* NeuronCores, {cores} are needed"):
            plan.devices_for_cores(cores, shape)
        return
    devices = plan.devices_for_cores(cores, shape)
    assert plan.is_legal(devices, shape)
    assert plan.cores_of(devices, shape) >= cores
    assert not [fewer for fewer in shape.legal_device_counts if fewer < devices and plan.cores_of(fewer, shape) >= cores]


@pytest.mark.parametrize(
    ("name", "cores", "devices"),
    [
        ("inf2.48xlarge", 8, 4),
        ("trn1.32xlarge", 10, 8),
        ("trn2.48xlarge", 8, 4),
        ("trn2.48xlarge", 64, 16),
        ("inf2.xlarge", 1, 1),
    ],
)
def test_devices_by_known_case(name: str, cores: int, devices: int) -> None:
    assert plan.devices_for_cores(cores, instance_type(name)) == devices


def test_only_sub_blocks_of_the_torus_are_legal_on_trn1() -> None:
    assert [devices for devices in range(17) if plan.is_legal(devices, instance_type("trn1.32xlarge"))] == [1, 4, 8, 16]


def test_a_type_without_neuron_devices_holds_no_cores() -> None:
    with pytest.raises(ValueError, match=r"g5\.xlarge has 0 NeuronCores"):
        plan.devices_for_cores(1, instance_type("g5.xlarge"))


# -- what is built --------------------------------------------------------------------------------------------------------------


CORE = placement("m6i.large", pool="core", taints=(Taint("dedicated", "core", "NoSchedule"),))


def neuron_support(version: str = "1.35") -> Graph:
    def build() -> None:
        cluster = existing_cluster(version=version)
        plugin = NeuronPlugin("neuron", NeuronSpec(), cluster=cluster)
        NeuronScheduler("devices", plugin=plugin, placement=CORE)

    return record(build)


def pod(workload: Resource) -> dict:
    return workload.inputs["spec"]["template"]["spec"]


def container(workload: Resource) -> dict:
    (only,) = pod(workload)["containers"]
    return only


def test_the_plugin_runs_on_every_neuron_type_of_the_catalog_and_on_no_other() -> None:
    affinity = pod(neuron_support().named("neuron-daemonset"))["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (types,) = [rule for rule in term["matchExpressions"] if rule["key"] == "node.kubernetes.io/instance-type"]
    assert set(types["values"]) == {shape.name for shape in NEURON_SHAPES}
    assert "trn2.48xlarge" in types["values"]


def test_no_taint_keeps_the_plugin_off_a_neuron_node() -> None:
    tolerations = pod(neuron_support().named("neuron-daemonset"))["tolerations"]
    for taint in (Taint("aws.amazon.com/neuron", "true", "NoSchedule"), Taint("hub.jupyter.org/dedicated", "user", "NoExecute")):
        assert any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: dict, taint: Taint) -> bool:
    """Kubernetes' own rule (k8s.io/component-helpers, ToleratesTaint)."""
    if toleration.get("effect") not in (None, taint.effect) or toleration.get("key") not in (None, taint.key):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value") == taint.value


def test_scheduler_configuration_as_mounted() -> None:
    graph = neuron_support()
    config_map = graph.named("devices-scheduler-config").inputs
    (text,) = config_map["data"].values()
    assert_golden("accelerators/my-scheduler-config.yaml", text)
    deployment = graph.named("devices-scheduler-deployment")
    (volume,) = pod(deployment)["volumes"]
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    (mount,) = container(deployment)["volumeMounts"]
    assert f"--config={mount['mountPath']}/{next(iter(config_map['data']))}" in container(deployment)["args"]


def test_a_changed_scheduler_configuration_restarts_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    def annotations() -> dict:
        return neuron_support().named("devices-scheduler-deployment").inputs["spec"]["template"]["metadata"]["annotations"]

    before = annotations()
    changed = {**plan.scheduler_configuration(), "parallelism": 8}
    monkeypatch.setattr("eks_inference.accelerators.neuron.plan.scheduler_configuration", lambda: changed)
    assert annotations() != before


def test_the_scheduler_reaches_the_extension_through_its_service() -> None:
    graph = neuron_support()
    service = graph.named("devices-extension-service").inputs
    (extender,) = plan.scheduler_configuration()["extenders"]
    (port,) = service["spec"]["ports"]
    assert extender["urlPrefix"] == (
        f"http://{service['metadata']['name']}.{service['metadata']['namespace']}.svc.cluster.local:{port['port']}"
    )
    extension = graph.named("devices-extension-deployment")
    assert service["spec"]["selector"].items() <= extension.inputs["spec"]["template"]["metadata"]["labels"].items()
    (listening,) = container(extension)["ports"]
    assert port["targetPort"] == listening["name"]
    assert {"name": "PORT", "value": str(listening["containerPort"])} in container(extension)["env"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_second_scheduler_is_of_the_clusters_minor_version(version: str) -> None:
    image = container(neuron_support(version).named("devices-scheduler-deployment"))["image"]
    assert image.rpartition(":")[2].startswith(f"v{version}.")


def test_a_cluster_version_without_a_scheduler_image_is_refused() -> None:
    with pytest.raises(Exception, match=r"kube-scheduler has no pin for Kubernetes 1\.20"):
        neuron_support("1.20")
