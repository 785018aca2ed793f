"""What gateways lead out of servers of every kind: paths that ask for the key where there is one, and nothing else."""

import json
import posixpath
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from typing import Any
from urllib.parse import unquote

import pytest

from conftest import ROOT
from eks_inference.endpoints.envoy import configuration
from eks_inference.endpoints.proxy import HEALTH_PATH, KEYS_FILTER, Proxy, Upstream
from eks_inference.gateway.routes import Route, led_out
from eks_inference.kubernetes.front import Front
from eks_inference.serving.kinds import KINDS
from eks_inference.serving.paths import OPENAI_PATHS
from graphs import kind, kubernetes
from stackgraph.graph.document import Graph
from variants import recorded_with

GUARDED = ("/v1", "/v2", "/inference", "/cohere")
"""vLLM 0.30.0, entrypoints/serve/middleware/authenticate.py, GUARDED_PREFIX: below these it asks for the key."""
UNGUARDED = (
    # vLLM 0.30.0, docs/usage/security.md, "Unprotected Endpoints", and the routers below entrypoints/serve.
    *("/invocations", "/ping", "/pooling", "/classify", "/score", "/rerank", "/generative_scoring", "/tokenize", "/detokenize"),
    *("/pause", "/resume", "/is_paused", "/update_weights", "/abort_requests", "/scale_elastic_ep", "/is_scaling_elastic_ep"),
    *("/health", "/load", "/version", "/metrics", "/docs", "/redoc", "/openapi.json"),
    # With VLLM_SERVER_DEV_MODE (there, "Development-mode endpoints").
    *("/sleep", "/wake_up", "/is_sleeping", "/collective_rpc", "/server_info", "/reset_prefix_cache"),
)
SPELLINGS = (
    *("{0}", "/{0}", "/.{0}", "{0}/", "/v1/..{0}", "/v1/../{0}", "/v1/..;{0}", "/v1;x/..{0}", "/v1/%2e%2e{0}", "/v1%2f..{0}"),
    *("/v1/models/../..{0}", "/v1/chat/completions/%2E%2E/../..{0}", "/v1/..\\{0}"),
)

GATEWAY = {"host": "models.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ"}
GATEWAY_API = {"gateway": "shared", "namespace": "gateways", "host": "models.example.com", "from_namespaces": ["gateways"]}
DOORS: dict[str, dict[str, Any]] = {
    "gateway": {"gateway": GATEWAY},
    "public gateway": {"gateway": {**GATEWAY, "public": True}},
    "gateway_api": {"gateway_api": GATEWAY_API},
}
STACKS = {
    "smoke-gpu": "vllm",
    "inf2-llama2": "vllm",
    "inf2-llama3": "ray_serve_vllm",
    "trn2-di": "disaggregated",
    "trn2-di-pair": "disaggregated",
    "gpu-nixl": "prefill_decode",
    "gpu-opt350m": "triton",
}
"""A stack for each shape of each kind: a server at the root of its host, several below paths, and routers."""
ASKS = [stack for stack, of in STACKS.items() if KINDS[of].api_keys]


def each(stacks: Iterable[str], doors: Iterable[str]) -> list[Any]:
    """Stacks with doors, the smallest stack in the first tier."""
    marks = {stack: () if stack == "smoke-gpu" else pytest.mark.thorough for stack in stacks}
    return [pytest.param(stack, door, marks=marks[stack]) for stack, door in product(stacks, doors)]


@cache
def graph(stack: str, door: str) -> Graph:
    return recorded_with(DOORS[door], stack, {"eks-inference:servingApiKey": "hush-key"} if stack in ASKS else {})


def doors(graph: Graph) -> Iterator[tuple[str, str, str]]:
    """Every path that an Ingress or an HTTPRoute leads to a server: how it is compared, itself, and what the server sees."""
    for one in [each for each in kubernetes(graph) if kind(each) == "Ingress"]:
        notes = one.inputs["metadata"]["annotations"]
        for path in (path for rule in one.inputs["spec"]["rules"] for path in rule["http"]["paths"]):
            given = path["path"]
            moved = notes.get(f"alb.ingress.kubernetes.io/transforms.{path['backend']['service']['name']}")
            if moved:
                (rewrite,) = json.loads(moved)[0]["urlRewriteConfig"]["rewrites"]
                yield path["pathType"], given, re.sub(rewrite["regex"], rewrite["replace"].replace("$1", r"\1"), given)
            else:
                yield path["pathType"], given, given
    for one in [each for each in kubernetes(graph) if kind(each) == "HTTPRoute"]:
        for rule in one.inputs["spec"]["rules"]:
            for match in rule["matches"]:
                type_, given = match["path"]["type"].removeprefix("Path"), match["path"]["value"]
                rewrites = [each["urlRewrite"]["path"] for each in rule.get("filters", [])]
                (inside,) = [value for each in rewrites for key, value in each.items() if key != "type"] or [given]
                yield type_, given, inside


def readings(path: str) -> set[str]:
    """What proxies and servers may make of a path: as it is, decoded, without parameters, and with dots and slashes resolved."""
    found = {path}
    for _ in range(2):
        found |= {unquote(one) for one in found}
        found |= {re.sub(r";[^/]*", "", one) for one in found}
        found |= {one.replace("\\", "/") for one in found}
        found |= {posixpath.normpath(re.sub("/+", "/", one)) for one in found}
    return found


def lets_in(type_: str, given: str, path: str) -> bool:
    return path == given or (type_ == "Prefix" and (given == "/" or path.startswith(f"{given}/")))


def test_every_kind_is_here():
    assert {*STACKS.values()} == KINDS.keys()


@pytest.mark.parametrize(("stack", "door"), [*each(STACKS, ["gateway", "gateway_api"]), *each(ASKS, ["public gateway"])])
def test_no_unguarded_path_of_vllm_is_led_out(stack, door):
    led = [*doors(graph(stack, door))]
    assert led
    for type_, given, inside in led:
        if STACKS[stack] == "triton":
            assert type_ == "Prefix"
            assert inside in ("/v2", "/inference.GRPCInferenceService")
            continue
        assert type_ == "Exact", "a whole path, however a proxy reads dots and slashes"
        assert inside in OPENAI_PATHS
        assert inside.startswith(GUARDED)
        before = given.removesuffix(inside)
        for path in (spelling.format(route) for spelling, route in product(SPELLINGS, UNGUARDED)):
            assert not [one for one in readings(f"{before}{path}") if lets_in(type_, given, one)], path


@pytest.mark.parametrize(("stack", "door"), each(ASKS, DOORS))
def test_what_clients_use_is_led_out(stack, door):
    wanted = {"/v1/models", "/v1/chat/completions", "/v1/completions"} | ({*OPENAI_PATHS} if STACKS[stack] == "vllm" else set())
    recorded = graph(stack, door)
    found: dict[str, set[str]] = {}
    for _, given, inside in doors(recorded):
        found.setdefault(given.removesuffix(inside), set()).add(inside)
    assert [*found.values()] == [wanted] * len(recorded.outputs["addresses"])
    assert {f"https://models.example.com{before}/v1" for before in found} == {*recorded.outputs["addresses"].values()}


def test_ray_serve_has_the_routes_of_its_application():
    text = (ROOT / "components/eks_inference/serving/ray_serve/assets/vllm_serve.py").read_text()
    asked = {*re.findall(r'@app\.\w+\("([^"]+)"\)', text)}
    assert {inside for *_, inside in doors(graph("inf2-llama3", "gateway"))} == asked


def test_an_endpoint_asks_for_the_key_at_every_path_but_that_of_its_health():
    """So a gateway leads all of its paths out. tests/test_endpoint_proxy.py asks the real Envoy."""
    planned = configuration(Proxy([Upstream("s", "s.test", 8000, "m")], keys_file="/keys/clients.json"))
    api, _ = planned["static_resources"]["listeners"]
    health, _, keys, *_ = api["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    assert health["typed_config"]["headers"] == [{"name": ":path", "string_match": {"exact": HEALTH_PATH}}]
    assert keys["name"] == KEYS_FILTER
    section = {"endpoints": {"chat": {}}, **DOORS["gateway"]}
    ((type_, given, _),) = doors(
        recorded_with(section, "smoke-gpu", {"eks-inference:endpointKeys": '{"team-a": "hush-key-of-team-a"}'})
    )
    assert (type_, given) == ("Prefix", "/")


def test_paths_of_a_route_come_before_those_of_the_server_and_never_before_those_of_grpc():
    route = Route("s", "models.example.com", "/long")
    front = Front("s", 8000, {"a": "b"}, "/health", ("/v1/models", "/v2/", "/"))
    assert led_out(route, front) == (
        ("Exact", "/long/v1/models", "/v1/models"),
        ("Prefix", "/long/v2", "/v2"),
        ("Prefix", "/long", "/"),
    )
    service = Front("s", 8001, {"a": "b"}, "/s/Ready", ("/s/",), grpc=True)
    assert led_out(route, service) == (("Prefix", "/s", "/s"),)
