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
def test_the_scheduler_is_needed_exactly_between_one_and_all(shape: InstanceType, devices: int) -> None:
    assert plan.needs_scheduler(devices, shape) == (devices in range(2, shape.devices))


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


def test_scheduler_configuration_as_mounted() -> None:
    (text,) = neuron_support().named("devices-scheduler-config").inputs["data"].values()
    assert_golden("accelerators/my-scheduler-config.yaml", text)


def test_a_changed_scheduler_configuration_restarts_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    def annotations() -> dict:
        return neuron_support().named("devices-scheduler-deployment").inputs["spec"]["template"]["metadata"]["annotations"]

    before = annotations()
    changed = {**plan.scheduler_configuration(), "parallelism": 8}
    monkeypatch.setattr("eks_inference.accelerators.neuron.plan.scheduler_configuration", lambda: changed)
    assert annotations() != before


@pytest.mark.parametrize("version", VERSIONS)
def test_the_second_scheduler_is_of_the_clusters_minor_version(version: str) -> None:
    image = container(neuron_support(version).named("devices-scheduler-deployment"))["image"]
    assert image.rpartition(":")[2].startswith(f"v{version}.")


def test_a_cluster_version_without_a_scheduler_image_is_refused() -> None:
    with pytest.raises(Exception, match=r"kube-scheduler has no pin for Kubernetes 1\.20"):
        neuron_support("1.20")
