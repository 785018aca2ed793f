"""What ``eks-inference simulate`` says of a simulation: as text for people, as JSON for programs."""

import json
import re
from dataclasses import replace
from decimal import Decimal

import pytest

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference_tools.simulate.report import Report, render_json
from eks_inference_tools.simulate.text import render_text
from eks_inference_tools.simulate.world.scheduled_pods import PendingPod, ScheduledPod, ScheduledPods
from eks_inference_tools.verify.observed import Check, failed, unknown, wait
from golden import assert_golden
from json_schemas import unlike
from simulation_reports import CREATE, EVERYTHING, GIB, NODES, PENDING, UNREACHED, UNSCHEDULABLE, UPDATE, WELL, amounts, server


@pytest.mark.parametrize(("name", "report"), [("everything", EVERYTHING), ("well", WELL)])
def test_reports_as_they_are(name: str, report: Report):
    assert_golden(f"simulate/{name}.txt", render_text(report))
    assert_golden(f"simulate/{name}.json", render_json(report))


# -- what is well ----------------------------------------------------------------------------------------------------------------


FAULTS = {
    "refused by the API server": replace(WELL, admission=EVERYTHING.admission),
    "Pending": replace(WELL, scheduled=replace(WELL.scheduled, pending=PENDING)),
    "faults of the stack's own schedulers": replace(WELL, complaints=EVERYTHING.complaints),
    "of the rollouts unfinished": replace(WELL, phases=(CREATE,)),
    "not as `verify` expects": replace(WELL, checks=EVERYTHING.checks),
}


@pytest.mark.parametrize("words", FAULTS)
def test_each_fault_alone_is_told_and_is_not_well(words: str):
    report = FAULTS[words]
    assert not report.is_well
    assert json.loads(render_json(report))["well"] is False
    assert re.fullmatch(rf"\d+ {re.escape(words)}", render_text(report).splitlines()[-1])


def test_every_kind_of_fault_is_among_these():
    assert set(FAULTS) == set(WELL.faults())
    assert WELL.is_well
    assert render_text(WELL).endswith("\nEverything was admitted, landed and rolled out.\n")


def test_what_comes_after_pulumi_counts_too():
    """Pods and endpoints that Pulumi does not wait for."""
    report = replace(WELL, phases=(UPDATE,))
    assert report.faults()["of the rollouts unfinished"] == 1
    (line,) = [line for line in render_text(report).splitlines() if line.startswith("Update")]
    assert line == "Update    done in 5.0 s, 3 objects; some pods or endpoints still not ready 30.2 s later"
    assert "waits    Service demo/server: none of its pods is ready" in render_text(report)


def test_what_verify_finds_undone_in_an_unfinished_stack_is_no_further_fault():
    """It is more behind one of several equal servers than behind another, and which of them waits is a matter of chance."""
    unfinished = replace(WELL, phases=(CREATE,))
    (last,) = {render_text(replace(unfinished, checks=checks)).splitlines()[-1] for checks in ((), EVERYTHING.checks)}
    assert last == "1 of the rollouts unfinished"
    assert "Verify    " in render_text(replace(unfinished, checks=EVERYTHING.checks))


@pytest.mark.parametrize("verdict", [wait("a", "b"), failed("a", "b"), unknown("a")])
def test_every_verdict_but_ok_counts(verdict):
    assert not replace(WELL, checks=(Check("Nodes", "pool core", verdict),)).is_well


def test_a_stack_that_is_not_verified_is_told():
    assert "Verify    nothing to look at\n" in render_text(replace(WELL, checks=()))


# -- the form of the text --------------------------------------------------------------------------------------------------------


def texts() -> dict[str, str]:
    return {"everything": render_text(EVERYTHING), "well": render_text(WELL)}


@pytest.mark.parametrize("name", texts())
def test_no_line_is_wider_than_a_terminal_or_ends_in_spaces(name: str):
    for line in texts()[name].splitlines():
        assert len(line) <= 120 or len(line.split()) == 1
        assert line == line.rstrip()


def test_long_words_are_whole_and_nothing_breaks_on_them():
    name = "n" * 140
    pod = ScheduledPod("demo", name, f"Deployment demo/{name}", {**amounts("1", "1"), DEVICE_RESOURCE: Decimal(1)})
    scheduled = ScheduledPods(
        (replace(NODES[0], pods=(pod,), ended=(name,)),), (PendingPod("demo", name, name, {}, f"why {name} why"),)
    )
    text = render_text(replace(WELL, stack=name, kubernetes=name, scheduled=scheduled))
    assert text.count(name) == 6
    below = text.partition(f" demo/{name}\n")[2].partition("\n")[0]
    assert below == f"{'':14}cpu 1, memory 1 GiB, {DEVICE_RESOURCE} 1"


def test_numbers_stay_with_what_they_count():
    text = render_text(EVERYTHING)
    for part in (
        "pods 4 of 250",
        "vpc.amazonaws.com/efa 2 of 2",
        "hugepages-2Mi 5 GiB",
        "ConfigMap demo/part-3",
        "Job demo/efa-test",
    ):
        assert part in text


def test_nothing_in_a_report_steers_a_terminal():
    text = render_text(EVERYTHING)
    assert "\x1b" not in text
    assert 'violates PodSecurity "restricted:latest" [2J' in text


@pytest.mark.parametrize("report", [EVERYTHING, WELL])
def test_colours_change_no_word(report: Report):
    coloured = render_text(report, colour=True)
    assert re.sub("\x1b\\[[0-9]+m", "", coloured) == render_text(report)
    assert ("\x1b[32m" in coloured) == report.is_well
    assert ("\x1b[31m" in coloured) == (not report.is_well)
    assert f"\x1b[1m{report.stack}\x1b[0m on a" in coloured


# -- pods and devices ------------------------------------------------------------------------------------------------------------


def part_of(text: str, heading: str) -> str:
    """From a heading to the next."""
    return re.split(r"\n(?=\S)", text.partition(f"\n{heading}")[2])[0]


def test_alike_pods_are_one_line_and_their_devices_are_not():
    placed = part_of(render_text(EVERYTHING, width=120), "Placed")
    assert placed.count("2 × Deployment demo/router  cpu 0.5, memory 1 GiB") == 1
    assert f"Deployment demo/server  cpu 63, memory 233 GiB, {DEVICE_RESOURCE} 4 (0-3)" in placed
    assert f"Deployment demo/server  cpu 63, memory 233 GiB, {DEVICE_RESOURCE} 4 (4-7)" in placed
    assert "(0-3), vpc.amazonaws.com/efa 1\n" in placed  # the scheduler extension gave no interfaces
    assert "Pod demo/odd\n" in placed
    assert "2 × monitor" in placed
    assert "2 × coredns" in placed
    assert "ran here and ended: Job demo/compile, Job demo/efa-test" in placed


def test_cores_are_told_of_only_where_they_are_used():
    """A NeuronCore is a part of a device: it is not idle beside one that is taken."""
    assert CORE_RESOURCE not in render_text(EVERYTHING)
    assert CORE_RESOURCE in render_json(EVERYTHING)
    pod = ScheduledPod("demo", "cores", "Pod demo/cores", {CORE_RESOURCE: Decimal(2)})
    text = render_text(replace(WELL, scheduled=ScheduledPods((replace(NODES[0], pods=(pod,)),), ())))
    assert f"{CORE_RESOURCE} 2 of 24" in text
    assert f"22 {CORE_RESOURCE} on neuron-1" in text


def test_idle_devices_are_told_by_node():
    idle = " ".join(part_of(render_text(EVERYTHING), "Idle").split())
    assert idle == f"4 {DEVICE_RESOURCE} on neuron-1; 4 {GPU_RESOURCE} on gpu-3; 1 {GPU_RESOURCE} on each of gpu-1, gpu-2"
    assert "\nIdle      there are no devices\n" in render_text(WELL)
    full = replace(NODES[0], pods=(server(1, *range(12)), server(2)))
    assert "\nIdle      no device\n" in render_text(replace(WELL, scheduled=ScheduledPods((full,), ())))


def test_pending_pods_are_told_with_what_they_ask_for_and_the_clusters_words():
    text = render_text(EVERYTHING)
    assert text.count("\nPending ") == 3
    assert "\nPending   Deployment demo/server: no further pod could be created\n" in text
    assert "\nPending   2 × Deployment demo/server\n" in text
    (asks,) = [line for line in text.splitlines() if "asks for" in line]
    assert "cpu 63, memory 233 GiB, ephemeral-storage 100 GiB, " in asks
    assert "no scheduler named nobody" in part_of(text, "Pending   Pod demo/lost")
    assert " ".join(text.split()).count(UNSCHEDULABLE) == 1


# -- rollouts --------------------------------------------------------------------------------------------------------------------


def test_a_stall_tells_what_is_not_told_yet():
    """Words about pods that are Pending are said of them; those about others belong to what waits."""
    create = part_of(render_text(EVERYTHING), "Create")
    assert "Back-off pulling image" in create
    assert "exceeded quota" not in create
    assert "Insufficient" not in create
    alone = render_text(replace(EVERYTHING, scheduled=ScheduledPods(NODES, ())))
    assert "exceeded quota" in part_of(alone, "Create")
    assert "Insufficient" in part_of(alone, "Create")


def test_what_had_no_turn_is_told_with_its_reason():
    create = " ".join(part_of(render_text(EVERYTHING), "Create").split())
    assert "behind it: ConfigMap demo/part-0, ConfigMap demo/part-1," in create
    assert "ConfigMap demo/part-11 and 3 more" in create
    assert "part-12" not in create
    assert create.endswith("not reached: RoleBinding demo/reader")


def test_the_json_has_everything_at_length():
    document = json.loads(render_json(EVERYTHING))
    assert not unlike("simulate", document)
    create, update, delete = document["rollout"]
    assert create["unreached"] == [*UNREACHED, "RoleBinding demo/reader"]
    assert create["stalls"][0]["behind"] == list(UNREACHED)
    assert [phase["complete"] for phase in (create, update, delete)] == [False, False, True]
    assert update["stalls"] == [
        {"object": "Service demo/server", "waitsFor": "none of its pods is ready", "words": [], "behind": []}
    ]
    assert (update["settledSeconds"], delete["settledSeconds"]) == (30.21, None)
    assert [pod["pod"] for pod in document["pending"]] == ["", "server-3", "server-4", "lost"]
    assert document["nodes"][0]["taken"][DEVICE_RESOURCE] == 8
    assert document["nodes"][0]["pods"][1]["devices"] == [4, 5, 6, 7]
    assert document["nodes"][0]["pods"][1]["requests"]["memory"] == 233 * GIB
    assert document["nodes"][0]["taken"]["cpu"] == 126.15
