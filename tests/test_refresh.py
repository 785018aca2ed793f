"""``make refresh``: what it lists, and what it says of a change."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from eks_inference.catalog import engine_facts as facts
from eks_inference.catalog.models import Model, models
from eks_inference.catalog.tables import version_numbers
from model_configs import differences
from refresh import __main__ as command
from refresh import changes, engine_facts
from refresh.engine import one_layer


def test_the_tables_are_listed_and_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main() == 0
    listed = re.findall(r"^(\w+) +(\S+)$", capsys.readouterr().out, re.M)
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page.partition("`make refresh` lists")[2], re.M)[: len(listed)] == [
        one for one, _ in listed
    ]
    assert all((ROOT / file).exists() for _, file in listed)


@pytest.mark.parametrize(
    ("words", "said"), [(["prices"], "there is no table 'prices'"), (["aws_replacements"], "INDEX VERSION DATE")]
)
def test_what_cannot_be_made_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(*words) == 2
    assert said in capsys.readouterr().err


def test_changes_are_told_by_their_paths(tmp_path) -> None:
    file = tmp_path / "table.json"
    assert changes(file, '{"a": 1}') == ["added a: 1"]
    file.write_text('{"a": {"b": 1, "c": [1]}, "d": 2}')
    assert changes(file, '{"a": {"b": 3, "c": [1]}, "e": 2}') == ["removed d: 2", "added e: 2", "changed a › b: 1 → 3"]
    assert not changes(file, file.read_text())


@pytest.mark.parametrize("file", sorted(engine_facts.FILE.glob("*.toml")), ids=lambda one: one.stem)
def test_what_an_engine_says_is_between_the_lines(file: Path) -> None:
    asked, by_hand = (
        tomllib.loads(one) for one in file.read_text("utf-8").partition(engine_facts.BEGIN)[2].split(engine_facts.END)
    )
    assert f"{engine_facts.BEGIN}{engine_facts.rendered(asked)}{engine_facts.END}" in file.read_text("utf-8")
    assert not asked.get("attention", {}).keys() & by_hand.get("attention", {}).keys()
    assert "TRITON_ATTN" not in engine_facts.rendered(asked, {"TRITON_ATTN"})


def test_the_file_of_a_new_release_has_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = max((one.stem.removeprefix("vllm-") for one in engine_facts.FILE.glob("*.toml")), key=version_numbers)
    like = facts.whole(newest)
    said = {name: like[name] for name in ("deprecated", "no_float16", "of_checkpoints", "reasoning_parsers")}
    said |= {"release": "99.0.0", "quantization": {**like["quantization"], "new": {"8.0": ["float16"]}}}
    said["kernels"] = {**like["kernels"], "fp8": {"7.5": "New"}}
    said["expert_kernels"] = {form: rows for form, rows in like["expert_kernels"].items() if form != "awq"}
    said["unaligned"] = {name: parts for name, parts in like["unaligned"].items() if name != "awq"}
    said["unaligned_experts"] = {**like["unaligned_experts"], "fp8": {"7.5": 32}}
    said["attention"] = {name: engine_facts.OPTIONAL | row for name, row in like["attention"].items()}
    del said["quantization"]["awq"], said["attention"]["FLEX_ATTENTION"]
    said["attention"]["TRITON_ATTN"] |= {"head_sizes": [64]}
    said["reasoning_parsers"] = ["none"]
    monkeypatch.setattr(engine_facts, "_said", lambda python: said)
    made = tomllib.loads(engine_facts.table("python"))
    assert made.keys() == {"like", "source", "read", "reasoning_parsers", *facts.TABLES}
    assert (made["kernels"], made["expert_kernels"]) == ({"fp8": {"7.5": "New"}}, {"awq": {}})
    assert (made["unaligned"], made["unaligned_experts"]) == ({"awq": 0}, {"fp8": {"7.5": 32}})
    assert made["quantization"] == {"awq": {}, "new": {"8.0": ["float16"]}}
    assert made["attention"].keys() == {"FLEX_ATTENTION", "TRITON_ATTN"}
    assert not made["attention"]["FLEX_ATTENTION"]


def test_groups_are_found_out_by_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an engine with kernels for experts from 8.0 on, which makes smaller groups of GPTQ from 9.0 on."""

    def starts(case: dict[str, Any]) -> bool:
        config = json.loads((Path(case["args"][0]) / "config.json").read_text("utf-8"))
        method, gpu, parts = config["quantization_config"]["quant_method"], case["gpu"]["capability"], int(case["args"][2])
        width = config.get("moe_intermediate_size", config.get("intermediate_size")) // parts
        smallest = 64 if method == "gptq" and gpu >= (9, 0) else 128
        if "num_experts" in config:
            return gpu >= (8, 0) and width % smallest == 0
        return width % 128 == 0 or method == "gptq" or (method == "fp8" and parts == 1)

    def answers(cases: list[dict[str, Any]], python: Path) -> list[dict[str, Any]]:
        methods = ["XLinearMethod:XKernel", "XKVCacheMethod", "XMoEMethod:MARLIN"]
        return [
            {"id": case["id"], "verdict": "starts" if starts(case) else "refuses", "stage": "model"}
            | ({"kernels": methods} if starts(case) else {})
            for case in cases
        ]

    monkeypatch.setattr(one_layer, "answers", answers)
    said = one_layer.of_quantized(Path("python"))
    assert engine_facts._changes(said["kernels"]["awq"]) == {"7.5": "XKernel"}
    assert engine_facts._changes(said["expert_kernels"]["awq"]) == {"7.5": "", "8.0": "MARLIN"}
    assert said["unaligned"] == {"fp8": 2, "awq": 1, "compressed-tensors": 1}
    assert engine_facts._changes(said["unaligned_experts"]["gptq"]) == {"8.0": 0, "9.0": 64}
    assert engine_facts._changes(said["unaligned_experts"]["awq"]) == {"8.0": 0}


def test_layers_have_their_kernels_also_where_something_fails_later(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"verdict": "refuses", "stage": "cache", "kernels": ["XLinearMethod:XKernel"]}
    monkeypatch.setattr(one_layer, "answers", lambda cases, python: [said | {"id": case["id"]} for case in cases])
    assert engine_facts._changes(one_layer._kernels(Path("python"))["kernels"]["awq"]) == {"7.5": "XKernel"}


@pytest.mark.parametrize("model", models().values(), ids=lambda one: one.name)
def test_a_model_is_found_again_in_the_config_that_is_made_of_it(model: Model) -> None:
    assert not differences(model)
