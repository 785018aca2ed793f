"""What gateways lead out: endpoints and the web UI, never a server; and which paths of vLLM an endpoint passes on."""

import tomllib
from functools import cache
from itertools import product
from typing import Any

import pytest

from eks_inference.catalog.engines import engines
from eks_inference.clients.plan import WEB_UI_NAME
from eks_inference.endpoints.envoy import configuration
from eks_inference.endpoints.proxy import ENDPOINT_LABEL, HEALTH_PATH, KEYS_FILTER, Proxy, Upstream
from eks_inference.kubernetes.workloads import APP_LABEL
from eks_inference.serving.kinds import KINDS
from eks_inference.serving.paths import ASKING_PATHS, MODELS_PATH
from graphs import kind, kubernetes, of_kind
from refresh.vllm_paths import FILE
from stackgraph.graph.document import Graph
from variants import recorded_with

GATEWAY = {"host": "models.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ"}
GATEWAY_API = {"gateway": "shared", "namespace": "gateways", "host": "models.example.com", "from_namespaces": ["gateways"]}
WEB_UI = {"clients": {"open_webui": {}}}
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
SECRETS = {"eks-inference:endpointKeys": '{"team-a": "hush-key-of-team-a"}'}
PATHS = tomllib.loads(FILE.read_text("utf-8"))


@cache
def graph(stack: str, door: str) -> Graph:
    return recorded_with(DOORS[door], stack, SECRETS)


def backends(graph: Graph) -> set[tuple[str, str]]:
    """Namespace and name of every Service that an Ingress or a route of a Gateway leads to."""
    found: set[tuple[str, str]] = set()
    for resource in kubernetes(graph):
        if kind(resource) == "Ingress":
            paths = [path for rule in resource.inputs["spec"]["rules"] for path in rule["http"]["paths"]]
            found |= {(resource.inputs["metadata"]["namespace"], path["backend"]["service"]["name"]) for path in paths}
        elif kind(resource) in ("HTTPRoute", "GRPCRoute"):
            behind = [each for rule in resource.inputs["spec"]["rules"] for each in rule["backendRefs"]]
            found |= {(resource.inputs["metadata"]["namespace"], each["name"]) for each in behind}
    return found


def test_every_kind_is_here():
    assert {*STACKS.values()} == KINDS.keys()


@pytest.mark.parametrize(
    ("stack", "door"),
    [
        pytest.param(stack, door, marks=() if stack == "smoke-gpu" else pytest.mark.thorough)
        for stack, door in product(STACKS, DOORS)
    ],
)
def test_only_endpoints_that_ask_for_keys_are_led_out(stack, door):
    recorded = graph(stack, door)
    found = {(one.inputs["metadata"]["namespace"], one.inputs["metadata"]["name"]): one for one in of_kind(recorded, "Service")}
    led = backends(recorded)
    assert len(led) == len(recorded.outputs["addresses"]) > 0
    for backend in led:
        selector = found[backend].inputs["spec"]["selector"]
        assert selector.keys() >= {ENDPOINT_LABEL}
        (config,) = [one for one in of_kind(recorded, "ConfigMap") if one.inputs["metadata"]["namespace"] == backend[0]]
        assert KEYS_FILTER in config.inputs["data"]["envoy.json"]


def test_the_web_ui_has_a_route_of_its_own():
    gateway = {**GATEWAY, "routes": {"open-webui": {}}}
    recorded = recorded_with({"gateway": gateway, **WEB_UI}, "smoke-gpu")
    ((space, name),) = backends(recorded)
    (service,) = [one for one in of_kind(recorded, "Service") if one.inputs["metadata"] == {"name": name, "namespace": space}]
    assert service.inputs["spec"]["selector"] == {APP_LABEL: WEB_UI_NAME}


def test_an_endpoint_asks_for_the_key_at_every_path_but_that_of_its_health():
    """tests/test_endpoint_paths.py asks the real Envoy."""
    planned = configuration(Proxy([Upstream("s", "s.test", 8000, "m")], keys_file="/keys/clients.json"))
    api, _ = planned["static_resources"]["listeners"]
    health, _, keys, *_ = api["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    assert health["typed_config"]["headers"] == [{"name": ":path", "string_match": {"exact": HEALTH_PATH}}]
    assert keys["name"] == KEYS_FILTER


# -- paths of vLLM ---------------------------------------------------------------------------------------------------------------


def test_every_path_of_every_release_has_one_place():
    known = {path for release in PATHS["releases"].values() for path in release["paths"]}
    placed = [path for paths in PATHS["does"].values() for path in paths]
    assert len(placed) == len({*placed})
    assert {*placed} == known, "say in refresh/vllm_paths.toml what a new path does, and drop one that no release has"


def test_the_releases_of_all_engines_are_here():
    wanted = {engine.vllm for engine in engines().values() if engine.standalone and not engine.retired}
    assert wanted <= PATHS["releases"].keys(), "make refresh TABLE=vllm_paths"


def test_an_endpoint_leads_out_what_computes_and_is_guarded():
    for name, release in PATHS["releases"].items():
        led = {*ASKING_PATHS, MODELS_PATH} & {*release["paths"]}
        assert led >= {MODELS_PATH, "/v1/chat/completions", "/v1/completions", "/v1/embeddings"}, name
        assert all(path.startswith(tuple(release["guarded"])) for path in led), name
    assert {*ASKING_PATHS} <= {*PATHS["does"]["computes"]}


def test_a_wheel_tells_its_paths_by_its_text(tmp_path):
    from refresh.vllm_paths import table

    (tmp_path / "vllm-0.99.0.dist-info").mkdir()
    (tmp_path / "vllm" / "entrypoints" / "new").mkdir(parents=True)
    text = (
        'GUARDED_PREFIX = ("/v1", "/x")\n@router.post("/v1/new")\ndef new(): ...\napp.mount("/files", Files())\nlog.info("/no")\n'
    )
    (tmp_path / "vllm" / "entrypoints" / "new" / "api_router.py").write_text(text)
    written = tomllib.loads(table(str(tmp_path)))
    assert written["releases"]["0.99.0"]["guarded"] == ["/v1", "/x"]
    assert {*written["releases"]["0.99.0"]["paths"]} == {
        "/docs",
        "/docs/oauth2-redirect",
        "/openapi.json",
        "/redoc",
        "/v1/new",
        "/files",
    }
    assert written["releases"]["0.30.0"] == PATHS["releases"]["0.30.0"]
    assert written["does"] == PATHS["does"]
