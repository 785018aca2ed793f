"""Load tests: what GuideLLM is told, the Job around it, and the script that runs it and keeps what it found."""

import dataclasses
import json
import os
import re
import shutil
import socket
import stat
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pulumi
import pulumi_kubernetes as k8s
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.catalog import versions
from eks_inference.faults import SpecError
from eks_inference.kubernetes.secrets import SecretRef
from eks_inference.loadtest import plan
from eks_inference.loadtest.component import LoadTest
from eks_inference.loadtest.spec import HubTokenizer, LoadTestSpec, TokenCounts
from eks_inference.place.placement import Placement, Taint
from eks_inference.serving.pod_parts import Hardware
from eks_inference_tools.loadtest_report.readers.detection import read_all
from golden import assert_golden
from graphs import of_kind, stands_on
from handles import existing_cluster, placement
from openai_server import OpenAIServer
from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from waiting import PATIENCE_S, until, until_ended

ASSETS = Path(plan.__file__).parent / "assets"
sys.path.insert(0, str(ASSETS))
# A file that runs in the test's pod, not a module of the library.
import load_test  # noqa: E402  # pyright: ignore[reportMissingImports]

LLAMA = "NousResearch/Meta-Llama-3-8B-Instruct"
IMAGE = versions.image("guidellm")
CORE = placement("m5.xlarge", pool="core")
INF2 = Hardware("inf2.8xlarge", devices_per_pod=1, pods_min=1, pods_max=1)

# A run of the real tool against OpenAIServer(ttft_s=0.2, itl_s=0.01), with the arguments of LoadTestSpec(users=(2, 4),
# requests_per_user=2) and a tokenizer of words. Left out: its logs, and the tool's own report of 4 users.
(KEPT,) = (Path(__file__).parents[1] / "data" / "loadtest").glob("*T*Z-*/")


@dataclasses.dataclass(frozen=True)
class Server:
    """A model server as its clients see it."""

    namespace: str = "vllm"
    model_id: str = LLAMA
    url: str = "http://vllm-serve-svc.vllm.svc.cluster.local:8000/v1"
    startup_seconds: int = 3600
    ready: tuple[pulumi.Resource, ...] = ()


def target(**changes: Any) -> plan.Target:
    about = Server()
    known = plan.Target(about.namespace, about.url, about.model_id, about.startup_seconds, HubTokenizer(id=LLAMA))
    return dataclasses.replace(known, **changes)


def configured(spec: LoadTestSpec | None = None, **targets: plan.Target) -> dict[str, Any]:
    return plan.configuration("loadtest", spec or LoadTestSpec(), targets or {"llama3": target()}, IMAGE)


def deployed(
    spec: LoadTestSpec | None = None,
    *,
    name: str = "loadtest",
    servers: dict[str, Server] | None = None,
    hardware: dict[str, Hardware] | None = None,
    on: Placement = CORE,
    secrets: Callable[[], dict[str, Any]] = dict,
    settings: dict[str, Any] | None = None,
) -> Graph:
    def build() -> None:
        LoadTest(
            name,
            spec or LoadTestSpec(),
            cluster=existing_cluster(**(settings or {})),
            placement=on,
            servers={"llama3": Server()} if servers is None else servers,
            hardware=hardware,
            **secrets(),
        )

    return record(build)


def the(graph: Graph, kind: str) -> dict[str, Any]:
    (only,) = of_kind(graph, kind)
    return dict(only.inputs)


def has(graph: Graph, kind: str) -> bool:
    return any(resource.type.endswith(f":{kind}") for resource in graph.resources)


def pods(graph: Graph) -> list[dict[str, Any]]:
    """The pods of the test and of the reader."""
    return [the(graph, "Job")["spec"]["template"], the(graph, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]]


def containers(graph: Graph) -> list[dict[str, Any]]:
    return [one for pod in pods(graph) for one in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]]


def guidellm(graph: Graph) -> dict[str, Any]:
    (only,) = the(graph, "Job")["spec"]["template"]["spec"]["containers"]
    return only


def given_config(graph: Graph) -> dict[str, Any]:
    return json.loads(the(graph, "ConfigMap")["data"]["config.json"])


def faults_of(spec: LoadTestSpec | None = None, **given: Any) -> str:
    with pytest.raises(ProgramError) as failed:
        deployed(spec, **given)
    assert isinstance(failed.value.__cause__, SpecError)
    return str(failed.value.__cause__)


# -- what is measured ----------------------------------------------------------------------------------------------------------


def test_a_deviation_of_zero_is_left_out_because_the_tool_refuses_it() -> None:
    (measurement,) = configured(LoadTestSpec(users=(1,), input_tokens=TokenCounts(mean=9)))["measurements"]
    (data,) = measurement["scenario"]["spec"]["data"]
    assert "prompt_tokens_stdev" not in data


def test_sampling_parameters_go_into_every_request() -> None:
    config = configured(LoadTestSpec(sampling={"temperature": 0.7, "top_k": 50}))
    for measurement in config["measurements"]:
        assert measurement["scenario"]["spec"]["backend"]["extras"] == {"body": {"temperature": 0.7, "top_k": 50}}


def test_what_a_user_lays_over_the_scenario_wins_and_keeps_the_rest() -> None:
    config = configured(LoadTestSpec(guidellm={"profile": {"rampup_duration": 10}, "backend": {"request_format": "x"}}))
    told = config["measurements"][0]["scenario"]["spec"]
    assert told["profile"] == {"kind": "concurrent", "streams": [2], "rampup_duration": 10}
    assert told["backend"]["request_format"] == "x"
    assert told["backend"]["model"] == LLAMA


def test_a_tokenizer_may_be_another_ones_and_pinned() -> None:
    told = configured(llama3=target(tokenizer=HubTokenizer(id="a/b", revision="c")))["measurements"][0]["scenario"]["spec"]
    assert told["tokenizer"] == {"kind": "huggingface_auto", "model": "a/b", "load_kwargs": {"revision": "c"}}


def test_several_servers_are_measured_one_after_another() -> None:
    config = configured(LoadTestSpec(users=(2, 4)), a=target(), b=target(endpoint="http://b.x.svc.cluster.local/v1"))
    assert [(m["server"], m["users"]) for m in config["measurements"]] == [("a", 2), ("a", 4), ("b", 2), ("b", 4)]
    assert [m["scenario"]["spec"]["backend"]["target"] for m in config["measurements"]] == [Server().url] * 2 + [
        "http://b.x.svc.cluster.local/v1"
    ] * 2


def test_no_two_measurements_send_the_same_prompts() -> None:
    def seeds(run: str | int) -> list[int]:
        config = configured(LoadTestSpec(run=run), a=target(), b=target())
        return [m["scenario"]["spec"]["seed"]["value"] for m in config["measurements"]]

    every = seeds("1") + seeds("2")
    assert len(set(every)) == len(every) == 16
    assert seeds(1) == seeds("1")


def test_one_budget_covers_the_slowest_start() -> None:
    slow = {"a": target(startup_seconds=100), "b": target(startup_seconds=900)}
    assert plan.ready_timeout_seconds(LoadTestSpec(), slow) == 900
    assert plan.ready_timeout_seconds(LoadTestSpec(ready_timeout_seconds=60), slow) == 60


@given(
    users=st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True),
    timeout=st.integers(60, 10_000),
    startups=st.lists(st.integers(60, 10_000), min_size=1, max_size=4),
)
def test_the_deadline_outlasts_the_wait_and_every_measurement(users: list[int], timeout: int, startups: list[int]) -> None:
    spec = LoadTestSpec(users=tuple(users), timeout_seconds=timeout)
    targets = {f"s{n}": target(startup_seconds=startup) for n, startup in enumerate(startups)}
    measurements = plan.configuration("t", spec, targets, IMAGE)["measurements"]
    longest = sum(m["timeout_seconds"] + load_test.GRACE_SECONDS for m in measurements)
    assert plan.deadline_seconds(spec, targets) > max(startups) + longest


@pytest.mark.parametrize(
    "change",
    [
        {"run": "2"},
        {"input_tokens": {"mean": 513, "stddev": 20}},
        {"output_tokens": {"mean": 245}},
        {"users": (2,)},
        {"requests_per_user": 9},
        {"timeout_seconds": 60},
        {"sampling": {"top_p": 0.9}},
        {"cpu": "4"},
        {"extra_env": {"A": "b"}},
        {"guidellm": {"profile": {"rampup_duration": 1}}},
    ],
)
def test_a_change_of_the_measurement_runs_it_again(change: dict[str, Any]) -> None:
    assert configured(LoadTestSpec(**change))["digest"] != configured()["digest"]


def test_another_server_hardware_image_or_script_runs_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {
        configured()["digest"],
        configured(llama3=target(endpoint="http://other:8000/v1"))["digest"],
        configured(llama3=target(hardware=INF2))["digest"],
        configured(llama3=target(hardware=dataclasses.replace(INF2, pods_max=2)))["digest"],
        plan.configuration("loadtest", LoadTestSpec(), {"llama3": target()}, "other:1")["digest"],
    }
    monkeypatch.setattr(plan, "script", lambda: "another script")
    assert len(digests | {configured()["digest"]}) == 6


@pytest.mark.parametrize("change", [{"volume_gib": 20}, {"storage_class": "gp2"}, {"servers": ("llama3",)}])
def test_what_does_not_touch_the_measurement_does_not_run_it_again(change: dict[str, Any]) -> None:
    assert configured(LoadTestSpec(**change))["digest"] == configured()["digest"]


@pytest.mark.parametrize(
    "bad",
    [
        {"users": []},
        {"users": [0]},
        {"users": [2, 2]},
        {"servers": ["a", "a"]},
        {"input_tokens": {"mean": 0}},
        {"input_tokens": {"mean": 5, "stddev": -1}},
        {"image": "ghcr.io/vllm-project/guidellm:latest"},
        {"timeout_seconds": 5},
        {"tokenizer": {"id": "no owner"}},
        {"user": [2]},
    ],
)
def test_what_cannot_be_measured_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        LoadTestSpec.model_validate(bad)


def test_a_stack_file_may_number_its_runs() -> None:
    spec = LoadTestSpec.model_validate_json('{"run": 2, "users": [2, 4], "sampling": {"temperature": 0}}', strict=True)
    assert (spec.run, spec.users, spec.sampling) == (2, (2, 4), {"temperature": 0})


# -- the Kubernetes objects ----------------------------------------------------------------------------------------------------


def test_the_configuration_is_reviewed() -> None:
    config = given_config(deployed(hardware={"llama3": INF2}))
    assert_golden("loadtest/config.json", json.dumps({**config, "digest": "DIGEST"}, indent=1))


def test_the_commands_are_reviewed() -> None:
    spec = LoadTestSpec()
    digest = {"digest": "DIGEST"}
    commands = [plan.log_command("loadtest", spec, digest), *plan.copy_commands("loadtest", spec)]
    assert_golden("loadtest/commands.txt", "\n".join(commands))


def test_the_jobs_name_follows_its_content() -> None:
    graph = deployed()
    name = the(graph, "Job")["metadata"]["name"]
    assert name == f"loadtest-{given_config(graph)['digest']}" == the(graph, "ConfigMap")["metadata"]["name"]
    again = the(deployed(LoadTestSpec(run=2)), "Job")["metadata"]["name"]
    assert again != name
    assert the(deployed(), "Job")["metadata"]["name"] == name


def test_the_longest_name_still_makes_names_kubernetes_takes() -> None:
    graph = deployed(name="x" * 40)
    for kind in ("Job", "CronJob", "ConfigMap", "PersistentVolumeClaim"):
        # The CronJob controller and Jobs append up to 11 characters.
        assert len(the(graph, kind)["metadata"]["name"]) <= 52


def test_images_come_from_the_mirror_or_from_the_user() -> None:
    mirrored = deployed(settings={"mirrors": {"ghcr.io": "registry.example/ghcr"}})
    assert {c["image"] for c in containers(mirrored)} == {IMAGE.replace("ghcr.io", "registry.example/ghcr")}
    assert given_config(mirrored)["image"] == IMAGE.replace("ghcr.io", "registry.example/ghcr")
    own = deployed(LoadTestSpec(image="registry.example/guidellm:9"))
    assert {c["image"] for c in containers(own)} == {"registry.example/guidellm:9"}


def test_the_pods_run_where_they_are_placed() -> None:
    taint = Taint("only", "tests", "NoSchedule")
    for pod in pods(deployed(on=placement("m5.xlarge", pool="tests", taints=(taint,)))):
        assert pod["spec"]["nodeSelector"] == {"eks-inference/pool": "tests"}
        assert pod["spec"]["tolerations"] == [taint.toleration()]


def test_the_test_reaches_names_its_servers_and_the_hub_and_is_reached_by_nobody() -> None:
    servers = {
        "a": Server(),
        "b": Server(namespace="other", url="https://b.other.svc.cluster.local/v1"),
        "c": Server(url="http://c.vllm.svc.cluster.local:9000/v1"),
    }
    policy = the(deployed(servers=servers), "NetworkPolicy")["spec"]
    assert policy["podSelector"] == {}
    assert policy["ingress"] == []
    reached = {
        (rule["to"][0].get("namespaceSelector", {}).get("matchLabels", {}).get("kubernetes.io/metadata.name", "anywhere"), port)
        for rule in policy["egress"]
        for port in (entry["port"] for entry in rule["ports"])
    }
    assert reached == {("kube-system", 53), ("vllm", 8000), ("vllm", 9000), ("other", 443), ("anywhere", 443)}


def test_values_become_secrets_and_references_stay() -> None:
    graph = deployed(secrets=lambda: {"hugging_face_token": pulumi.Output.secret("hf_x"), "api_key": SecretRef("mine", "k")})
    secret = the(graph, "Secret")
    assert secret["metadata"] == {"name": "loadtest-hugging-face", "namespace": "loadtest"}
    assert "hf_x" not in json.dumps([dict(resource.inputs) for resource in graph.resources])
    read = {e["name"]: e["valueFrom"]["secretKeyRef"] for e in guidellm(graph)["env"] if "secretKeyRef" in e.get("valueFrom", {})}
    assert read == {
        "OPENAI_API_KEY": {"name": "mine", "key": "k"},
        "HF_TOKEN": {"name": "loadtest-hugging-face", "key": "token"},
    }
    (wait,) = the(graph, "Job")["spec"]["template"]["spec"]["initContainers"]
    assert [e["name"] for e in wait["env"] if "valueFrom" in e] == ["OPENAI_API_KEY"]


def test_environment_of_the_user_wins() -> None:
    env = guidellm(deployed(LoadTestSpec(extra_env={"HF_ENDPOINT": "https://hub.example", "HF_HOME": "/tmp/x"})))["env"]
    values = {entry["name"]: entry["value"] for entry in env if "value" in entry}
    assert values["HF_ENDPOINT"] == "https://hub.example"
    assert values["HF_HOME"] == "/tmp/x"
    assert len([entry for entry in env if entry["name"] == "HF_HOME"]) == 1


def test_the_test_comes_after_servers_nodes_policy_and_volume() -> None:
    def build() -> None:
        cluster = existing_cluster()
        there = pulumi.ResourceOptions(provider=cluster.provider)
        nodes = k8s.core.v1.ConfigMap("nodes", opts=there)
        server = k8s.core.v1.ConfigMap("server", opts=there)
        on = dataclasses.replace(CORE, ready=(nodes,))
        LoadTest("t", LoadTestSpec(), cluster=cluster, placement=on, servers={"s": Server(ready=(server,))}, api_key="k")

    graph = record(build)
    for below in ("nodes", "server", "t-network", "t-results", "t-script", "t-api-key", "t-namespace"):
        assert stands_on(graph, graph.named("t-job"), graph.named(below)), below
    assert stands_on(graph, graph.named("t-reader"), graph.named("t-network"))
    assert not stands_on(graph, graph.named("t-results"), graph.named("server"))


def test_a_test_that_is_off_keeps_its_results_within_reach() -> None:
    graph = deployed(LoadTestSpec(enabled=False), secrets=lambda: {"api_key": "k"})
    assert not any(has(graph, kind) for kind in ("Job", "ConfigMap", "Secret"))
    assert all(has(graph, kind) for kind in ("CronJob", "PersistentVolumeClaim", "NetworkPolicy"))


def test_hardware_is_noted_where_it_is_known() -> None:
    a_third = Hardware("inf2.48xlarge", devices_per_pod=4, pods_min=2, pods_max=2)
    scaled = dataclasses.replace(a_third, pods_max=3)
    servers = {"a": Server(), "b": Server(), "c": Server()}
    noted = given_config(deployed(servers=servers, hardware={"a": a_third, "c": scaled}))["servers"]
    keys = ("instance_type", "devices_per_pod", "pods_min", "pods_max", "devices")
    assert {name: tuple(server.get(key) for key in keys) for name, server in noted.items()} == {
        "a": ("inf2.48xlarge", 4, 2, 2, 8),
        "b": (None, None, None, None, None),
        "c": ("inf2.48xlarge", 4, 2, 3, None),
    }


def test_figures_of_one_device_count_the_devices_of_all_pods(tmp_path: Path) -> None:
    """From what the test is told to what the report makes of it."""
    hardware = Hardware("inf2.48xlarge", devices_per_pod=4, pods_min=2, pods_max=2)
    about = json.loads((KEPT / "run.json").read_text()) | {"servers": configured(llama3=target(hardware=hardware))["servers"]}
    (tmp_path / "run.json").write_text(json.dumps(about))
    ((run, _),) = read_all([Path(shutil.copy(KEPT / "summary.jsonl", tmp_path))])
    assert run.chips == 8
    assert run.output_tokens_per_s
    assert run.output_tokens_per_s_per_chip == run.output_tokens_per_s / 8


def test_servers_are_chosen_by_name_in_the_order_given() -> None:
    servers = {"a": Server(), "b": Server(), "c": Server()}
    assert list(given_config(deployed(LoadTestSpec(servers=("c", "a")), servers=servers))["servers"]) == ["c", "a"]
    assert list(given_config(deployed(servers=servers))["servers"]) == ["a", "b", "c"]


def test_faults_name_the_place_and_what_there_is() -> None:
    fault = faults_of(LoadTestSpec(servers=("llama3", "llama4")))
    assert fault == "servers[1]: no model server has this name; given: llama4; allowed: llama3"
    assert "Kubernetes refuses names" in faults_of(name="Load_Test")
    assert "there is no model server to test" in faults_of(servers={})
    fault = faults_of(servers={"s": Server(model_id="from-a-volume")})
    assert fault.startswith("tokenizer: server 's' gives its model a name that is no repository")
    own = deployed(LoadTestSpec(tokenizer=HubTokenizer(id="a/b")), servers={"s": Server(model_id="from-a-volume")})
    assert given_config(own)["servers"]["s"]["tokenizer"] == "a/b"


# -- the script: waiting -------------------------------------------------------------------------------------------------------


class Clock:
    """Time that only sleeping takes, however busy the machine is."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def waits(tmp_path: Path, **servers: dict[str, str]) -> int:
    """With a budget for seven answers, the first of them at once."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"ready_timeout_seconds": 6 * load_test.POLL_SECONDS, "servers": servers}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_test, "time", Clock())
        # Shorter waits for an answer are of the pod.
        patch.setattr(load_test.urllib.request, "urlopen", lambda asked, timeout: urlopen(asked, timeout=PATIENCE_S))
        return load_test.main(["wait", str(config)])


def at(server: OpenAIServer) -> dict[str, str]:
    return {"endpoint": server.url, "model": server.model}


def test_waiting_ends_when_every_server_has_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer(failures=3) as loads, OpenAIServer(model="other") as there:
        assert waits(tmp_path, a=at(loads), b=at(there)) == 0
        assert len(loads.questions) == 4
        assert there.questions[-1]["max_tokens"] == 1
    assert capsys.readouterr().out.splitlines() == ["a: not yet: HTTP 503", "a: ready", "b: ready"]


def test_a_model_without_a_chat_template_is_asked_for_a_completion(tmp_path: Path) -> None:
    with OpenAIServer(fault="no_chat_template") as server:
        assert waits(tmp_path, a=at(server)) == 1
        assert waits(tmp_path, a=at(server) | {"task": "complete"}) == 0
    assert load_test.QUESTIONS.keys() == plan.REQUESTS.keys()
    told = configured(a=target(task="complete"))["measurements"][0]["scenario"]["spec"]
    assert told["backend"]["request_format"] == "/v1/completions"
    assert told["data"] == configured()["measurements"][0]["scenario"]["spec"]["data"]


def test_waiting_ends_with_its_budget_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer(failures=6) as late:
        assert waits(tmp_path, a=at(late)) == 0
    with OpenAIServer(failures=7) as later:
        assert waits(tmp_path, a=at(later)) == 1
        assert len(later.questions) == 7
    assert capsys.readouterr().err == "a: not ready within 30 s: HTTP 503\n"


def test_a_server_that_is_not_there_or_has_another_model_is_not_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert waits(tmp_path, a={"endpoint": f"http://127.0.0.1:{taken.getsockname()[1]}/v1", "model": "m"}) == 1
    with OpenAIServer(model="m") as server:
        assert waits(tmp_path, a={"endpoint": server.url, "model": "n"}) == 1
    errors = capsys.readouterr().err
    assert "Connection refused" in errors
    assert "it has no model n, but m" in errors


@pytest.mark.parametrize("fault", ["not_json", "error_body"])
def test_an_answer_that_is_none_does_not_count(fault: Any, tmp_path: Path) -> None:
    with OpenAIServer(fault=fault) as server:
        assert waits(tmp_path, a=at(server)) == 1


def test_waiting_shows_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer(key="k") as server:
        assert waits(tmp_path, a=at(server)) == 1
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        assert waits(tmp_path, a=at(server)) == 0


# -- the script: running, with a stand-in for the tool that gives the kept report ------------------------------------------------

REPORT = KEPT / "llama3" / "2-users" / "guidellm.json"

STAND_IN = """#!{python}
import json, os, pathlib, sys, time
pathlib.Path({seen!r}).write_text(json.dumps({{"arguments": sys.argv[1:], "environment": dict(os.environ)}}))
{behaviour}
report = sys.argv[sys.argv.index("--output") + 1].partition("path=")[2]
pathlib.Path(report).write_text(pathlib.Path({report!r}).read_text())
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a stand-in for the tool beside the interpreter; answers with the file in which it notes how it was called."""

    def install(behaviour: str = "", report: dict[str, Any] | None = None) -> Path:
        seen, given, tool = tmp_path / "seen.json", tmp_path / "given.json", tmp_path / "guidellm"
        given.write_text(json.dumps(report) if report else REPORT.read_text())
        tool.write_text(STAND_IN.format(python=sys.executable, seen=str(seen), report=str(given), behaviour=behaviour))
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(load_test.sys, "executable", str(tmp_path / "python"))
        return seen

    return install


def runs(tmp_path: Path, spec: LoadTestSpec, code: int) -> Path:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(configured(spec)))
    assert load_test.main(["run", str(config), str(tmp_path / "results")]) == code
    (folder,) = (tmp_path / "results").iterdir()
    return folder


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_keeps_a_folder_with_summary_and_requests(tmp_path: Path, stand_in: Callable[..., Path]) -> None:
    seen = stand_in()
    spec = LoadTestSpec(users=(2, 4))
    folder = runs(tmp_path, spec, 0)
    assert re.fullmatch(rf"\d{{8}}T\d{{6}}Z-{configured(spec)['digest']}", folder.name)
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) == sorted(
        ["run.json", "summary.jsonl"]
        + [f"llama3/{n}-users/{f}" for n in (2, 4) for f in ("scenario.json", "guidellm.json", "guidellm.log", "requests.jsonl")]
    )
    about = json.loads((folder / "run.json").read_text())
    assert about["finished"] >= about["started"]
    assert about["failed"] == []
    assert about["servers"]["llama3"]["model"] == LLAMA
    assert about["spec"]["input_tokens"] == {"mean": 512, "stddev": 20}
    assert [line["users"] for line in lines(folder / "summary.jsonl")] == [2, 4]
    scenario = folder / "llama3" / "4-users" / "scenario.json"
    assert json.loads(scenario.read_text()) == configured(spec)["measurements"][1]["scenario"]
    assert json.loads(seen.read_text())["arguments"] == [
        *("run", "--config", str(scenario), "--output", f"kind=json,path={scenario.with_name('guidellm.json')}"),
        "--disable-console-interactive",
    ]


def test_the_log_has_all_that_the_files_have(
    tmp_path: Path, stand_in: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in()
    folder = runs(tmp_path, LoadTestSpec(users=(2,)), 0)
    logged = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    kept = [*lines(folder / "summary.jsonl"), *lines(folder / "llama3" / "2-users" / "requests.jsonl")]
    assert logged == [*kept, json.loads((folder / "run.json").read_text())]


def test_the_kept_report_gives_the_kept_records(tmp_path: Path, stand_in: Callable[..., Path]) -> None:
    stand_in()
    folder = runs(tmp_path, LoadTestSpec(users=(2,), requests_per_user=2), 0)
    for name in ("summary.jsonl", "llama3/2-users/requests.jsonl"):
        ours = [line | {"run": KEPT.name} for line in lines(folder / name)]
        assert ours == [line for line in lines(KEPT / name) if line["users"] == 2]


def test_the_key_reaches_the_tool_by_its_own_variable_only(
    tmp_path: Path, stand_in: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-123")
    seen = stand_in()
    folder = runs(tmp_path, LoadTestSpec(users=(2,)), 0)
    told = json.loads(seen.read_text())
    assert told["environment"]["GUIDELLM__SPEC__BACKEND__API_KEY"] == "k-123"
    assert "OPENAI_API_KEY" not in told["environment"]
    assert "k-123" not in " ".join(told["arguments"])
    assert not [path for path in folder.rglob("*") if path.is_file() and "k-123" in path.read_text()]


def test_a_tool_that_fails_is_shown_and_does_not_stop_the_next_measurement(
    tmp_path: Path, stand_in: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in("if '/2-users/' in sys.argv[3]: sys.exit('{no tokenizer')")
    folder = runs(tmp_path, LoadTestSpec(users=(2, 4)), 1)
    first, second = lines(folder / "summary.jsonl")
    assert (first["completed"], second["completed"]) == (0, 4)
    assert json.loads((folder / "run.json").read_text())["failed"] == ["llama3 with 2 users"]
    out = capsys.readouterr().out
    assert "GuideLLM made no report (exit code 1):\n| {no tokenizer\n" in out
    assert "no completed request: llama3 with 2 users" in out


def test_a_tool_that_hangs_is_killed_with_all_its_workers(
    tmp_path: Path, stand_in: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(load_test, "GRACE_SECONDS", -59)
    worker = tmp_path / "worker"

    class Tool(subprocess.Popen[bytes]):
        """One whose time begins when its worker is there."""

        def wait(self, timeout: float | None = None) -> int:
            until(lambda: worker.exists() and worker.read_text().endswith("\n"))
            return super().wait(timeout)

    monkeypatch.setattr(load_test.subprocess, "Popen", Tool)
    note = f"print(w.pid, file=open({str(worker)!r}, 'w'), flush=True)"
    stand_in(f"import subprocess; w = subprocess.Popen(['sleep', '600']); {note}; w.wait()")
    runs(tmp_path, LoadTestSpec(users=(2,), timeout_seconds=60), 1)
    assert "not over after 1 s, killed" in capsys.readouterr().out
    until_ended(int(worker.read_text()))


def with_outcomes(**requests: list[dict[str, Any]]) -> dict[str, Any]:
    """The kept report, with its requests dealt out otherwise."""
    report = json.loads(REPORT.read_text())
    benchmark = report["benchmarks"][0]
    benchmark["requests"] = {"successful": [], "incomplete": [], "errored": [], "total": None} | requests
    made = {outcome: len(benchmark["requests"][outcome]) for outcome in ("successful", "incomplete", "errored")}
    benchmark["scheduler_metrics"]["requests_made"] = made | {"total": sum(made.values())}
    return report


def test_requests_that_fail_are_counted_and_say_why(tmp_path: Path, stand_in: Callable[..., Path]) -> None:
    first, second, *rest = json.loads(REPORT.read_text())["benchmarks"][0]["requests"]["successful"]
    nothing: dict[str, Any] = {"request_latency": None, "time_to_first_token_ms": None, "inter_token_latency_ms": None}
    failed = first | nothing | {"info": first["info"] | {"error": "HTTP 503"}}
    cut = second | nothing | {"output_tokens": None}
    stand_in(report=with_outcomes(successful=rest, incomplete=[cut], errored=[failed]))
    folder = runs(tmp_path, LoadTestSpec(users=(2,)), 0)
    (summary,) = lines(folder / "summary.jsonl")
    assert (summary["completed"], summary["incomplete"], summary["failed"]) == (2, 1, 1)
    requests = lines(folder / "llama3" / "2-users" / "requests.jsonl")
    assert sorted(request["outcome"] for request in requests) == ["completed", "completed", "failed", "incomplete"]
    assert [request["started"] for request in requests] == sorted(request["started"] for request in requests)
    assert [request["error"] for request in requests if request["outcome"] == "failed"] == ["HTTP 503"]
    assert all(request["e2e_ms"] is None for request in requests if request["outcome"] != "completed")


def test_embeddings_have_latencies_and_no_tokens(tmp_path: Path, stand_in: Callable[..., Path]) -> None:
    """GuideLLM 0.7.3, asked by hand for embeddings: every figure of tokens is 0."""
    report = json.loads((KEPT / "llama3/2-users/guidellm.json").read_text())
    metrics = report["benchmarks"][0]["metrics"]
    nothing = dict.fromkeys(metrics["output_token_count"]["successful"], 0) | {
        "percentiles": dict.fromkeys(load_test.PERCENTILES, 0)
    }
    for key in ("output_token_count", "time_to_first_token_ms", "inter_token_latency_ms"):
        metrics[key]["successful"] = nothing
    summary = load_test.summarise(report["benchmarks"][0], {"users": 2, "requests": 4})
    assert summary["e2e_ms"]["p50"] > 0
    assert summary.keys().isdisjoint({"ttft_ms", "itl_ms", "output_tokens", "output_tokens_per_s"})
    about = {"record": "run", "id": "r", "servers": {"e": {"model": "m", "task": "embed"}}}
    records = [about, {"record": "summary", "schema": 1, "run": "r", "server": "e", **summary}]
    (tmp_path / "summary.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))
    (run,) = read_all([tmp_path / "summary.jsonl"])[0]
    assert (run.completed, run.output_tokens_per_s, run.metrics.keys()) == (4, None, {"e2e_ms", "input_tokens"})


def test_a_measurement_without_an_answer_fails_the_run_and_has_no_figures(tmp_path: Path, stand_in: Callable[..., Path]) -> None:
    stand_in(report=with_outcomes())
    folder = runs(tmp_path, LoadTestSpec(users=(2,)), 1)
    (summary,) = lines(folder / "summary.jsonl")
    assert summary["completed"] == 0
    assert "ttft_ms" not in summary


def test_configuration_and_records_are_of_one_version() -> None:
    assert load_test.SCHEMA == plan.SCHEMA == json.loads((KEPT / "run.json").read_text())["schema"]


def test_other_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert load_test.main([]) == load_test.main(["run", "config"]) == 2
    assert "usage" in capsys.readouterr().err


# -- the real tool -------------------------------------------------------------------------------------------------------------


def assert_latencies_of_the_server(summary: dict[str, Any], requests: list[dict[str, Any]]) -> None:
    """Of OpenAIServer(ttft_s=0.2, itl_s=0.01); a busy machine only ever adds."""
    assert 200 <= summary["ttft_ms"]["min"] < 220
    assert summary["itl_ms"]["p50"] == pytest.approx(10, rel=0.05)
    assert summary["completed"] == summary["requests"] == len(requests)
    for figure in ("ttft_ms", "e2e_ms", "input_tokens", "output_tokens"):
        assert summary[figure]["mean"] == pytest.approx(statistics.fmean(request[figure] for request in requests))
    for request in requests:
        expected = request["ttft_ms"] + (request["output_tokens"] - 1) * request["itl_ms"]
        assert request["e2e_ms"] == pytest.approx(expected, rel=0.02)
    tokens = sum(request["output_tokens"] for request in requests)
    assert summary["output_tokens_per_s"] == pytest.approx(tokens / summary["duration_s"])


def test_the_kept_run_was_told_what_is_told_today() -> None:
    spec = LoadTestSpec(users=(2, 4), requests_per_user=2)
    for measurement in configured(spec)["measurements"]:
        told = json.loads((KEPT / "llama3" / f"{measurement['users']}-users" / "scenario.json").read_text())
        # Its server and tokenizer were on the machine that ran it.
        told["spec"]["backend"]["target"] = Server().url
        told["spec"]["tokenizer"]["model"] = LLAMA
        assert told == measurement["scenario"]


TOKENIZER = """
import sys
from faker import Faker
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

# One token a word, as the server counts them: the words GuideLLM makes its prompts of, and the numbers it puts before them.
words = [form for word in Faker().get_words_list() for form in (word, word.capitalize(), word + ".", word.capitalize() + ".")]
vocabulary = dict.fromkeys(["[UNK]", *words, *map(str, range(2000))])
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(vocabulary)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(sys.argv[1])
"""


def test_the_real_tool_finds_the_latencies_of_the_server(tmp_path: Path) -> None:
    """With the plan's own scenario; only the tokenizer is a local folder, under a name that looks like one of the Hub."""
    tool = os.environ.get("GUIDELLM") or shutil.which("guidellm")
    if not tool:
        pytest.skip("GuideLLM is not installed (6 GB): set GUIDELLM to its command, in an environment with guidellm[recommended]")
    python = str(Path(tool).with_name("python"))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "OPENAI_API_KEY": "k"}

    def call(*arguments: str) -> str:
        done = subprocess.run([python, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    call("-c", TOKENIZER, "test/words")
    spec = LoadTestSpec(users=(2,), requests_per_user=2, sampling={"temperature": 0.5}, timeout_seconds=120)
    with OpenAIServer(ttft_s=0.2, itl_s=0.01, model=LLAMA, key="k") as server:
        here = target(endpoint=server.url, tokenizer=HubTokenizer(id="test/words"))
        (tmp_path / "config.json").write_text(json.dumps(configured(spec, llama3=here)))
        script = str(ASSETS / "load_test.py")
        call(script, "wait", "config.json")
        asked = len(server.questions)
        call(script, "run", "config.json", "results")
        questions = server.questions[asked:]
    (folder,) = (tmp_path / "results").iterdir()
    (summary,) = lines(folder / "summary.jsonl")
    requests = lines(folder / "llama3" / "2-users" / "requests.jsonl")
    assert_latencies_of_the_server(summary, requests)
    assert sorted(q["max_completion_tokens"] for q in questions) == sorted(r["output_tokens"] for r in requests)
    assert all(question["temperature"] == 0.5 and question["ignore_eos"] is True for question in questions)
    assert summary["input_tokens"]["mean"] == pytest.approx(512, abs=60)
    assert not [path for path in folder.rglob("*") if path.is_file() and '"k"' in path.read_text()]
