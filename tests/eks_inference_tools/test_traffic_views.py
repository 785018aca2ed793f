"""What views say of the traffic of servers."""

from typing import Any

import pytest

from eks_inference.catalog.prices import Price
from eks_inference_tools.comparison import facts
from eks_inference_tools.cost.estimate import Estimate, Priced, estimated
from eks_inference_tools.cost.price_book import Charge
from eks_inference_tools.cost.served_traffic import traffic, traffic_section
from eks_inference_tools.domain import eks
from eks_inference_tools.notes import notes_of
from eks_inference_tools.reading.clusters import PLATFORM
from stackgraph.graph.document import Graph, Resource
from stackgraph.views.page import render_html
from stackgraph.views.tree import render_tree
from variants import recorded_with

TRAFFIC = {"rate": 2, "input_tokens": 1000, "output_tokens": 250}


def told(**changes: Any) -> dict[str, str]:
    """The facts that a comparison shows of smoke-gpu with traffic."""
    graph = recorded_with({"servers": {"qwen3": {"traffic": TRAFFIC, **changes}}}, "smoke-gpu")
    return dict(facts(graph, estimated(graph)))


@pytest.mark.thorough
def test_a_comparison_shows_what_a_server_takes_and_what_tokens_cost():
    before, after = told(), told(max_num_seqs=4)
    assert before["server qwen3"].startswith("takes ")
    assert before["server qwen3"] != after["server qwen3"]
    # 2 requests a second of 250 tokens, for the $1.17 an hour that the stack costs.
    assert before["output tokens"] == "$0.65 a million at this traffic, as deployed"


def test_views_show_latency_over_load_and_a_page_draws_it() -> None:
    graph = recorded_with({"servers": {"qwen3": {"traffic": TRAFFIC}}}, "smoke-gpu")
    (section,) = (section for section in eks().sections(graph) if section.title == "Traffic")
    loads, waits = zip(*section.plots[0].curves[0].points, strict=True)
    assert sorted(waits) == list(waits)
    assert f"takes {loads[-1]:.3g} requests/s" in "\n".join(notes_of(graph, {}))
    assert f"{waits[-1]:.3g} s" in render_tree(graph, eks())
    page = render_html(graph, eks())
    assert f"{waits[-1]:.3g} at {loads[-1]:g}" in page
    assert f">{loads[0]:g}</text>" not in page, "round loads stand on the axis"


def test_each_hour_of_a_day_costs_what_its_pods_cost():
    """$2 an hour at the fewest pods and $10 at the most. One server has the same pods all day."""
    takes = {"a": {"pods": [1, 2, 5], "hours": [1, 3, 5, *[1] * 21]}, "b": {"pods": [1, 5, 5]}, "c": {}}
    takes = {name: {"says": "takes it", "tokensPerSecond": 500, **one} for name, one in takes.items()}
    graph = Graph("p", "s", (Resource("urn:pulumi:s::p::x::p", PLATFORM, "p", inputs={"takes": takes}),))
    charge = Charge("nodes", "", "", "m", "r", "", (2, 4, 10))
    cost = Estimate((Priced(charge, Price("m", "r", 1, "hour", "", "")),), (), ())
    (curve,) = traffic_section(graph, cost).plots[0].curves
    assert curve.points[:6] == [(0, 6), (1, 6), (1, 8), (2, 8), (2, 10), (3, 10)]
    assert curve.points[-1] == (24, 6)
    assert dict(traffic(graph, cost))["output tokens"] == "$1.30 a million at this traffic, with the pods that it needs"


def test_what_is_not_judged_is_told_and_makes_no_price():
    found = told(traffic={"users": 4, "input_tokens": 1000, "output_tokens": 250, "rate": None})
    assert found["server qwen3"].startswith("traffic is not judged: ")
    assert "output tokens" not in found


def test_a_stack_without_traffic_says_nothing_of_it():
    graph = recorded_with({}, "smoke-gpu")
    assert not [one for one in notes_of(graph, {}) if "takes" in one or "tokens" in one]
