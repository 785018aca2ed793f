"""Completion in shells: what is offered where, by the real shells, and what one press of TAB loads."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from conftest import ROOT
from eks_inference.catalog.engines import engines
from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.models import models
from eks_inference.catalog.zones import regions
from eks_inference_tools.cli import COMMANDS, main, parser
from eks_inference_tools.commands.completion import SHELLS
from eks_inference_tools.completing import FILES, VALUES

OPEN = {
    *("TOKENS", "USD_PER_HOUR", "N", "TEXT", "BILLIONS", "GIB", "REV", "CHARACTERS", "URL", "WHAT", "RULE", "SECONDS", "LOGIN"),
    *("USD", "RUNG", "MIN", "KEY=VALUE", "REQUESTS", "REPLICAS"),
    *("NAMESPACE/NAME=N", "NAME", "HOW", "ID", "SHELL", "COMMAND", "LIST", "None"),
}
"""Metavars for which nothing is offered but the choices of argparse."""

_PATH = os.pathsep.join([str(ROOT / "components"), os.environ.get("PYTHONPATH", "")])

LINES: Mapping[str, set[str]] = {
    "eks-inference ": set(COMMANDS),
    "eks-inference pla": {"plan"},
    "eks-inference plan --form": {"--format"},
    "eks-inference diff --fa": {"--fail-on"},
    "eks-inference diff --base ": set(),
    "eks-inference plan --format ": {"text", "json"},
    "eks-inference plan --model Qwen/Qwen3-32": {"Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8"},
    "eks-inference plan --model=Llama-2-1": {"Llama-2-13B"},
    "eks-inference check inf2-llama3 trn2": {"trn2-di", "trn2-di-pair", "trn2-nixl"},
    "eks-inference loadtest report --instance inf2.": {name for name in instance_types() if name.startswith("inf2.")},
    "eks-inference list instances --engine ": set(engines()),
    "eks-inference list instances --region eu-": {name for name in regions() if name.startswith("eu-")},
    "eks-inference list engines --chip RTX": {r"RTX\ PRO\ 4500", r"RTX\ PRO\ Server\ 6000"},
    "eks-inference plan --config pyproj": {"pyproject.toml"},
    "eks-inference plan --context ": set(),
    "eks-inference completion ": set(SHELLS),
}
"""What a line leads to."""

BASH = """
source <(eks-inference completion bash)
while IFS= read -r line; do
  COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=9 COMPREPLY=()
  _python_argcomplete eks-inference
  (IFS=$'\\t'; echo "${COMPREPLY[*]}")
done
"""

ZSH = """
compdef() {}
_describe() { print -r -- "${(pj:\\t:)completions}" }
source <(eks-inference completion zsh)
while IFS= read -r line; do
  BUFFER=$line CURSOR=${#line}
  words=(eks-inference)
  _python_argcomplete
done
"""

FISH = """
eks-inference completion fish | source
while read --line line
  complete --do-complete $line | cut --fields 1 | string join \\t
  echo
end
"""


@pytest.fixture
def shell(tmp_path: Path) -> Mapping[str, str]:
    """The environment of a shell that finds the command."""
    command = tmp_path / "eks-inference"
    command.write_text(f"#!{sys.executable}\nfrom eks_inference_tools.cli import main\nmain()\n")
    command.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": _PATH, "HOME": str(tmp_path)}


def answers(arguments: list[str], lines: list[str], environment: Mapping[str, str]) -> list[set[str]]:
    asked = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(
        arguments, input=asked, capture_output=True, text=True, timeout=60, cwd=ROOT, env=environment, check=False
    )
    assert not done.stderr
    return [set(filter(None, (each.strip() for each in line.split("\t")))) for line in done.stdout.splitlines()]


@pytest.mark.thorough
def test_every_option_of_every_command_is_offered(shell):
    (commands,) = (action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    options = {f"eks-inference {name} --": its._option_string_actions for name, its in commands.items()}
    expected = [
        {option for option, action in each.items() if option.startswith("--") and action.help != argparse.SUPPRESS}
        for each in options.values()
    ]
    assert answers(["bash", "-c", BASH], list(options), shell) == expected


@pytest.mark.thorough
def test_bash_completes(shell):
    assert answers(["bash", "-c", BASH], list(LINES), shell) == [*LINES.values()]


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh on PATH")
def test_zsh_completes_with_descriptions(shell):
    (found,) = answers(["zsh", "-fc", ZSH], ["eks-inference plan --model Qwen/Qwen3-32"], shell)
    assert {one.partition(":")[0] for one in found} == LINES["eks-inference plan --model Qwen/Qwen3-32"]
    assert all(" B parameters, " in one for one in found)


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish on PATH")
def test_fish_completes(shell):
    asked = "eks-inference plan --model Qwen/Qwen3-32"
    assert answers(["fish", "--no-config", "--command", FISH], [asked], shell)[0] == LINES[asked]


def actions(of: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in of._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from actions(each)


def test_somebody_thought_about_every_metavar():
    there = {str(action.metavar) for action in actions(parser()) if action.nargs != 0}
    assert there - OPEN == VALUES.keys() | FILES.keys()


@pytest.mark.thorough
def test_values_are_those_that_the_commands_take(capsys):
    none = argparse.Namespace()
    assert VALUES["TYPE"](none).keys() == instance_types().keys()
    assert VALUES["MODEL"](none).keys() >= models().keys()
    assert VALUES["STACK"](argparse.Namespace(program=ROOT)).keys() >= {"inf2-llama3", "trn2-di"}
    for name in VALUES["MODEL"](none):
        assert main(["list", "engines", "--model", name, "--format", "json"]) == 0
        capsys.readouterr()


@pytest.mark.parametrize("line", ["eks-inference plan --model Q", "eks-inference preview t", "eks-inference p"])
def test_one_press_of_tab_loads_nothing_heavy(line, tmp_path):
    answer = tmp_path / "answer"
    asking = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    program = "from eks_inference_tools.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": _PATH, **asking},
        check=True,
    )
    loaded = {
        one.rpartition("|")[2].strip().partition(".")[0] for one in done.stderr.splitlines() if one.startswith("import time")
    }
    assert answer.read_text()
    assert "argcomplete" in loaded
    assert loaded & {"pulumi", "pulumi_aws", "pydantic", "rich", "requests", "grpc", "jinja2"} == set()
