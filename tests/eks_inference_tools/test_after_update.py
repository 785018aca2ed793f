"""What follows an update: ``diff`` says what edits of stacks do next."""

import re

import pytest

from conftest import ROOT
from edits import EDITS, Edit
from eks_inference_tools.comparison import eks_compared
from eks_inference_tools.reading.rollouts import rows
from eks_inference_tools.simulate.rehearsal.report import lines
from eks_inference_tools.timeline.timeline import timeline
from stackgraph.diff.contents import by_subject
from stackgraph.diff.dangers import dangers
from stackgraph.diff.graphs import compare


def test_every_row_says_where_it_is_from():
    assert all(row.source and (row.says or row.then not in ("refused", "ignored")) for row in rows())


@pytest.mark.parametrize(
    "edit",
    [pytest.param(edit, marks=() if edit.few else pytest.mark.thorough) for edit in EDITS],
)
def test_diff_says_what_an_edit_does_next(edit: Edit):
    diff = compare(*edit.graphs())
    told = [*dangers(diff, eks_compared())]
    found = by_subject((danger.subject, danger.what) for danger in told)
    assert diff.changed
    assert len(found) == len(edit.said), found
    assert all(re.match(pattern, line) for pattern, line in zip(edit.said, found, strict=True)), found
    if edit.happens is not None:
        happens = {happen.partition(" away")[0] for happen in edit.happens if " away" in happen}
        graphs = filter(None, (diff.base, diff.head))
        servers = {urn: name for graph in graphs for urn, name in timeline(graph).answering.servers.items()}
        covered = {name for line in lines(told, diff, servers) for name in line.away}
        assert {danger.subject for danger in told if "outage" in danger.effects} <= happens <= covered
        assert any(danger.kind == "server-waits" for danger in told) == any(happen.endswith(" waits") for happen in edit.happens)


def test_the_page_counts_the_edits() -> None:
    page = (ROOT / "docs" / "diff.md").read_text("utf-8").partition("## What was applied")[2]
    shown = sum(edit.happens is not None for edit in EDITS)
    assert f"has {len(EDITS)} edits" in page
    assert re.findall(r"\| (\d+) \|$", page, re.M) == [str(shown), str(len(EDITS) - shown)]
