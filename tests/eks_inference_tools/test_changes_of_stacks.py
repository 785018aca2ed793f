"""The comment for three changes of the shipped stacks, kept in docs/diff/ as it is posted; and any two graphs compared."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from conftest import STACKS, recorded
from eks_inference_tools import COMMAND
from eks_inference_tools.comparison import eks_compared
from golden import assert_golden
from odd_graphs import PLANTED, odd_graphs
from stackgraph.diff.contents import Revision
from stackgraph.diff.document import render_json
from stackgraph.diff.markdown import render_markdown
from stackgraph.diff.page import render_html
from stackgraph.diff.report import Recorded, Report, StackReport
from stackgraph.diff.telling import contents
from stackgraph.diff.text import render_text
from stackgraph.github import LONGEST_BODY
from stackgraph.graph.document import Graph
from variants import recorded_with

HEAD = "5d0f4b1c9a7e36288b40f19d2c6e5a7710f3b482"
LINK = f"https://github.com/example/models/blob/{HEAD}"

UPGRADED = ("gpu-opt350m", "inf2-llama2", "inf2-llama3")
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "more-gpu-nodes": {
        "gpu-opt350m": {
            "pools": {"gpu": {"size": 6}},
            "servers": {"triton-server": {"autoscaling": {"kind": "hpa", "min": 2, "max": 6, "target": 10}}},
        }
    },
    "model-swap": {
        "inf2-llama2": {"servers": {"llama2-b": {"model": {"id": "NousResearch/Meta-Llama-3-8B-Instruct"}}}},
    },
    "kubernetes-upgrade": {stack: {"cluster": {"version": "1.36"}} for stack in UPGRADED},
}


def side(graph: Graph) -> Recorded:
    """What one revision says. All sources are on the first line: the comments shall not change with every edit of the library."""
    resources = tuple(replace(r, source=re.sub(r":\d+$", ":1", r.source)) for r in graph.resources)
    places = {source: source for r in resources if (source := r.source.rpartition(":")[0])}
    return Recorded(replace(graph, resources=resources), places=places)


def report_of(change: str) -> Report:
    edits = CHANGES[change]
    stacks = []
    for stack in STACKS:
        base = recorded(stack)
        head = recorded_with(edits[stack], stack) if stack in edits else base
        stacks.append(StackReport(stack, side(base), side(head), eks_compared()))
    return Report(COMMAND, Revision("main", "a" * 40), Revision(change, HEAD), stacks, link=LINK, tool=COMMAND)


@pytest.mark.thorough
@pytest.mark.parametrize("change", CHANGES)
def test_the_comment_for_a_realistic_change(change):
    comment = render_markdown(contents(report_of(change)), LONGEST_BODY)
    assert_golden(f"../../docs/diff/{change}.md", comment)
    assert len(comment) < LONGEST_BODY // 2


@pytest.mark.thorough
@given(before=odd_graphs(), after=odd_graphs())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_two_graphs_can_be_compared(before, after):
    graphs = [replace(graph, project="p", stack="s") for graph in (before, after)]
    sides = [Recorded(graph) for graph in graphs]
    report = Report("p", Revision("a"), Revision("b"), [StackReport("s", sides[0], sides[1], eks_compared())])
    told = contents(report)
    shown = [render_text(told), render_markdown(told, LONGEST_BODY), render_json(report), render_html(told)]
    assert PLANTED not in "".join(shown)
    assert all(letter.isprintable() or letter == "\n" for letter in shown[0])
    same = Report("p", Revision("a"), Revision("b"), [StackReport("s", Recorded(graphs[0]), Recorded(graphs[0]), eks_compared())])
    assert not contents(same).changed


def test_lines_of_outputs_stand_below_each_other_as_those_of_resources_do():
    before, after = (Recorded(Graph("p", "s", (), {"a": value})) for value in ("1", "2"))
    page = render_html(contents(Report("p", Revision("one"), Revision("other"), [StackReport("s", before, after)])))
    outputs = page.partition("Outputs of s</h2>")[2]
    assert re.findall(r"</?\w+", outputs)[0] == "<pre"
    assert "\npre span {\n  display: block;" in page
