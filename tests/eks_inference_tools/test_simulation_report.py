"""What ``eks-inference simulate`` says of a simulation: as text for people, as JSON for programs."""

import json
import re
from dataclasses import replace
from decimal import Decimal

import pytest

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference_tools.simulate.report import Report, render_json
from eks_inference_tools.simulate.text import render_text
from eks_inference_tools.simulate.world.scheduled_pods import PendingPod, ScheduledPod, ScheduledPods
from eks_inference_tools.verify.observed import Check, failed, unknown, wait
from golden import assert_golden
from json_schemas import unlike
from simulation_reports import CREATE, EVERYTHING, NODES, PENDING, WELL, amounts, server


@pytest.mark.parametrize(("name", "report"), [("everything", EVERYTHING), ("well", WELL)])
def test_reports_as_they_are(name: str, report: Report):
    assert_golden(f"simulate/{name}.txt", render_text(report))
    assert_golden(f"simulate/{name}.json", render_json(report))
    assert not unlike("simulate", json.loads(render_json(report)))


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


def test_cores_are_told_of_only_where_they_are_used():
    """A NeuronCore is a part of a device: it is not idle beside one that is taken."""
    pod = ScheduledPod("demo", "cores", "Pod demo/cores", {CORE_RESOURCE: Decimal(2)})
    text = render_text(replace(WELL, scheduled=ScheduledPods((replace(NODES[0], pods=(pod,)),), ())))
    assert f"{CORE_RESOURCE} 2 of 24" in text
    assert f"22 {CORE_RESOURCE} on neuron-1" in text


def test_where_all_devices_are_taken_none_is_idle():
    full = replace(NODES[0], pods=(server(1, *range(12)), server(2)))
    assert "\nIdle      no device\n" in render_text(replace(WELL, scheduled=ScheduledPods((full,), ())))


# -- rollouts --------------------------------------------------------------------------------------------------------------------


def test_a_stall_tells_what_is_not_told_yet():
    """Words about pods that are Pending are said of them; those about others belong to what waits."""
    alone = render_text(replace(EVERYTHING, scheduled=ScheduledPods(NODES, ())))
    assert "exceeded quota" in part_of(alone, "Create")
    assert "Insufficient" in part_of(alone, "Create")
