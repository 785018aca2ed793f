"""The table of what listens: complete, true to the NetworkPolicies of rendered stacks, and shown on a page with vLLM's paths."""

import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from conftest import ROOT, STACKS, recorded
from covering_graphs import covering_graphs
from eks_inference.serving.paths import ASKING_PATHS, MODELS_PATH
from golden import assert_golden
from listening import NOBODY, OF_ITS_NAMESPACE, listening
from refresh.vllm_paths import FILE
from stackgraph.graph.document import Graph
from variants import recorded_with

TABLE: dict[str, dict[str, dict[str, Any]]] = tomllib.loads((ROOT / "tests" / "doors.toml").read_text("utf-8"))
ROWS = {(pod, port): row for pod, ports in TABLE.items() for port, row in ports.items()}
KEYS = {"eks-inference:endpointKeys": '{"team-a": "hush-key-of-team-a"}'}
GATEWAY = {"host": "models.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ"}
FRONT = {
    "clients": {"open_webui": {}},
    "endpoints": {"chat": {"spread": "endpoint_picker"}},
    "gateway": {**GATEWAY, "routes": {"chat": {}, "open-webui": {"host": "chat.example.com"}}},
}
CHOSEN = ("1024", "65535")
"""Ports that stacks of the covering set choose for servers."""


@cache
def front() -> Graph:
    return recorded_with(FRONT, "smoke-gpu", KEYS)


def graphs() -> Iterator[Graph]:
    yield from map(recorded, STACKS)
    yield front()
    yield recorded_with({"gateway": GATEWAY}, "gpu-opt350m", KEYS)
    yield recorded_with({"clients": {"open_webui": {}}}, "smoke-gpu")
    yield from covering_graphs().values()


def test_every_port_of_a_stack_with_a_front_has_a_row_and_no_more_may_connect():
    found = listening(front())
    assert found.keys() >= {("ModelEndpoint endpoint", "8080"), ("VllmServer", "8000"), ("OpenWebUI open-webui", "8080")}
    for key, reach in found.items():
        assert key in ROWS, f"{key} listens: give it a row in tests/doors.toml"
        assert reach <= {*ROWS[key]["reach"]}, key


@pytest.mark.thorough
def test_the_table_is_that_of_all_stacks():
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for graph in graphs():
        for key, reach in listening(graph).items():
            if key[1] not in CHOSEN:
                found[key] |= reach
    assert found.keys() == ROWS.keys()
    for key in found:
        # Some stacks narrow a port to namespaces that no other has, or to its own.
        found[key] = (found[key] - ({NOBODY} if key[0].startswith("chart ") else {NOBODY, OF_ITS_NAMESPACE})) or {NOBODY}
    assert found == {key: {*row["reach"]} for key, row in ROWS.items()}


def test_what_asks_nobody_admits_nobody_who_is_not_named_or_says_so():
    """Every other port that asks nobody is for Prometheus, or for pods of the same server."""
    open_ = {key for key, row in ROWS.items() if row["asks"] == "nobody" and {"every pod", "anybody"} & {*row["reach"]}}
    assert {pod for pod, _ in open_ if not pod.startswith("chart ")} == {
        "DisaggregatedPair baseline",
        "TritonServer server",
        "DisaggregatedPair router",
        "PrefillDecodeServers router",
        "ModelEndpoint endpoint-picker",
    }


PAGE = """# What listens, and who gets there

A test makes this page from `tests/doors.toml`, which it compares with the ports, Services and NetworkPolicies of rendered stacks,
and from `refresh/vllm_paths.toml`, which is read from each release of vLLM. Only endpoints and the web UI can be reached from
outside the cluster ([gateway.md](gateway.md)). A server admits every pod of the cluster unless its `client_namespaces` say
otherwise (END003).

| pod | port | what | who may connect | what it asks |
|---|---|---|---|---|
"""
PATHS = """
## Paths of vLLM

vLLM {release} answers at these paths, at some of them only with a flag, a variable or a kind of model. An endpoint passes on the
paths in bold and asks for a key at each; it answers `/v1/models` itself. The others are closed.

| | asks for servingApiKey | asks nobody |
|---|---|---|
"""
DOES = {
    "computes": "has the engine or its tokenizer work",
    "changes": "changes the engine, its weights, or requests of others",
    "tells": "tells of the server, its load, or answers of others",
    "lives": "only says whether it answers",
}


def test_the_page_shows_both_tables():
    rows = [
        f"| {pod} | {port} | {row['what']} | {', '.join(row['reach'])} | {row['asks']} |" for (pod, port), row in ROWS.items()
    ]
    known = tomllib.loads(FILE.read_text("utf-8"))
    release, newest = list(known["releases"].items())[-1]
    guarded = tuple(newest["guarded"])

    def cell(what: str, *, asks: bool) -> str:
        paths = [one for one in known["does"][what] if one in newest["paths"] and one.startswith(guarded) is asks]
        return ", ".join(f"**`{path}`**" if path in (*ASKING_PATHS, MODELS_PATH) else f"`{path}`" for path in paths)

    table = [f"| {says} | {cell(what, asks=True)} | {cell(what, asks=False)} |" for what, says in DOES.items()]
    assert_golden("../../docs/doors.md", PAGE + "\n".join(rows) + "\n" + PATHS.format(release=release) + "\n".join(table))
