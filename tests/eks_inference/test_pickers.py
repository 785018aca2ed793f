"""Pickers as they are planned and built; what Envoy makes of their picks is in tests/test_endpoint_picker.py."""

import json
from typing import Any

import pytest

from eks_inference.endpoints.picker import Picker
from eks_inference.endpoints.proxy import PICKER_PORT
from eks_inference.endpoints.spec import ModelEndpointSpec
from eks_inference.kubernetes.network_policy import Front
from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError
from variants import recorded_with

SECRET = {"eks-inference:endpointKeys": json.dumps({"team-a": "0123456789abcdef"})}
PICKED = {"endpoints": {"chat": {"servers": ["llama2-a"], "spread": "endpoint_picker"}}}
NAME = "chat.llama2-a-picker"
"""With which its resources in Pulumi begin."""


def graph(section: dict[str, Any], base: str = "inf2-llama2") -> Graph:
    return recorded_with(section, base, SECRET)


def arguments(of: Graph) -> dict[str, str]:
    (container,) = of.named(f"{NAME}-deployment").inputs["spec"]["template"]["spec"]["containers"]
    return dict(one.removeprefix("--").split("=", 1) for one in container["args"])


def test_a_picker_watches_the_pods_of_its_model_and_nothing_else() -> None:
    made = graph(PICKED)
    given = arguments(made)
    server = made.named("llama2-a-deployment").inputs
    assert given["pool-namespace"] == server["metadata"]["namespace"]
    labels = server["spec"]["template"]["metadata"]["labels"]
    for each in given["endpoint-selector"].split(","):
        key, _, value = each.partition(" in ")
        assert value == f"({labels[key]})"
    (port,) = [one["containerPort"] for one in server["spec"]["template"]["spec"]["containers"][0]["ports"]]
    assert given["endpoint-target-ports"] == str(port)
    role, binding = made.named(f"{NAME}-role").inputs, made.named(f"{NAME}-binding").inputs
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "llama2-a"
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    account = made.named(f"{NAME}-account").inputs["metadata"]
    (subject,) = binding["subjects"]
    assert (subject["namespace"], subject["name"]) == (account["namespace"], account["name"]) == ("chat", "chat-llama2-a-picker")


def test_the_proxy_asks_it_where_it_listens() -> None:
    made = graph(PICKED)
    config = json.loads(made.named("chat-config").inputs["data"]["envoy.json"])
    (cluster,) = (one for one in config["static_resources"]["clusters"] if one["name"].endswith("/picker"))
    ((host,),) = [one["lb_endpoints"] for one in cluster["load_assignment"]["endpoints"]]
    service = made.named(f"{NAME}-service").inputs
    where = host["endpoint"]["address"]["socket_address"]
    assert where["address"] == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc.cluster.local"
    assert [where["port_value"]] == [one["port"] for one in service["spec"]["ports"]] == [PICKER_PORT]
    pods = made.named(f"{NAME}-deployment").inputs["spec"]["template"]
    assert service["spec"]["selector"] == pods["metadata"]["labels"]
    assert arguments(made)["grpc-port"] == str(PICKER_PORT)


@pytest.mark.thorough
def test_network_policies_let_proxy_to_picker_and_picker_to_pods() -> None:
    made = graph(PICKED)
    picker = made.named(f"{NAME}-deployment").inputs["spec"]["template"]["metadata"]["labels"]
    proxy = made.named("chat-deployment").inputs["spec"]["template"]["metadata"]["labels"]

    def admits(peers: list[dict[str, Any]], labels: dict[str, str]) -> bool:
        return any(peer["podSelector"]["matchLabels"].items() <= labels.items() for peer in peers if "podSelector" in peer)

    own = made.named(f"{NAME}-policy").inputs["spec"]
    assert own["podSelector"]["matchLabels"].items() <= picker.items()
    asked, scraped = own["ingress"]
    assert admits(asked["from"], proxy)
    assert [one["port"] for one in asked["ports"]] == [PICKER_PORT]
    assert "monitoring" in str(scraped)
    *_, way = made.named("chat-network-endpoint").inputs["spec"]["egress"]
    assert admits(way["to"], picker)
    (entrance,) = made.named("chat.llama2-a-policy").inputs["spec"]["ingress"]
    assert admits(entrance["from"], picker)
    assert admits(entrance["from"], proxy)


@pytest.mark.thorough
def test_without_the_setting_nothing_of_it_is_there() -> None:
    made = graph({"endpoints": {"chat": {"servers": ["llama2-a"]}}})
    assert not [resource.name for resource in made.resources if "picker" in resource.name]
    assert "picker" not in made.named("chat-config").inputs["data"]["envoy.json"]


@pytest.mark.thorough
def test_prometheus_reads_it() -> None:
    made = graph(PICKED)
    monitor = made.named("chat-metrics-pickers").inputs["spec"]
    labels = made.named(f"{NAME}-deployment").inputs["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    (container,) = made.named(f"{NAME}-deployment").inputs["spec"]["template"]["spec"]["containers"]
    assert monitor["podMetricsEndpoints"][0]["port"] in [one["name"] for one in container["ports"]]


@pytest.mark.thorough
def test_its_pods_have_the_sizes_of_the_stack_file() -> None:
    own = {"cpu": "2", "memory": "3Gi", "image": "registry.example/picker:v1"}
    section = {"endpoints": {"chat": {**PICKED["endpoints"]["chat"], "picker": own}}}
    (container,) = graph(section).named(f"{NAME}-deployment").inputs["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "2", "memory": "3Gi"}, "limits": {"memory": "3Gi"}}
    assert container["image"] == "registry.example/picker:v1"


def test_servers_of_one_model_share_a_picker() -> None:
    fronts = [Front({"a": "b", "server": name}, 8000, tells_load=True) for name in ("two", "one")]
    picker = Picker("chat", "one", "chat", "models", fronts)
    assert picker.selector == "a in (b),server in (one,two)"


def test_a_name_leaves_room_for_those_of_pods() -> None:
    assert len(Picker("e" * 50, "s" * 60, "chat", "models", ()).name) <= 63 - len("-0123456789-01234")


def test_pickers_of_two_endpoints_never_share_a_name() -> None:
    """Pulumi tells resources apart by type and name: a to b-c is not a-b to c."""
    assert Picker("a", "b-c", "a", "b-c", ()).resource != Picker("a-b", "c", "a-b", "c", ()).resource


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("inf2-llama2", "watches the pods of one namespace, and NousResearch/Llama-2-13b-chat-hf has several"),
        ("inf2-llama3", "vllm-llama3-inf2 shows clients none"),
        ("trn2-nixl", "llama3-70b shows clients none"),
    ],
)
def test_servers_that_no_picker_can_watch_are_refused(base: str, words: str) -> None:
    with pytest.raises(ProgramError, match=f"endpoints.chat.spread: END004: .*{words}"):
        graph({"endpoints": {"chat": {"spread": "endpoint_picker"}}}, base)


def test_settings_of_a_picker_that_is_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="say spread: endpoint_picker"):
        ModelEndpointSpec(picker={"cpu": "1"})  # pyright: ignore[reportArgumentType]
