"""docs/json.md: the whole way by JSON alone, and errors as documents."""

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cases import thorough_but
from conftest import ROOT
from eks_inference_tools.cli import COMMANDS, main, parser
from eks_inference_tools.documents import NAMES, schema_of
from json_schemas import faults
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


COMMANDS_AS_THEY_ARE = {
    "check": "check inf2-llama3",
    "check --explain": "check inf2-llama3 --explain GPU001",
    "check --rules": "check --rules",
    "errors": "plan --model nobody/nothing",
    "first-flight --plan": "first-flight smoke-gpu --plan",
    "list engines": "list engines",
    "list instances": "list instances",
    "list models": "list models",
    "new": "new mine --model Qwen/Qwen3-8B --region us-west-2",
    "plan": "plan --model Qwen/Qwen3-8B --region us-west-2 --rate 3 --explain",
    "plan --instance": "plan --model Qwen/Qwen3-8B --instance g6e.xlarge",
    "preview": "preview inf2-llama3 --timeline",
}
"""Documents that need no cluster, account, server or file of somebody else."""
SHORT = COMMANDS_AS_THEY_ARE.keys() - {"new", "plan", "first-flight --plan"}


@pytest.mark.parametrize("name", thorough_but(SHORT, COMMANDS_AS_THEY_ARE))
def test_a_document_has_its_schema(name: str, clone: Path, recorded_once: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", *name.replace("--", "").split()]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert main([*COMMANDS_AS_THEY_ARE[name].split(), "--format", "json"]) == (2 if name == "errors" else 0)
    assert not list(faults(json.loads(capsys.readouterr().out), schema))


def test_every_document_is_compared_with_its_schema() -> None:
    """The others where their tests make them."""
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    elsewhere = {name for name in NAMES if f'unlike("{name}", ' in tests}
    assert elsewhere | {*COMMANDS_AS_THEY_ARE} == {*NAMES}
    assert {schema_of(name)["properties"]["schema"]["const"] for name in NAMES} == {1}, "a version that readers know"
    written = {name.partition(" --")[0] for name in NAMES} - {"errors"}
    first = {word for name in written for word in (name, name.split()[0])}
    assert {*COMMANDS} - {*WITHOUT} <= first


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
