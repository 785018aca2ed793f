"""Traffic in a stack file: what a server takes of it, and what an autoscaler takes from it."""

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest

from conftest import ROOT
from eks_inference.catalog.models import find_model, model
from eks_inference.faults import SpecError
from eks_inference.observability.spec import Objectives
from eks_inference.rules import Judgement
from eks_inference.scaling.spec import KedaSpec
from eks_inference.serving.traffic import TrafficSpec
from eks_inference.speed.rules import TrafficFacts, takes_its_pictures, takes_its_traffic
from eks_inference.stack import scaled
from eks_inference.stack.facts import stack_facts
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from eks_inference.stack.spec import StackSpec
from vectors.serving import gpu, on
from vectors.traffic import traffic

CHAT = {"rate": 2, "input_tokens": 1000, "output_tokens": 250}
QUICK = {"time_to_first_token_seconds": 1, "time_between_tokens_seconds": 0.05}


def stack(beside: Any = None, **changes: Any) -> StackSpec:
    """Returns one server of Qwen3-0.6B on a g6.xlarge, with changes."""
    server = {"model": {"id": "Qwen/Qwen3-0.6B"}, "engine": "cuda-vllm-0.30", "traffic": CHAT, "objectives": QUICK, **changes}
    given = {
        "name": "busy",
        "network": {"zone_ids": ["usw2-az1", "usw2-az2"]},
        "pools": {"gpu": {"kind": "karpenter", "instance_types": ["g6.xlarge"]}},
        "observability": {"prometheus": {}},
        "servers": {"qwen": server},
        **(beside or {}),
    }
    return parse_stack(json.dumps(given), ROOT)


def judged(spec: StackSpec) -> Judgement:
    (found,) = [one for rule, one in check_spec(spec, "us-west-2").judgements if rule.id == "TRF001"]
    return found


def takes(spec: StackSpec) -> float:
    """What the judgement says that the server takes."""
    return float(judged(spec).message.split()[1])


def test_traffic_is_a_rate_or_users():
    for load in ({}, {"rate": 1, "users": 2}, {"rate": 1, "hours": [1, 1]}, {"rate": 1, "hours": [0] * 24}):
        with pytest.raises(SpecError):
            TrafficSpec.model_validate({"input_tokens": 1, "output_tokens": 1, **load})
    assert TrafficSpec.model_validate({**CHAT, "hours": [0.5] * 12 + [1] * 12}).mean_share == 0.75


def test_traffic_of_a_server_without_pods_is_not_judged():
    found = judged(stack(replicas=0))
    assert found.unjudged
    assert "it has no pods" in "\n".join((found.message, *found.working))


def test_a_server_is_warned_of_only_where_it_may_not_take_what_is_asked():
    few, many = judged(stack(traffic={**CHAT, "rate": 0.5})), judged(stack(traffic={**CHAT, "rate": 500}))
    assert few.holds
    assert not many.holds
    assert "asked: 500" in many.message
    assert "the queue grows without end" in "\n".join(many.working)
    assert judged(
        stack(traffic={**CHAT, "rate": 0.1, "input_tokens": 1, "cached_share": 0.9})
    ).holds  # a prompt has one token to compute
    users = {"users": 4, "input_tokens": 1000, "output_tokens": 250}
    assert judged(stack(traffic=users)).holds
    assert not judged(stack(traffic={**users, "users": 2000})).holds


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("load", "objectives", "says"),
    [
        # All users at once wait for one batch; one after the other, they do not: the range has both.
        ({"users": 64, "input_tokens": 1000, "output_tokens": 250}, QUICK, r"takes 60 users \(28 to 1[45]\d\)"),
        ({"users": 64, "input_tokens": 100, "output_tokens": 1000}, {"time_to_first_token_seconds": 5}, r"\(26\d to (29|3)\d+\)"),
        ({"users": 9, "input_tokens": 20, "output_tokens": 20}, {"time_to_first_token_seconds": 60}, "takes 512 or more users"),
    ],
)
def test_the_range_of_users_is_no_narrower_than_what_is_played(load: dict[str, Any], objectives: dict[str, Any], says: str):
    found = judged(stack(traffic=load, objectives=objectives))
    assert re.search(says, "\n".join((found.message, *found.working)))
    assert not found.unjudged


@pytest.mark.thorough
def test_what_a_server_takes_follows_from_its_batch_its_replicas_and_its_objectives():
    usual = takes(stack())
    assert takes(stack(max_num_seqs=4)) < usual
    assert takes(stack(replicas=3)) == pytest.approx(3 * usual, rel=0.1)
    assert takes(stack(objectives={"time_to_first_token_seconds": 1, "time_between_tokens_seconds": 0.02})) < usual
    assert takes(stack(traffic={**CHAT, "cached_share": 0.9})) > usual


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"traffic": {"users": 5, "input_tokens": 10, "output_tokens": 10}, "objectives": {}}, "without objectives"),
        ({"speculation": {"method": "ngram", "tokens": 3}}, "draft"),
        (
            {
                "traffic": {"users": 600, "input_tokens": 20, "output_tokens": 20},
                "objectives": {"time_to_first_token_seconds": 60},
            },
            "no more than 512 users are played, and it takes them",
        ),
    ],
)
def test_what_nobody_can_tell_is_not_judged(changes: dict[str, Any], why: str):
    found = judged(stack(**changes))
    assert found.unjudged
    assert why in found.working[-1]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": None}, "the memory of the model is unknown"),
        ({"part": "prefill"}, "the queues of prefill and decode servers are not modelled"),
        (
            {"model": replace(model("GPT-OSS-20B"), experts_used=0)},
            "does not know how many experts of GPT-OSS-20B a token reaches",
        ),
        ({"placement": on("g7e.2xlarge")}, "RTX PRO Server 6000 was not measured"),
    ],
)
def test_of_a_server_that_nobody_measured_or_modelled_nothing_is_said(changes: dict[str, Any], why: str):
    asked = traffic(rate=1)
    (found,) = takes_its_traffic.judge(replace(asked, server=replace(asked.server, **changes)))
    assert found.unjudged
    assert why in found.working[-1]
    assert found.fix == "measure it with a load test"


@pytest.mark.thorough
def test_an_autoscaler_takes_its_numbers_from_the_traffic():
    hours = [0.05] * 8 + [1] * 16
    spec = stack(autoscaling={"kind": "keda"}, traffic={**CHAT, "rate": 40, "hours": hours})
    scaler = spec.servers["qwen"].scalers[""]
    assert isinstance(scaler, KedaSpec)
    assert 1 <= scaler.min < scaler.max
    assert scaler.concurrent_requests
    assert judged(spec).holds  # max is what takes the busiest time for sure
    assert {one.path[-1] for one in spec.resolved if "autoscaling" in one.path} == {"max", "min", "concurrent_requests"}
    hours_of_people = [{"start": "0 8 * * *", "end": "0 20 * * *", "pods": 9}]
    scheduled = stack(autoscaling={"kind": "keda", "schedule": hours_of_people}, traffic=CHAT).servers["qwen"].scalers[""]
    assert scheduled.max == 9, "a schedule has room"
    own = stack(autoscaling={"kind": "keda", "max": 7, "concurrent_requests": 3}, traffic=CHAT).servers["qwen"].scalers[""]
    assert (own.max, own.min) == (7, 1)
    full = stack(autoscaling={"kind": "keda"}, traffic=CHAT, max_num_seqs=4, objectives={}).servers["qwen"].scalers[""]
    assert isinstance(full, KedaSpec)
    assert full.concurrent_requests == 3, "what waits is no work"


def test_an_autoscaler_says_what_its_numbers_follow_from():
    def said(traffic: Any, **scaler: Any) -> dict[str, Any]:
        spec = stack(autoscaling={"kind": "keda", **scaler}, traffic={**CHAT, "rate": 40, **traffic})
        return {one.path[-1]: (one.value, one.why) for one in spec.resolved if "autoscaling" in one.path}

    found = said({"hours": [0.05] * 8 + [1] * 16})
    (most, why), (fewest, quiet), (_, share) = (found[key] for key in ("max", "min", "concurrent_requests"))
    (asked, sure, *_), (least, takes, *_) = ([float(number) for number in re.findall(r"[\d.]+", text)] for text in (why, quiet))
    assert (asked, least, sure < takes, share[:4]) == (40, 2, True, "80% ")
    assert (most, fewest) == (math.ceil(asked / sure), math.ceil(least / takes))
    always = said({}, schedule=[{"start": "0 8 * * *", "end": "0 20 * * *", "pods": most}])
    assert (always["max"], "min" in always) == ((most, why), False)


def test_an_autoscaler_whose_numbers_do_not_follow_from_the_traffic_says_why():
    never = {"objectives": {"time_to_first_token_seconds": 0.001, "time_between_tokens_seconds": 0.1}}
    for settings, why in (
        (never, "a lone request is"),
        ({"traffic": {**CHAT, "input_tokens": 90_000}}, "a request is longer than max_model_len"),
    ):
        given = {"autoscaling": {"kind": "keda"}, "traffic": CHAT, **settings}
        with pytest.raises(SpecError, match=f"autoscaling.max: does not follow from the traffic: {why}") as caught:
            stack(**given)
        assert len(caught.value.faults) == 1
        stack(**{**given, "autoscaling": {"kind": "keda", "max": 2, "concurrent_requests": 1}})


def test_a_small_rate_keeps_its_digits():
    found = [one for one in stack_facts(stack(traffic={**CHAT, "rate": 0.001}), "us-west-2") if isinstance(one, TrafficFacts)]
    assert [traffic_facts.document["tokensPerSecond"] for traffic_facts in found] == [0.25]


@pytest.mark.parametrize("load", [{"users": 4}, {"rate": 4}])
def test_a_server_that_takes_nothing_makes_no_tokens(load: dict[str, int]):
    """So that nobody reads what they would cost."""
    never = replace(traffic(**load), objectives=Objectives(time_to_first_token_seconds=0.001))
    assert re.match(r"takes 0 \S+ \(0 to 0\)", never.document["says"])
    assert (never.document["tokensPerSecond"], never.document["pods"]) == (0, [1, 4, 4])


@pytest.mark.parametrize(
    ("pictures", "changes", "says"),
    [
        (0.5, {}, ["takes no pictures a request, and 0.5 are"]),
        (0, {}, []),
        (0.5, {"model": None}, []),
        (9, {"model": find_model("Qwen3-VL-8B")}, []),
    ],
)
def test_a_model_that_does_not_see_takes_no_pictures(pictures: float, changes: Any, says: list[str]):
    asked = TrafficFacts(gpu(**changes), traffic(rate=1, pictures=pictures).traffic, Objectives())
    broken = [found.message for found in takes_its_pictures.judge(asked) if not found.holds]
    assert len(broken) == len(says)
    assert all(map(str.__contains__, broken, says)), broken


def test_without_traffic_an_autoscaler_needs_its_numbers():
    with pytest.raises(SpecError, match="max"):
        stack(autoscaling={"kind": "keda"}, traffic=None)


def behind_an_endpoint(traffic: Any, models: Any = None, both: bool = False, pods: tuple[int, int] = (3, 1)) -> StackSpec:
    """Returns two servers of one model behind an endpoint, ``old`` with three pods."""
    name = "Qwen/Qwen3-0.6B"
    base = {"model": {"id": name}, "engine": "cuda-vllm-0.30", "pool": "gpu", "objectives": QUICK}
    own = {"extra_args": {"served-model-name": [name, "chat"]}} if models else {}
    given = {
        "name": "busy",
        "network": {"zone_ids": ["usw2-az1", "usw2-az2"]},
        "pools": {
            "core": {"instance_types": ["m6i.large"], "size": 2},
            "gpu": {"kind": "karpenter", "instance_types": ["g6.xlarge"]},
        },
        "servers": {
            "old": {**base, **own, "replicas": pods[0], **({"traffic": CHAT} if both else {})},
            "new": {**base, **own, "replicas": pods[1]},
        },
        "endpoints": {"front": {"keys": False, "traffic": traffic, **({"models": models} if models else {})}},
    }
    return parse_stack(json.dumps(given), ROOT)


def asked(spec: StackSpec) -> dict[str, float]:
    found = [stack_fact for stack_fact in stack_facts(spec, "us-west-2") if isinstance(stack_fact, TrafficFacts)]
    return {str(one.server.path[1]): one.traffic.rate or one.traffic.users or 0 for one in found}


@pytest.mark.thorough
def test_servers_share_the_traffic_of_their_endpoint_by_their_pods_or_by_weights():
    assert asked(behind_an_endpoint({"Qwen/Qwen3-0.6B": {**CHAT, "rate": 8}})) == {"old": 6, "new": 2}
    users = {"users": 9, "input_tokens": 1000, "output_tokens": 250}
    assert asked(behind_an_endpoint({"Qwen/Qwen3-0.6B": users})) == {"old": 7, "new": 3}
    weights = behind_an_endpoint(
        {"chat": {**CHAT, "rate": 1000}}, {"chat": {"old": 90, "new": 10}, "Qwen/Qwen3-0.6B": {"old": 50, "new": 50}}
    )
    assert asked(weights) == {"old": 900, "new": 100}
    told = [one for rule, one in check_spec(weights, "us-west-2").judgements if rule.id == "TRF001"]
    assert [judgement.path for judgement in told] == [("endpoints", "front", "traffic", "chat")] * 2
    assert not any(judgement.holds for judgement in told)
    assert {judgement.message.split(":")[0] for judgement in told} == {"old", "new"}


USERS = {"users": 6, "input_tokens": 100, "output_tokens": 100}
SHORT = {"max_num_seqs": 2, "max_model_len": 2048, "traffic": None, "objectives": {}}
LET = {"endpoints": {"front": {"keys": False, "servers": ["qwen"], "concurrent_requests": 8}}}


@pytest.mark.parametrize(
    ("changes", "scaler", "beside", "never"),
    [
        ({"traffic": USERS}, {"waiting_requests": 6}, {}, ["waiting_requests"]),
        ({"traffic": USERS}, {"waiting_requests": 4}, {}, []),
        ({"traffic": USERS}, {"waiting_requests": 4, "min": 2}, {}, ["waiting_requests"]),
        ({"traffic": USERS}, {"waiting_requests": None, "concurrent_requests": 7}, {}, ["concurrent_requests"]),
        ({"traffic": None}, {"waiting_requests": 9}, {}, []),
        ({"traffic": None}, {"waiting_requests": 9}, LET, ["waiting_requests"]),
        (SHORT, {}, {}, ["kv_cache_use"]),
        (SHORT, {"concurrent_requests": 2}, {}, []),
        (SHORT, {"concurrent_requests": 2, "kv_cache_use": 0.5}, {}, ["kv_cache_use"]),
        (SHORT, {"kv_cache_use": None}, {}, []),
        (SHORT, {"kv_cache_use": None, "token_seconds": 1e-5}, {}, ["token_seconds"]),
        (SHORT, {"kv_cache_use": None, "first_token_seconds": 0.5}, {}, []),
    ],
)
def test_a_threshold_that_is_never_reached_is_told(changes: Any, scaler: Any, beside: Any, never: list[str]):
    spec = stack(beside, autoscaling={"kind": "keda", "max": 4, "concurrent_requests": None, **scaler}, **changes)
    found = [one for rule, one in check_spec(spec, "us-west-2").judgements if rule.id == "SCL012" and not one.holds]
    assert [judgement.path[-1] for judgement in found] == never


@pytest.mark.parametrize(("pods", "weights", "idle"), [((0, 0), None, 1), ((0, 1), {"old": 90, "new": 10}, 1), ((0, 1), None, 0)])
def test_traffic_that_reaches_no_pod_is_told(pods: tuple[int, int], weights: Any, idle: int):
    name = "Qwen/Qwen3-0.6B"
    spec = behind_an_endpoint({name: {**CHAT, "rate": 0.1}}, weights and {name: weights, "chat": weights}, pods=pods)
    told = [one for rule, one in check_spec(spec, "us-west-2").judgements if rule.id == "TRF001" and one.unjudged]
    assert ["it has no pods" in judgement.working[-1] for judgement in told] == [True] * idle


def test_traffic_of_an_endpoint_leads_somewhere_and_is_said_once():
    with pytest.raises(SpecError, match="requests name no such model"):
        behind_an_endpoint({"nobody": CHAT})
    with pytest.raises(SpecError, match="is said elsewhere"):
        behind_an_endpoint({"Qwen/Qwen3-0.6B": CHAT}, both=True)


def test_the_traffic_of_all_names_of_a_server_is_its_own():
    name, longer = "Qwen/Qwen3-0.6B", {"rate": 6, "input_tokens": 3000, "output_tokens": 50, "cached_share": 0.5}
    half = {"chat": {"old": 100, "new": 0}, name: {"old": 50, "new": 50}}
    spec = behind_an_endpoint({"chat": CHAT, name: longer}, half)
    of = {str(one.server.path[1]): one.traffic for one in stack_facts(spec, "us-west-2") if isinstance(one, TrafficFacts)}
    assert (of["new"].rate, of["new"].input_tokens) == (3, 3000)
    # 2 requests a second of 1000 + 250 tokens, and 3 of 3000 + 50, of whose prompts half is in the cache.
    assert (of["old"].rate, of["old"].input_tokens, of["old"].output_tokens) == (5, 2200, 130)
    assert of["old"].cached_share == pytest.approx(4500 / 11000)
    with pytest.raises(SpecError, match="has traffic by rate and by users"):
        behind_an_endpoint({"chat": CHAT, name: {"users": 4, "input_tokens": 10, "output_tokens": 10}}, half)


def test_loads_at_different_hours_do_not_add_up():
    day, night = ({**CHAT, "hours": [one] * 12 + [1 - one] * 12} for one in (1, 0))
    both = TrafficSpec.together([TrafficSpec.model_validate(one) for one in (day, night)])
    assert (both.rate, both.mean_share) == (2, 1)
    assert TrafficSpec.together([TrafficSpec.model_validate(one) for one in (day, day)]).rate == 4


@pytest.mark.parametrize(
    ("front", "own", "rate"),
    [
        ({"traffic": {"m": {**CHAT, "rate": 8}}, "servers": ["old"]}, {}, 8),
        ({"traffic": {"m": {**CHAT, "rate": 8}}}, {}, None),  # parts by pods
        ({"traffic": {"m": {**CHAT, "rate": 8}}, "servers": ["new"]}, {}, None),
        ({"traffic": {"m": {**CHAT, "rate": 8}}, "models": {"m": {"old": 25, "new": 75}}}, {}, 2),
        ({"traffic": {"m": {**CHAT, "rate": 8}}, "models": {"m": {"old": 0, "new": 75}}}, {}, None),
        ({"traffic": {"m": {**CHAT, "rate": 8}, "n": {**CHAT, "rate": 3}}, "servers": ["old"]}, {}, 11),
        ({"traffic": {"m": {**CHAT, "rate": 8}, "n": USERS}, "servers": ["old"]}, {}, None),
        ({"traffic": {"m": {**CHAT, "rate": 8}}, "servers": ["old"]}, {"traffic": {**CHAT, "rate": 5}}, 5),
        ({"traffic": {"m": {"rate": "?"}}, "servers": ["old"]}, {}, None),
        ({"traffic": {"m": {**CHAT, "rate": 8}}, "models": {"m": {"old": -1, "new": 1}}}, {}, None),
    ],
)
def test_the_part_of_an_endpoints_traffic_that_needs_no_numbers_of_pods(front: Any, own: Any, rate: float | None):
    found = scaled.asked({"servers": {"old": own, "new": {}}, "endpoints": {"front": front}}, "old")
    assert found.get("traffic", {}).get("rate") == rate


@pytest.mark.thorough
def test_an_autoscaler_follows_its_part_of_an_endpoints_traffic():
    server = {
        "model": {"id": "Qwen/Qwen3-0.6B"},
        "engine": "cuda-vllm-0.30",
        "objectives": QUICK,
        "autoscaling": {"kind": "keda"},
    }
    name, load = "Qwen/Qwen3-0.6B", {**CHAT, "rate": 40}

    def most(servers: Any, endpoint: Any) -> dict[str, int]:
        given = {
            "name": "busy",
            "network": {"zone_ids": ["usw2-az1", "usw2-az2"]},
            "pools": {"gpu": {"kind": "karpenter", "instance_types": ["g6.xlarge"]}},
            "observability": {"prometheus": {}},
            "servers": servers,
            "endpoints": {"front": {"keys": False, **endpoint}} if endpoint else {},
        }
        return {one: spec.scalers[""].max for one, spec in parse_stack(json.dumps(given), ROOT).servers.items()}

    alone = most({"qwen": {**server, "traffic": load}}, {})["qwen"]
    assert most({"qwen": server}, {"traffic": {name: load}})["qwen"] == alone
    both = most({"old": server, "new": server}, {"traffic": {name: load}, "models": {name: {"old": 90, "new": 10}}})
    assert alone >= both["old"] > both["new"]
    with pytest.raises(SpecError, match="max"):  # parts by pods follow from what is open
        most({"old": server, "new": server}, {"traffic": {name: load}})
