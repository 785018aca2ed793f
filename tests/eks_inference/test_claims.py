"""Claims of devices: what a pod claims of a node can be allocated there, as often as the node has room."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT
from eks_inference.accelerators.claims.component import DraDriver
from eks_inference.catalog.claim_drivers import drivers, most_devices_per_claim, published
from eks_inference.catalog.instances import InstanceType, instance_type, instance_types
from eks_inference.faults import SpecError
from eks_inference.place.claimed_devices import PCIE_ROOT, DeviceClaims, asked_by, device_claims, groups_of
from eks_inference.place.placement import CLAIMS, DEVICES_LABEL, POOL_LABEL, Placement
from eks_inference_tools.check.registry import check_graph
from eks_inference_tools.placing.placed import Placing
from eks_inference_tools.reading.devices import OF_KIND
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.simulate.world.unsimulated import slices
from graphs import of_kind
from handles import existing_cluster
from readme import blocks
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, text
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from variants import recorded_with

PAGE = ROOT / "docs" / "stacks" / "inf2-llama2.md"
_SETTINGS = [yaml.safe_load(block.text) for block in blocks(PAGE) if block.language == "yaml"]
(CLAIMED,) = (one for one in _SETTINGS if "devices" in one.get("pools", {}).get("neuron", {}))


def on(name: str, **changes: Any) -> Placement:
    shape = instance_type(name)
    settings = {"devices": "claims", "efa_interfaces": shape.efa_interfaces, **changes}
    return Placement("pool", shape, {POOL_LABEL: "pool"}, **settings)


def possible(shape: InstanceType) -> list[tuple[int, int]]:
    """Numbers of devices and interfaces that the planner takes."""
    found = []
    for devices in range(1, shape.devices + 1):
        for interfaces in {0, shape.efa_interfaces * devices // shape.devices}:
            try:
                device_claims(on(shape.name), devices, efa_interfaces=interfaces)
            except SpecError:
                continue
            found.append((devices, interfaces))
    return found


def allocation(node: dict[str, list[dict[str, Any]]], claims: DeviceClaims) -> set[tuple[str, str]] | None:
    """Devices of a node for all claims of a pod, by driver and name; None if there are none. Takes them off the node."""
    taken: set[tuple[str, str]] = set()
    by_class = {driver.device_class: driver.driver for driver in drivers().values()}
    for spec in claims.templates.values():
        requests = {one["name"]: one["exactly"] for one in spec["devices"]["requests"]}
        together = [(item["requests"], item["matchAttribute"]) for item in spec["devices"].get("constraints", ())]
        together += [([name], "") for name in requests if not any(name in names for names, _ in together)]
        for names, attribute in together:
            wanted = {by_class[requests[name]["deviceClassName"]]: requests[name]["count"] for name in names}
            free = {driver: [item for item in node.get(driver, ()) if (driver, item["name"]) not in taken] for driver in wanted}
            values = [at(one, "attributes", attribute, "string") if attribute else "" for some in free.values() for one in some]
            for value in dict.fromkeys(values):
                fitting = {
                    driver: [one for one in some if not attribute or at(one, "attributes", attribute, "string") == value]
                    for driver, some in free.items()
                }
                if all(len(fitting[driver]) >= count for driver, count in wanted.items()):
                    taken |= {(driver, one["name"]) for driver, count in wanted.items() for one in fitting[driver][:count]}
                    break
            else:
                return None
    for driver in node:
        node[driver] = [one for one in node[driver] if (driver, one["name"]) not in taken]
    return taken


def published_by(shape: InstanceType) -> dict[str, list[dict[str, Any]]]:
    accelerator = shape.accelerator or ""
    hardware = {OF_KIND[accelerator]: shape.devices, OF_KIND["efa"]: shape.efa_interfaces}
    found = slices("node", shape, hardware).values()
    return {one["spec"]["driver"]: one["spec"]["devices"] for one in found}


WITH_DEVICES = sorted(name for name, shape in instance_types().items() if shape.accelerator)


@given(st.sampled_from(WITH_DEVICES), st.data())
def test_a_node_has_room_for_as_many_claims_as_devices(name: str, data: st.DataObject) -> None:
    shape = instance_type(name)
    devices, interfaces = data.draw(st.sampled_from(possible(shape)))
    claims = device_claims(on(name), devices, efa_interfaces=interfaces)
    asked = Counter({driver.device_class: 0 for driver in drivers().values()}) | Counter(dict(claims.devices))
    kind = drivers()[shape.accelerator or ""]
    assert asked[kind.device_class] == devices
    assert asked[drivers()["efa"].device_class] == interfaces
    for spec in claims.templates.values():
        assert sum(count for _, count in asked_by(spec)) <= most_devices_per_claim()
        requested = [one["name"] for one in spec["devices"]["requests"]]
        assert len(requested) == len(set(requested)) <= 32
    node, pods = published_by(shape), shape.devices // devices
    got = [allocation(node, claims) for _ in range(pods)]
    assert all(got)
    assert len(set().union(*(one or () for one in got))) == pods * (devices + interfaces)


@given(st.sampled_from(WITH_DEVICES), st.integers(1, 17), st.integers(0, 33))
def test_whatever_the_planner_takes_an_empty_node_has(name: str, devices: int, interfaces: int) -> None:
    try:
        claims = device_claims(on(name), devices, efa_interfaces=interfaces)
    except SpecError:
        return
    got = allocation(published_by(instance_type(name)), claims)
    assert got
    assert len(got) == devices + interfaces


@given(st.sampled_from(WITH_DEVICES), st.data())
def test_claimed_devices_are_near_each_other(name: str, data: st.DataObject) -> None:
    shape = instance_type(name)
    devices, interfaces = data.draw(st.sampled_from(possible(shape)))
    claims = device_claims(on(name), devices, efa_interfaces=interfaces)
    attributes = [item["matchAttribute"] for spec in claims.templates.values() for item in spec["devices"].get("constraints", ())]
    if shape.neuron:
        expected = {f"resource.aws.com/devicegroup{devices}_id"} if groups_of(shape) and (devices > 1 or interfaces) else set()
        assert set(attributes) == expected
    elif interfaces >= devices and devices < shape.devices:
        assert attributes == [PCIE_ROOT] * devices
    else:
        assert attributes == []


def test_a_claim_names_the_logical_cores_of_its_pool() -> None:
    (spec,) = device_claims(on("trn2.48xlarge", logical_cores=2), 8, efa_interfaces=8).templates.values()
    assert spec["devices"]["config"][0]["opaque"]["parameters"]["logicalNeuronCore"] == 2


@pytest.mark.parametrize(
    ("name", "devices", "interfaces", "says"),
    [
        ("trn2.48xlarge", 2, 0, "sets of this many devices"),
        ("trn2.48xlarge", 17, 0, "cannot give a pod this many"),
        ("trn2.48xlarge", 8, 17, "has 16"),
        ("inf2.48xlarge", 4, 1, "has 0"),
        ("p5.48xlarge", 3, 11, "equally many"),
        # Each of these waited for ever: the interfaces of an empty node are below eight PCIe roots, or in two sets.
        ("p5.48xlarge", 1, 32, "not near 1 of the 8 devices of p5.48xlarge"),
        ("p5.48xlarge", 2, 12, "0 to 8"),
        ("trn2.48xlarge", 8, 16, "allowed: 0 to 8"),
        ("trn1.32xlarge", 4, 4, "0 to 2"),
    ],
)
def test_impossible_claims_are_refused(name: str, devices: int, interfaces: int, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        device_claims(on(name), devices, efa_interfaces=interfaces)


def test_interfaces_near_devices_are_unknown_on_a_row_of_ones_own() -> None:
    own = replace(on("trn2.48xlarge"), instance_type=replace(instance_type("trn2.48xlarge"), family="trn9"))
    assert device_claims(own, 16, efa_interfaces=0).templates
    with pytest.raises(SpecError, match=r"(?s)efa_interfaces: the driver publishes no groups on trn2.48xlarge.*leave them out"):
        device_claims(own, 16, efa_interfaces=1)


def test_a_driver_is_of_a_kind_of_device_that_there_is() -> None:
    given: Any = "gpu"
    with pytest.raises(ProgramError, match="devices: the argument has a wrong type; given: gpu; allowed: neuron, nvidia, efa"):
        record(lambda: DraDriver("gpus", devices=given, cluster=existing_cluster()))


def test_what_the_catalog_knows_agrees_with_the_instance_types() -> None:
    for shape in instance_types().values():
        if shape.neuron:
            found = published(shape)
            assert found
            assert set(groups_of(shape)) <= set(shape.legal_device_counts)
            assert bool(groups_of(shape)) == bool(shape.efa_interfaces)


# -- a stack ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph() -> Graph:
    return recorded_with(CLAIMED, "inf2-llama2")


@pytest.mark.thorough
def test_servers_claim_and_request_nothing(graph: Graph) -> None:
    templates = {at(resource.inputs, "metadata", "name") for resource in of_kind(graph, "ResourceClaimTemplate")}
    assert len(templates) == 3
    for resource in of_kind(graph, "Deployment"):
        spec = resource.inputs["spec"]["template"]["spec"]
        if claims := spec.get("resourceClaims"):
            assert {claim["resourceClaimTemplateName"] for claim in claims} <= templates
            (container,) = spec["containers"]
            assert container["resources"]["claims"] == [{"name": claim["name"]} for claim in claims]
            assert not any("neuron" in name for name in container["resources"]["limits"])
            assert "schedulerName" not in spec
    quotas = [resource.inputs["spec"]["hard"] for resource in of_kind(graph, "ResourceQuota")]
    assert {OF_KIND["neuron"]: "8"} in quotas


@pytest.mark.thorough
def test_the_driver_takes_the_place_of_plugin_and_extension(graph: Graph) -> None:
    names = {text(at(resource.inputs, "metadata", "name")) for resource in graph.resources}
    assert not names & {"neuron-device-plugin", "k8s-neuron-scheduler", "my-scheduler"}
    (release,) = (resource for resource in graph.resources if at(resource.inputs, "name") == "neuron-helm-chart")
    assert release.inputs["values"]["draDriver"]["nodeSelector"] == {DEVICES_LABEL: CLAIMS}


@pytest.mark.thorough
def test_plugins_do_not_run_on_nodes_whose_devices_are_claimed() -> None:
    both = {"pools": {"other": {"kind": "managed", "instance_types": ["inf2.8xlarge"], "size": 1, "devices": "claims"}}}
    facts = GraphFacts(recorded_with(both, "inf2-llama2"))
    (plugin,) = (pod for pod in facts.daemons if pod.name == "neuron-device-plugin")
    assert {shape.pool for shape in facts.shapes_for(plugin)} == {"neuron"}


def test_the_stack_is_checked_and_placed(graph: Graph) -> None:
    found = check_graph(graph, {})
    assert [finding.rule.id for finding in found.findings if finding.severity == "error"] == []
    (node,) = (node for node in Placing(graph).at().nodes if node.pool == "neuron")
    assert len([pod for pod in node.pods if pod.template.claimed]) == 3


@pytest.mark.thorough
def test_one_server_too_many_has_no_place(graph: Graph) -> None:
    server = {"llama2-c": {"replicas": 2, "cpu": "1", "memory": "100Gi"}}
    more = recorded_with({**CLAIMED, "servers": server, "silenced": {"CAP001": "on purpose"}}, "inf2-llama2")
    assert len(Placing(more).at().unplaced) == 1
