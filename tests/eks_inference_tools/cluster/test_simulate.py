"""``eks-inference simulate`` as a user runs it: every shipped stack lands, and what does not is told."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cluster.shipped import Asked, Ran, simulate_once
from conftest import ROOT, STACKS, recorded
from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference_tools.cli import main
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from readme import block, blocks

SIMULATE_PAGE = ROOT / "docs" / "simulate.md"

pytestmark = pytest.mark.cluster


def simulated(stack: str, output: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report."""
    code = main(["simulate", stack, *options, "--format", "json", "-o", str(output)])
    return code, json.loads(output.read_text())


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch: pytest.MonkeyPatch, toolchain: object, recorded_once: None) -> None:
    monkeypatch.chdir(ROOT)
    simulate_once(monkeypatch)


def devices(report: dict[str, Any], resource: str) -> dict[str, tuple[float, float]]:
    """What is taken and what there is of a device resource, by node."""
    return {
        node["name"]: (node["taken"].get(resource, 0), node["allocatable"][resource])
        for node in report["nodes"]
        if resource in node["allocatable"]
    }


EXPECTED = {
    "gpu-nixl": {GPU_RESOURCE: [(8, 8)] * 2, EFA_RESOURCE: [(4, 4)] * 2},
    "gpu-opt350m": {GPU_RESOURCE: [(0, 1), (0, 1), (0, 1), (1, 1)]},
    "inf2-llama2": {DEVICE_RESOURCE: [(12, 12)]},
    "inf2-llama3": {DEVICE_RESOURCE: [(1, 1)]},
    "trn2-di": {DEVICE_RESOURCE: [(16, 16)], EFA_RESOURCE: [(16, 16)]},
    "trn2-di-pair": {DEVICE_RESOURCE: [(16, 16)] * 2, EFA_RESOURCE: [(16, 16)] * 2},
    "smoke-gpu": {GPU_RESOURCE: [(1, 1)]},
    "smoke-inf2": {DEVICE_RESOURCE: [(1, 1)]},
    "smoke-trn2": {DEVICE_RESOURCE: [(1, 1)]},
    "trn2-nixl": {DEVICE_RESOURCE: [], EFA_RESOURCE: []},  # claimed: no device plugin counts them
}


def test_every_shipped_stack_is_simulated():
    assert set(EXPECTED) == set(STACKS)


@pytest.mark.parametrize("stack", EXPECTED)
def test_the_shipped_stacks_land(stack: str, tmp_path: Path):
    code, report = simulated(stack, tmp_path / "report.json")
    assert code == 0
    assert report["well"]
    assert report["admission"]["objects"] == sum(report["admission"]["origins"].values()) > 0
    assert report["admission"]["refusals"] == report["admission"]["unchecked"] == report["pending"] == report["complaints"] == []
    for resource, shares in EXPECTED[stack].items():
        assert sorted(devices(report, resource).values()) == shares
    assert report["verify"]
    assert {check["verdict"] for check in report["verify"]} == {"ok"}
    for node in report["nodes"]:
        assert all(node["taken"].get(name, 0) <= most for name, most in node["allocatable"].items()), node["name"]


@pytest.mark.parametrize("stack", STACKS)
def test_the_shipped_stacks_are_made_changed_and_deleted(stack: str, tmp_path: Path, toolchain: Toolchain):
    """Jobs complete, Services get endpoints, no server is asked for without devices for it, and nothing is left in the end."""
    code, report = simulated(stack, tmp_path / "report.json")
    assert code == 0
    ran: Ran = Asked(recorded(stack), toolchain, {}).ran()
    assert [phase.name for phase in ran.changed] == ["update", "delete"]
    for phase in (*ran.report.phases, *ran.changed):
        assert phase.is_complete, phase
        assert phase.settled is not None or phase.name == "delete"
    assert ran.watched.devices is not None
    assert not ran.watched.devices.overbooked
    assert not ran.watched.old_images
    assert report["complaints"] == []
    assert not ran.watched.left
    assert ran.watched.namespaces == {"default", "kube-node-lease", "kube-public", "kube-system"}


def test_three_servers_share_a_node_and_a_fourth_waits(tmp_path: Path):
    """Twelve devices in neighbouring fours by the Neuron scheduler; the fourth has the scheduler's own reason."""
    code, report = simulated("inf2-llama2", tmp_path / "report.json", "--scale", "llama2-c/llama2-c=2")
    assert code == 1
    (node,) = [node for node in report["nodes"] if DEVICE_RESOURCE in node["allocatable"]]
    sets = sorted(pod["devices"] for pod in node["pods"] if pod["devices"])
    assert sets == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    (pending,) = report["pending"]
    # Four pods alike ask for three places: which one waits is a matter of who comes first.
    assert pending["owner"] in {f"Deployment llama2-{one}/llama2-{one}" for one in "abc"}
    assert f"1 Insufficient {DEVICE_RESOURCE}" in pending["said"]
    assert [phase["name"] for phase in report["rollout"]] == ["create"]


def test_autoscaled_servers_have_nodes_at_their_most(tmp_path: Path):
    """Four replicas of Triton on four GPU nodes."""
    code, report = simulated("gpu-opt350m", tmp_path / "report.json", "--scale", "max")
    assert code == 0
    assert list(devices(report, GPU_RESOURCE).values()) == [(1, 1)] * 4
    assert report["idleDevices"] == {}


def test_karpenter_starts_a_node_for_each_worker(tmp_path: Path):
    """One Inferentia device a worker: three workers at the most, three nodes of the type that the server names."""
    code, report = simulated("inf2-llama3", tmp_path / "report.json", "--scale", "max")
    assert code == 0
    assert list(devices(report, DEVICE_RESOURCE).values()) == [(1, 1)] * 3
    assert {node["instanceType"] for node in report["nodes"] if DEVICE_RESOURCE in node["allocatable"]} == {"inf2.8xlarge"}


# -- the documents ---------------------------------------------------------------------------------------------------------------


def without_who_comes_first(text: str) -> str:
    """Which server gets which devices, and which one waits, is a matter of who comes first."""
    return re.sub(r"\bllama2-[abc]\b", "llama2-…", re.sub(r"\(\d+-\d+\)", "(…)", text))


def commands(document: Path, heading: str) -> list[list[str]]:
    lines = [line for b in blocks(document) if (b.language, b.heading) == ("sh", heading) for line in b.text.splitlines()]
    return [line.split()[1:] for line in lines]


def test_the_commands_and_outputs_of_the_page(tmp_path: Path, capsys):
    """The excerpt is of the command that ends with exit code 1: parts of its output, in their order, with […] between them."""
    shown = block("text", "Simulating a stack", SIMULATE_PAGE).text
    for arguments in commands(SIMULATE_PAGE, "Simulating a stack"):
        to_file = [str(tmp_path / Path(word).name) if before == "-o" else word for before, word in pairwise(["", *arguments])]
        code = main(to_file)
        rest = output = without_who_comes_first(capsys.readouterr().out)
        if not any("=" in word for word in arguments):
            assert code == 0, arguments
            continue
        assert code == 1
        for part in without_who_comes_first(shown).split("[…]\n"):
            _, found, rest = rest.partition(part)
            assert found, f"not in the output any more, or not in this order:\n{part}\nThe output:\n{output}"
