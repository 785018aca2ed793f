"""Edits of stacks, rehearsed on a real control plane: what was written down before is what happens."""

import os
import re
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from cluster.shared_planes import PLANES
from edits import EDITS, Edit
from eks_inference_tools.comparison import eks_compared
from eks_inference_tools.reading.expected import expected_of
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.rehearsal.change import rehearsed
from eks_inference_tools.simulate.rehearsal.report import CHANGE, Rehearsal
from stackgraph.diff.report import Recorded, StackReport
from stackgraph.graph.document import Graph

pytestmark = pytest.mark.cluster

APPLIED = [edit for edit in EDITS if edit.happens is not None and (edit.few or os.environ.get("EDITS") == "all")]
_HASH = re.compile(r"-[0-9a-f]{8,}(?=-|$)")


def rehearsal_of(before: Graph, after: Graph, toolchain: Toolchain) -> Rehearsal:
    report = StackReport(after.stack, Recorded(before), Recorded(after), eks_compared())
    stays = expected_of(before).version == expected_of(after).version
    with PLANES.reused() if stays else nullcontext():
        return rehearsed(report, toolchain)


def happened(saw: Rehearsal) -> Iterator[str]:
    away = {away.server: away.seconds is None for away in saw.away}
    first, last = saw.samples[0][1], saw.samples[-1][1]
    for server in first:
        if server in away:
            yield f"{server} away{' for good' * away[server]}"
        elif first[server] != last[server] and first[server]:
            yield f"{server} {last[server]} pods instead of {first[server]}"
        elif server in saw.renewed:
            yield f"{server} anew"
    yield from (f"{plain(title)} again" for title in saw.again)
    yield from (f"{plain(refusal.title)} refused" for refusal in saw.refusals)
    yield from (f"{plain(stall.title)} waits" for stall in saw.stalls)
    for step in (step for phase in saw.phases if phase.name == CHANGE for step in phase.outcome.steps):
        kind, _, name = step.title.partition(" ")
        if step.action == "delete" and kind in ("Namespace", "PersistentVolumeClaim"):
            yield f"{'claim' if kind != 'Namespace' else kind} {name.rpartition('/')[2]} gone"


def plain(title: str) -> str:
    """A title without the hashes of contents."""
    return _HASH.sub("", title)


@pytest.mark.parametrize("edit", APPLIED, ids=lambda edit: f"{EDITS.index(edit)}-{edit.stack}")
def test_what_an_edit_does_was_written_down_before(edit: Edit, toolchain: Toolchain):
    """``EDITS=all`` rehearses all of them, which takes an hour."""
    saw = rehearsal_of(*edit.graphs(), toolchain)
    assert {*happened(saw)} == edit.happens
    assert [foretold for foretold in saw.foretold if foretold.verdict == "differs"] == []
