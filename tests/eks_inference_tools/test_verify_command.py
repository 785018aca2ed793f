"""The command ``eks-inference verify``: kubectl's answers and errors, waiting, reports. kubectl is a stand-in on PATH."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import stand_in_kubectl
from conftest import ROOT, recorded
from eks_inference_tools.cli import parser
from eks_inference_tools.commands.verify import POLL_SECONDS, _state, watch
from eks_inference_tools.program import StackProgram
from eks_inference_tools.reading.expected import Expected, expected_of
from eks_inference_tools.verify import cluster_api
from eks_inference_tools.verify.checks import judge
from eks_inference_tools.verify.observed import Check, Observed, failed, ok, overall, render_json, render_text, unknown, wait
from golden import assert_golden
from healthy_cluster import SCHEDULER, HealthyCluster, break_scheduler, observed, vector
from json_schemas import unlike
from stackgraph.graph.document import Graph
from stackgraph.presentation.progress import Progress
from stackgraph.problems import ProblemsFound
from stand_ins_on_path import answer, without_processes

KUBECTL = Path(stand_in_kubectl.__file__)


@pytest.fixture
def cluster(llama3: Graph) -> HealthyCluster:
    return HealthyCluster(llama3)


# -- the command, through a process ----------------------------------------------------------------------------------------------


class Cli:
    """Runs the command in this process against the stand-in kubectl, and keeps what it printed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.bin, self.states = folder / "bin", folder / "states"
        self.bin.mkdir()
        self.states.mkdir()
        kubectl = self.bin / "kubectl"
        # Without site-packages an interpreter starts in a third of the time.
        kubectl.write_text(f"#!{sys.executable} -IS\n{KUBECTL.read_text()}")
        kubectl.chmod(0o755)
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text("the stand-in does not read it")
        monkeypatch.setenv("PATH", str(self.bin))
        monkeypatch.setenv("KUBECONFIG", str(self.kubeconfig))
        monkeypatch.setenv("STAND_IN_CLUSTER", str(self.states))
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.chdir(ROOT)
        monkeypatch.setattr(StackProgram, "record", lambda program: recorded(program.stack))

    def answer(self, *states: dict[str, Any]) -> None:
        answer(self.states, *states)

    def run(self, *arguments: str) -> int:
        options = parser(["verify"]).parse_args(["verify", "inf2-llama3", *arguments])
        code = options.run(options)
        self.out, self.err = self._capsys.readouterr()
        return code

    def refused(self, *arguments: str) -> str:
        """What is printed when nothing could be looked at: the command's entry point makes exit code 2 of it."""
        with pytest.raises(ProblemsFound) as error:
            self.run(*arguments)
        return str(error.value)

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.states / "calls").read_text().splitlines()]


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys) -> Cli:
    return Cli(tmp_path, monkeypatch, capsys)


@pytest.fixture
def near(cli, monkeypatch) -> Cli:
    without_processes(monkeypatch, cli.states)
    return cli


def error_text(name: str) -> str:
    return vector("kubectl-errors")[name]


def test_the_command_passes_a_healthy_cluster(cli, llama3, cluster):
    cli.answer(cluster.state())
    assert cli.run() == 0
    assert cli.out.startswith("inf2-llama3  cluster inf2-llama3, context inf2-llama3\n")
    assert f"{len(judge(expected_of(llama3), observed(cluster)))} ok\n" in cli.out
    assert cli.err == ""


@pytest.mark.parametrize(("minor", "code"), [("35", 0), ("34", 1)])
def test_the_version_that_counts_is_the_one_a_server_speaks(near, cluster, minor, code):
    """Since 1.33 an API server says in ``/version`` which one it emulates; most emulate their own."""
    near.answer({**cluster.state(), "emulates": {"emulationMajor": "1", "emulationMinor": minor}})
    assert near.run() == code
    assert (f"v1.34, spoken by {cluster.version}" in near.out) == (code == 1)


@pytest.mark.thorough
def test_the_command_only_reads_and_reads_each_thing_once(cli, cluster):
    cli.answer(cluster.state())
    cli.run()
    asked = [[word for word in call if not word.startswith("--request-timeout")] for call in cli.calls()]
    assert all(call[0] == "get" or call[:2] == ["config", "view"] for call in asked)
    assert len({json.dumps(call) for call in asked}) == len(asked)
    assert all(any(word.startswith("--request-timeout=") for word in call) for call in cli.calls())


@pytest.mark.thorough
def test_values_in_the_secrets_of_helm_are_never_asked_for(cli, cluster):
    """A table of names and labels; with -o json or yaml kubectl would fetch and print the Secrets themselves."""
    cli.answer(cluster.state())
    cli.run()
    (secrets,) = [call for call in cli.calls() if "secrets" in call]
    assert not {"-o", "--output"} & set(secrets)


def test_the_command_says_what_is_wrong_and_what_to_do(near, cluster):
    break_scheduler(cluster, "pod-status-crashing")
    near.answer(cluster.state())
    assert near.run() == 1
    assert "1 failed" in near.out
    assert "  failed   Deployment kube-system/my-scheduler\n" in near.out
    assert "next      kubectl -n kube-system logs my-scheduler-0 -c main --previous\n" in near.out


def test_the_json_form_holds_the_same(near, cluster):
    break_scheduler(cluster, "pod-status-pending")
    near.answer(cluster.state())
    assert near.run("--format", "json") == 1
    document = json.loads(near.out)
    assert (document["schema"], document["stack"], document["cluster"]) == (1, "inf2-llama3", "inf2-llama3")
    assert document["verdict"] == "wait"
    assert not unlike("verify", document)
    assert document["counts"]["wait"] == 1
    (waiting,) = [check for check in document["checks"] if check["verdict"] == "wait"]
    assert waiting["subject"] == SCHEDULER
    assert set(waiting) == {"area", "subject", "verdict", "found", "expected", "next", "runbook"}
    assert waiting["runbook"] == "docs/runbook/pending.md"
    assert {check["runbook"] for check in document["checks"] if check["verdict"] == "ok"} == {""}


def test_options_for_kubectl_reach_it(near, cluster, tmp_path):
    near.answer(cluster.state())
    other = tmp_path / "other"
    other.write_text("")
    assert near.run("--kubeconfig", str(other), "--context", "tunnel") == 0
    assert all(call[:4] == ["--kubeconfig", str(other), "--context", "tunnel"] for call in near.calls())


def test_without_kubectl_nothing_is_checked(near, cluster):
    (near.bin / "kubectl").unlink()
    assert "there is no kubectl on PATH" in near.refused()


def test_without_a_kubeconfig_the_command_that_makes_one_is_named(near, cluster, tmp_path, monkeypatch):
    near.answer(cluster.state())
    said = near.refused("--kubeconfig", str(tmp_path / "none"))
    assert "there is no such kubeconfig" in said
    assert "aws eks update-kubeconfig --region us-west-2 --name inf2-llama3 --alias inf2-llama3" in said
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "there is no kubeconfig" in near.refused()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "172.20.0.1")
    assert near.run() == 0, "inside a pod kubectl needs no kubeconfig"


def test_a_kubeconfig_of_another_cluster_is_refused_before_anything_is_asked(near, cluster):
    state = cluster.state()
    state["config"]["current-context"] = "other"
    near.answer(state)
    said = near.refused()
    assert "this context is for cluster other, the stack's cluster is inf2-llama3" in said
    assert "--context inf2-llama3" in said
    assert [call for call in near.calls() if "get" in call] == []
    assert near.run("--context", "inf2-llama3") == 0
    assert "there is no such context" in near.refused("--context", "nope")
    state["config"]["current-context"] = ""
    near.answer(state)
    assert "no current context" in near.refused()


@pytest.mark.parametrize(
    ("error", "said", "hint"),
    [
        ("refused", "The connection to the server 127.0.0.1:8443 was refused", "that you are in its network"),
        ("refused-with-log", "The connection to the server 127.0.0.1:8443 was refused", "that you are in its network"),
        ("EOF", "was closed without an answer: EOF", "the cluster is gone, or a proxy or tunnel in between is down: aws eks"),
        ("no-such-host", "no such host", "the cluster is gone, or the kubeconfig is old: aws eks update-kubeconfig"),
        ("certificate", "failed to verify certificate", "the kubeconfig is for another cluster"),
        ("no-credential-command", "executable aws not found", "install it"),
        ("credentials-expired", "executable aws failed", "aws sts get-caller-identity"),
        ("unauthorized", "You must be logged in", "access entry"),
    ],
)
def test_a_cluster_that_does_not_answer_says_why(near, cluster, error, said, hint):
    state = cluster.state()
    state["errors"] = {"get --raw": error_text(error)}
    near.answer(state)
    message = near.refused()
    assert message.count("\n") <= 2, "one error, not five times the same"
    assert said in message
    assert hint in message
    assert "memcache.go" not in message


def test_a_kubeconfig_that_is_no_kubeconfig_is_said(near, cluster):
    state = cluster.state()
    state["errors"] = {"config view": error_text("bad-kubeconfig")}
    near.answer(state)
    assert "create a new kubeconfig" in near.refused()


def test_who_may_see_nothing_is_told_so(near, cluster):
    state = cluster.state()
    state["errors"] = {"*": error_text("forbidden"), "get --raw": ""}
    near.answer(state)
    assert 'User "nobody" cannot list resource "nodes"' in near.refused()


def test_who_may_see_a_part_gets_verdicts_on_that_part(near, cluster):
    state = cluster.state()
    state["errors"] = {"get nodes": error_text("forbidden"), "get secrets": error_text("forbidden")}
    near.answer(state)
    assert near.run() == 2
    assert "unknown  nodes of pool core" in near.out
    assert "ok       RayService vllm/vllm-llama3-inf2" in near.out


def test_a_kind_that_is_not_installed_is_a_failure(near, cluster):
    state = cluster.state()
    state["errors"] = {"get nodepools.karpenter.sh": error_text("not-installed")}
    near.answer(state)
    assert near.run() == 1
    assert "the cluster does not have this kind" in near.out


def test_logs_and_commands_that_nobody_has_are_empty(near, cluster):
    kubectl = cluster_api.Kubectl(context="inf2-llama3")
    near.answer({**cluster.state(), "logs": {"job/a": "one line\n"}, "exec": {"pod": "done\n"}})
    assert [kubectl.log("ns", "job/a"), kubectl.log("ns", "job/a", "main"), kubectl.log("ns", "job/b")] == ["one line\n", "", ""]
    assert near.calls()[0][-5:] == ["-n", "ns", "logs", "job/a", "--tail=200"]
    assert near.calls()[1][-5:] == ["job/a", "-c", "main", "--previous", "--tail=200"]
    kubectl.log("ns", "job/a", whole=True)
    assert near.calls()[-1][-1] == "--tail=-1"
    assert kubectl.execute("ns", "pod", "ls") == "done\n"
    near.answer({**cluster.state(), "errors": {"-n ns": error_text("forbidden")}})
    assert (kubectl.log("ns", "job/a", "main"), kubectl.execute("ns", "pod", "ls")) == ("", "")
    near.answer({**cluster.state(), "errors": {"-n ns": error_text("refused")}})
    assert (kubectl.log("ns", "job/a"), kubectl.execute("ns", "pod", "ls")) == ("", "")


@pytest.mark.thorough
def test_an_answer_that_is_no_json_is_said(cli, cluster):
    cli.answer(cluster.state())
    (cli.bin / "kubectl").write_text("#!/bin/sh\necho hello\n")
    assert "did not return JSON" in cli.refused()


@pytest.mark.thorough
def test_a_kubectl_that_hangs_is_ended(cli, cluster, monkeypatch):
    monkeypatch.setattr(cluster_api, "_COMMAND_TIMEOUT_S", 0.5)
    cli.answer({**cluster.state(), "seconds": 30})
    assert "no answer within 0.5 s" in cli.refused()


@pytest.mark.thorough
def test_waiting_ends_when_all_is_well(cli, llama3, cluster, monkeypatch):
    monkeypatch.setattr("eks_inference_tools.commands.verify.POLL_SECONDS", 0.2)
    starting = HealthyCluster(llama3)
    break_scheduler(starting, "pod-status-starting")
    cli.answer(starting.state(), starting.state(), cluster.state())
    assert cli.run("--wait", "600") == 0
    assert sum("/version" in call for call in cli.calls()) == 3


@pytest.mark.thorough
def test_what_is_not_there_after_the_wait_is_exit_code_1(cli, cluster, monkeypatch):
    monkeypatch.setattr("eks_inference_tools.commands.verify.POLL_SECONDS", 0.2)
    break_scheduler(cluster, "pod-status-starting")
    cli.answer(cluster.state())
    assert cli.run("--wait", "0.5") == 1


@pytest.mark.thorough
@pytest.mark.parametrize("given_", ["-1", "soon", "nan", "inf"])
def test_a_wait_that_is_no_time_is_refused(cli, given_, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.run("--wait", given_)
    assert stopped.value.code == 2
    assert "allowed: a number of seconds from 0 to 999999" in capsys.readouterr().err


# -- waiting, with a clock of ours -----------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now, self.naps = 0.0, []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


def watched(llama3: Graph, states: list[Any], seconds: float) -> tuple[list[Check], Clock, list[float]]:
    clock, shown, states = Clock(), [], list(states)

    def read() -> Observed:
        state = states.pop(0) if len(states) > 1 else states[0]
        if isinstance(state, BaseException):
            raise state
        return observed(state)

    checks = watch(
        expected_of(llama3),
        read,
        seconds=seconds,
        clock=clock,
        sleep=clock.sleep,
        show=lambda checks, left: shown.append(left),
    )
    return checks, clock, shown


@pytest.fixture
def starting(llama3: Graph) -> HealthyCluster:
    cluster = HealthyCluster(llama3)
    break_scheduler(cluster, "pod-status-starting")
    return cluster


@pytest.mark.thorough
def test_no_wait_means_one_look(llama3, starting):
    checks, clock, shown = watched(llama3, [starting], 0)
    assert overall(checks) == "wait"
    assert clock.naps == shown == []


@pytest.mark.thorough
def test_the_wait_never_outlasts_its_time(llama3, starting):
    checks, clock, shown = watched(llama3, [starting], 25)
    assert overall(checks) == "wait"
    assert clock.naps == [POLL_SECONDS, POLL_SECONDS, 5]
    assert shown == [25, 15, 5]


@pytest.mark.thorough
def test_what_failed_is_not_waited_for(llama3, cluster):
    break_scheduler(cluster, "pod-status-no-image")
    checks, clock, _ = watched(llama3, [cluster], 600)
    assert overall(checks) == "failed"
    assert clock.naps == []


@pytest.mark.thorough
def test_a_cluster_that_answers_again_is_taken_back(llama3, starting, cluster):
    lost = cluster_api.AccessError([])
    checks, _, _ = watched(llama3, [starting, lost, lost, cluster], 600)
    assert overall(checks) == "ok"
    with pytest.raises(cluster_api.AccessError):
        watched(llama3, [starting, lost], 600)
    with pytest.raises(cluster_api.AccessError):
        watched(llama3, [lost, cluster], 600)


@pytest.mark.thorough
def test_an_interrupt_ends_the_wait_with_what_was_seen(llama3, starting):
    checks, _, _ = watched(llama3, [starting, KeyboardInterrupt()], 600)
    assert overall(checks) == "wait"


@pytest.mark.thorough
def test_progress_is_one_line_over_the_one_before(llama3, starting, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress() as progress:
        progress.show(_state(judge(expected_of(llama3), observed(starting)), 125.4))
        shown = capsys.readouterr().err
    assert shown.startswith("\r\033[K")
    assert "1 wait; 2:05 left: Deployment kube-system/my-scheduler: 0 of 1 ready" in shown
    assert "\n" not in shown
    assert capsys.readouterr().err == "\r\033[K"


# -- reports ---------------------------------------------------------------------------------------------------------------------

EXPECTED = Expected("s", "c", "1.35", "", ("Part",), (), (), (), (), {"ConfigMap": 2, "Role": 1})
CHECKS = [
    Check("Cluster", "Kubernetes API", ok("v1.35.6-eks-1")),
    Check("Part", "Deployment apps/server", ok("2 of 2 ready")),
    Check(
        "Part",
        "Deployment apps/worker",
        wait(
            "0 of 1 ready; pod worker-5d8 is Pending: 0/3 nodes are available: 3 Insufficient aws.amazon.com/neuron. preemption: "
            "0/3 nodes are available: 3 No preemption victims found for incoming pod.",
            "1 ready",
            "kubectl -n apps describe pod worker-5d8",
        ),
    ),
    Check("Part", "Job apps/once", failed("failed: BackoffLimitExceeded", "complete", "kubectl -n apps logs job/once")),
    Check("Part", "nodes of pool a-pool-with-a-rather-long-name-of-its-own", ok("2 ready: 2 × inf2.8xlarge")),
    Check("Other pods", "namespace apps", unknown("pods is forbidden")),
]


def test_the_table():
    assert_golden("verify/table.txt", render_text(EXPECTED, CHECKS, context="ctx", width=100))
    assert_golden("verify/table-narrow.txt", render_text(EXPECTED, CHECKS, width=60))


@pytest.mark.thorough
def test_colours_only_add_colour():
    painted = render_text(EXPECTED, CHECKS, colour=True)
    plain = painted
    for code in ("0", "1", "2", "1;4", "31", "32", "33", "35"):
        plain = plain.replace(f"\x1b[{code}m", "")
    assert plain == render_text(EXPECTED, CHECKS)
    assert painted != plain


@pytest.mark.thorough
def test_words_of_the_cluster_cannot_steer_a_terminal():
    check = Check("Part", "Pod a", failed("\x1b[31mred\x07\n\nsecond", "calm\x1b[0m", "kubectl\x1b]0;title\x07"))
    assert not {"\x1b", "\x07"} & set(render_text(EXPECTED, [check]))


def test_the_gravest_check_decides():
    assert overall([]) == "ok"
    assert overall(CHECKS) == "failed"
    assert json.loads(render_json(EXPECTED, CHECKS))["verdict"] == "failed"
    assert overall([check for check in CHECKS if check.verdict != "failed"]) == "wait"
    assert overall([check for check in CHECKS if check.verdict in ("ok", "unknown")]) == "unknown"
