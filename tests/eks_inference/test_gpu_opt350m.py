"""The stack gpu-opt350m: what meets only in the whole of it."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from conftest import ROOT, recorded
from eks_inference.faults import SpecError
from eks_inference.place.nodes import cpu_millis, memory_mib
from eks_inference.serving.facts import room
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from graphs import children_of, kind, of_kind
from stackgraph.graph.document import Graph, Resource
from stackgraph.recorder.project import find_project
from variants import recorded_with
from vectors.serving import on

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


def pod_of(workload: Mapping[str, Any]) -> dict[str, Any]:
    """The pod's spec in that of a Deployment, DaemonSet, Job or CronJob."""
    return workload.get("jobTemplate", {}).get("spec", workload)["template"]["spec"]


# -- servers and their number ----------------------------------------------------------------------------------------------------


def test_another_kind_of_autoscaler_brings_keda_and_no_adapter() -> None:
    servers = {"triton-server": None, "opt": {**VLLM, "autoscaling": {"kind": "keda", "min": 1, "max": 4}}}
    graph = recorded_with({"servers": servers, "clients": {"triton": None}}, STACK)
    assert {r.inputs["name"] for r in of_kind(graph, "Release")} == {"kube-prometheus-stack", "keda"}
    (scaled,) = of_kind(graph, "ScaledObject")
    assert scaled.inputs["spec"]["scaleTargetRef"]["name"] == "opt"
    assert [kind(r) for r in children_of(graph, "Autoscaler")] == ["ScaledObject"]


# -- nodes -----------------------------------------------------------------------------------------------------------------------

# What EKS add-ons ask for beside the DaemonSets that `room` takes off: CoreDNS and metrics-server 100m each, the EBS controller
# 10m and 40Mi for each of six containers; two pods of each.
_ADDONS = {"coredns": (2, 100, 70), "metrics-server": (2, 100, 200), "aws-ebs-csi-driver": (2, 60, 240)}


def on_core(graph: Graph) -> Iterator[tuple[str, int, int]]:
    """Every pod of the core pool but the client's and DaemonSets': name, millicores, MiB."""
    for addon in graph.of_type("aws:eks/addon:Addon"):
        pods, cpu, memory = _ADDONS.get(addon.inputs["addonName"], (0, 0, 0))
        yield from ((addon.inputs["addonName"], cpu, memory) for _ in range(pods))
    values = {release.inputs["name"]: release.inputs["values"] for release in of_kind(graph, "Release")}
    stack = values.pop("kube-prometheus-stack")
    prometheus, operator, grafana = stack["prometheus"]["prometheusSpec"], stack["prometheusOperator"], stack["grafana"]
    yield "prometheus", *asked(prometheus, operator["prometheusConfigReloader"])
    yield "operator", *asked(operator)
    # Two sidecars: dashboards, data sources.
    yield "grafana", *asked(grafana, grafana["sidecar"], grafana["sidecar"])
    yield "kube-state-metrics", *asked(stack["kube-state-metrics"])
    yield "adapter", *asked(values.pop("prometheus-adapter"))
    assert not values, "another chart runs on the core pool"


def asked(*parts: Mapping[str, Any]) -> tuple[int, int]:
    requests = [part["resources"]["requests"] for part in parts]
    return sum(cpu_millis(request["cpu"]) for request in requests), sum(memory_mib(request["memory"]) for request in requests)


def daemons(graph: Graph, pool: str) -> tuple[int, int]:
    """What our DaemonSets and the node exporter ask of each node of a pool, beside those of the add-ons."""
    (stack,) = [r.inputs["values"] for r in of_kind(graph, "Release") if r.inputs["name"] == "kube-prometheus-stack"]
    everywhere, gpus = ["fluent-bit"], ["dcgm-exporter", "nvidia-device-plugin", "triton-server-prefetch"]
    found = {d.inputs["metadata"]["name"]: pod_of(d.inputs["spec"])["containers"] for d in of_kind(graph, "DaemonSet")}
    assert set(found) == {*everywhere, *gpus}
    names = [*everywhere, *(gpus if pool == "gpu" else ())]
    return asked(stack["prometheus-node-exporter"], *(container for name in names for container in found[name]))


def test_the_core_pool_holds_everything_wherever_the_scheduler_puts_it(graph: Graph) -> None:
    """However pods are spread over the two nodes, one of them has half of what is left, and the client fits there."""
    (group,) = [g for g in graph.of_type("aws:eks/nodeGroup:NodeGroup") if g.name.startswith(f"{STACK}-core")]
    nodes, (shape,) = group.inputs["scalingConfig"]["desiredSize"], group.inputs["instanceTypes"]
    usable, (daemon_cpu, daemon_memory) = room(on(shape)), daemons(graph, "core")
    pods = list(on_core(graph))
    left_cpu = nodes * (usable.cpu_millis - daemon_cpu) - sum(cpu for _, cpu, _ in pods)
    left_memory = nodes * (usable.memory_mib - daemon_memory) - sum(memory for _, _, memory in pods)
    (client,) = of_kind(graph, "Job")
    wanted_cpu, wanted_memory = asked(*pod_of(client.inputs["spec"])["containers"])
    assert left_cpu // nodes >= wanted_cpu
    assert left_memory // nodes >= wanted_memory


def test_without_the_client_one_core_node_holds_it_all_while_the_other_is_replaced(graph: Graph) -> None:
    (group,) = [g for g in graph.of_type("aws:eks/nodeGroup:NodeGroup") if g.name.startswith(f"{STACK}-core")]
    usable, (cpu, memory) = room(on(group.inputs["instanceTypes"][0])), daemons(graph, "core")
    assert cpu + sum(cpu for _, cpu, _ in on_core(graph)) <= usable.cpu_millis
    assert memory + sum(memory for _, _, memory in on_core(graph)) <= usable.memory_mib


def test_a_server_has_its_node_to_itself_but_for_daemons(graph: Graph) -> None:
    usable, (daemon_cpu, daemon_memory) = room(on("g4dn.xlarge")), daemons(graph, "gpu")
    (server,) = of_kind(graph, "Deployment")
    wanted_cpu, wanted_memory = asked(*pod_of(server.inputs["spec"])["containers"])
    assert (wanted_cpu, wanted_memory) == (3000, 12 * 1024), "as in the source system"
    assert wanted_cpu + daemon_cpu <= usable.cpu_millis
    assert wanted_memory + daemon_memory <= usable.memory_mib


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
