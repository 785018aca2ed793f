"""How a rung is looked at: through a stand-in for kubectl, in a cluster as its graph says it should be."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eks_inference.loadtest.plan import TEST_LABEL
from eks_inference_tools.flight.course import Leg
from eks_inference_tools.flight.evidence import load_rows
from eks_inference_tools.flight.eyes import FAILED_FOR_S, ClusterEyes, _ended
from eks_inference_tools.flight.ports import Hopeless
from fake_automation import FakeClock
from flights import course, job_log
from healthy_cluster import HealthyCluster
from stand_ins_on_path import answer, without_processes

NO_IMAGE = 'Failed to pull image "i:1": rpc error: not found'


@dataclass
class Sight:
    """A cluster behind a stand-in for kubectl, and a clock that only waiting moves."""

    folder: Path
    clock: FakeClock
    shown: list[str]

    def look(self, leg: Leg, *states: dict[str, Any], seconds: float = 600) -> Any:
        answer(self.folder / "states", *states)
        return ClusterEyes(self.folder, self.clock, self.shown.append).look(leg, seconds)

    def watch(self, leg: Leg, *states: dict[str, Any]) -> Hopeless:
        answer(self.folder / "states", *states)
        return ClusterEyes(self.folder, self.clock).watch(leg, leg.deployments[-1])


@pytest.fixture
def sight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sight:
    for folder in ("bin", "states"):
        (tmp_path / folder).mkdir()
    programs = {"kubectl": "", "aws": '#!/bin/sh\nfor last; do :; done\necho "$@" >$last\n'}
    for name, text in programs.items():
        (file := tmp_path / "bin" / name).write_text(text)
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    without_processes(monkeypatch, tmp_path / "states")
    return Sight(tmp_path, FakeClock(), [])


def leg(name: str) -> Leg:
    return next(one for one in course() if one.name == name)


def test_a_look_ends_with_success_after_minutes_of_failure_or_with_its_time() -> None:
    assert (_ended("ok", "", 0, 0), _ended("ok", "lost", 1, 0), _ended("wait", "", 0, 0)) == ("done", None, "cap")
    assert (_ended("failed", "", 1, FAILED_FOR_S), _ended("failed", "", 1, FAILED_FOR_S - 1)) == ("failed", None)


@pytest.mark.parametrize("name", ["core", "node", "token", "stack", "load-test"])
def test_a_healthy_rung_is_reached_at_once(sight: Sight, name: str) -> None:
    seen = sight.look(leg(name), HealthyCluster(leg(name).deployments[-1].graph).state())
    assert (seen.ended, seen.words) == ("done", ())
    assert {row["kind"] for row in seen.rows} >= {"version", "capacity"}
    assert sight.clock.now() == FakeClock().now()
    assert (sight.folder / "kubeconfig").read_text().startswith("eks update-kubeconfig --region us-west-2 --name smoke-inf2")


def test_the_control_plane_is_reached_when_its_api_answers(sight: Sight) -> None:
    cluster = HealthyCluster(leg("control-plane").deployments[-1].graph)
    assert sight.look(leg("control-plane"), cluster.state()).ended == "done"


def changed(name: str, change: Callable[[dict[str, Any]], None], kind: str) -> dict[str, Any]:
    state = HealthyCluster(leg(name).deployments[-1].graph).state()
    for item in state["objects"][kind]:
        change(item)
    return state


def not_ready(item: dict[str, Any]) -> None:
    for condition in item["status"].get("conditions", []):
        condition["status"] = "False" if condition["type"] == "Ready" else condition["status"]


def test_nodes_that_are_not_ready_are_waited_for_until_the_time_is_over(sight: Sight) -> None:
    state = changed("node", not_ready, "nodes")
    began = sight.clock.now()
    seen = sight.look(leg("node"), state, seconds=300)
    assert seen.ended in ("cap", "failed")
    assert any("nodes of pool neuron" in line for line in seen.words)
    assert 0 < sight.clock.now() - began <= 300
    assert sight.shown


def test_nodes_that_become_ready_are_waited_for(sight: Sight) -> None:
    well = HealthyCluster(leg("node").deployments[-1].graph).state()
    assert sight.look(leg("node"), changed("node", not_ready, "nodes"), well).ended == "done"
    assert sight.clock.now() > FakeClock().now()


def without_image() -> dict[str, Any]:
    """The rung `token`, with a server whose image does not exist."""

    def missing(item: dict[str, Any]) -> None:
        if item["metadata"]["namespace"] == "smoke":
            not_ready(item)
            item["status"]["phase"] = "Pending"
            item["status"]["containerStatuses"] = [
                {"name": "server", "image": "i:1", "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
            ]

    state = changed("token", missing, "pods")
    involved = {"kind": "Pod", "name": "smoke-1", "namespace": "smoke"}
    state["objects"]["events"] = [{"type": "Warning", "reason": "Failed", "message": NO_IMAGE, "involvedObject": involved}]
    for deployment in state["objects"]["deployments.apps"]:
        if deployment["metadata"]["namespace"] == "smoke":
            deployment["status"] = {"observedGeneration": 1, "replicas": 1, "unavailableReplicas": 1}
    return state


def test_an_image_that_is_missing_fails_and_is_told(sight: Sight) -> None:
    seen = sight.look(leg("token"), without_image(), seconds=900)
    assert seen.ended == "failed"
    assert any(NO_IMAGE in line and "the registry has no such image" in line for line in seen.words)
    assert {"kind": "image", "image": "i:1", "started": False, "why": "ImagePullBackOff"} in seen.rows
    assert sight.clock.now() - FakeClock().now() == pytest.approx(FAILED_FOR_S, abs=15)


def test_an_update_is_hopeless_once_a_workload_has_failed_for_long(sight: Sight) -> None:
    hopeless = sight.watch(leg("token"), without_image())
    assert hopeless() == ()
    sight.clock.sleep(FAILED_FOR_S - 1)
    assert hopeless() == ()
    sight.clock.sleep(1)
    (words,) = hopeless()
    assert "Deployment smoke/smoke" in words
    assert "ImagePullBackOff" in words


def test_a_workload_that_recovers_is_not_hopeless(sight: Sight) -> None:
    well = HealthyCluster(leg("token").deployments[-1].graph).state()
    hopeless = sight.watch(leg("token"), without_image(), well, without_image())
    for _ in range(3):
        assert hopeless() == ()
        sight.clock.sleep(FAILED_FOR_S - 1)


@pytest.mark.parametrize("name", ["control-plane", "core", "token"])
def test_what_is_not_there_yet_is_not_hopeless(sight: Sight, name: str) -> None:
    """Nor is a workload that another update is deleting."""
    nothing = HealthyCluster(leg(name).deployments[-1].graph).state()
    leaving = without_image()
    for deployment in leaving["objects"]["deployments.apps"]:
        deployment["metadata"]["deletionTimestamp"] = "2026-11-27T10:00:00Z"
    nothing["objects"] = {}
    hopeless = sight.watch(leg(name), nothing, leaving)
    for _ in range(3):
        assert hopeless() == ()
        sight.clock.sleep(FAILED_FOR_S)


def test_a_cluster_that_is_not_there_yet_is_not_hopeless(sight: Sight) -> None:
    (sight.folder / "bin" / "aws").write_text("#!/bin/sh\necho 'No cluster found for name: smoke-inf2' >&2\nexit 254\n")
    hopeless = sight.watch(leg("token"), without_image())
    for _ in range(2):
        assert hopeless() == ()
        sight.clock.sleep(FAILED_FOR_S)


def test_a_cluster_that_does_not_answer_is_no_success(sight: Sight) -> None:
    state = HealthyCluster(leg("core").deployments[-1].graph).state()
    refused = {"*": "The connection to the server x was refused - did you specify the right host or port?\n"}
    seen = sight.look(leg("core"), {**state, "errors": refused}, seconds=60)
    assert seen.ended == "cap"
    assert "the cluster does not answer" in seen.words[0]


def test_without_access_nothing_is_claimed(sight: Sight) -> None:
    (sight.folder / "bin" / "aws").write_text("#!/bin/sh\necho 'Unable to locate credentials' >&2\nexit 255\n")
    seen = sight.look(leg("core"), HealthyCluster(leg("core").deployments[-1].graph).state(), seconds=30)
    assert seen.ended == "cap"
    assert "Unable to locate credentials" in seen.words[0]


def test_figures_of_servers_are_asked_where_all_is_well(sight: Sight) -> None:
    state = HealthyCluster(leg("token").deployments[-1].graph).state()
    (job,) = (one for one in state["objects"]["jobs.batch"] if one["metadata"]["namespace"] == "smoke-smoke-test")
    state["logs"] = {f"job/{job['metadata']['name']}": "[8 tokens; time to first token 0.250 s, then 30 tokens/s]\n"}
    seen = sight.look(leg("token"), state)
    assert {"kind": "answer", "first_token_s": 0.25} in seen.rows


def test_figures_of_the_load_test_are_read_from_all_of_its_log(sight: Sight) -> None:
    state = HealthyCluster(leg("load-test").deployments[-1].graph).state()
    (job,) = (one for one in state["objects"]["jobs.batch"] if TEST_LABEL in one["spec"]["template"]["metadata"]["labels"])
    state["logs"] = {f"job/{job['metadata']['name']}": job_log()}
    seen = sight.look(leg("load-test"), state)
    assert [row for row in seen.rows if row["kind"] == "load"] == load_rows(job_log())
    calls = [json.loads(line) for line in (sight.folder / "states" / "calls").read_text().splitlines()]
    assert [call for call in calls if f"job/{job['metadata']['name']}" in call and "--tail=-1" in call]
