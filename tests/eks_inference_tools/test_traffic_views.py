"""What views say of the traffic of servers."""

from typing import Any

from eks_inference_tools.comparison import facts
from eks_inference_tools.cost.estimate import estimated
from eks_inference_tools.notes import notes_of
from variants import recorded_with

TRAFFIC = {"rate": 2, "input_tokens": 1000, "output_tokens": 250}


def told(**changes: Any) -> dict[str, str]:
    """The facts that a comparison shows of smoke-gpu with traffic."""
    graph = recorded_with({"servers": {"qwen3": {"traffic": TRAFFIC, **changes}}}, "smoke-gpu")
    return dict(facts(graph, estimated(graph)))


def test_a_comparison_shows_what_a_server_takes_and_what_tokens_cost():
    before, after = told(), told(max_num_seqs=4)
    assert before["server qwen3"].startswith("takes ")
    assert before["server qwen3"] != after["server qwen3"]
    # 2 requests a second of 250 tokens, for the $1.17 an hour that the stack costs.
    assert before["output tokens"] == "$0.65 a million at this traffic, as deployed"


def test_what_is_not_judged_is_told_and_makes_no_price():
    found = told(traffic={"users": 4, "input_tokens": 1000, "output_tokens": 250, "rate": None})
    assert found["server qwen3"].startswith("traffic is not judged: ")
    assert "output tokens" not in found


def test_a_stack_without_traffic_says_nothing_of_it():
    graph = recorded_with({}, "smoke-gpu")
    assert not [one for one in notes_of(graph, {}) if "takes" in one or "tokens" in one]
