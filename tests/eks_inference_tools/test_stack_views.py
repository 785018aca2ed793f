"""The views of a stack with what this command adds: clusters, capacity, workloads, models and endpoints."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from eks_inference_tools.domain import eks
from golden import assert_golden
from odd_graphs import PLANTED, odd_graphs, recorded
from stackgraph.graph.document import Graph
from stackgraph.graph.values import plain
from stackgraph.presentation.terminal import printable
from stackgraph.views.page import render_html
from stackgraph.views.summary import by_path
from stackgraph.views.tree import INDENT, render_tree


def test_tree() -> None:
    assert_golden("preview/tree.txt", render_tree(recorded(), eks()))


@pytest.mark.thorough
@pytest.mark.parametrize("width", [40, 100])
def test_no_line_is_longer_than_the_terminal(shipped: Graph, width: int) -> None:
    """But for commands to copy and names."""
    longer = [line.split() for line in render_tree(shipped, eks(), width=width).splitlines() if len(line) > width]
    assert not [words for words in longer if len(words) > 1 and words[0] not in ("aws", "kubectl")]


def test_facts_lead_to_their_resources() -> None:
    page = render_html(recorded(), eks())
    for section, links in {
        "clusters": ["r-demo-cluster"],
        "capacity": ["r-core-nodes", "r-inf2-nodes", "r-small-pool"],
        "workloads": ["r-servers-deployment", "r-servers-ray"],
        "endpoints": ["r-servers-service"],
    }.items():
        content = page[page.index(f'<section id="{section}"') :].partition("</section>")[0]
        assert not [link for link in links if f'href="#{link}"' not in content], section
    assert ">outside the cluster<" in page
    assert "5 aws.amazon.com/neuron" in page


@pytest.mark.thorough
@given(odd=odd_graphs(), width=st.integers(20, 160))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_graph_can_be_shown(odd: Graph, width: int) -> None:
    tree, page = render_tree(odd, eks(), width=width), render_html(odd, eks())
    assert PLANTED not in tree + page
    commands = {f"{INDENT * 3}{printable(value)}" for _, values in by_path(plain(odd.outputs)) for value in values}
    shown = [line for line in tree.split("\n") if line not in commands]  # values to copy stay on one line
    assert max(map(cell_len, shown)) <= max(width, 40)  # a combining letter takes no cell, a wide one two
    assert all(letter.isprintable() or letter == "\n" for letter in tree)
    assert (tree, page) == (render_tree(odd, eks(), width=width), render_html(odd, eks()))
