"""``make refresh``: what it lists, and what it says of a change."""

import re

import pytest

from conftest import ROOT
from refresh import __main__ as command
from refresh import changes


def test_the_tables_are_listed_and_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main() == 0
    listed = re.findall(r"^(\w+) +(\S+)$", capsys.readouterr().out, re.M)
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page.partition("`make refresh` lists")[2], re.M)[: len(listed)] == [
        one for one, _ in listed
    ]
    assert all((ROOT / file).is_file() for _, file in listed)


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
