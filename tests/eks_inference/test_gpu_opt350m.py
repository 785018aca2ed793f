"""The stack gpu-opt350m: what meets only in the whole of it."""

import json
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from conftest import ROOT, recorded
from eks_inference.faults import SpecError
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from eks_inference_tools.placing.placed import Placing
from graphs import children_of, kind, of_kind
from stackgraph.graph.document import Graph, Resource
from stackgraph.recorder.project import find_project
from variants import recorded_with

STACK = "gpu-opt350m"


@pytest.fixture(scope="module")
def graph() -> Graph:
    return recorded(STACK)


TRITON = {"kind": "triton", "model": {"id": "facebook/opt-350m"}, "pool": "gpu"}
VLLM = {
    "kind": "vllm",
    "model": {"id": "facebook/opt-350m"},
    "engine": "cuda-vllm-0.30",
    "pool": "gpu",
    "tensor_parallel": 1,
    "max_model_len": 2048,
    "max_num_seqs": 64,
}


def stack_object() -> dict[str, Any]:
    project = find_project(ROOT)
    return json.loads(project.config(project.stack_file(STACK)).values["eks-inference:stack"])


# -- servers and their number ----------------------------------------------------------------------------------------------------


def test_another_kind_of_autoscaler_brings_keda_and_no_adapter() -> None:
    servers = {"triton-server": None, "opt": {**VLLM, "autoscaling": {"kind": "keda", "min": 1, "max": 4}}}
    graph = recorded_with({"servers": servers, "clients": {"triton": None}}, STACK)
    assert {r.inputs["name"] for r in of_kind(graph, "Release")} == {"kube-prometheus-stack", "keda"}
    (scaled,) = of_kind(graph, "ScaledObject")
    assert scaled.inputs["spec"]["scaleTargetRef"]["name"] == "opt"
    assert [kind(r) for r in children_of(graph, "Autoscaler")] == ["ScaledObject"]


# -- nodes -----------------------------------------------------------------------------------------------------------------------


def test_every_pod_has_a_node_from_the_beginning(graph: Graph) -> None:
    assert not Placing(graph).at("initial").unplaced


# -- the client ------------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not on PATH")
def test_make_client_makes_a_job_of_that_template(graph: Graph) -> None:
    (template,) = of_kind(graph, "CronJob")
    printed = subprocess.run(
        ["make", "--dry-run", "client", f"STACK={STACK}"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    create, follow = re.findall(r"kubectl [^\"\n]+", printed)
    name, namespace = (template.inputs["metadata"][key] for key in ("name", "namespace"))
    job = create.split()[7]
    assert create == f"kubectl --context {STACK} -n {namespace} create job {job} --from=cronjob/{name}"
    assert follow == f"kubectl --context {STACK} -n {namespace} logs --follow job/{job} --all-containers"
    assert f"--alias {STACK}" in graph.outputs["kubeconfigCommand"], "the context that the command names"


# -- clients and servers that do not speak to each other -------------------------------------------------------------------------


def faults_of(**sections: Any) -> list[str]:
    """What reading the stack refuses once these sections are as given, each as ``key: message``."""
    try:
        parse_stack(json.dumps(stack_object() | sections))
    except SpecError as error:
        return [f"{'.'.join(map(str, fault.path))}: {fault.message}" for fault in error.faults]
    return []


def test_the_stack_itself_is_read() -> None:
    assert faults_of() == []


@pytest.mark.parametrize(
    ("sections", "fault"),
    [
        ({"clients": {"open_webui": {}}}, "clients.open_webui: no model server has an OpenAI API"),
        ({"clients": {"smoke_test": {}}}, "clients.smoke_test: no model server has an OpenAI API"),
        ({"load_test": {}}, "load_test: no model server has an OpenAI API"),
        (
            {"servers": {"a": TRITON, "b": VLLM}, "load_test": {"servers": ["b", "a"]}, "clients": {}},
            "load_test.servers.1: this server has no OpenAI API",
        ),
        ({"servers": {"a": VLLM}}, "clients.triton.server: no server is Triton"),
        ({"servers": {"a": TRITON, "b": TRITON}}, "clients.triton.server: there are 2 Triton servers: name one"),
        (
            {"servers": {"a": TRITON, "b": VLLM}, "clients": {"triton": {"server": "b"}}},
            "clients.triton.server: there is no Triton server of this name",
        ),
        (
            {"accelerators": {"nvidia": False}},
            "observability.dcgm_exporter: it needs the device plugin of accelerators.nvidia, which is absent",
        ),
    ],
)
def test_clients_and_monitors_of_what_is_not_there_are_refused(sections: dict[str, Any], fault: str) -> None:
    assert faults_of(**sections) == [fault]


@pytest.mark.parametrize(
    "sections",
    [
        {"servers": {"a": TRITON, "b": TRITON}, "clients": {"triton": {"server": "b"}}},
        {"servers": {"a": TRITON, "b": VLLM}, "load_test": {}, "clients": {"smoke_test": {}, "triton": {}}},
    ],
)
def test_clients_of_what_is_there_are_not(sections: dict[str, Any]) -> None:
    assert faults_of(**sections) == []


@pytest.mark.thorough
def test_each_client_asks_the_servers_that_speak_its_protocol() -> None:
    mixed = {
        "servers": {"opt": VLLM},
        "clients": {"smoke_test": {}},
        "load_test": {"users": [2]},
        "pools": {"gpu": {"size": 8}},
    }
    graph = recorded_with(mixed, STACK)
    assert [r.name for r in components(graph, "SmokeTest")] == ["opt-smoke-test"]
    assert set(graph.outputs["endpoints"]) == {"opt", "triton-server"}
    (told,) = [c.inputs["data"]["config.json"] for c in of_kind(graph, "ConfigMap") if c.name.endswith("load-test-script")]
    assert "triton-server" not in told
    assert "opt.opt.svc" in told


def components(graph: Graph, name: str) -> list[Resource]:
    return graph.of_type(f"eks-inference:index:{name}")


# -- what is silenced ------------------------------------------------------------------------------------------------------------


def test_by_the_time_to_the_first_token_the_metric_needs_no_excuse() -> None:
    """The source's metric is silenced for parity; the better one is a setting."""
    spec = stack_object()
    spec["servers"]["triton-server"]["autoscaling"] = {"kind": "hpa", "max": 4, "metric": "vllm_time_to_first_token_ms"}
    spec["silenced"] = {}
    found = check_spec(parse_stack(json.dumps(spec)), "us-west-2").findings
    assert [finding.rule.id for finding in found] == ["OBS010", "SCL009"], "nobody gets alerts, and the nodes stay"


# -- its document ----------------------------------------------------------------------------------------------------------------


def settings_of_the_document() -> list[dict[str, Any]]:
    text = (ROOT / "docs" / "stacks" / f"{STACK}.md").read_text()
    return [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)]


@pytest.mark.parametrize("settings", settings_of_the_document(), ids=lambda settings: "+".join(settings))
def test_what_the_document_says_can_be_set_can_be_set(settings: dict[str, Any]) -> None:
    spec = stack_object()
    spec["pools"] |= settings.get("pools", {})
    for server, changes in settings.get("servers", {}).items():
        spec["servers"][server] |= changes
    assert check_spec(parse_stack(json.dumps(spec)), "us-west-2").faults == ()
