"""Where the pods of servers and pickers connect to, outside of their namespaces."""

from ipaddress import IPv4Network
from typing import Any

import pytest

from conftest import recorded
from eks_inference.cluster.plan import api_cidrs
from eks_inference.kubernetes.network_policy import PRIVATE_RANGES
from graphs import of_kind
from stackgraph.problems import ProgramError
from variants import recorded_with, verdict

RANGE = "203.0.113.0/24"
KEYS = {"eks-inference:endpointKeys": '{"team-a": "hush-key-of-team-a"}'}


def ways_out(section: dict[str, Any], stack: str, name: str) -> list[Any]:
    """The address ranges that pods may reach over HTTPS."""
    policies = of_kind(recorded_with(section, stack, KEYS), "NetworkPolicy")
    (found,) = [policy for policy in policies if policy.inputs["metadata"]["name"] == name]
    rules = [rule for rule in found.inputs["spec"]["egress"] if {"protocol": "TCP", "port": 443} in rule.get("ports", ())]
    return [peer["ipBlock"]["cidr"] for rule in rules for peer in rule["to"]]


def api_server(stack: str) -> list[str]:
    """The address of its Service, and the subnets that the control plane of a stack was given."""
    graph = recorded(stack)
    (plane,) = (resource for resource in graph.resources if resource.type == "eks:index:Cluster")
    subnets = {f"<{one.name}.id>": one.inputs["cidrBlock"] for one in graph.resources if one.type == "aws:ec2/subnet:Subnet"}
    service = IPv4Network(plane.inputs["kubernetesServiceIpAddressRange"])[1]
    return [f"{service}/32", *(subnets[one] for one in plane.inputs["privateSubnetIds"])]


@pytest.mark.parametrize(
    ("server", "reached"),
    [({}, ["0.0.0.0/0"]), ({"egress": [RANGE]}, [RANGE]), ({"egress": [], "store": {}}, [])],
)
def test_a_server_reaches_over_https_what_its_egress_says_and_by_default_everything(server: dict[str, Any], reached: list[str]):
    assert ways_out({"servers": {"qwen3": server}}, "smoke-gpu", "qwen3") == reached


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("stack", "server", "name", "also"),
    [
        ("inf2-llama3", "vllm-llama3-inf2", "vllm-llama3-inf2", True),
        ("gpu-nixl", "llama3-70b", "llama3-70b-prefill", False),
        ("trn2-di", "llama3-70b", "llama3-70b-download", False),
    ],
)
def test_servers_of_every_kind_do(stack: str, server: str, name: str, also: bool):
    """Ray's head asks the API server for pods."""
    assert ways_out({"servers": {server: {"egress": [RANGE]}}}, stack, name) == [RANGE, *(api_server(stack) if also else ())]


def test_a_server_that_downloads_reaches_something():
    with pytest.raises(ProgramError, match="pods download the model over HTTPS"):
        recorded_with({"servers": {"qwen3": {"egress": []}}}, "smoke-gpu")


@pytest.mark.parametrize(("ranges", "unjudged"), [(["0.0.0.0/0"], 0), (["203.0.113.0/24"], 1), (["10.0.0.0/8"], 0)])
def test_nobody_looked_whether_the_hub_is_at_public_addresses(ranges: list[str], unjudged: int):
    found = verdict({"servers": {"qwen3": {"egress": ranges}}})
    assert sum(not_judged.what == ("reach",) for not_judged in found.not_judged) == unjudged


def test_a_picker_reaches_the_api_server_and_nothing_on_the_internet():
    chat = {"endpoints": {"chat": {"spread": "endpoint_picker"}}}
    assert ways_out(chat, "smoke-gpu", "chat-qwen3-picker") == api_server("smoke-gpu")


def test_where_the_subnets_are_unknown_an_api_server_may_be_at_any_private_address():
    assert api_cidrs("172.20.0.0/16", ["10.0.0.0/20", "10.0.16.0/20"]) == ("172.20.0.1/32", "10.0.0.0/20", "10.0.16.0/20")
    assert api_cidrs("172.20.0.0/16", ["10.0.0.0/20", None]) == PRIVATE_RANGES
