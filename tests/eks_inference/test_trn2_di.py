"""The stacks with prefill and decode apart: what waits for what, what is measured, and what their page says."""

import contextlib
import io
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import ROOT, recorded
from eks_inference.catalog.engines import engine
from eks_inference_tools.cli import main
from graphs import of_kind, stands_on
from readme import blocks
from stackgraph.graph.document import Graph, Resource
from stackgraph.problems import ProgramError
from variants import recorded_with

STACKS = ("trn2-di", "trn2-di-pair")
SERVER = "llama3-70b"
NODES = {"trn2-di": 1, "trn2-di-pair": 2}
GUIDE = ROOT / "docs" / "stacks" / "trn2-di.md"
RESULTS = ROOT / "tests" / "data" / "loadtest"

both = pytest.mark.parametrize("stack", STACKS)


def with_server(stack: str, **keys: Any) -> Graph:
    return recorded_with({"servers": {SERVER: keys}}, stack)


def one(graph: Graph, type_: str) -> Resource:
    (found,) = graph.of_type(type_)
    return found


def pods(workload: Resource) -> list[dict[str, Any]]:
    """Of a Deployment or Job the one, of a LeaderWorkerSet leader and worker."""
    spec = workload.inputs["spec"]
    templates = spec.get("leaderWorkerTemplate", {"": spec.get("template")})
    return [template["spec"] for template in templates.values() if isinstance(template, dict)]


def test_one_file_is_the_other_with_two_nodes() -> None:
    one_node, two_nodes = (
        yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text())["config"]["eks-inference:stack"]
        for stack in STACKS
    )
    two_nodes["pools"]["trn2"]["size"] = two_nodes["servers"][SERVER]["instances"] = 1
    for differs in ("name", "silenced", "network"):
        del one_node[differs], two_nodes[differs]
    assert one_node == two_nodes


# -- nodes and what runs there ---------------------------------------------------------------------------------------------------


def driver(graph: Graph, stack: str) -> str:
    from eks_inference.catalog import versions

    return versions.neuron_driver(graph.named(f"{stack}-trn2-nodes").inputs["releaseVersion"])


# -- metrics ---------------------------------------------------------------------------------------------------------------------


def relabelled(labels: Mapping[str, str], rules: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """What Prometheus makes of the labels of a target or sample; None: dropped. Source: its documentation, relabel_config."""
    found = dict(labels)
    for rule in rules:
        value = rule.get("separator", ";").join(found.get(name, "") for name in rule["sourceLabels"])
        match = re.fullmatch(rule.get("regex", "(.*)"), value)
        if rule.get("action") == "drop":
            if match:
                return None
        elif match:
            found[rule["targetLabel"]] = match.expand(rule.get("replacement", "$1").replace("$1", r"\g<1>"))
    return found


def endpoints(graph: Graph) -> dict[str, dict[str, Any]]:
    monitor = graph.named(f"{SERVER}-metrics-pods").inputs["spec"]
    return {endpoint["port"]: endpoint for endpoint in monitor["podMetricsEndpoints"]}


@pytest.mark.thorough
def test_the_baseline_is_one_server_to_prometheus() -> None:
    (endpoint,) = endpoints(with_server("trn2-di", serving="baseline")).values()
    found = relabelled({"__meta_kubernetes_pod_label_eks_inference_server": SERVER}, endpoint["relabelings"])
    assert found
    assert found["server"] == SERVER


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"),
        ("vllm:time_per_output_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket"),
        ("vllm:time_per_output_token_seconds_count", "vllm:inter_token_latency_seconds_count"),
        ("vllm:time_to_first_token_seconds_bucket", "vllm:time_to_first_token_seconds_bucket"),
        ("vllm:num_requests_running", "vllm:num_requests_running"),
        ("process_cpu_seconds_total", None),
    ],
)
def test_metrics_of_the_old_engine_are_kept_under_the_names_that_dashboards_know(name: str, kept: str | None) -> None:
    for endpoint in endpoints(recorded("trn2-di")).values():
        found = relabelled({"__name__": name}, endpoint["metricRelabelings"])
        assert (found and found["__name__"]) == kept


# -- what is measured ------------------------------------------------------------------------------------------------------------


def load_test(graph: Graph) -> dict[str, Any]:
    (config,) = [
        json.loads(text)
        for each in of_kind(graph, "ConfigMap")
        if each.name.endswith("-load-test-script")
        for name, text in each.inputs["data"].items()
        if name.endswith(".json")
    ]
    return config


@pytest.mark.thorough
@both
def test_the_baseline_is_measured_itself_at_the_address_of_the_pair(stack: str) -> None:
    (replaced,) = [
        yaml.safe_load(each.text)
        for each in blocks(GUIDE)
        if each.heading == "Compared with one server" and each.language == "yaml"
    ]
    pair, baseline = recorded(stack), recorded_with(replaced, stack)
    address = load_test(pair)["servers"][SERVER]["endpoint"]
    assert load_test(baseline)["servers"][SERVER]["endpoint"] == address
    service = baseline.named(f"{SERVER}-api-service")
    assert address.startswith(f"http://{service.inputs['metadata']['name']}.{service.inputs['metadata']['namespace']}.svc")
    labels = {
        key: value
        for template in [baseline.named(f"{SERVER}-servers").inputs["spec"]]
        for key, value in (template.get("leaderWorkerTemplate", {}).get("leaderTemplate") or template["template"])["metadata"][
            "labels"
        ].items()
    }
    assert service.inputs["spec"]["selector"].items() <= labels.items(), "no router in between"
    # Another run, with the same requests.
    jobs = [graph.named(f"{stack}-load-test-job").inputs["metadata"]["name"] for graph in (pair, baseline)]
    assert jobs[0] != jobs[1]
    made = [graph.named(f"{SERVER}-compile").inputs["metadata"]["name"] for graph in (pair, baseline)]
    assert made[0] == made[1], "nothing is compiled anew"


# -- the page --------------------------------------------------------------------------------------------------------------------


def settings(heading: str = "What can be set") -> list[dict[str, Any]]:
    return [yaml.safe_load(each.text) for each in blocks(GUIDE) if (each.language, each.heading) == ("yaml", heading)]


@pytest.mark.thorough
def test_the_settings_of_the_page_do_what_it_says() -> None:
    block, metas, revision, older, capable, lustre, shorter, compiled, router = settings()

    graph = recorded_with(block, "trn2-di-pair")
    template = graph.named("trn2-di-pair-trn2-template").inputs
    target = template["capacityReservationSpecification"]["capacityReservationTarget"]
    assert target["capacityReservationId"] == block["pools"]["trn2"]["capacity_reservation_id"]
    assert graph.named("trn2-di-pair-trn2-nodes").inputs["capacityType"] == "CAPACITY_BLOCK"
    assert not graph.of_type("aws:ec2/placementGroup:PlacementGroup")

    with pytest.raises(ProgramError, match="huggingFaceToken"):
        recorded_with(metas, "trn2-di")
    download = recorded_with(revision, "trn2-di").named(f"{SERVER}-download")
    assert revision["servers"][SERVER]["model"]["revision"] in pods(download)[0]["containers"][0]["command"]

    assert driver(recorded_with(older, "trn2-di"), "trn2-di") == engine("neuron-2.26-vllm-0.9").minimum_driver
    (capabilities,) = [
        pod["containers"][0]["securityContext"]["capabilities"]
        for pod in pods(recorded_with(capable, "trn2-di").named(f"{SERVER}-servers"))
    ]
    assert capabilities == {"drop": ["ALL"], "add": ["IPC_LOCK", "SYS_ADMIN"]}

    graph = recorded_with(lustre, "trn2-di-pair")
    system = one(graph, "aws:fsx/lustreFileSystem:LustreFileSystem")
    assert (system.inputs["storageCapacity"], system.inputs["perUnitStorageThroughput"]) == (4800, 500)
    assert stands_on(graph, graph.named(f"{SERVER}-servers"), system)
    assert not graph.of_type("aws:efs/fileSystem:FileSystem")

    before = recorded("trn2-di").named(f"{SERVER}-compile").inputs["metadata"]["name"]
    for other, option in ((shorter, "--seq-len 4096"), (compiled, "--cc-pipeline-tiling-factor 2")):
        graph = recorded_with(other, "trn2-di")
        assert graph.named(f"{SERVER}-compile").inputs["metadata"]["name"] != before
        plan = json.loads(graph.named(f"{SERVER}-compile-files").inputs["data"]["pair.json"])
        assert option in " ".join(plan["artifact"]["command"])

    deployment = recorded_with(router, "trn2-di").named(f"{SERVER}-router").inputs["spec"]
    assert deployment["replicas"] == 2
    assert deployment["template"]["spec"]["nodeSelector"]["eks-inference/pool"] == "core"


def commands() -> list[list[str]]:
    return [line.split() for each in blocks(GUIDE) if each.language == "sh" for line in each.text.splitlines()]


def test_the_commands_of_the_page_name_what_exists() -> None:
    graph = recorded("trn2-di")
    services = {(each.inputs["metadata"]["namespace"], each.inputs["metadata"]["name"]) for each in of_kind(graph, "Service")}
    made_by_others = {("monitoring", "kube-prometheus-stack-grafana")}
    spaces = {each.inputs["metadata"]["name"] for each in of_kind(graph, "Namespace")}
    for words in commands():
        if words[0] == "kubectl":
            assert words[2] in spaces
            if "port-forward" in words:
                assert (words[2], words[4].removeprefix("svc/")) in services | made_by_others
        elif words[1] == "verify":
            assert words[2] in STACKS


def report(words: Sequence[str]) -> str:
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        assert main(["loadtest", *words]) == 0
    return written.getvalue()


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_the_report_of_the_page_counts_the_chips_of_the_stack(
    stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (results,) = RESULTS.glob("*/summary.jsonl")
    for name in ("pair", "baseline"):
        shutil.copy(results, tmp_path / f"{name}.jsonl")
    monkeypatch.chdir(tmp_path)
    (words,) = [each[2:] for place, each in enumerate(filter(_is_report, commands())) if STACKS[place] == stack]
    runs = json.loads(report([*words, "--format", "json"]))["runs"]
    chips = {run["label"].partition(",")[0]: run["chips"] for run in runs if run["file"]}
    whole = NODES[stack] * 16
    assert chips == {"baseline": whole // 2, "pair": whole}


def _is_report(words: Sequence[str]) -> bool:
    return list(words[:2]) == ["eks-inference", "loadtest"]


@pytest.mark.thorough
def test_the_explanations_that_the_page_points_at_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    named = re.findall(r"eks-inference check (\S+) --explain (\w+)`", GUIDE.read_text())
    assert len(named) == 1
    for stack, rule in named:
        assert main(["check", stack, "--explain", rule]) == 0
        assert "holds" in capsys.readouterr().out
