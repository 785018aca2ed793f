"""``make refresh``: what it lists, and what it says of a change."""

import re
import tomllib
from pathlib import Path

import pytest

from conftest import ROOT
from eks_inference.catalog.models import Model, models
from model_configs import differences
from refresh import __main__ as command
from refresh import changes, engine_facts


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
    text = file.read_text("utf-8")
    asked, by_hand = text.partition(engine_facts.BEGIN)[2].split(engine_facts.END)
    said = tomllib.loads(asked)
    optional = {"latent": False, "also": {}, "head_sizes": []}
    said["attention"] = {name: optional | row for name, row in said["attention"].items()}
    assert engine_facts.rendered(said) == asked
    (_, name), *_ = re.findall(r"^(\[attention\.(\w+)\])$", by_hand, re.M)
    assert engine_facts.rendered(said, without=f"{by_hand}[attention.TRITON_ATTN]") == re.sub(
        r"\[attention\.TRITON_ATTN\]\n(.+\n)+\n", "", asked
    )
    assert tomllib.loads(text)["attention"].keys() > {name, "TRITON_ATTN"}


@pytest.mark.parametrize("model", models().values(), ids=lambda one: one.name)
def test_a_model_is_found_again_in_the_config_that_is_made_of_it(model: Model) -> None:
    assert not differences(model)
