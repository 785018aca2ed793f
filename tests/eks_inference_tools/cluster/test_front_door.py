"""A stack whose servers have an address from outside, on a real control plane: made, changed and deleted."""

import json

import pytest
import yaml

from cluster.shipped import Asked, balancers
from conftest import ROOT
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from readme import blocks
from stackgraph.graph.document import Graph
from variants import recorded_with

pytestmark = pytest.mark.cluster

PAGE = ROOT / "docs" / "stacks" / "inf2-llama2.md"
KEYS = {"eks-inference:endpointKeys": json.dumps({"team-a": "a-key-of-team-a-in-a-test"})}


def fronted() -> Graph:
    """inf2-llama2 as its page has it with an endpoint and a gateway."""
    settings = [yaml.safe_load(block.text) for block in blocks(PAGE) if block.language == "yaml"]
    (shown,) = (setting for setting in settings if "endpoints" in setting)
    return recorded_with(shown, "inf2-llama2", KEYS)


def test_three_servers_behind_one_address_land(toolchain: Toolchain) -> None:
    ran = Asked(fronted(), toolchain, {}).ran()
    assert [phase.name for phase in (*ran.report.phases, *ran.changed)] == ["create", "update", "delete"]
    assert ran.report.is_well, ran.report.phases
    assert not ran.report.scheduled.pending
    owners = [pod.owner for node in ran.report.scheduled.nodes for pod in node.pods]
    assert owners.count("Deployment llama2/llama2") == 2
    placed = [pod.name for node in ran.report.scheduled.nodes for pod in node.pods]
    assert len([name for name in placed if "aws-load-balancer-controller" in name]) == 2
    assert not balancers(ran.watched), "a load balancer is left behind"
    assert not ran.watched.left
    assert ran.watched.namespaces == {"default", "kube-node-lease", "kube-public", "kube-system"}
