"""docs/json.md: the whole way by JSON alone, and errors as documents."""

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from clones import copy_project
from conftest import ROOT
from eks_inference_tools.cli import COMMANDS, main, parser
from readme import block
from stackgraph.problems import Problem

PAGE = ROOT / "docs" / "json.md"
WITHOUT = {"completion": "a shell's script", "schema": "JSON anyway", "diff-comment": "posts a comment and prints a line"}
"""Commands without a document of their own, and what they are instead."""


def formats(words: list[str]) -> list[str]:
    """The choices of --format of a command or of what is below it."""
    found = parser([words[0]])
    for word in words:
        found = next(action.choices[word] for action in found._actions if isinstance(action.choices, dict))
    return [choice for action in found._actions if "--format" in action.option_strings for choice in action.choices or ()]


def test_every_command_has_a_document() -> None:
    below = {
        "list": ["list models", "list engines", "list instances"],
        "loadtest": ["loadtest report"],
        "rehearse": ["rehearse change"],
    }
    for command in COMMANDS:
        for words in below.get(command, [command]):
            assert ("json" in formats(words.split())) != (command in WITHOUT), words


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_error_has_the_fields_of_the_text(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = clone / "stacks" / "Pulumi.inf2-llama3.yaml"
    file.write_text(file.read_text().replace("zones: 2", "zonez: 2"))
    assert main(["preview", "inf2-llama3", "--format", "json"]) == 2
    said = capsys.readouterr()
    document = json.loads(said.out)
    (error,) = document["errors"]
    assert said.err == f"error: {Problem(**{**error, 'working': tuple(error['working'])}).render()}\n"
    shown = json.loads(block("json", "Errors", PAGE).text)
    assert shown.keys() == document.keys()
    assert shown["schema"] == document["schema"]
    assert shown["errors"][0].keys() == error.keys() == {field.name for field in dataclasses.fields(Problem)}


@pytest.mark.thorough
def test_a_model_becomes_a_judged_and_priced_diff(clone: Path, recorded_once: None) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], check=True)
    for line in block("sh", "From a model's name to a judged, priced diff", PAGE).text.splitlines():
        program, *words = line.split()
        assert (program, main(words)) == ("eks-inference", 0), line
    if not shutil.which("jq"):
        pytest.skip("no jq on PATH")
    asked = re.findall(r"^\| .* \| `(.*)` of (\w+\.json) \|$", PAGE.read_text(), re.M)
    assert len(asked) == 7
    for query, file in asked:
        told = subprocess.run(["jq", "-c", query.replace("\\|", "|"), file], capture_output=True, text=True, check=False)
        assert told.returncode == 0, f"{query}: {told.stderr}{told.stdout}"
        assert "null" not in told.stdout.splitlines(), query
