"""What views say of the traffic of servers."""

from typing import Any

import pytest

from eks_inference_tools.comparison import facts
from eks_inference_tools.cost.estimate import estimated
from eks_inference_tools.domain import eks
from eks_inference_tools.notes import notes_of
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


@pytest.mark.thorough
def test_tokens_of_an_autoscaled_server_cost_what_the_pods_cost_that_the_traffic_needs():
    """Of 1 to 9 pods on Karpenter's nodes; the load of a day is that of the busiest hour, or a tenth of it."""
    pool = {"kind": "karpenter", "size": None, "root_volume_gib": None}
    scaled = {"autoscaling": {"kind": "keda", "min": 1, "max": 9}}
    prices: list[float] = []
    for share in (1, 0.1):
        server = {**scaled, "traffic": {**TRAFFIC, "rate": 20, "hours": [share] * 24}}
        changes = {"pools": {"gpu": pool}, "observability": {"prometheus": {}}, "servers": {"qwen3": server}}
        graph = recorded_with(changes, "smoke-gpu")
        found, cost = dict(facts(graph, estimated(graph))), estimated(graph)
        assert found["output tokens"].endswith("with the pods that it needs")
        price = float(found["output tokens"].split()[0].removeprefix("$"))
        tokens = 20 * share * 250 * 3600 / 1e6
        assert cost.totals[0].usd_per_hour <= price * tokens * 1.02 <= cost.totals[2].usd_per_hour * 1.05
        prices.append(price)
        (section,) = (section for section in eks().sections(graph) if section.title == "Traffic")
        (by_hour,) = section.plots[1].curves
        assert all(y == pytest.approx(price * tokens, rel=0.05) for _, y in by_hour.points)  # each hour is alike
    assert prices[0] < prices[1]


def test_what_is_not_judged_is_told_and_makes_no_price():
    found = told(traffic={"users": 4, "input_tokens": 1000, "output_tokens": 250, "rate": None})
    assert found["server qwen3"].startswith("traffic is not judged: ")
    assert "output tokens" not in found


def test_a_stack_without_traffic_says_nothing_of_it():
    graph = recorded_with({}, "smoke-gpu")
    assert not [one for one in notes_of(graph, {}) if "takes" in one or "tokens" in one]
