"""What follows an update: the table knows every property that a stack renders, and ``diff`` says what edits of stacks do next."""

import re
from collections.abc import Iterator

import pytest

from conftest import ROOT, STACKS, recorded
from covering_graphs import covering_graphs
from edits import EDITS, Edit
from eks_inference_tools.comparison import eks_compared
from eks_inference_tools.reading.rollouts import rows
from eks_inference_tools.simulate.rehearsal.report import lines
from eks_inference_tools.timeline.timeline import timeline
from stackgraph.diff import replacements
from stackgraph.diff.contents import by_subject
from stackgraph.diff.dangers import dangers
from stackgraph.diff.differences import Path
from stackgraph.diff.graphs import compare
from stackgraph.graph.document import Graph


def properties(graph: Graph) -> Iterator[tuple[str, Path]]:
    """Each property of each type, those of a ``spec`` one by one."""
    for resource in graph.resources:
        for key, value in resource.inputs.items() if resource.custom or resource.remote else ():
            below = value if key == "spec" and isinstance(value, dict) and resource.package == "kubernetes" else {}
            yield from ((resource.type, (key, *deeper)) for deeper in ([(name,) for name in below] or [()]))


def unknown(graphs: list[Graph]) -> set[str]:
    found = {pair for graph in graphs for pair in properties(graph)}
    return {f"{type_} {'.'.join(map(str, path))}" for type_, path in found if not is_known(type_, path)}


def is_known(type_: str, path: Path) -> bool:
    """Whether a row names it, the API takes it for its identity, or the provider's schema tells that an update is in place."""
    replaced = any(replacements.covers(one, path) for row in replacements.rows(type_) for one in row.replace)
    in_place = not type_.startswith("kubernetes:") and replacements.is_known(type_)
    return path[0] in ("apiVersion", "kind") or replaced or in_place or any(row.named(type_, path) is not None for row in rows())


def test_every_property_of_the_shipped_stacks_has_a_row():
    assert not unknown([recorded(stack) for stack in STACKS[:3]])


@pytest.mark.thorough
def test_every_property_that_a_stack_can_have_has_a_row():
    assert not unknown([*map(recorded, STACKS), *covering_graphs().values()])


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
