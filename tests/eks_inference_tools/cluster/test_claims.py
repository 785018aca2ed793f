"""Claims of devices on a real control plane: the real scheduler allocates from what drivers would publish of each type."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cluster.shipped import Asked
from conftest import PROJECT, ROOT
from eks_inference.catalog.claim_drivers import drivers
from eks_inference.place.claimed_devices import API_VERSION, device_claims
from eks_inference.pools.plan import placement_of
from eks_inference.stack.spec import StackSpec
from eks_inference_tools.reading.devices import RESOURCE_CLAIMS, RESOURCE_SLICES, allocated
from eks_inference_tools.reading.live_objects import name_of
from eks_inference_tools.reading.object_kinds import PODS
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.simulation import Simulation, simulation
from eks_inference_tools.simulate.world.scheduled_pods import READS, scheduled_pods
from readme import blocks
from stackgraph.graph.values import at
from stackgraph.recorder.recording import record
from variants import recorded_with

pytestmark = pytest.mark.cluster

SECONDS = 40
PAGE = ROOT / "docs" / "stacks" / "inf2-llama2.md"
NODE = {"kind": "managed", "size": 1, "devices": "claims"}
SPEC = {
    "name": "claims",
    "silenced": {"POO007": "no node starts"},
    "network": {"zones": 2},
    "pools": {
        "core": {"kind": "managed", "instance_types": ["m5.xlarge"], "size": 2},
        "trn2": {**NODE, "instance_types": ["trn2.48xlarge"], "efa": {}},
        "inf2": {**NODE, "instance_types": ["inf2.48xlarge"]},
        "g6": {**NODE, "instance_types": ["g6.12xlarge"]},
        "p5": {**NODE, "instance_types": ["p5.48xlarge"], "efa": {}},
    },
}
"""A node of each kind, whose devices are claimed; nothing else uses them."""


class Claiming:
    """The stack on a control plane, and pods that claim."""

    def __init__(self, simulated: Simulation) -> None:
        self.simulated = simulated
        self.api = simulated.plane.api
        self.spec = StackSpec.model_validate(SPEC)

    def until(self, check: Any, what: str) -> Any:
        def found() -> Any:
            self.simulated.ensure_alive()
            return check()

        return self.simulated.plane.processes.wait_until(found, seconds=SECONDS, what=what)

    def start(self, name: str, pool: str, devices: int, interfaces: int = 0) -> None:
        placement = placement_of(pool, self.spec.pools[pool], None, self.spec.cluster.version)
        claims = device_claims(placement, devices, efa_interfaces=interfaces)
        for manifest in claims.manifests(name, "default").values():
            self.api.create({"apiVersion": API_VERSION, "kind": "ResourceClaimTemplate", **manifest})
        container = {"name": "main", "image": "none", "resources": claims.of_container()}
        spec = {**placement.scheduling(), **claims.of_pod(name), "containers": [container]}
        self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})

    def got(self, name: str) -> dict[str, set[str]]:
        """The devices of a running pod by driver."""

        def running() -> bool:
            return at(self.api.get(PODS, name, "default"), "status", "phase") == "Running"

        self.until(running, f"pod {name} runs")
        mine = {
            at(one, "resourceClaimName") for one in at(self.api.get(PODS, name, "default"), "status", "resourceClaimStatuses")
        }
        found: dict[str, set[str]] = {}
        for claim in self.api.list(RESOURCE_CLAIMS):
            if name_of(claim) in mine:
                for driver, device in allocated(claim):
                    found.setdefault(driver, set()).add(device)
        return found

    def said(self, name: str) -> str:
        """What the scheduler says of a pod that stays Pending, as the report has it."""

        def told() -> str:
            seen = scheduled_pods({resource: self.api.list(resource) for resource in READS})
            return next((pod.said for pod in seen.pending if pod.name == name and "nodes are available" in pod.said), "")

        return self.until(told, f"the scheduler says why pod {name} waits")

    def attribute(self, driver: str, device: str, attribute: str) -> Any:
        slices = [item["spec"] for item in self.api.list(RESOURCE_SLICES) if item["spec"]["driver"] == driver]
        named = [one for spec in slices for one in spec["devices"] if one["name"] == device]
        return next((value for one in named if (value := at(one, "attributes", attribute, "string"))), None)


@pytest.fixture(scope="module")
def claiming(toolchain: Toolchain) -> Iterator[Claiming]:
    def program() -> None:
        from eks_inference import InferencePlatform

        InferencePlatform(SPEC, region="us-east-2")

    graph = record(program, project="claims", stack="claims", config={"aws:region": "us-east-2"}, root=PROJECT.root)
    with simulation(graph, toolchain) as simulated:
        assert not simulated.admission.refusals
        assert simulated.create().is_complete
        found = Claiming(simulated)
        found.until(lambda: len(found.api.list(RESOURCE_SLICES)) == 6, "the drivers publish")
        yield found


def test_the_setting_of_inf2_llama2_lands(toolchain: Toolchain):
    """As docs/stacks/inf2-llama2.md has it: made, changed and deleted."""
    settings = [yaml.safe_load(block.text) for block in blocks(PAGE) if block.language == "yaml"]
    (claimed,) = (setting for setting in settings if "devices" in setting.get("pools", {}).get("neuron", {}))
    ran = Asked(recorded_with(claimed, "inf2-llama2"), toolchain, {}).ran()
    report = ran.report
    assert report.is_well
    assert [phase.name for phase in ran.changed if phase.is_complete] == ["update", "delete"]
    (node,) = (node for node in report.scheduled.nodes if node.pool == "neuron")
    assert sorted(device for pod in node.pods for device in pod.devices) == list(range(12))
    assert any("driver 1.2.0 refuses Inferentia" in words for words in report.differs)


NEURON, EFA, GPU = (drivers()[kind].driver for kind in ("neuron", "efa", "nvidia"))


def test_two_halves_of_a_trn2_node_with_their_interfaces(claiming: Claiming):
    for name in ("half-a", "half-b"):
        claiming.start(name, "trn2", 8, 8)
    first, second = (claiming.got(name) for name in ("half-a", "half-b"))
    for one in (first, second):
        assert {driver: len(devices) for driver, devices in one.items()} == {NEURON: 8, EFA: 8}
        groups = {claiming.attribute(driver, each, "resource.aws.com/devicegroup8_id") for driver in one for each in one[driver]}
        assert len(groups) == 1
        assert None not in groups
    assert not any(first[driver] & second[driver] for driver in (NEURON, EFA))
    claiming.start("half-c", "trn2", 8, 8)
    assert "cannot allocate all claims" in claiming.said("half-c")


def test_three_thirds_of_an_inf2_node(claiming: Claiming):
    for name in ("third-a", "third-b", "third-c"):
        claiming.start(name, "inf2", 4)
    got = [claiming.got(name)[NEURON] for name in ("third-a", "third-b", "third-c")]
    assert [len(one) for one in got] == [4, 4, 4]
    assert len(set().union(*got)) == 12
    claiming.start("fourth", "inf2", 1)
    assert "cannot allocate all claims" in claiming.said("fourth")


def test_gpus_of_one_node(claiming: Claiming):
    claiming.start("gpu-a", "g6", 3)
    claiming.start("gpu-b", "g6", 1)
    assert [len(claiming.got(name)[GPU]) for name in ("gpu-a", "gpu-b")] == [3, 1]


def test_gpus_with_the_interfaces_of_their_pcie_root(claiming: Claiming):
    claiming.start("pair", "p5", 4, 16)
    got = claiming.got("pair")
    assert {driver: len(devices) for driver, devices in got.items()} == {GPU: 4, EFA: 16}
    claiming.start("other", "p5", 4, 16)
    other = claiming.got("other")
    assert {driver: len(devices) for driver, devices in other.items()} == {GPU: 4, EFA: 16}
    assert not any(got[driver] & other[driver] for driver in (GPU, EFA))
