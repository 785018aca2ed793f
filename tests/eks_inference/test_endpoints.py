"""Endpoints as they are planned and built; what Envoy makes of them is in tests/test_endpoint_proxy.py."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conftest import PROJECT, ROOT
from eks_inference import SecretRef
from eks_inference.component import _protocol_members
from eks_inference.endpoints import component, plan, routing
from eks_inference.endpoints.envoy import configuration
from eks_inference.endpoints.plan import clients_file, key_faults, parsed_keys, server_file
from eks_inference.endpoints.proxy import ADMIN_PORT, Proxy, Upstream
from eks_inference.endpoints.spec import ModelEndpointSpec
from eks_inference.faults import SpecError
from eks_inference.kubernetes.network_policy import Front
from eks_inference.serving.flag_values import other_names
from eks_inference.serving.handle import Server
from eks_inference.serving.paths import ASKING_PATHS, PATHS
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from handles import existing_cluster, placement
from readme import blocks
from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from variants import merge, recorded_with

KEY = "0123456789abcdef"
KEYS = json.dumps({"team-a": KEY, "team-a/next": f"{KEY}1", "team-b": f"{KEY}2"})
SECRET = {"eks-inference:endpointKeys": KEYS}
PICK = {"spread": "endpoint_picker"}
LATE: Any = object()
"""A value that only a deployment knows."""


def stack(section: dict[str, Any], base: str = "inf2-llama2") -> dict[str, Any]:
    spec = json.loads(PROJECT.config(PROJECT.stack_file(base)).values["eks-inference:stack"])
    merge(spec, section)
    return spec


def graph(section: dict[str, Any], base: str = "inf2-llama2", secrets: dict[str, str] = SECRET) -> Graph:
    return recorded_with(section, base, secrets)


def faults(section: dict[str, Any], base: str = "inf2-llama2") -> list[str]:
    try:
        found = check_spec(parse_stack(json.dumps(stack(section, base))), "us-west-2").faults
    except SpecError as error:
        found = error.faults
    return [str(fault) for fault in found]


# -- who may ask -----------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@given(st.dictionaries(st.text(max_size=30), st.text(max_size=40) | st.integers() | st.none(), max_size=4))
def test_keys_are_taken_whole_or_refused_without_a_word_of_them(keys: dict[str, Any]) -> None:
    told = " ".join(map(str, key_faults(keys)))
    if told:
        for name, key in keys.items():
            assert len(str(key)) < 6 or str(key) in name or str(key) not in told
        with pytest.raises(SpecError):
            parsed_keys(json.dumps(keys))
    else:
        (resource,) = json.loads(clients_file(keys))["resources"]
        credentials = resource["typed_config"]["credentials"]
        assert {credential["key"] for credential in credentials} == set(keys.values())


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "should be keys by client"),
        ([KEY], "should be keys by client"),
        ({"Team A": KEY}, "no name of a client"),
        ({"team-a": ""}, "this is no key"),
        ({"team-a": "blank in between it"}, "this is no key"),
        ({"team-a": "short"}, "can be guessed"),
        ({"team-a": KEY, "team-b": KEY}, "has this key, too"),
    ],
)
def test_what_is_wrong_with_keys_is_told(keys: Any, words: str) -> None:
    assert any(words in str(fault) for fault in key_faults(keys))
    with pytest.raises(SpecError, match=words):
        clients_file(keys)


def test_a_secret_that_is_no_json_is_told_without_a_word_of_it() -> None:
    with pytest.raises(SpecError, match=r"^(?!.*somebody).*should be keys by client"):
        parsed_keys("just one key of somebody")


def test_a_client_may_have_two_keys() -> None:
    (resource,) = json.loads(clients_file(parsed_keys(KEYS)))["resources"]
    assert [one["client"] for one in resource["typed_config"]["credentials"]] == ["team-a", "team-a", "team-b"]


def test_a_file_of_other_keys_has_another_version() -> None:
    one, other = (json.loads(server_file(key))["version_info"] for key in ("a", "b"))
    assert one != other


@pytest.mark.thorough
def test_keys_are_a_secret_of_the_state_and_change_no_pod() -> None:
    before, after = (
        graph({"endpoints": {"chat": {}}}),
        graph({"endpoints": {"chat": {}}}, secrets={k: KEYS.replace("2", "3") for k in SECRET}),
    )
    assert "stringData" in before.named("chat-keys").document()["inputs"]
    assert KEY not in before.to_json()
    assert before.named("chat-deployment").inputs == after.named("chat-deployment").inputs


@pytest.mark.thorough
def test_a_stack_without_the_secret_is_told_so() -> None:
    with pytest.raises(ProgramError, match="endpointKeys: this secret is required and missing: endpoint 'chat'"):
        graph({"endpoints": {"chat": {}}}, secrets={})
    assert not [one for one in graph({"endpoints": {"chat": {"keys": False}}}, secrets={}).resources if one.name == "chat-keys"]


@pytest.mark.thorough
def test_a_secret_that_is_no_json_is_told_without_a_traceback() -> None:
    with pytest.raises(ProgramError) as caught:
        graph({"endpoints": {"chat": {}}}, secrets={"eks-inference:endpointKeys": "just one key of somebody"})
    assert "should be keys by client" in str(caught.value)
    assert "somebody" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "keys: an endpoint that asks for keys needs some"),
        ({"keys": {}}, "keys: should be keys by client"),
        ({"keys": {"Team A": KEY}}, "keys: this is no name of a client"),
        ({"keys": {"team-a": KEY[1:], "team-b": LATE}}, "keys.team-a: this key can be guessed"),
        ({"keys": {"team-a": KEY, "team-b": LATE}, "server_key": LATE}, ""),
        ({"keys": {"team-a": LATE}}, ""),
        ({"keys": SecretRef("of-others", plan.KEYS_FILE)}, ""),
        ({"keys": SecretRef("of-others", "keys.json")}, "keys.key: Envoy reads this key of the Secret"),
        ({"keys": SecretRef("of-others", plan.KEYS_FILE), "server_key": LATE}, "server_key: the pods mount one Secret"),
    ],
)
def test_keys_that_a_program_gives_are_judged_as_far_as_they_are_known(given: Mapping[str, Any], told: str) -> None:
    found = [str(fault) for fault in component._key_faults(ModelEndpointSpec(), given.get("keys"), given.get("server_key"))]
    assert [fault.startswith(told) for fault in found] == [True] * bool(told), found


def server(namespace: str = "a") -> SimpleNamespace:
    """What an endpoint reads of a server."""
    fronts = (Front({"app": namespace}, 8000, tells_load=True), Front({"app": namespace}, 8001, grpc=True))
    read = {"namespace": namespace, "model_id": "m", "does": "chat", "other_names": (), "fronts": fronts, "ready": ()}
    return SimpleNamespace(**dict.fromkeys(_protocol_members(Server)) | read)


def built(**given: Any) -> Graph:
    arguments = {"spec": {}, "keys": SecretRef("of-others", plan.KEYS_FILE), **given}
    return record(lambda: component.ModelEndpoint("e", cluster=existing_cluster(), placement=placement("m5.large"), **arguments))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"servers": {}}, "servers: an endpoint needs a model server"),
        ({"servers": {}, "kserve": {"s": server(), "t": server()}}, "kserve: an endpoint has at most one server with the"),
        ({"servers": {"s": server(), "t": server("b")}, "spec": PICK}, "spread: a picker watches the pods of one namespace"),
    ],
)
def test_an_endpoint_of_a_program_is_refused_by_its_component(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ProgramError, match=told):
        built(**given)


def test_a_secret_of_others_is_mounted_and_not_made() -> None:
    """In an endpoint with as much of what is refused above as is taken."""
    made = built(spec=PICK, servers={"s": server(), "t": server()}, kserve={"u": server("b")})
    assert not [one for one in made.resources if one.type.endswith(":Secret")]
    mounted = made.named("e-deployment").inputs["spec"]["template"]["spec"]["volumes"]
    assert [one["secret"] for one in mounted if "secret" in one] == [{"secretName": "of-others"}]


def test_a_limit_of_a_model_is_each_clients() -> None:
    spec = ModelEndpointSpec.model_validate({"replicas": 2, "requests_per_minute_by_model": {"m": 5}})
    made = json.dumps(configuration(plan.proxy(spec, [Upstream("a", "a", 80, "m")], server_key=False)))
    bucket = {"max_tokens": 3, "tokens_per_fill": 3, "fill_interval": "60s"}
    entries = [{"key": "client"}, {"key": "model", "value": "m"}]
    assert json.dumps({"entries": entries, "token_bucket": bucket}) in made


# -- what is built ---------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 50), st.integers(1, 100_000))
def test_the_parts_of_a_limit_are_at_least_the_limit_and_little_more(replicas: int, limit: int) -> None:
    limits = {"requests_per_minute": limit, "concurrent_requests": limit, "requests_per_minute_by_model": {"a": limit}}
    spec = ModelEndpointSpec.model_validate({"replicas": replicas, "largest_request_mib": 3, **limits})
    planned = plan.proxy(spec, [Upstream("a", "a", 80, "a")], server_key=False)
    assert planned.largest_request_bytes == 3 * 1024 * 1024
    for part in (planned.requests_per_minute, planned.concurrent_requests, *planned.requests_per_model.values()):
        assert part is not None
        assert limit <= part * replicas < limit + replicas


@pytest.mark.thorough
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=6))
def test_each_model_has_one_cluster_and_a_route_for_each_path(models: list[str]) -> None:
    upstreams = [Upstream(f"s{number}", f"s{number}.test", 8000, model) for number, model in enumerate(models)]
    made = configuration(plan.proxy(ModelEndpointSpec(), upstreams, server_key=False))["static_resources"]
    clusters = [one for one in made["clusters"] if one["name"] != "envoy/admin"]
    assert len(clusters) == len(set(models))
    hosts = [each for cluster in clusters for each in cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]]
    assert len(hosts) == len(models)
    (chain,) = made["listeners"][0]["filter_chains"]
    routes = chain["filters"][0]["typed_config"]["route_config"]["virtual_hosts"][0]["routes"]
    assert len([route for route in routes if "route" in route]) == len(ASKING_PATHS) * len(set(models))
    assert {route["route"]["cluster"] for route in routes if "route" in route} == {cluster["name"] for cluster in clusters}


def test_three_servers_of_a_model_stand_behind_one_address() -> None:
    made = graph({"endpoints": {"chat": {}}})
    services = [one for one in made.resources if one.name.startswith("chat.llama2-") and one.name.endswith("-pods")]
    assert [service.inputs["spec"]["clusterIP"] for service in services] == ["None"] * 3
    config = json.loads(made.named("chat-config").inputs["data"]["envoy.json"])
    (cluster,) = (one for one in config["static_resources"]["clusters"] if one["name"] != "envoy/admin")
    hosts = {
        each["endpoint"]["address"]["socket_address"]["address"]
        for each in cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    }
    assert hosts == {
        f"{one.inputs['metadata']['name']}.{one.inputs['metadata']['namespace']}.svc.cluster.local" for one in services
    }
    assert made.outputs["endpoints"]["chat"] == "http://chat.chat.svc.cluster.local/v1"


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ({}, ()),
        ({"lora-modules": "sql=team/sql"}, ("sql",)),
        ({"lora-modules": ["sql=team/sql", '{"name": "chat", "path": "team/chat"}']}, ("sql", "chat")),
        ({"lora-modules": [{"name": "a", "path": "b"}], "served-model-name": ["m", "short"]}, ("short", "a")),
        ({"served-model-name": "m"}, ()),
    ],
)
def test_the_names_in_requests_are_those_that_flags_give(flags: dict[str, Any], names: tuple[str, ...]) -> None:
    assert other_names("m", flags) == names


def test_an_adapter_leads_to_the_servers_of_its_model() -> None:
    upstreams = [Upstream(one, f"{one}.test", 8000, "m", ("sql",)) for one in ("s0", "s1")]
    found = list(routing.routes(Proxy(upstreams)))
    assert {item["id"] for item in json.loads(found[0]["direct_response"]["body"]["inline_string"])["data"]} == {"m", "sql"}
    leads = {
        one["match"]["dynamic_metadata"][0]["value"]["string_match"]["exact"]: one["route"]["cluster"]
        for one in found
        if "dynamic_metadata" in one["match"] and "route" in one
    }
    assert leads == {"m": "s0+s1", "sql": "s0+s1"}


@pytest.mark.thorough
def test_an_endpoint_of_triton_alone_has_no_path_of_the_openai_api() -> None:
    made = graph({"endpoints": {"tensors": {"servers": ["triton-server"]}}}, "gpu-opt350m")
    assert made.outputs["endpoints"]["tensors"] == "http://tensors.tensors.svc.cluster.local"
    (service,) = (resource for resource in made.resources if resource.name == "tensors.triton-server-pods")
    assert [port["port"] for port in service.inputs["spec"]["ports"]] == [8000, 8001]


@pytest.mark.thorough
def test_the_proxy_may_reach_the_servers_and_nothing_else() -> None:
    made = graph({"endpoints": {"chat": {}}})
    policy = made.named("chat-network-endpoint").inputs["spec"]
    dns, *servers = policy["egress"]
    assert "k8s-app" in str(dns)
    reached = {
        (rule["to"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"], port["port"])
        for rule in servers
        for port in rule["ports"]
    }
    pods = [resource for resource in made.resources if resource.name.endswith("-pods") and resource.type.endswith(":Service")]
    assert reached == {
        (pod.inputs["metadata"]["namespace"], port["port"]) for pod in pods for port in pod.inputs["spec"]["ports"]
    }
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == {8080, 8081}


@pytest.mark.thorough
def test_the_proxy_gets_in_whatever_namespaces_a_server_admits() -> None:
    made = graph({"endpoints": {"chat": {}}, "servers": {"llama2-a": {"client_namespaces": {"team": "a"}}}})
    policy = made.named("chat.llama2-a-policy").inputs
    assert policy["metadata"] == {"name": "chat-endpoint", "namespace": "llama2-a"}
    (rule,) = policy["spec"]["ingress"]
    (peer,) = rule["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "chat"}
    assert peer["podSelector"]["matchLabels"] == made.named("chat-deployment").inputs["spec"]["selector"]["matchLabels"]
    service = made.named("chat.llama2-a-pods").inputs["spec"]
    assert policy["spec"]["podSelector"]["matchLabels"] == service["selector"]
    assert [one["port"] for one in rule["ports"]] == [one["port"] for one in service["ports"]]


@pytest.mark.thorough
def test_resources_of_two_endpoints_never_share_a_name() -> None:
    """Pulumi tells resources apart by type and name: a to b-c is not a-b to c."""
    servers = {"llama2-a": None, "llama2-b": None, "llama2-c": None}
    a = stack({})["servers"]["llama2-a"]
    made = graph(
        {
            "servers": {**servers, "b-c": a, "c": a},
            "endpoints": {"a": {"servers": ["b-c"]}, "a-b": {"servers": ["c"]}},
            "load_test": None,
        }
    )
    assert len([one for one in made.resources if one.name.endswith("-pods") and one.type.endswith(":Service")]) == 2


def test_nobody_outside_the_pod_reaches_envoys_administration() -> None:
    config = json.loads(graph({"endpoints": {"chat": {}}}).named("chat-config").inputs["data"]["envoy.json"])
    assert config["admin"]["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": ADMIN_PORT}


@pytest.mark.thorough
def test_a_pod_has_time_to_drain_and_more_behind_a_load_balancer() -> None:
    def grace(section: dict[str, Any]) -> tuple[int, int]:
        pod = graph(section).named("chat-deployment").inputs["spec"]["template"]["spec"]
        *_, leaves, within = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert int(leaves) + 100 == int(within) < pod["terminationGracePeriodSeconds"]
        return int(leaves), pod["terminationGracePeriodSeconds"]

    alone = grace({"endpoints": {"chat": {"drain_seconds": 100}}})
    gateway = {"host": "models.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ"}
    behind = grace({"endpoints": {"chat": {"drain_seconds": 100}}, "gateway": gateway})
    assert behind > alone


@pytest.mark.thorough
def test_a_gateway_leads_to_the_endpoint_and_not_around_it() -> None:
    gateway = {"host": "models.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ"}
    made = graph({"endpoints": {"chat": {}}, "gateway": gateway})
    ingresses = [resource for resource in made.resources if resource.type.endswith(":Ingress")]
    assert [ingress.inputs["metadata"]["namespace"] for ingress in ingresses] == ["chat"]
    assert made.outputs["addresses"] == {"chat": "https://models.example.com/v1"}


@pytest.mark.thorough
def test_what_the_servers_demand_the_proxy_gives() -> None:
    made = graph({"endpoints": {"chat": {}}}, secrets={**SECRET, "eks-inference:servingApiKey": "a-key-of-servers"})
    assert "credential_injector" in made.named("chat-config").inputs["data"]["envoy.json"]


# -- what is refused -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "base", "words"),
    [
        ({"servers": ["llama2-a", "llama2-a"]}, "inf2-llama2", "given more than once"),
        ({"keys": False, "requests_per_minute": 5}, "inf2-llama2", "only keys tell clients apart"),
        ({"keys": False, "requests_per_minute_by_model": {"m": 5}}, "inf2-llama2", "only keys tell clients apart"),
        ({"namespace": "kube-system"}, "inf2-llama2", "belongs to Kubernetes"),
        ({"replicas": 0}, "inf2-llama2", "1"),
        ({"largest_request_mib": 256}, "inf2-llama2", "END001"),
        ({"memory": "255Mi"}, "inf2-llama2", "at least 256Mi, or largest_request_mib of at most 15"),
        ({"memory": "100Mi"}, "inf2-llama2", "at least 256Mi"),
        ({"models": {"m": {"llama2-a": 90}}}, "inf2-llama2", "the parts of m make 90 of 100"),
        ({"models": {"m": {"llama2-x": 100}}}, "inf2-llama2", "did you mean 'llama2-"),
        ({"models": {"m": {"llama2-a": 100}}}, "inf2-llama2", "llama2-a does not answer to m"),
        ({"models": {"meta-llama/Llama-2-13b-hf": {"llama2-a": 100}}}, "inf2-llama2", "llama2-a does not answer to"),
    ],
)
def test_endpoints_that_cannot_be_are_refused(endpoint: dict[str, Any], base: str, words: str) -> None:
    assert any(words in fault for fault in faults({"endpoints": {"chat": endpoint}}, base))


@pytest.mark.parametrize(("memory", "mib"), [("256Mi", 16), ("1Gi", 112), ("2Gi", 240)])
def test_the_largest_request_has_room_in_memory(memory: str, mib: int) -> None:
    """So that two of them are passed on, and others wait, within the memory of the pod."""
    assert not faults({"endpoints": {"chat": {"memory": memory, "largest_request_mib": mib}}})
    assert any("END001" in fault for fault in faults({"endpoints": {"chat": {"memory": memory, "largest_request_mib": mib + 1}}}))


def test_an_endpoint_that_parses_nothing_needs_no_memory_for_it() -> None:
    tensors = {"servers": ["triton-server"], "largest_request_mib": 256}
    assert not faults({"endpoints": {"tensors": tensors}}, "gpu-opt350m")
    small = faults({"endpoints": {"tensors": {**tensors, "memory": "64Mi"}}}, "gpu-opt350m")
    assert any("END001" in one and "before it has a request" in one for one in small)


@pytest.mark.thorough
def test_servers_of_a_model_have_the_same_names() -> None:
    def named_so(**names: list[str]) -> dict[str, Any]:
        servers = {server: {"extra_args": {"served-model-name": given}} for server, given in names.items()}
        return {"servers": {key.replace("_", "-"): one for key, one in servers.items()}, "endpoints": {"chat": {}}}

    model = stack({})["servers"]["llama2-a"]["model"]["id"]
    every = {key: [model, "short"] for key in ("llama2_a", "llama2_b", "llama2_c")}
    assert graph(named_so(**every)).resources
    with pytest.raises(ProgramError, match="leads to llama2-a and llama2-b and llama2-c, which do not answer to the same names"):
        graph(named_so(llama2_a=[model, "short"]))


@pytest.mark.thorough
def test_limits_are_of_models_that_requests_name() -> None:
    model = stack({})["servers"]["llama2-a"]["model"]["id"]
    assert graph({"endpoints": {"chat": {"requests_per_minute_by_model": {model: 5}}}}).resources
    with pytest.raises(ProgramError, match="requests name no such model"):
        graph({"endpoints": {"chat": {"requests_per_minute_by_model": {"m": 5}}}})


def test_an_endpoint_may_not_have_the_name_of_a_server() -> None:
    assert any("a server has this name" in fault for fault in faults({"endpoints": {"llama2-a": {"namespace": "chat"}}}))
    assert any("the web UI has this name" in fault for fault in faults({"endpoints": {"open-webui": {}}}))


def test_an_endpoint_without_keys_is_not_put_on_the_internet() -> None:
    gateway = {"host": "models.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ", "public": True}
    (fault,) = faults({"endpoints": {"chat": {"keys": False}}, "gateway": gateway})
    assert "GWY004: anyone on the internet could use chat: endpoint chat has keys: false" in fault
    assert not faults({"endpoints": {"chat": {}}, "gateway": gateway})


def test_the_page_says_what_a_stack_file_takes() -> None:
    for said in (block.text for block in blocks(ROOT / "docs" / "endpoints.md") if block.language == "yaml"):
        made = graph({"endpoints": yaml.safe_load(said)["config"]["eks-inference:stack"]["endpoints"]})
        assert made.outputs["endpoints"]["chat"] == "http://chat.chat.svc.cluster.local/v1"
    page = (ROOT / "docs" / "endpoints.md").read_text()
    assert all(f"`{path.removeprefix('/v1/')}`" in page for path in ASKING_PATHS[1:])


def test_only_endpoints_that_the_stack_has_guard_their_servers_from_pods():
    """One that a route makes is a way in, and no server of it had a key to ask for before."""
    servers = {"a": {"kind": "vllm", "model": {"id": "Qwen/Qwen3-0.6B"}, "max_model_len": 2048}}
    stack = {"name": "s", "pools": {"gpu": {"kind": "managed", "instance_types": ["g6.xlarge"], "size": 1}}, "servers": servers}
    gateway = {"host": "a.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ"}
    for sections, warned in (({"gateway": gateway}, []), ({"endpoints": {"e": {"servers": ["a"]}}}, ["END003"])):
        found = check_spec(parse_stack(json.dumps({**stack, **sections})), "us-west-2").findings
        assert [finding.rule.id for finding in found if finding.rule.id == "END003"] == warned


def green(**parts: int) -> dict[str, Any]:
    """Three servers of a model of which a fourth becomes the successor, under the name that clients know."""
    old = stack({})["servers"]["llama2-a"]
    named_so = {
        server: {"extra_args": {"served-model-name": [old["model"]["id"], "chat"]}} for server in ("llama2-a", "llama2-b")
    }
    return {
        "servers": {**named_so, "llama2-c": None},
        "endpoints": {"chat": {"models": {"chat": parts, old["model"]["id"]: parts}}},
    }


def test_a_name_leads_to_servers_by_parts_of_a_hundred() -> None:
    parts = {"llama2-a": 90, "llama2-b": 10}
    made = graph(green(**parts))
    config = json.loads(made.named("chat-config").inputs["data"]["envoy.json"])["static_resources"]
    (chain,) = config["listeners"][0]["filter_chains"]
    routes = chain["filters"][0]["typed_config"]["route_config"]["virtual_hosts"][0]["routes"]
    led = [route["route"]["weighted_clusters"] for route in routes if "route" in route]
    assert len(led) == 2 * len(PATHS["chat"])
    assert all({way["name"]: way["weight"] for way in one["clusters"]} == parts for one in led)
    assert {one["name"] for one in config["clusters"]} == {*parts, "envoy/admin"}


def test_what_a_name_without_parts_leads_to_is_one_group() -> None:
    section = green(**{"llama2-a": 90, "llama2-b": 10})
    model = section["servers"]["llama2-a"]["extra_args"]["served-model-name"][0]
    section["endpoints"]["chat"]["models"].pop(model)
    (fault,) = faults(section)
    assert f"{model} leads to llama2-a and llama2-b" in fault
    assert f"models: {{{model}: {{llama2-a: 100, llama2-b: 0}}}}" in fault
