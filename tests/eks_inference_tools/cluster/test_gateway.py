"""A gateway on a real control plane, whose Ingresses a stand-in of AWS Load Balancer Controller serves and lets go."""

from dataclasses import replace

import pytest
import yaml

from cluster.shipped import balancers
from conftest import ROOT
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.simulation import rolled_out, simulation
from readme import blocks
from stackgraph.graph.document import Graph
from variants import recorded_with

pytestmark = pytest.mark.cluster

KEYS = {"eks-inference:endpointKeys": '{"team-a": "a-key-of-team-a-in-a-test"}'}
PAGE = ROOT / "docs" / "stacks" / "inf2-llama2.md"


def fronted() -> Graph:
    """inf2-llama2 as its page has it with a gateway alone."""
    settings = [yaml.safe_load(block.text) for block in blocks(PAGE) if block.language == "yaml"]
    (shown,) = (setting for setting in settings if "gateway" in setting and "endpoints" not in setting)
    return recorded_with(shown, "inf2-llama2", KEYS)


def test_a_controller_that_goes_first_leaves_the_load_balancer(toolchain: Toolchain):
    """What the edge from each Ingress to the chart prevents: turned round, the chart is deleted before them."""
    with simulation(fronted(), toolchain) as simulated:
        assert simulated.create().is_complete
        assert balancers(simulated)
        (chart,) = (opaque.urn for opaque in simulated.opaque if opaque.name == "aws-load-balancer-controller")
        ingresses = {cluster_object.urn for cluster_object in simulated.objects if cluster_object.kind == "Ingress"}
        simulated.objects = tuple(
            replace(one, after=one.after - {chart}) if one.urn in ingresses else one for one in simulated.objects
        )
        simulated.opaque = tuple(
            replace(opaque, after=opaque.after | ingresses) if opaque.urn == chart else opaque for opaque in simulated.opaque
        )
        deleted = simulated.delete()
        assert {stall.title.split()[0] for stall in deleted.stalls} >= {"Ingress"}
        assert balancers(simulated)


def test_routes_of_a_gateway_are_admitted_by_the_definitions_of_its_project(toolchain: Toolchain):
    (shown,) = (
        found
        for block in blocks(ROOT / "docs" / "gateway.md")
        if block.language == "yaml" and "gateway_api" in (found := yaml.safe_load(block.text))
    )
    shown["gateway_api"]["routes"] = {"triton-server": {"path": "/triton", "grpc_host": "grpc.example.com"}}
    # On two nodes, it depends on where the proxies come to be whether one has a CPU left for the client.
    shown["pools"] = {"core": {"size": 3}}
    with simulation(recorded_with(shown, "gpu-opt350m", KEYS), toolchain) as simulated:
        report = rolled_out(simulated)
    assert report.is_well
    assert report.admission.origins["CRD of gateway-api v1.6.3"] == 2
