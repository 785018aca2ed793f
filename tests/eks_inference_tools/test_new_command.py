"""The command ``eks-inference new``: the files that it writes, what they pass, what it asks, and what it never does."""

import json
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import PROJECT, ROOT
from eks_inference.catalog.models import model
from eks_inference.stack.check import check_spec
from eks_inference.stack.reading import parse_stack
from eks_inference_tools.check.report import judge
from eks_inference_tools.cli import main
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.fitting.search import Row, Wish, search
from eks_inference_tools.fitting.stack_file import Order, stack_file
from eks_inference_tools.fitting.trials import VLLM
from eks_inference_tools.program import programs, unwritten
from golden import assert_golden
from stackgraph.recorder.bounded_yaml import compose


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("Pulumi.yaml", "infra", "stacks"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


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


@pytest.mark.parametrize("case", WRITTEN)
def test_the_file_and_what_is_said(case: str, clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = new(capsys, "mine", *WRITTEN[case])
    assert (code, err) == (0, "")
    written = (clone / "stacks" / "Pulumi.mine.yaml").read_text()
    assert_golden(f"new/{case}.yaml", written)
    assert_golden(f"new/{case}.txt", out)


def test_what_it_wrote_is_checked_and_previewed(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new(capsys, "mine", "--model", "OPT-350M", "--region", "us-west-2")[0] == 0
    assert main(["check", "mine"]) == 0
    assert "mine: can run: 0 errors, 0 warnings" in capsys.readouterr().out
    assert main(["preview", "mine"]) == 0
    assert "mine  InferencePlatform" in capsys.readouterr().out


@cache
def rows(name: str, region: str) -> tuple[Row, ...]:
    wanted = model(name)
    source = {"id": next((one for one in wanted.repositories if one not in wanted.gated), wanted.repositories[0])}
    found = search(Wish(source, wanted, region, min(8192, wanted.max_positions)), PriceBook())
    return tuple(row for row in found.rows if row.trial.kind is VLLM)


SEVERAL = (("Llama-3.3-70B", "us-east-2"), ("Qwen3-8B", "us-west-2"), ("GPT-OSS-120B", "us-east-1"), ("DeepSeek-V3", "us-west-2"))


@pytest.mark.parametrize(("name", "region"), SEVERAL)
@settings(max_examples=25)
@given(position=st.integers(min_value=0, max_value=10**6))
def test_each_file_passes_the_rules_about_specs(name: str, region: str, position: int) -> None:
    row = rows(name, region)[position % len(rows(name, region))]
    given = compose(stack_file(Order("mine", row, row.trial.source))).plain()["config"]["eks-inference:stack"]
    verdict = check_spec(parse_stack(json.dumps(given)), region)
    assert [fault.rule for fault in verdict.faults] == []
    assert {one.rule.id for one in verdict.findings if not one.reason} <= {*row.warnings}
    assert all(reason for reason in verdict.silenced.values())


@pytest.mark.parametrize(("name", "region"), SEVERAL)
def test_the_whole_stack_can_run(name: str, region: str) -> None:
    row = rows(name, region)[len(rows(name, region)) // 2]
    order = Order("mine", row, row.trial.source)
    report = judge(unwritten(PROJECT, "mine", stack_file(order), order.secrets))
    assert not report.stopped
    assert report.graph is not None
    assert report.verdict.idle == ()


def test_settings_of_another_stack(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = clone / "stacks" / "Pulumi.inf2-llama2.yaml"
    text = file.read_text()
    file.write_text(text.replace("project: eks-inference", "project: ours").replace("nat: single", "nat: per_zone"))
    assert new(capsys, "mine", "--model", "Qwen3-8B", "--like", "inf2-llama2")[0] == 0
    (mine,) = programs(["mine"])
    spec = mine.spec()
    assert spec is not None
    assert mine.config.values["aws:region"] == "us-east-2"
    assert (spec.tags, spec.network.nat, spec.observability.prometheus is not None) == ({"project": "ours"}, "per_zone", True)
    assert set(spec.servers) == {"mine"}
    assert spec.load_test is None
    assert not judge(mine).stopped


def test_a_config_of_the_project_stays_a_file(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = ROOT / "tests" / "data" / "model_configs" / "Qwen3-32B.json"
    code, _, err = new(capsys, "mine", "--config", str(config))
    assert code == 2
    assert "--config: a stack file names only files of its project" in err
    (clone / "llm").mkdir()
    shutil.copy(config, clone / "llm" / "config.json")
    assert new(capsys, "mine", "--config", "llm/config.json", "--model", "ours/llm")[0] == 0
    assert "model: {id: ours/llm, config: ./llm/config.json}" in (clone / "stacks" / "Pulumi.mine.yaml").read_text()
    (mine,) = programs(["mine"])
    assert judge(mine).state == "can run"


# -- what it never does ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("inf2-llama3", "--model", "Qwen3-8B"), "NAME: there is such a stack, and nothing is overwritten"),
        (("Mine!", "--model", "Qwen3-8B"), "NAME: no name of a stack"),
        (("mine",), "--model: name a model"),
        (("mine", "--model", "DeepSeek-R1", "--under", "2"), "DeepSeek-R1 fits nowhere that was asked for"),
        (("mine", "--model", "Llama-3.3-70B", "--instance", "g6.xlarge"), "g6.xlarge: weights alone take 131.42 GiB"),
        (("mine", "--model", "Qwen3-8B", "--instance", "m5.large"), "--instance: m5.large has no accelerator"),
        (("mine", "--model", "Qwen3-8B", "--like", "inf2-llama9"), "there is no stack 'inf2-llama9'"),
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


def test_a_folder_that_nobody_can_write_to(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.link", full)
    before = names(clone)
    code, _, err = new(capsys, "mine", "--model", "OPT-350M")
    assert code == 2
    assert "No space left on device" in err
    assert names(clone) == before


# -- what it asks ---------------------------------------------------------------------------------------------------------------


def test_it_asks_on_a_terminal_for_what_is_open(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter(("Qwen3-8B", "us-west-2", "2"))
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return next(answers)

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", answer)
    code, out, _ = new(capsys, "mine")
    assert code == 0
    assert [question.split()[0].rstrip(",:") for question in asked] == ["model", "region", "which"]
    second = next(line for line in out.splitlines() if line.startswith("2 ")).split()[1]
    assert f"instance_types: [{second}]" in (clone / "stacks" / "Pulumi.mine.yaml").read_text()


def test_it_never_asks_without_one(clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def never(question: str) -> str:
        raise AssertionError(question)

    monkeypatch.setattr("builtins.input", never)
    assert new(capsys, "mine", "--model", "Qwen3-8B")[0] == 0
    (mine,) = programs(["mine"])
    assert mine.config.values["aws:region"] == "us-east-1"
