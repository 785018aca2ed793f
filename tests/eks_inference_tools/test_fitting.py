"""The search for places of a model: what it lists passes `check`, what it refuses says why, and what a token costs orders it."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eks_inference.catalog.engines import engine
from eks_inference.catalog.instances import instance_type
from eks_inference.catalog.models import model
from eks_inference.catalog.own import rows_of
from eks_inference.catalog.prices import Price
from eks_inference.catalog.tables import Own, use
from eks_inference.serving.choosing import USUAL_CONTEXT, standing
from eks_inference.speed.queue import Answered
from eks_inference.speed.slow_causes import TRY
from eks_inference.stack.own_rows import OwnPrice
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec, spec_rules
from eks_inference.stack.spec import StackSpec
from eks_inference_tools.cli import main
from eks_inference_tools.commands.wishes import QUANTIZED
from eks_inference_tools.cost.money import Offer
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.fitting import search as searching
from eks_inference_tools.fitting.document import _sized
from eks_inference_tools.fitting.pace import CALM, Explained, Pace, Sized, Traffic, explained, simulated, sized
from eks_inference_tools.fitting.search import Found, Refusal, Row, Wish, quantized_for_less, search
from eks_inference_tools.fitting.stack_file import Order, stack_file
from eks_inference_tools.fitting.text import _of_load, _why_first, price_of_tokens, render_text
from eks_inference_tools.fitting.trials import QUANTIZATIONS, VLLM, Trial
from golden import assert_golden
from open_stacks import minimal

SOME = ("Llama-3.3-70B", "Qwen3-32B", "GPT-OSS-120B", "Llama-2-13B", "OPT-350M")
REGION = "us-west-2"


_found: dict[str, Found] = {}


def search_once(wish: Wish, book: PriceBook, _played: int = 0) -> Found:
    key = repr((wish, book))
    if key not in _found:
        _found[key] = search(wish, book)
    return _found[key]


@pytest.fixture(autouse=True)
def searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the command use what another test has found: a search takes a second."""
    monkeypatch.setattr(searching, "search", search_once)


def found_of(name: str) -> Found:
    """What the command finds for a model in ``REGION``."""
    wanted = model(name)
    source = {"id": next((one for one in wanted.repositories if one not in wanted.gated), wanted.repositories[0])}
    return search_once(Wish(source, wanted, REGION, min(8192, wanted.max_positions)), PriceBook(({},)))


def plan(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    code = main(["plan", *options])
    out, err = capsys.readouterr()
    return code, out, err


# -- what it says ---------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["Llama-3.3-70B", "Qwen3-32B"])
def test_the_table(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = plan(capsys, "--model", name, "--region", REGION)
    assert code == 0
    assert_golden(f"plan/{name}.txt", out)


@pytest.mark.thorough
def test_what_no_node_holds_is_told_with_what_was_not_tried(capsys: pytest.CaptureFixture[str]) -> None:
    wide = ("--model", "DeepSeek-R1", "--region", REGION)
    for families, least in (
        (("p5", "g6e"), "626.94 GiB of 71.26 GiB a GPU (p5.4x"),
        (("p5en", "p5"), "79.31 GiB of 71.26 GiB a GPU (p5.48x"),
    ):
        _, out, _ = plan(capsys, *wide, "--family", *families)
        assert "not tried: several nodes or pipeline stages" in out
        assert f"weights alone take {least}large" in out
    assert "not tried" not in plan(capsys, "--model", "Qwen3-32B", "--region", REGION)[1]


def test_the_json_has_every_row_and_every_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = plan(capsys, "--model", "Qwen3-32B", "--region", REGION, "--family", "g6e", "inf2", "--format", "json")
    document = json.loads(out)
    assert {row["instance"].partition(".")[0] for row in document["fits"]} == {"g6e", "inf2"}
    kinds = {(row["kind"], row["engine"].partition("-")[0]) for row in document["fits"]}
    assert kinds == {("vllm", "cuda"), ("triton", "triton"), ("vllm", "neuron"), ("ray_serve_vllm", "neuron")}
    assert all(row["usd_per_hour_and_pod"] == row["usd_per_hour"] / row["pods_per_node"] for row in document["fits"])
    assert {row["price_kind"] for row in document["fits"]} == {"on demand"}
    assert all(one["rule"] or one["reason"] for one in document["refused"])


@pytest.mark.thorough
def test_a_budget_and_a_length_narrow_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--model", "Qwen3-32B", "--region", REGION, "--format", "json")
    _, wide, _ = plan(capsys, *options)
    _, cheap, _ = plan(capsys, *options, "--under", "5")
    _, long, _ = plan(capsys, *options, "--context", "40960", "--concurrency", "32", "--quantization", "published")
    rows = {
        (row["instance"], row["engine"], row["tensor_parallel"], row["quantization"], row["kind"])
        for row in json.loads(wide)["fits"]
    }
    for text in (cheap, long):
        fewer = json.loads(text)["fits"]
        assert fewer
        assert {
            (row["instance"], row["engine"], row["tensor_parallel"], row["quantization"], row["kind"]) for row in fewer
        } < rows
    assert all(row["usd_per_hour"] <= 5 for row in json.loads(cheap)["fits"])
    assert {row["quantization"] for row in json.loads(long)["fits"]} == {"published"}
    assert all(row["sequences"] >= 32 for row in json.loads(long)["fits"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--context", "9000", "--instance", "g6.xlarge"), "--context: belongs to the search"),
        (("--max-model-len", "9000"), "--max-model-len: goes with --instance"),
        (("--context", "9000"), "made for sequences of 4096 tokens"),
        (("--family", "m5"), "--family: no row of the catalog has this"),
        (("--region", "us-east-9"), "--region: not a region of the catalog"),
        (("--ttft", "1"), "--ttft: goes with --rate"),
        (("--output", "100"), "--output: goes with --rate"),
        (("--rate", "1", "--instance", "g6.xlarge"), "--rate: belongs to the search"),
        (("--rate", "1", "--context", "1000"), "--context: shorter than a prompt and its answer"),
        (("--rate", "1", "--input", "4000"), "--input and --output: Llama-2-13B was made for sequences of 4096 tokens"),
        (("--engine", "cuda"), "engine profile 'cuda' is not in the catalog"),
    ],
)
def test_what_cannot_be_searched_is_named(options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = plan(capsys, "--model", "Llama-2-13B", *options)
    assert (code, out) == (2, "")
    assert said in err


def test_a_warning_that_no_place_mends_leads_to_no_place_with_more(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--model", "openai/whisper-large-v3", "--concurrency", "1", "--family", "g6f", "g6", "--format", "json")
    code, out, _ = plan(capsys, *asked)
    assert code == 0
    found = [row["warnings"] for row in json.loads(out)["fits"]]
    assert found[0] == ["SRV023"]
    assert "GPU015" in found[-1]


@pytest.mark.thorough
def test_an_engine_that_serves_the_model_nowhere_is_said_of_each_type(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = plan(capsys, "--model", "Qwen3-8B", "--engine", "neuron-2.26-vllm-0.9", "--family", "inf2", "trn2")
    assert code == 0
    told = " ".join(out.split())
    assert "engine neuron-2.26-vllm-0.9 does not serve architecture qwen3 there inf2.xlarge 0.76, inf2.8xlarge" in told
    assert "not known to be offered in us-east-1 trn2.3xlarge -, trn2.48xlarge -" in told
    assert not any(said in told for said in ("not tried", "sequences: the most of that length"))


def test_the_options_name_every_quantization() -> None:
    assert tuple(QUANTIZATIONS) == QUANTIZED


# -- what it holds to -----------------------------------------------------------------------------------------------------------


def stack_of(row: Row, other: str = "") -> StackSpec:
    """A whole stack around the server of a row, perhaps with another instance type while it has no capacity."""
    server = dict(row.trial.server or {}) | ({"alternatives": [{"pool": "other"}]} if other else {})
    elsewhere = {"other": {"kind": "managed", "instance_types": [other], "size": 1, "root_volume_gib": 16384}} if other else {}
    neuron = {"neuron": {"scheduler": True}}
    return StackSpec.model_validate(
        {
            "name": "tried",
            "silenced": {"POO007": "no reservation yet", "AWS001": "an example"},
            "network": {"cidr": "10.0.0.0/16"},
            "pools": {
                "core": {"kind": "managed", "instance_types": ["m5.2xlarge"], "size": 2, "root_volume_gib": 200},
                "accelerated": {
                    "kind": "managed",
                    "instance_types": [row.trial.instance.name],
                    "size": 1,
                    "root_volume_gib": 16384,
                },
                **elsewhere,
            },
            "accelerators": neuron if row.trial.instance.neuron else {"nvidia": {}},
            "servers": {"server": server},
        }
    )


@pytest.mark.thorough
@pytest.mark.parametrize("name", SOME)
@settings(max_examples=25)
@given(position=st.integers(min_value=0, max_value=10**6))
def test_what_is_listed_passes_the_rules(name: str, position: int) -> None:
    rows = found_of(name).rows
    row = rows[position % len(rows)]
    verdict = check_spec(stack_of(row), REGION)
    assert [fault.rule for fault in verdict.faults] == [], (row.trial.instance.name, row.trial.server)


@pytest.mark.thorough
@pytest.mark.parametrize("name", SOME[1:3])
def test_the_types_that_take_the_pods_of_a_place_are_its_alternatives(name: str) -> None:
    found = found_of(name)
    plain = [row for row in found.rows if row.trial.kind is VLLM]
    said, row = found.instead_of(plain[0]), plain[0]
    types = dict.fromkeys(one.trial.instance.name for one in plain if one.trial.engine == row.trial.engine)
    for other in [one for one in types if one != row.trial.instance.name][:5]:
        refused = [fault.rule for fault in check_spec(stack_of(row, other), REGION).faults]
        assert bool(refused) == (other not in said), (other, refused)
    assert said or len(types) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("name", SOME)
def test_what_tokens_cost_orders_the_rows_and_each_refusal_cites_a_rule_or_says_why(name: str) -> None:
    found, ids = found_of(name), {spec_rule.id for spec_rule in spec_rules()}
    keys = [(standing(row.trial.engine), bool(row.warnings), row.usd_per_million or float("inf")) for row in found.rows]
    assert keys == sorted(keys)
    for rows in (found.rows, found.first_of_types):
        assert [row.order for row in rows] == sorted(row.order for row in rows)
    assert found.refusals
    for refusal in found.refusals:
        assert refusal.reason
        assert refusal.rule in ids or not refusal.rule
    assert all(row.trial.sequences >= row.trial.concurrency for row in found.rows)


def published() -> Found:
    """What the command finds for Llama-3.1-8B as published."""
    wanted = model("Llama-3.1-8B")
    return search_once(Wish({"id": wanted.repositories[0]}, wanted, REGION, 8192, quantized=("published",)), PriceBook(({},)))


@pytest.mark.thorough
def test_an_engine_whose_support_ends_loses_to_a_dearer_node() -> None:
    """trn1.2xlarge at $1.34 with the last engine for Trn1, g6e.xlarge at $1.86."""
    found = published()
    first, priced = found.rows[0], [row for row in found.rows if row.usd_per_hour is not None]
    cheaper = [row for row in priced if (row.usd_per_hour or 0) < (first.usd_per_hour or 0)]
    tokens = {row.trial.instance.name: row.usd_per_million or 0 for row in reversed(found.rows)}
    assert tokens["trn1.2xlarge"] > 3 * tokens["g6e.xlarge"] > 0  # a node for less, and tokens for more
    assert (first.trial.instance.name, first.trial.engine.ends) == ("g6e.xlarge", "")
    assert {row.trial.instance.family for row in cheaper} == {"inf2", "trn1"}
    assert all(row.trial.engine.ends for row in cheaper)


def test_answers_that_degrade_come_later_and_are_told() -> None:
    """On Trn2 without NxD Inference, an FP8 KV cache of a checkpoint that has no scales for it."""
    wanted = model("Llama-3.1-8B")
    wish = Wish({"id": wanted.repositories[0]}, wanted, "us-east-2", 8192, families=("trn2",), engine="neuron-2.32-vllm-0.24")
    rows = search_once(wish, PriceBook(({},))).rows
    assert {row.degrades for row in rows} == {True, False}
    assert all(row.degrades == (row.trial.quantization == "fp8-kv") for row in rows)
    assert [row.degrades for row in rows if not row.order[2]] == sorted(row.degrades for row in rows if not row.order[2])
    worse = next(row for row in rows if row.degrades)
    assert "so answers degrade" in stack_file(Order("mine", worse, worse.trial.source))


@pytest.mark.thorough
def test_a_ray_server_is_tried_with_one_replica_on_one_worker() -> None:
    servers = [row.trial.server or {} for row in published().rows]
    of_ray = [server for server in servers if server["kind"] == "ray_serve_vllm"]
    assert of_ray
    for one in of_ray:
        assert one["replicas"] == {"min": 1, "max": 1}
        assert (one["worker"]["min"], one["worker"]["max"]) == (1, 1)


def test_engines_that_cannot_come_first_are_not_tried_for_what_fp8_would_save(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Wish] = []
    monkeypatch.setattr(searching, "search", lambda wish, *_: asked.append(wish) or Found(wish, (), ()))
    row = published().rows[0]
    assert (
        quantized_for_less(Found(replace(published().wish, quantized=("published",)), (row,), ()), row, PriceBook(({},))) is None
    )
    wish = replace(published().wish, types=("inf2.8xlarge",))
    assert search_once(wish, PriceBook(({},))).rows
    assert not search_once(replace(wish, standing=asked[0].standing), PriceBook(({},))).rows


@pytest.mark.thorough
def test_what_fp8_would_save_is_said() -> None:
    found = search_once(replace(found_of("Qwen3-32B").wish, quantized=("published",)), PriceBook(({},)))
    saving = quantized_for_less(found, found.rows[0], PriceBook(({},)))
    assert saving is not None
    assert saving.usd_per_million is not None
    assert saving.usd_per_million < (found.rows[0].usd_per_million or 0)
    said = f"{saving.trial.instance.name} at ${saving.usd_per_million:.2f} a million tokens, "
    assert said in render_text(found, saving=saving)
    assert quantized_for_less(found_of("Qwen3-32B"), found.rows[0], PriceBook(({},))) is None  # everything was asked for


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Llama-3.3-70B", "Qwen3-32B", "OPT-350M"])
def test_open_keys_choose_the_smallest_split_of_their_instance_type(name: str) -> None:
    """A search may take a larger one, as it is faster: with open keys, pods share a node."""
    wanted = model(name)
    source = {"id": next((one for one in wanted.repositories if one not in wanted.gated), wanted.repositories[0])}
    context = min(USUAL_CONTEXT, wanted.max_positions)
    rows = search_once(Wish(source, wanted, REGION, context, quantized=("published",)), PriceBook(({},))).rows
    smallest = sorted(rows, key=lambda row: row.order[:4] + row.order[5:])
    first = {row.trial.instance.name: row.trial for row in reversed(smallest) if row.trial.kind is VLLM}
    for instance, trial in first.items():
        open_ones = minimal(instance, source["id"], kind="vllm", max_model_len=context)
        server: Any = parse_stack(json.dumps(open_ones)).servers["m"]
        assert (server.engine, server.tensor_parallel) == (trial.engine.name, trial.tensor_parallel), instance


# -- traffic --------------------------------------------------------------------------------------------------------------------


def loaded(rate: float, **objectives: Any) -> Found:
    """What the command finds for Llama-3.1-8B under a traffic."""
    wanted, traffic = model("Llama-3.1-8B"), Traffic(rate, **objectives)
    source = {"id": wanted.repositories[0]}
    wish = Wish(
        source, wanted, REGION, 8192, concurrency=1, traffic=traffic, quantized=("published",), families=("g5", "g6e", "trn1")
    )
    return search_once(wish, PriceBook(({},)))


def sized_of(found: Found) -> dict[str, Sized]:
    return {row.trial.instance.name: row.sized for row in found.first_of_types if row.sized}


@pytest.mark.thorough
def test_a_traffic_takes_replicas_that_keep_its_objectives_and_the_spare() -> None:
    objectives = {"first_token_s": 1.0, "token_s": 0.05}
    few, many = sized_of(loaded(5, **objectives)), sized_of(loaded(5, **objectives, output=500))
    none_spare = sized_of(loaded(5, **objectives, spare=0))
    assert few
    for name, found in few.items():
        assert found.answered.first_token[95] <= 1.0, name
        assert found.answered.token[95] <= 0.05, name
        assert found.usd_per_million == pytest.approx(found.usd_per_hour / (5 * 250 * 3600 / 1e6))
        assert found.nodes >= found.replicas / 8
    assert all(few[name].usd_per_hour <= many[name].usd_per_hour for name in few.keys() & many.keys())
    assert all(none_spare[name].replicas < few[name].replicas for name in few)
    order = [row.order for row in loaded(5, **objectives).rows]
    assert order == sorted(order)


LONG = Traffic(5, 30000, 300, token_s=0.05, spare=0)


def on(instance: str, tensor: int = 1, traffic: Traffic = LONG) -> Trial:
    wanted = model("Qwen3-8B")
    source = {"id": wanted.repositories[0]}
    length = traffic.input + traffic.output
    return Trial(source, wanted, engine("cuda-vllm-0.30"), instance_type(instance), length, 1, tensor_parallel=tensor)


def test_replicas_are_not_full_where_nobody_says_how_late_a_first_token_may_be() -> None:
    pace = on("g6e.xlarge", traffic=Traffic(200)).pace(1250)
    assert isinstance(pace, Pace)
    patient, hasty = (sized(pace, Traffic(200, first_token_s=most, spare=0)) for most in (None, 60))
    assert isinstance(patient, Sized)
    assert isinstance(hasty, Sized)
    assert patient.answered.busy <= CALM < hasty.answered.busy


def test_long_prompts_come_in_pieces_where_other_answers_would_wait_too_long() -> None:
    trial = on("p4d.24xlarge", 2)
    pace = trial.pace(30300)
    assert isinstance(pace, Pace)
    tokens = pace.step_tokens(LONG.input, 0.05)
    assert tokens == 512
    assert pace.step_tokens(LONG.input, 1) is None  # it waits less anyway
    assert pace.step_tokens(LONG.input, 0.001) is None  # nothing is so short
    pieces = replace(trial, step_tokens=tokens).pace(30300)
    assert isinstance(pieces, Pace)
    whole, divided = sized(pace, LONG), sized(pieces, LONG)
    assert isinstance(whole, Sized)
    assert isinstance(divided, Sized)
    assert divided.replicas < whole.replicas
    assert (replace(trial, step_tokens=tokens).server or {})["extra_args"] == {"max-num-batched-tokens": 512}


def test_what_a_traffic_takes_is_told_in_the_table_the_file_and_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, traffic = model("Qwen3-8B"), Traffic(5, first_token_s=1, token_s=0.05)
    wish = Wish({"id": "Qwen/Qwen3-8B"}, wanted, REGION, 8192, 1, traffic, ("published",), types=("g6.xlarge", "g6e.xlarge"))
    found = search(replace(wish, kinds=(VLLM,)), PriceBook(({},)), 1)
    ((row,), (late,)) = found.rows, found.refusals
    assert (row.trial.instance.name, row.trial.step_tokens, late.late, found.nearest) == ("g6e.xlarge", 512, True, late)
    assert late.reason.endswith("asked 50 ms, also with 4096 replicas")
    answered = Answered({50: 0.1, 95: 0.25, 99: 0.3}, {50: 0.03, 95: 0.045, 99: 0.05}, 4, 0.5)
    row = replace(row, sized=Sized(3, answered, True, nodes=2, usd_per_hour=5.58, usd_per_million=1.24))
    monkeypatch.setattr(Row, "explained", Explained({"queue": 0.1, "host": 4e-5}, {"KV": 0.02, "host": 6e-5}, "KV", "less"))
    low, high = row.pace.times.range if isinstance(row.pace, Pace) else (0, 0)
    table = " ".join(render_text(replace(found, rows=(row,)), explain=True, saving=row).split())
    file = " ".join(stack_file(Order("mine", row, row.trial.source, traffic=traffic)).split())
    said = [
        "p95 of the first token within 1000 ms and p95 between tokens within 50 ms, 1 lost (--spare)",
        "ordered by dollars a million answer tokens at this traffic",
        "g6e.xlarge 5.58 3 1.24 100, 250 30, 45 50 cuda-vllm-0.30 1 - -",
        f"p95 250 ms to the first token ({250 * low:.0f} to {250 * high:.0f}), 45 ms between ({45 * low:.0f} to {45 * high:.0f})",
        "p95 to the first token: 100 ms, of them queue 100 a token, on average: 20.1 ms, of them KV 20, host 0.06 KV takes most",
        "at $1.24 a million tokens, $0.00 less, 3 replicas for $5.58 an hour in all (--quantization published)",
        "max-num-batched-tokens, for --itl: g6e.xlarge 512",
        "95 of 100 first tokens within 250 ms, 95 of 100 tokens within 45 ms. replicas: 3 traffic: {rate: 5, input_tokens: 1000, "
        "output_tokens: 250} objectives: {time_to_first_token_seconds: 1, time_between_tokens_seconds: 0.05}",
    ]
    assert [one for one in said if one not in table + file] == []
    document = _sized(row) or {}
    assert {key: document[key] for key in ("replicas", "estimated", "nodes", "busy", "range", "first_token_s", "token_s")} == {
        "replicas": 3,
        "estimated": False,
        "nodes": 2,
        "busy": 0.5,
        "range": {"low": low, "high": high},
        "first_token_s": {"p50": 0.1, "p95": 0.25, "p99": 0.3},
        "token_s": {"p50": 0.03, "p95": 0.045, "p99": 0.05},
    }
    assert _of_load(row, wish) == (
        " at this traffic: 3 replicas on 2 nodes, $5.58 an hour; p95 250 ms to the first token, 45 between tokens"
    )


@pytest.mark.parametrize(
    ("traffic", "said"),
    [
        (Traffic(5, token_s=1e-4), "a lone request is not answered at p95 between tokens 0.0001 s"),
        (Traffic(1e6, first_token_s=1), "requests/s a replica at p95 first token 1 s, also with 4096 replicas"),
    ],
)
def test_queues_that_no_number_of_replicas_takes_are_told(traffic: Traffic, said: str) -> None:
    assert str(simulated(on("g6e.xlarge").serving, traffic, 1, 1, 1)).endswith(said)


@pytest.mark.parametrize(
    ("first", "token", "of_first"), [(0.1, 0.05, True), (1, 0.01, False), (None, 0.01, False), (9, None, True)]
)
def test_what_takes_most_is_of_the_objective_that_is_nearest(first: float | None, token: float | None, of_first: bool) -> None:
    found = explained(on("g6e.xlarge").serving, Traffic(5, first_token_s=first, token_s=token), 2)
    assert isinstance(found, Explained)
    walls = found.first_token if of_first else found.token
    assert (found.wall, found.tries) == (max(walls, key=lambda one: walls[one]), TRY[found.wall])


def place(instance: str, usd_per_million: float | None, *warnings: str, price: float | None = 1, ends: str = "") -> Row:
    """A row whose tokens cost so much at some traffic; None: nobody knows what the traffic takes."""
    trial = on(instance)
    trial = replace(trial, engine=replace(trial.engine, ends=ends))
    usd = Price(instance, REGION, price, "hour", "AWS", "") if price else None
    took = Sized(1, Answered({}, {}, 1, 1), usd_per_million=usd_per_million) if usd_per_million else None
    return Row(trial, Offer(trial.instance, REGION, usd, None), warnings, sized=took)


CHEAPEST = "the cheapest a token of 2 instance types where it fits"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([place("g6.xlarge", 2), place("g6.xlarge", 1)], "the only instance type where it fits"),
        ([place("g6.xlarge", None, price=None), place("g6.2xlarge", None, price=None)], "which has a price"),
        ([place("g7e.2xlarge", None), place("g7e.4xlarge", None)], "what a token costs there is not known"),
        ([place("g6.xlarge", 2), place("g6.2xlarge", 2)], CHEAPEST),
        ([place("g6.xlarge", 2), place("g6.2xlarge", 1, "GPU1", "GPU2")], f"{CHEAPEST}, passed over: g6.2xlarge (GPU1, GPU2)"),
        ([place("g6.xlarge", 2), place("g6.2xlarge", 1)], f"{CHEAPEST}, passed over: g6.2xlarge (by choice)"),
        (
            [place("g6.xlarge", 2), place("g6.2xlarge", 1, ends="x")],
            CHEAPEST + ", passed over: g6.2xlarge (cuda-vllm-0.30: x)",
        ),
        ([place("g6.xlarge", 2), place("g7e.2xlarge", None)], f"{CHEAPEST}; speed not known: g7e.2xlarge"),
    ],
)
def test_why_a_place_is_first(rows: list[Row], why: str) -> None:
    wish = Wish({}, model("Qwen3-8B"), REGION, 8192)
    assert _why_first(Found(wish, tuple(rows), ()), rows[0]).endswith(why)


def test_a_place_that_was_asked_for_or_whose_speed_nobody_knows_says_so() -> None:
    row, wish = place("g7e.2xlarge", None), Wish({}, model("Qwen3-8B"), REGION, 8192, types=("g7e.2xlarge",))
    assert _why_first(Found(wish, (row,), ()), row) == "as asked for"
    assert (price_of_tokens(row), _of_load(row, wish)) == ("its speed is not known", "")
    assert _of_load(row, replace(wish, traffic=Traffic(1))) == ", and with it how many replicas the traffic takes"
    assert price_of_tokens(place("g6.xlarge", None, price=None)) == "its price is not known"
    slow = Found(replace(wish, traffic=Traffic(1, first_token_s=60, token_s=1.5)), (row,), ())
    refused = [Refusal(row.offer, "no"), Refusal(replace(row.offer, price=None), "nothing")]
    assert Found(wish, (), tuple(reversed(refused))).nearest == refused[0]
    text = " ".join(render_text(replace(slow, rows=(replace(row, unjudged={"POO1": "no zones"}),))).split())
    assert "no published server is so slow: --itl is in seconds, and 1.5 ms would be 0.0015" in text
    assert "--ttft is in seconds" not in text
    assert "POO1?: not judged: no zones" in text


@pytest.mark.thorough
@pytest.mark.parametrize(
    "traffic",
    [LONG, Traffic(5, 16000, 500, 10, 0.05, spare=0), Traffic(5, 8000, 100, 2, spare=0), Traffic(5, 1000, 250, 1, spare=0)],
)
@pytest.mark.parametrize("instance", ["g6e.xlarge", "p5.48xlarge"])
def test_an_estimate_takes_about_the_replicas_that_queues_take(instance: str, traffic: Traffic) -> None:
    trial = on(instance, traffic=replace(traffic, rate=50))
    pace = trial.pace(traffic.input + traffic.output)
    assert isinstance(pace, Pace)
    estimated = sized(pace, replace(traffic, rate=50))
    assert isinstance(estimated, Sized)
    played = simulated(trial.serving, replace(traffic, rate=50), 1, 1, estimated.replicas)
    assert isinstance(played, Sized)
    assert 0.65 < estimated.replicas / played.replicas <= 1.5


def test_a_traffic_keeps_the_sequences_that_a_pod_must_hold() -> None:
    wanted = Wish({"id": "Qwen/Qwen3-8B"}, model("Qwen3-8B"), REGION, 8192, families=("inf2", "trn1"), traffic=Traffic(1))
    batches = {
        most: {row.trial.concurrency for row in search(replace(wanted, concurrency=most), PriceBook(({},))).rows}
        for most in (1, 20, 10_000)
    }
    assert batches == {1: {8, 32}, 20: {20, 32}, 10_000: set()}


def test_answers_of_one_token_have_no_time_between_tokens() -> None:
    pace, traffic = on("g6e.xlarge").pace(1001), Traffic(5, output=1, token_s=1e-6)
    assert isinstance(pace, Pace)
    found = sized(pace, traffic)
    assert isinstance(found, Sized)
    assert set(found.answered.token.values()) == {0}


@pytest.mark.thorough
def test_more_traffic_takes_more_replicas() -> None:
    one, ten = sized_of(loaded(1, token_s=0.05)), sized_of(loaded(100, token_s=0.05))
    assert one.keys() == ten.keys() != set()
    assert all(one[name].replicas < ten[name].replicas for name in one)


@pytest.mark.thorough
def test_where_no_known_place_keeps_an_objective_all_of_them_are_told_beside_those_nobody_measured() -> None:
    found = loaded(1, first_token_s=0.001)
    beside = replace(found, rows=tuple(row for row in found_of("Llama-3.1-8B").rows if isinstance(row.pace, str)))
    assert beside.rows
    assert {refusal.instance.family for refusal in beside.cheaper} >= {"g5", "g6e", "trn1"}


def test_a_place_whose_speed_nobody_knows_comes_last_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--model", "Llama-3.1-8B", "--region", "us-east-1", "--family", "g6e", "g7e", "--quantization", "published")
    _, out, _ = plan(capsys, *options, "--format", "json")
    rows = [row for row in json.loads(out)["fits"] if not row["warnings"]]
    known = ["unknown" not in row["speed"] for row in rows]
    assert known == sorted(known, reverse=True)
    assert {row["instance"].partition(".")[0] for row, one in zip(rows, known, strict=True) if not one} == {"g7e"}
    unknown = next(row for row in rows if "unknown" in row["speed"])
    assert unknown["speed"] == {"unknown": "RTX PRO Server 6000 was not measured"}
    assert unknown["usd_per_million_tokens"] is None
    near = rows[0]["speed"]["nearest"]
    assert all({"source", "itl_ms", "users"} <= one.keys() for one in near)


def test_where_no_speed_is_known_the_order_is_that_of_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = plan(capsys, "--model", "Qwen3-8B", "--region", "us-west-2", "--family", "g7e", "--rate", "5")
    assert "ordered by the price of one node, because no speed is known here" in " ".join(out.split())
    prices = [float(price) for price in re.findall(r"^g7e\S+ +>=([0-9.]+)", out, re.MULTILINE)]
    assert len(prices) > 3
    assert prices == sorted(prices)


# -- a planted candidate --------------------------------------------------------------------------------------------------------

PLANTED = """
[instances.x1]
source = "nobody"
read = "2026-11"
chip = "L4"
accelerator = "nvidia"
compute_capability = [8, 9]
device_memory_gib = 24
every_size = true
[instances.x1.sizes]
large = {{ vcpus = 16, memory_mib = 65536, ebs_mb_s = 1000, max_pods = 50, devices = {devices} }}
"""


@pytest.fixture(params=[1, 8])
def planted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, PriceBook]]:
    """An instance type of ours for a cent an hour, with so many GPUs of 24 GiB, that every region offers."""
    text: Any = PLANTED.format(devices=request.param)
    use(rows_of({"ours.toml": text.encode()}), of_stack=True)
    monkeypatch.setattr("eks_inference_tools.fitting.search.zone_ids", lambda region, family: ("usw2-az1", "usw2-az2"))
    yield request.param, PriceBook(({REGION: {"x1.large": OwnPrice(on_demand=0.01, source="ours")}},))
    use(Own(), of_stack=True)


@pytest.mark.thorough
def test_a_cheaper_type_that_cannot_hold_the_model_is_refused_and_one_that_can_is_first(planted: tuple[int, PriceBook]) -> None:
    devices, book = planted
    wanted = model("Llama-3.3-70B")
    found = search(Wish({"id": wanted.repositories[0]}, wanted, REGION, 4096, families=("x1", "g6")), book)
    if devices == 1:
        assert "x1.large" not in {row.trial.instance.name for row in found.rows}
        (one,) = (refusal for refusal in found.cheaper if refusal.instance.name == "x1.large")
        assert "weights alone take 131.42 GiB of 21.6 GiB" in one.reason or "weights alone" in one.reason
    else:
        first = found.rows[0].trial
        assert (first.instance.name, first.tensor_parallel) == ("x1.large", 8)
        assert found.cheaper == ()
