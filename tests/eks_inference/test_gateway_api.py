"""Routes of a Gateway (Gateway API) that the cluster has."""

import re
from functools import cache
from typing import Any

import pytest
import yaml

from conftest import ROOT
from eks_inference.faults import SpecError
from eks_inference.gateway.component import GatewayRoutes
from eks_inference.gateway.spec import WEB_UI
from golden import assert_golden
from graphs import children_of, kind, of_kind
from handles import existing_cluster
from readme import blocks
from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from stackgraph.views.manifests import manifest
from variants import recorded_with as recorded

GATEWAY = {
    "gateway": "shared",
    "namespace": "gateways",
    "host": "models.example.com",
    "from_namespaces": ["envoy-gateway-system"],
}
SECRETS = {"eks-inference:endpointKeys": '{"team-a": "hush-key-of-team-a"}'}


def recorded_with(section: dict[str, Any], stack: str) -> Graph:
    return recorded(section, stack, SECRETS)


@cache
def routed() -> Graph:
    """Triton, with gRPC on a host of its own, and a web UI's stack beside it."""
    routes = {"triton-server": {"grpc_host": "grpc.example.com"}}
    section = {**GATEWAY, "listener": "https", "from_cidrs": ["10.0.0.0/24"], "routes": routes}
    return recorded_with({"gateway_api": section}, "gpu-opt350m")


def test_routes_and_policies_are_like_the_golden_file():
    found = {f"{kind(resource)} {resource.name}": manifest(resource) for resource in children_of(routed(), "GatewayRoutes")}
    assert_golden("gateway/gateway_api.yaml", yaml.safe_dump(found, sort_keys=True, width=200))


def test_nothing_is_made_in_aws():
    made = children_of(routed(), "GatewayRoutes")
    assert {resource.package for resource in made} == {"kubernetes"}


def test_several_servers_have_paths_that_the_gateway_takes_away():
    graph = recorded_with({"gateway_api": GATEWAY}, "inf2-llama2")
    found = {one.inputs["metadata"]["namespace"]: one.inputs["spec"]["rules"] for one in of_kind(graph, "HTTPRoute")}
    found = {name.removesuffix("-endpoint"): rules for name, rules in found.items()}
    for name, (rule,) in found.items():
        assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": f"/{name}"}}]
        assert rule["filters"][0]["urlRewrite"]["path"] == {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}
    assert graph.outputs["addresses"] == {name: f"https://models.example.com/{name}/v1" for name in found}


def test_a_stream_has_no_time_limit_of_ours():
    (route,) = of_kind(routed(), "HTTPRoute")
    assert route.inputs["spec"]["rules"][0]["timeouts"] == {"request": "0s", "backendRequest": "0s"}


def test_without_a_host_for_it_grpc_has_no_route():
    graph = recorded_with({"gateway_api": GATEWAY}, "gpu-opt350m")
    assert "GRPCRoute" not in {kind(resource) for resource in children_of(graph, "GatewayRoutes")}
    (policy,) = [one for one in of_kind(graph, "NetworkPolicy") if one.inputs["metadata"]["name"].endswith("-gateway")]
    assert [port["port"] for port in policy.inputs["spec"]["ingress"][0]["ports"]] == [8080]


def test_addresses_are_of_the_listener():
    graph = recorded_with({"gateway_api": {**GATEWAY, "scheme": "http"}}, "gpu-opt350m")
    assert graph.outputs["addresses"] == {"triton-server": "http://models.example.com"}


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"gateway_api": {**GATEWAY, "from_namespaces": []}}, "no client would get in"),
        ({"gateway_api": {**GATEWAY, "routes": {"tritn-server": {}}}}, "did you mean 'triton-server'"),
        ({"gateway_api": {**GATEWAY, "routes": {WEB_UI: {}}}}, "add clients.open_webui"),
        (
            {"gateway_api": GATEWAY, "gateway": {"host": "a.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ"}},
            "the stack has a gateway of its own",
        ),
    ],
)
def test_what_cannot_be_is_refused(section, says):
    with pytest.raises(ProgramError, match=re.escape(says)):
        recorded_with(section, "gpu-opt350m")


def test_a_program_names_something_to_route_to():
    def program() -> None:
        with pytest.raises(SpecError, match="no target has this name") as raised:
            GatewayRoutes("front", {**GATEWAY, "routes": {"a": {}}}, cluster=existing_cluster(), targets={})
        assert raised.value.faults[0].path == ("routes", "a")

    record(program)


def test_what_the_page_shows_is_taken_and_built():
    (shown,) = (
        found
        for block in blocks(ROOT / "docs" / "gateway.md")
        if block.language == "yaml" and "gateway_api" in (found := yaml.safe_load(block.text))
    )
    graph = recorded_with(shown, "inf2-llama2")
    assert len(of_kind(graph, "HTTPRoute")) == len(graph.outputs["addresses"]) == 3
