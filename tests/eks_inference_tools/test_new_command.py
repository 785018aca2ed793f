"""The command ``eks-inference new``: the files that it writes, what they pass, what it asks, and what it never does."""

import json
import shutil
import sys
from functools import cache
from pathlib import Path
from unittest.mock import ANY

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import PROJECT, ROOT
from eks_inference.catalog.instances import instance_type
from eks_inference.catalog.models import model
from eks_inference.catalog.speeds import count
from eks_inference.catalog.zones import regions, zone_ids
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from eks_inference.stack.spec import StackSpec
from eks_inference_tools.check.report import judge
from eks_inference_tools.cli import main
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.fitting.search import Row, Wish, search
from eks_inference_tools.fitting.stack_file import TAKEN, Order, stack_file
from eks_inference_tools.fitting.trials import VLLM
from eks_inference_tools.program import programs, unwritten
from golden import assert_golden
from stackgraph.recorder.bounded_yaml import compose

MEASURED = {
    "model_id": "Qwen/Qwen3-8B",
    "instance_type": "g6e.xlarge",
    "chips": 1,
    "max_concurrency": 8,
    "num_prompts": 100,
    "completed": 100,
    "failed": 0,
    "duration": 130.0,
    "request_throughput": 0.8,
    "output_throughput": 200.0,
    "total_input_tokens": 100_000,
    "total_output_tokens": 25_000,
    "mean_ttft_ms": 150.0,
    "mean_tpot_ms": 40.0,
    "mean_e2el_ms": 150 + 249 * 40.0,
}


FEW = ("--family", "inf2", "g6")
"""Instance types enough for tests that look at something else than the search, which takes a second for all."""


def new(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    code = main(["new", *options])
    out, err = capsys.readouterr()
    return code, out, err


def names(folder: Path) -> set[str]:
    return {file.name for file in (folder / "stacks").iterdir()}


# -- what it writes -------------------------------------------------------------------------------------------------------------

WRITTEN = {
    "gpu": ("--model", "Qwen3-32B", "--region", "us-west-2", "--under", "6"),
    "neuron": ("--model", "Llama-3.3-70B", "--instance", "trn1.32xlarge", "--region", "us-east-1", "--context", "4096"),
    "reserved": ("--model", "Qwen/Qwen3-8B", "--family", "trn2", "--region", "us-east-2"),
    "gated": ("--model", "Gemma-3-27B", "--region", "eu-west-1", "--quantization", "fp8-weights"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", WRITTEN)
def test_the_file_and_what_is_said(case: str, clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = new(capsys, "mine", *WRITTEN[case])
    assert (code, err) == (0, "")
    written = (clone / "stacks" / "Pulumi.mine.yaml").read_text()
    assert_golden(f"new/{case}.yaml", written)
    assert_golden(f"new/{case}.txt", out)


@pytest.mark.thorough
def test_a_load_test_of_a_stack_sizes_the_next_one(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ("--model", "Qwen/Qwen3-8B", "--instance", "g6e.xlarge", "--region", "us-west-2")
    traffic = ("--rate", "20", "--itl", "0.1")
    assert new(capsys, "first", *place, *traffic)[0] == 0
    result = clone / "result.json"
    result.write_text(json.dumps(MEASURED))  # a token takes nearly twice what is predicted
    assert main(["loadtest", "report", str(result), "--stack", "first"]) == 0
    assert "Qwen3-8B" in capsys.readouterr().out
    assert (
        main(
            ["plan", "--model", "Qwen/Qwen3-8B", "--region", "us-west-2", "--family", "g6e", *traffic, "--measured", str(result)]
        )
        == 0
    )
    assert "by your own measurements" in capsys.readouterr().out
    code, out, _ = new(capsys, "second", *place, *traffic, "--measured", str(result))
    count(())
    assert code == 0
    assert "by your own measurements" in out
    one, two = (yaml.safe_load((clone / "stacks" / f"Pulumi.{name}.yaml").read_text()) for name in ("first", "second"))
    replicas = [
        of["config"]["eks-inference:stack"]["servers"][name]["replicas"] for of, name in ((one, "first"), (two, "second"))
    ]
    assert replicas[0] < replicas[1]


def test_the_cheapest_node_is_not_written_where_its_tokens_cost_more(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """trn1.2xlarge costs less an hour than g6e.xlarge, and serves a tenth of its tokens."""
    options = ("--model", "meta-llama/Llama-3.1-8B-Instruct", "--region", "us-east-1", "--family", "trn1", "g6e")
    code, out, _ = new(capsys, "mine", *options)
    assert code == 0
    written = (clone / "stacks" / "Pulumi.mine.yaml").read_text()
    assert "instance_types: [g6e.xlarge]" in written
    assert "$0." in next(line for line in out.splitlines() if line.startswith("  tokens "))


@pytest.mark.thorough
def test_a_traffic_becomes_replicas_and_nodes(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = (
        "--model",
        "Qwen/Qwen3-8B",
        "--region",
        "us-west-2",
        "--family",
        "g5",
        "--rate",
        "5",
        "--ttft",
        "1",
        "--itl",
        "0.05",
    )
    assert new(capsys, "mine", *options)[0] == 0
    stack = yaml.safe_load((clone / "stacks" / "Pulumi.mine.yaml").read_text())["config"]["eks-inference:stack"]
    server, pool = stack["servers"]["mine"], stack["pools"]["accelerated"]
    assert server["replicas"] > 2
    assert pool["size"] * (instance_type(pool["instance_types"][0]).devices // server["devices"]) >= server["replicas"]
    assert main(["check", "mine"]) == 0


@cache
def rows(name: str, region: str) -> tuple[Row, ...]:
    wanted = model(name)
    source = {"id": next((one for one in wanted.repositories if one not in wanted.gated), wanted.repositories[0])}
    found = search(Wish(source, wanted, region, min(8192, wanted.max_positions)), PriceBook())
    return tuple(row for row in found.rows if row.trial.kind is VLLM)


SEVERAL = (("Llama-3.3-70B", "us-east-2"), ("Qwen3-8B", "us-west-2"), ("GPT-OSS-120B", "us-east-1"), ("DeepSeek-V3", "us-west-2"))


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "region"), SEVERAL)
@settings(max_examples=25)
@given(position=st.integers(min_value=0, max_value=10**6))
def test_each_file_passes_the_rules_about_specs(name: str, region: str, position: int) -> None:
    row = rows(name, region)[position % len(rows(name, region))]
    given = compose(stack_file(Order("mine", row, row.trial.source))).plain()["config"]["eks-inference:stack"]
    verdict = check_spec(parse_stack(json.dumps(given)), region)
    assert [fault.rule for fault in verdict.faults] == []
    assert {finding.rule.id for finding in verdict.findings if not finding.reason} <= {*row.warnings}
    assert all(reason for reason in verdict.silenced.values())


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "region"), SEVERAL)
def test_the_whole_stack_can_run(name: str, region: str) -> None:
    row = rows(name, region)[len(rows(name, region)) // 2]
    order = Order("mine", row, row.trial.source)
    report = judge(unwritten(PROJECT, "mine", stack_file(order)))
    assert not report.stopped
    assert report.graph is not None
    assert report.verdict.idle == ()


def test_settings_of_another_stack(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = clone / "stacks" / "Pulumi.inf2-llama2.yaml"
    text = file.read_text()
    file.write_text(text.replace("project: eks-inference", "project: ours").replace("nat: single", "nat: per_zone"))
    assert new(capsys, "mine", "--model", "Qwen3-8B", "--like", "inf2-llama2", "--family", "inf2")[0] == 0
    (mine,) = programs(["mine"])
    spec = mine.spec()
    assert spec is not None
    assert mine.config.values["aws:region"] == "us-east-2"
    assert (spec.tags, spec.network.nat, spec.observability.prometheus is not None) == ({"project": "ours"}, "per_zone", True)
    assert set(spec.servers) == {"mine"}
    assert spec.load_test is None
    assert not judge(mine).stopped


def test_every_section_is_taken_from_another_stack_or_known_to_be_its_own() -> None:
    own = {
        "name",
        "silenced",
        "catalog",
        "network",
        "cluster",
        "core_pool",
        "pools",
        "accelerators",
        "servers",
        "kuberay",
        "stores",
    }
    own |= {
        "budget_usd_per_month",
        "clients",
        "endpoints",
        "gateway",
        "gateway_api",
        "load_balancer_controller",
        "load_test",
        "prices",
    }
    assert (set(TAKEN) & own, set(TAKEN) | own) == (set(), set(StackSpec.model_fields))


@pytest.mark.thorough
def test_what_another_stack_has_of_its_own_stays_there(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gateway and endpoints name servers, and a monitor reads devices."""
    file = clone / "stacks" / "Pulumi.inf2-llama2.yaml"
    stack = yaml.safe_load(file.read_text())
    given = stack["config"]["eks-inference:stack"]
    server, *_ = given["servers"]
    given["endpoints"] = {"chat": {"servers": [server], "keys": False}}
    given["gateway"] = {"host": "models.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ", "routes": {"chat": {}}}
    file.write_text(yaml.safe_dump(stack))
    assert new(capsys, "mine", "--model", "Qwen3-8B", "--like", "inf2-llama2", "--family", "g6") == (0, ANY, "")
    (mine,) = programs(["mine"])
    spec = mine.spec()
    assert spec is not None
    assert (spec.endpoints, spec.gateway, spec.observability.neuron_monitor) == ({}, None, None)
    assert spec.observability.prometheus


@pytest.mark.thorough
def test_the_catalog_of_another_stack_may_be_named_again(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(ROOT / "tests" / "data" / "ours.toml", clone / "ours.toml")
    for name, like in (("ours", ()), ("mine", ("--like", "ours"))):
        code, _, err = new(capsys, name, "--catalog", "ours.toml", "--model", "Our-1B", *like)
        assert (code, err) == (0, "")
    assert "catalog:\n    - ./ours.toml" in (clone / "stacks" / "Pulumi.mine.yaml").read_text()


@pytest.mark.thorough
def test_an_instance_type_of_ones_own_lacks_zones_that_nobody_told(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(ROOT / "tests" / "data" / "ours.toml", clone / "ours.toml")
    code, out, _ = new(capsys, "mine", "--catalog", "ours.toml", "--model", "Our-1B", "--instance", "g99.4xlarge")
    assert code == 0
    assert "check    not refused\n  open     pools.accelerated: not judged: zones of g99" in out
    assert "# Give zone_ids: the network's zones that offer g99" in (clone / "stacks" / "Pulumi.mine.yaml").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("region", regions())
def test_every_region_with_accelerators_gets_a_stack(region: str) -> None:
    """Some lack the usual type of core nodes."""
    wanted = model("OPT-350M")
    source = {"id": "facebook/opt-350m"}
    found = search(Wish(source, wanted, region, 2048, quantized=("published",)), PriceBook())
    row = next((row for row in found.rows if row.trial.kind is VLLM), None)
    if row is None:
        assert not any(zone_ids(region, family) for family in ("g4dn", "g5", "g6", "inf2"))
        return
    given = compose(stack_file(Order("mine", row, source))).plain()["config"]["eks-inference:stack"]
    verdict = check_spec(parse_stack(json.dumps(given)), region)
    assert [(finding.rule.id, finding.reason) for finding in verdict.findings if not finding.reason] == []


@pytest.mark.thorough
def test_a_config_of_the_project_stays_a_file(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = ROOT / "tests" / "data" / "model_configs" / "Qwen3-32B.json"
    code, _, err = new(capsys, "mine", "--config", str(config), "--model", "ours/llm")
    assert code == 2
    assert "--config: a stack file names only files of its project" in err
    (clone / "llm").mkdir()
    shutil.copy(config, clone / "llm" / "config.json")
    assert new(capsys, "mine", "--config", "llm/config.json", "--model", "ours/llm", *FEW)[0] == 0
    assert "model: {id: ours/llm, config: ./llm/config.json}" in (clone / "stacks" / "Pulumi.mine.yaml").read_text()
    (mine,) = programs(["mine"])
    assert judge(mine).state == "can run"


@pytest.mark.parametrize("named", [(), ("--model", "llm"), ("--model", "Qwen3-32B")])
def test_a_config_does_not_say_where_its_weights_are(
    named: tuple[str, ...], clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(ROOT / "tests" / "data" / "model_configs" / "Qwen3-32B.json", clone / "config.json")
    code, _, err = new(capsys, "mine", "--config", "config.json", *named, *FEW)
    assert code == 2
    assert "--model: name the repository that has the weights" in err
    assert "allowed: owner/name" in err
    assert not (clone / "stacks" / "Pulumi.mine.yaml").exists()


# -- what it never does ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        # A search takes seconds.
        pytest.param(*row, marks=pytest.mark.thorough) if "--under" in row[0] else row
        for row in [
            (("inf2-llama3", "--model", "Qwen3-8B"), "NAME: this stack exists, and `new` overwrites no file"),
            (("Mine!", "--model", "Qwen3-8B"), "NAME: not a valid stack name"),
            (("mine",), "--model: name a model"),
            (("mine", "--model", "DeepSeek-R1", "--under", "2"), "DeepSeek-R1 fits none of the places asked for: g6e.xlarge"),
            (
                ("mine", "--model", "DeepSeek-R1", "--under", "2"),
                "plan --model …` says why of each instance type; without --under it fits on p5en",
            ),
            (("mine", "--model", "Qwen3-8B", "--under", "0.1"), "g6f.large: costs more than $0.1 an hour"),
            (
                ("mine", "--model", "Qwen3-32B", "--under", "2"),
                "without --under it fits on p4d.24xlarge, $21.96 an hour; with --quantization fp8 it fits on g6e",
            ),
            (("mine", "--model", "Qwen3-8B", "--family", "trn2"), "says why of each instance type; --region: ap-south-2, ap-"),
            (("mine", "--model", "Qwen3-8B", "--engine", "neuron-2.26-vllm-0.9"), "engine neuron-2.26-vllm-0.9 does not serve"),
            (("mine", "--model", "Llama-3.3-70B", "--instance", "g6.xlarge"), "g6.xlarge: weights alone take 131.45 GiB"),
            (("mine", "--model", "Qwen3-8B", "--instance", "m5.large"), "--instance: m5.large has no accelerator"),
            (("mine", "--model", "Qwen3-8B", "--like", "inf2-llama9"), "there is no stack 'inf2-llama9'"),
        ]
    ],
)
def test_what_cannot_be_written_leaves_no_file(
    options: tuple[str, ...], said: str, clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {name: (clone / "stacks" / name).read_bytes() for name in names(clone)}
    code, out, err = new(capsys, *options)
    assert (code, out) == (2, "")
    assert said in err
    assert {name: (clone / "stacks" / name).read_bytes() for name in names(clone)} == before


@pytest.mark.thorough
def test_a_folder_that_nobody_can_write_to(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.link", full)
    before = names(clone)
    code, _, err = new(capsys, "mine", "--model", "OPT-350M", *FEW)
    assert code == 2
    assert "No space left on device" in err
    assert names(clone) == before


# -- what it asks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_it_asks_on_a_terminal_for_what_is_open(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter(("Qwen9", "", "Qwen3-8B", "mars", "us-west-2", "0", "m5.large", "2"))
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return next(answers)

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", answer)
    code, out, err = new(capsys, "mine")
    assert code == 0
    assert [question.split()[0].rstrip(",:") for question in asked] == ["model"] * 3 + ["region"] * 2 + ["which"] * 3
    assert all(said in err for said in ("model 'Qwen9' is not in the catalog", "name a model", "not a region", "given: m5.large"))
    second = next(line for line in out.splitlines() if line.startswith("2 ")).split()[1]
    assert f"instance_types: [{second}]" in (clone / "stacks" / "Pulumi.mine.yaml").read_text()


def test_the_end_of_the_input_ends_the_questions(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(_: str) -> str:
        raise EOFError

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", ended)
    assert "--model: name a model" in new(capsys, "mine")[2]
    assert new(capsys, "mine", "--model", "OPT-350M", *FEW)[0] == 0, "the region and the instance type have defaults"


def test_it_never_asks_without_one(clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def never(question: str) -> str:
        raise AssertionError(question)

    monkeypatch.setattr("builtins.input", never)
    assert new(capsys, "mine", "--model", "Qwen3-8B", *FEW)[0] == 0
    (mine,) = programs(["mine"])
    assert mine.config.values["aws:region"] == "us-east-1"
