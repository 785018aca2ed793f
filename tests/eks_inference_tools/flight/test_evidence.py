"""What a cluster shows, as rows and as words; and what a report makes of it."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, STACKS, recorded
from eks_inference.catalog.instances import instance_type
from eks_inference.catalog.times import phase_time, resource_time
from eks_inference.stack.own_rows import OwnPrice
from eks_inference_tools.cli import main
from eks_inference_tools.flight.bundle import COLUMNS, _price_rows, _row, bundle_of
from eks_inference_tools.flight.evidence import (
    MOST_LETTERS,
    _seconds,
    answer_rows,
    explained,
    facts,
    load_rows,
    metric_rows,
    not_running,
    troubles,
)
from eks_inference_tools.flight.journal import spent
from eks_inference_tools.flight.report import SLACK_S, WIDER, as_rows, judged
from eks_inference_tools.reading.known_messages import meaning
from eks_inference_tools.verify.observed import Check, failed, ok, wait
from fake_automation import Trouble
from flights import Flight, course, job_log
from golden import assert_golden
from json_schemas import unlike

DATE = "2026-11-25"
MODEL_OF_LOG = "NousResearch/Meta-Llama-3-8B-Instruct"


def node(type_: str, **capacity: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "ip-10-7-33-141", "labels": {"node.kubernetes.io/instance-type": type_}},
        "status": {"capacity": capacity, "nodeInfo": {"kubeletVersion": "v1.35.6-eks-1a2b3c4", "osImage": "Amazon Linux 2023"}},
    }


def pod(image: str, state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "smoke", "name": "smoke-1"},
        "status": {"containerStatuses": [{"name": "server", "image": image, "state": state, **more}]},
    }


def test_rows_of_a_cluster_name_nothing_of_it() -> None:
    pods = [
        pod("docker.io/vllm/vllm-openai:v0.30.0", {"running": {}}),
        pod("482915736204.dkr.ecr.us-west-2.amazonaws.com/team/model:v1", {"waiting": {"reason": "ImagePullBackOff"}}),
        pod("docker.io/other:1@sha256:00", {"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=3),
        pod("docker.io/pulling:1", {"waiting": {"reason": "ContainerCreating"}}),
    ]
    pulled = 'Successfully pulled image "docker.io/vllm/vllm-openai:v0.30.0" in 1m52.345s (1m52.4s including waiting).'
    message = f"{pulled} Image size: 8450000000 bytes."
    events = [{"reason": "Pulled", "message": message}, {"reason": "Pulled", "message": "already present on machine"}]
    found = facts(
        "v1.35.6-eks-1a2b3c4", [node("inf2.xlarge", cpu="4", memory="15896988Ki", **{"aws.amazon.com/neuron": "1"})], pods, events
    )
    assert [row for row in found if row["kind"] != "version"] == [
        {"kind": "capacity", "type": "inf2.xlarge", "cpu": 4, "memory_mib": 15524, "aws.amazon.com/neuron": 1},
        {"kind": "image", "image": "docker.io/vllm/vllm-openai:v0.30.0", "started": True},
        {"kind": "image", "image": "[ecr]/team/model:v1", "started": False, "why": "ImagePullBackOff"},
        {"kind": "image", "image": "docker.io/other:1", "started": True},
        {"kind": "pull", "image": "docker.io/vllm/vllm-openai:v0.30.0", "seconds": 112.3, "gb": 8.45},
    ]
    assert [row["what"] for row in found if row["kind"] == "version"] == [
        "Kubernetes API",
        "kubeletVersion of inf2.xlarge",
        "osImage of inf2.xlarge",
    ]
    assert all(row.keys() - {"kind"} <= COLUMNS[row["kind"]] for row in found)


def test_odd_clusters_give_no_rows() -> None:
    odd: list[Any] = [
        {},
        {"status": None},
        {"status": {"containerStatuses": ["x", {}, {"state": "y"}]}},
        {"status": {"capacity": 3}},
    ]
    assert {row["kind"] for row in facts("", odd, odd, odd)} <= {"version", "image"}
    assert [*not_running(odd)] == []


def test_trouble_is_told_in_words() -> None:
    checks = [Check("Nodes", "nodes of pool neuron", wait("0 of 1 ready", "1")), Check("a", "b", ok("well"))]
    events = [
        {
            "type": "Warning",
            "reason": "Failed",
            "message": 'Failed to pull image "x": not found',
            "involvedObject": {"kind": "Pod", "name": "p"},
        },
        {"type": "Normal", "reason": "Pulled", "message": "fine"},
    ]
    logs = {"smoke/p server": "line 1\nline 2\nline 3\nNoCredentialProviders: no valid providers in chain\n"}
    assert troubles(checks, events, logs) == (
        "nodes of pool neuron: 0 of 1 ready; expected: 1",
        'Pod p: Failed: Failed to pull image "x": not found (the registry has no such image)',
        "log of smoke/p server: line 2",
        "log of smoke/p server: line 3",
        "log of smoke/p server: NoCredentialProviders: no valid providers in chain (Pod Identity was not in effect when the pod "
        "was admitted: a new pod gets credentials)",
    )
    assert len(explained(["x" * 5000])[0]) == 300
    crashed = pod("i", {"waiting": {"reason": "CrashLoopBackOff"}})
    assert [*not_running([crashed, pod("i", {"running": {}})])] == [("smoke", "smoke-1", "server")]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("You have requested more vCPU capacity than your current vCPU limit of 0 allows", "quota of vCPUs"),
        ("NodeCreationFailure: Instances failed to join the kubernetes cluster", "did not join"),
        ("InsufficientInstanceCapacity: We currently do not have sufficient inf2.xlarge capacity", "no capacity of this type"),
        ("container was OOMKilled", "more memory"),
        ("0/3 nodes are available: 3 Insufficient aws.amazon.com/neuron.", "no node offers a free device"),
        ("is not authorized to perform: eks:CreateCluster", "lack a permission"),
        ("ExpiredTokenException: The security token has expired", "log in again"),
        ("something that nobody wrote down", ""),
    ],
)
def test_known_messages_have_a_meaning(message: str, words: str) -> None:
    assert words in meaning(message)
    assert bool(meaning(message)) == bool(words)


def test_metrics_and_answers_are_read_from_what_servers_print() -> None:
    exposed = (
        '# HELP vllm:e x\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{m="a"} 0\n# TYPE python_info gauge\n'
    )
    assert metric_rows(exposed) == [
        {"kind": "metric", "name": "python_info"},
        {"kind": "metric", "name": "vllm:num_requests_running"},
    ]
    assert answer_rows("[12 tokens in 0.8 s; time to first token 0.123 s]\nnothing") == [
        {"kind": "answer", "first_token_s": 0.123}
    ]


@pytest.mark.thorough
def test_figures_of_a_load_test_are_read_from_the_log_of_its_job() -> None:
    rows = load_rows(job_log())
    assert [(row["users"], row["completed"], row["tool"]) for row in rows] == [(2, 4, "GuideLLM"), (4, 8, "GuideLLM")]
    assert all(row["ttft_ms_p50"] > 0 and row["output_tokens_per_s"] > 0 for row in rows)
    assert {key for row in rows for key in row} <= COLUMNS["load"] | {"kind"}
    # A model that others may not know of is not named.
    assert {row["model"] for row in rows} == {MODEL_OF_LOG}
    assert not any("model" in row for row in load_rows(job_log().replace(MODEL_OF_LOG, "our-team/our-model")))
    # A log that ends in the midst of a line.
    first = job_log().splitlines()[1]
    assert [row["users"] for row in load_rows(f"{first}\n{first[:200]}")] == [2]
    assert load_rows("nothing\n{}\n") == []


@pytest.mark.thorough
def test_figures_of_the_client_of_triton_are_read_from_the_log_of_its_job() -> None:
    report = json.loads((ROOT / "tests" / "data" / "loadtest" / "genai-perf-0.0.16.json").read_text("utf-8"))
    record = json.dumps({"record": "genai-perf", "users": 1, "exit": 0, "report": report})
    failed = json.dumps({"record": "genai-perf", "users": 2, "exit": 1, "report": None})
    (row,) = load_rows(f"1 users: genai-perf\n{record}\n{failed}\n")
    assert row["tool"] == "genai-perf"
    assert row["e2e_ms_p50"] > 0


# -- the report ------------------------------------------------------------------------------------------------------------------


def flown(folder: Path) -> dict[str, Any]:
    """The bundle of a flight with the fake workspace, and with what a cluster might have shown."""
    flight = Flight(folder)
    landed = flight.fly(update_4=Trouble("fails", "Failed to pull image: not found"))
    rows: list[dict[str, Any]] = [
        {"kind": "time", "action": "create", "type": "aws:eks/nodeGroup:NodeGroup", "what": "", "seconds": 140.0},
        {"kind": "time", "action": "create", "type": "aws:eks/cluster:Cluster", "what": "", "seconds": 2400.0},
        {"kind": "time", "action": "create", "type": "aws:new/thing:Thing", "what": "", "seconds": 3.0},
        {"kind": "pull", "image": "docker.io/vllm/vllm-openai:v0.30.0", "seconds": 180.0, "gb": 9.1},
        {"kind": "capacity", "type": "inf2.xlarge", "cpu": 4, "memory_mib": 15524, "aws.amazon.com/neuron": 2},
        {"kind": "version", "what": "Kubernetes API", "value": "v1.35.6-eks-abc"},
        {"kind": "image", "image": "docker.io/vllm/vllm-openai:v0.30.0", "started": False, "why": "ImagePullBackOff"},
        {"kind": "metric", "name": "vllm:num_requests_running"},
        {"kind": "metric", "name": "vllm:something_else"},
        {"kind": "price", "item": "g6.xlarge", "sold": "on_demand", "region": "us-west-2", "usd": 0.8048, "unit": "hour"},
        {"kind": "price", "item": "nat_gateway", "sold": "usd", "region": "us-west-2", "usd": 0.06},
        {"kind": "account", "topic": "quotas", "facts": {"quota": "Running On-Demand Inf instances", "value": 8}},
        {"kind": "answer", "first_token_s": 0.123},
        *load_rows(job_log()),
    ]
    own = [row for row in landed.journal.rows if row["kind"] != "time"]
    journal = landed.journal
    journal = type(journal)(**{**vars(journal), "rows": (*own, *({**row, "date": DATE} for row in rows))})
    now = flight.clock.now()
    assert spent(journal.spans, now) > 0
    return bundle_of(
        journal, course(), region="us-west-2", now=now, landing=landed.landing, tools={}, prices={}, known=["smoke-inf2"]
    )


def of_time(type_: str, seconds: float, what: str = "") -> dict[str, Any]:
    return {"kind": "time", "action": "create", "type": f"aws:{type_}", "what": what, "seconds": seconds, "date": DATE}


def test_rows_for_the_catalog_are_those_that_it_lacks() -> None:
    """A node group took 88 to 221 s, a control plane less than 20 min. Objects of Kubernetes are no rows."""
    times = [("eks/nodeGroup:NodeGroup", 140.0), ("eks/cluster:Cluster", 2400.0), ("n:T", 3.0), ("n:T", 9.0), ("n:T", 4.0)]
    other = {**of_time("n:T", 5), "type": "kubernetes:apps/v1:Deployment"}
    bundle = {"date": "today", "region": "here", "rows": [*(of_time(*one) for one in times), of_time("n:T", 1, "x"), other]}
    told = {"source": "a first flight of today in here", "read": DATE[:7]}
    assert tomllib.loads(as_rows(bundle))["create"] == [
        {"type": "aws:eks/cluster:Cluster", "p50": 2400, "low": 2400, "high": 2400, "samples": 1, **told},
        {"type": "aws:n:T", "p50": 4, "low": 3, "high": 9, "samples": 3, **told},
        {"type": "aws:n:T", "what": "x", "p50": 1, "low": 1, "high": 1, "samples": 1, **told},
    ]
    assert as_rows({**bundle, "rows": [of_time(*times[0])]}) == ""


GROUP, PULL = resource_time("create", "aws:eks/nodeGroup:NodeGroup", ""), phase_time("pull")
assert GROUP
assert PULL


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (of_time("eks/nodeGroup:NodeGroup", GROUP.low / WIDER - SLACK_S), "confirmed"),
        (of_time("eks/nodeGroup:NodeGroup", GROUP.low / WIDER - SLACK_S - 0.1), "contradicted"),
        (of_time("eks/nodeGroup:NodeGroup", GROUP.high * WIDER + SLACK_S), "confirmed"),
        (of_time("eks/nodeGroup:NodeGroup", GROUP.high * WIDER + SLACK_S + 0.1), "contradicted"),
        ({"kind": "pull", "image": "i", "gb": 1, "seconds": PULL.low / WIDER}, "confirmed"),
        ({"kind": "pull", "image": "i", "gb": 2, "seconds": 2 * PULL.high * WIDER + 0.1}, "contradicted"),
        ({"kind": "pull", "image": "i", "gb": 1, "seconds": PULL.low / WIDER - 0.1}, "contradicted"),
        ({"kind": "pull", "image": "i", "gb": 0.99, "seconds": PULL.low}, "new"),
        ({"kind": "price", "item": "nat_gateway", "region": "us-west-2", "usd": 0.0452, "sold": "usd"}, "confirmed"),
        ({"kind": "price", "item": "nat_gateway", "region": "us-west-2", "usd": 0.0453, "sold": "usd"}, "contradicted"),
        ({"kind": "price", "item": "g6.xlarge", "region": "us-west-2", "usd": 0.8048, "sold": "spot"}, "new"),
        ({"kind": "capacity", "type": "inf2.xlarge", "memory_mib": 15155}, "confirmed"),
        ({"kind": "capacity", "type": "inf2.xlarge", "memory_mib": 15154}, "contradicted"),
        ({"kind": "capacity", "type": "inf2.xlarge", "example.com/thing": 1}, "new"),
        ({"kind": "capacity", "type": "x9.large", "cpu": 4}, "new"),
        ({"kind": "version", "what": "Kubernetes API", "value": "v1.5.6"}, "new"),
    ],
)
def test_a_fact_is_confirmed_contradicted_or_new(row: dict[str, Any], verdict: str) -> None:
    assert [one.verdict for one in judged({"rows": [{"date": DATE, **row}]})] == [verdict]


@pytest.mark.parametrize(
    ("shown", "seconds"), [("250.5ms", 0.3), ("1h2m3.04s", 3723.0), ("2m", 120), ("1m52.345s", 112.3), ("xms", None), ("", None)]
)
def test_durations_are_read_as_the_kubelet_writes_them(shown: str, seconds: float | None) -> None:
    assert _seconds(shown) == seconds


def test_own_prices_are_rows_of_a_bundle() -> None:
    own = {"a": OwnPrice(on_demand=1, spot=0.5, source="ours"), "b": OwnPrice(usd=2, source="ours")}
    rows = [
        (row["item"], row["sold"], row["usd"], row.get("unit")) for row in _price_rows({"here": own, "there": own}, "here", DATE)
    ]
    assert rows == [("a", "on_demand", 1, "hour"), ("a", "spot", 0.5, "hour"), ("b", "usd", 2, None)]
    fact = {"key": "spot", "item": "a", "region": "here", "usd": 3}
    row = {"kind": "price", "item": "a", "sold": "spot", "region": "here", "usd": 3, "date": DATE}
    assert _row({"kind": "account", "facts": {"price": {**fact, "source": "left out"}}, "date": DATE}) == row


def test_a_report_of_a_flight(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "bundle.json"
    file.write_text(json.dumps(flown(tmp_path)), encoding="utf-8")
    assert main(["first-flight", "report", str(file)]) == 0
    assert_golden("flight/report.txt", capsys.readouterr().out)
    assert main(["first-flight", "report", str(file), "--format", "json"]) == 0
    assert not unlike("first-flight report", json.loads(capsys.readouterr().out))
    assert_golden("flight/bundle.json", json.dumps({**json.loads(file.read_text()), "versions": {}}, indent=2) + "\n")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        ("[]", "not a bundle"),
        ('{"kind": "eks-inference first flight", "schema": 7}', "another release"),
        ('{"kind": "eks-inference first flight", "schema": 1}', "must be a list"),
        ('{"kind": "eks-inference first flight", "schema": 1, "rows": [{"kind": "x"}]}', "must be an object with a kind"),
        ('{"kind": "eks-inference first flight", "schema": 1, "rows": [{"kind": "metric", "name": "a"}]}', "date: must be a day"),
        (
            '{"kind": "eks-inference first flight", "schema": 1, "rows": [{"kind": "pull", "date": "2026-11-25", "image": "i", '
            '"seconds": 1e999, "gb": 1}]}',
            "seconds: must be a number",
        ),
        (
            '{"kind": "eks-inference first flight", "schema": 1, "rows": [{"kind": "metric", "date": "2026-11-25", '
            '"name": "a", "b": 1}]}',
            "unknown columns: b",
        ),
        (
            '{"kind": "eks-inference first flight", "schema": 1, "rows": [{"kind": "pull", "date": "2026-11-25", "image": "i", '
            f'"seconds": 1{"0" * 400}, "gb": 1}}]}}',
            "seconds: must be a number from 0 to 1e+15",
        ),
        (
            '{"kind": "eks-inference first flight", "schema": 1, "rows": [{"kind": "load", "date": "2026-11-25"}]}',
            "lacks columns: tool",
        ),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_bundle_is_refused(text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bundle.json"
    file.write_text(text, encoding="utf-8")
    assert main(["first-flight", "report", str(file)]) == 2
    assert told in capsys.readouterr().err


def test_a_time_of_an_action_that_nobody_knows_is_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"kind": "time", "action": "dance", "type": "aws:x:Y", "what": "", "seconds": 1, "date": DATE}
    file = tmp_path / "bundle.json"
    file.write_text(json.dumps({"kind": "eks-inference first flight", "schema": 1, "rows": [row]}), encoding="utf-8")
    assert main(["first-flight", "report", str(file)]) == 0
    assert "dance aws:x:Y" in capsys.readouterr().out


def test_a_report_controls_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"kind": "image", "image": "\u001b[2J\u0007evil\nerror: forged", "started": True, "date": DATE}
    hostile = {"kind": "eks-inference first flight", "schema": 1, "date": "\u001b[31m", "region": {"a": 1}, "rows": [row]}
    file = tmp_path / "bundle.json"
    file.write_text(json.dumps(hostile), encoding="utf-8")
    assert main(["first-flight", "report", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "evil" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert not any(line.startswith("error:") for line in shown.splitlines())


# -- smoke stacks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_smoke_stacks_have_the_nodes_and_servers_of_the_smoke_test() -> None:
    from eks_inference_tools.flight.rungs import rows
    from eks_inference_tools.program import program

    for chip, stack in {"Inferentia2": "smoke-inf2", "Trainium2": "smoke-trn2", "nvidia": "smoke-gpu"}.items():
        row = rows()[chip]
        given = program(stack, ROOT).document.data["config"]["eks-inference:stack"]
        (server,) = given["servers"].values()
        assert {key: value for key, value in server.items() if key in row["server"]} == row["server"]
        assert given["pools"][server["pool"]]["instance_types"] == [row["instance"]]
        assert instance_type(row["instance"]).chip == chip or chip == "nvidia"
    assert {"smoke-inf2", "smoke-trn2", "smoke-gpu"} <= {*STACKS}
    assert recorded("smoke-gpu").stack == "smoke-gpu"


def test_what_a_controller_says_again_of_other_pods_is_told_once() -> None:
    refused = 'Error creating: pods "a-{}" is forbidden: ' + "ValidatingAdmissionPolicy " * 20 + "gave it no credentials"
    messages = [refused.format(1), refused.format(2), f"(combined from similar events): {refused.format(3)}", 'pull "i:1"']
    events = [
        {"type": "Warning", "reason": "R", "message": message, "involvedObject": {"kind": "ReplicaSet", "name": "a"}}
        for message in messages
    ]
    refusal, pull = troubles([], events, {})
    assert refusal.startswith('ReplicaSet a: R: Error creating: pods "a-3"')
    assert refusal.endswith("gave it no credentials")
    assert len(refusal) == MOST_LETTERS
    assert pull == 'ReplicaSet a: R: pull "i:1"'


def test_failed_checks_are_trouble() -> None:
    assert troubles([Check("a", "Job x/y", failed("it failed", "complete"))], [], {}) == (
        "Job x/y: it failed; expected: complete",
    )
