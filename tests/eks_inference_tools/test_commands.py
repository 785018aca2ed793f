"""The protocol of the commands: what each module has, what options mean, what is refused and how, and what starting one costs."""

import argparse
import json
import pkgutil
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import PROJECT, ROOT
from eks_inference_tools import commands
from eks_inference_tools.cli import COMMANDS, FORMER, main, parser
from json_schemas import unlike
from stackgraph.commands.options import output_file
from stackgraph.presentation.output import write
from stackgraph.problems import Problem, ProblemsFound

SHARED = {"options", "rehearse_day", "wishes"}
"""Modules beside the commands: what several of them share, and a part of one."""

OWN_WORDS = {
    "--keep": "`simulate` keeps its cluster on this machine, `first-flight` what it has deployed",
    "--context": "`plan` and `new` ask for the length of sequences, `verify` for a context of the kubeconfig",
    "--base": "`diff` finds a revision by itself, `rehearse change` changes the images of the working tree without one",
    "--explain": "`check` shows the arithmetic of a rule, `plan` what makes its first place slow",
    "--model": "`plan` and `list engines` ask for a name of the catalog, `chat` for one that the server lists",
    "--engine": "`plan` and `new` ask for a profile to serve with, lists for what one supports",
    "--instance": "`plan` asks for the type to plan for, `loadtest report` for the one that served",
    "--output": "`plan` and `new` ask for the tokens of an answer, others for a file to write to (`plan`: --write-to)",
    "--rate": "`plan` and `new` look for what takes it, `rehearse day` sends it",
    "--strict": "`preview` leaves unknown what only a deployment knows, `check` accepts nothing that was not judged",
    "--wait": "the file of `chat` runs in pods, too, and is part of what they are given",
}
"""Options that are spelled the same in two commands and mean something of their own in each, and why."""


@pytest.fixture(autouse=True)
def in_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def leaves(of: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """The parsers that read options, each with the words that lead to it."""
    below = [action for action in of._actions if isinstance(action, argparse._SubParsersAction)]
    for action in below:
        for name, each in action.choices.items():
            yield from leaves(each, (*words, name))
    if not below:
        yield words, of


PARSERS = dict(leaves(parser()))


def having(dest: str) -> list[tuple[str, ...]]:
    """The commands with an option or argument."""
    return [words for words, each in PARSERS.items() if any(action.dest == dest for action in each._actions)]


def action(words: tuple[str, ...], dest: str) -> argparse.Action:
    (found,) = [each for each in PARSERS[words]._actions if each.dest == dest]
    return found


def typed(of: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The options whose values are more than texts and files."""
    yield from (one for one in of._actions if one.option_strings and one.type not in (None, Path, output_file))


def each_with(dest: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("words", having(dest), ids=" ".join)


def main_ends(arguments: Sequence[str]) -> Any:
    try:
        return main(arguments)
    except SystemExit as ended:
        return ended.code


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command line that must be refused; gives what it says."""
    assert main_ends(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    return said.err


# -- the protocol ----------------------------------------------------------------------------------------------------------------


def test_the_list_names_every_module():
    assert {name.replace("-", "_") for name in COMMANDS} | SHARED == {
        module.name for module in pkgutil.iter_modules(commands.__path__)
    }


def test_help_lists_every_command_and_the_exit_codes(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert all(f"\n  {name}" in said for name in COMMANDS)
    assert re.findall(r"^  (\d+) ", said.partition("exit codes")[2], re.MULTILINE) == ["0", "1", "2", "130"]


@pytest.mark.parametrize("words", [name.split() for name in COMMANDS] + [["loadtest", "report"]], ids=" ".join)
def test_every_command_has_help(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    assert f"usage: eks-inference {' '.join(words)}" in capsys.readouterr().out


# -- options ---------------------------------------------------------------------------------------------------------------------


def test_options_of_one_name_mean_the_same():
    meanings = defaultdict[str, set[object]](set)
    for each in PARSERS.values():
        for option in each._actions:
            for name in option.option_strings:
                meanings[name].add((option.metavar, option.type, option.help))
    assert {name for name, found in meanings.items() if len(found) > 1} == OWN_WORDS.keys()


def test_stacks_are_named_in_one_way():
    assert {words[0] for words in having("stack")} == {
        "preview",
        "doctor",
        "simulate",
        "rehearse",
        "verify",
        "first-flight",
    }
    assert {words[0] for words in having("stacks")} == {"check", "diff"}
    assert {action(words, dest).metavar for dest in ("stack", "stacks") for words in having(dest)} == {"STACK"}


def test_who_takes_a_stack_takes_another_program_shows_its_traceback_and_writes_files():
    for words in (*having("stack"), *having("stacks")):
        assert all(words in having(dest) for dest in ("program", "format", "output", "debug")), words


def test_who_has_formats_writes_files_and_the_first_format_is_the_default():
    for words in having("format"):
        formats = action(words, "format")
        assert formats.choices
        assert formats.default == next(iter(formats.choices))
        assert words in having("output") or words == ("chat",)  # its file runs in pods, too, and prints what comes as it comes


# -- what is refused -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", PARSERS, ids=" ".join)
def test_an_unknown_option_is_named_beside_those_there_are(words, capsys):
    said = refused(capsys, *words, *required(words), "--nonsense")
    assert "--nonsense" in said
    assert f"`eks-inference {' '.join(words)} --help`" in said


def test_the_nearest_option_is_named(capsys):
    assert "unrecognized arguments: --fromat\n    hint: did you mean '--format'?" in refused(capsys, "check", "--fromat")
    assert "did you mean 'check'?" in refused(capsys, "chek")


@pytest.mark.parametrize("name", FORMER)
def test_a_former_name_is_refused_with_what_does_its_work(name, capsys):
    assert f"error: {name} is now: eks-inference {FORMER[name]}" in refused(capsys, name, "--whatever")
    assert FORMER[name].split()[0] in COMMANDS
    assert name not in COMMANDS


@each_with("format")
def test_an_unknown_format_is_named_beside_those_there_are(words, capsys):
    said = refused(capsys, *words, *required(words), "--format", "nonsense")
    assert "nonsense" in said
    assert f"allowed: {', '.join(action(words, 'format').choices or ())}\n" in said


def required(words: tuple[str, ...]) -> list[str]:
    """Arguments without which the command is not read."""
    given = {
        "plan": ["--model", "Llama-2-13B", "--instance", "inf2.48xlarge"],
        "new": ["mine"],
        "loadtest": ["some.json"],
        "diff-comment": ["--project", "shop"],
        "completion": ["bash"],
    }
    return given.get(words[0], [])


def in_a_program(words: tuple[str, ...]) -> list[str]:
    """A command line that reads a program: a report of files needs none."""
    return [*words, *(["--stack", "mine"] if words[0] == "loadtest" else required(words))]


def wrong_options(words: tuple[str, ...]) -> Iterator[list[str]]:
    """Options that do not exist or cannot be read, and their values."""
    yield ["--nonsense"]
    for each in PARSERS[words]._actions:
        if each.option_strings and each.dest != "format" and cannot_be(each, "nonsense"):
            yield [each.option_strings[-1], "nonsense"]


def cannot_be(option: argparse.Action, value: str) -> bool:
    try:
        read: Any = option.type(value) if callable(option.type) else value
    except (argparse.ArgumentTypeError, ValueError):
        return True
    return option.choices is not None and read not in option.choices


def document_of_errors(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> list[dict[str, Any]]:
    """Run a command line that must fail; gives its document, which says what standard error says, field by field."""
    assert main_ends([*arguments, "--format", "json"]) == code, arguments
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert not unlike("errors", document), arguments
    assert said.err.startswith("\n".join(f"error: {Problem(**error).render()}" for error in document["errors"])), arguments
    return document["errors"]


@each_with("format")
def test_a_wrong_option_is_a_document_where_json_is_asked_for(words, capsys):
    for option, *value in wrong_options(words):
        (error,) = document_of_errors(capsys, *words, *required(words), option, *value)
        assert option in f"{error['key']} {error['message']}"


@pytest.mark.parametrize("words", [words for words, each in PARSERS.items() if [*typed(each)]], ids=" ".join)
def test_a_wrong_value_is_told_beside_what_is_allowed(words, capsys):
    """Every option with a type of its own, numbers above all."""
    for option in typed(PARSERS[words]):
        for value in ("nonsense", "-1", "nan", "0"):
            if cannot_be(option, value) and (words, value) != (("chat",), "0"):  # whose message says what is wrong with 0
                said = refused(capsys, *words, *required(words), f"{option.option_strings[-1]}={value}")
                assert f": not an allowed value\n    given: {value}\n    allowed: " in said or "not one of the choices" in said


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("chek", 2),
        ("chat --url localhost:8000", 2),
        ("chat --url http://127.0.0.1:9/v1", 1),
        ("plan --model nobody/nothing", 2),
        ("list engines --model nobody", 2),
        ("loadtest report ABSENT", 2),
        ("first-flight report ABSENT", 2),
        *((" ".join((*in_a_program(words), "--program ABSENT")), 2) for words in having("program") if words in having("format")),
    ],
)
def test_every_mistake_is_a_document_where_json_is_asked_for(arguments, code, capsys, tmp_path):
    document_of_errors(capsys, *arguments.replace("ABSENT", str(tmp_path / "absent")).split(), code=code)


@pytest.mark.thorough
@pytest.mark.parametrize("words", [*having("stack"), *having("stacks")], ids=" ".join)
def test_an_unknown_stack_is_named_beside_those_there_are(words, capsys):
    said = refused(capsys, *words, "no-such-stack")
    assert "no-such-stack" in said
    assert f"allowed: {', '.join(PROJECT.stacks())}" in said


@each_with("program")
def test_a_missing_project_is_named(words, capsys, tmp_path):
    asked = [*in_a_program(words), "--program"]
    said = refused(capsys, *asked, str(tmp_path / "absent"))
    assert f"given: {tmp_path / 'absent'}" in said
    assert "allowed: the folder of a Pulumi Python project" in said
    assert "no Pulumi.yaml in this folder or above it" in refused(capsys, *asked, str(tmp_path))


@each_with("output")
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_done(words, capsys, tmp_path):
    absent = tmp_path / "absent" / "file"
    said = refused(capsys, *words, *required(words), "-o", str(absent))
    assert f"cannot write '{absent}': there is no folder {absent.parent}; name a file in a folder" in said
    long = "--write-to" if words[0] in ("plan", "new") else "--output"
    assert f"cannot write '{tmp_path}': it is a folder" in refused(capsys, *words, *required(words), long, str(tmp_path))


# -- what is written -------------------------------------------------------------------------------------------------------------


def test_a_folder_that_goes_away_meanwhile_is_one_line(tmp_path):
    with pytest.raises(ProblemsFound, match="cannot write here"):
        write("text", tmp_path / "gone" / "file")


def test_a_device_stays_a_device():
    assert main(["schema", "-o", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()


# -- programs that fail ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    (tmp_path / "Pulumi.yaml").write_text("name: other\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  aws:region: eu-west-1\n")
    (tmp_path / "__main__.py").write_text("def deep():\n    {}['absent']\n\ndeep()\n")
    return tmp_path


# `diff` runs programs of a repository: test_diff_command.py. `first-flight` and reports run none without a stack object.
_OTHERS = ("diff", "first-flight", "loadtest")


@pytest.mark.parametrize("words", [words for words in having("debug") if words[0] not in _OTHERS], ids=" ".join)
def test_the_traceback_of_a_program_is_shown_when_it_is_wanted(words, capsys, failing):
    arguments = [*words, "--program", str(failing)]
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert "__main__.py:2: KeyError: 'absent'" in said.out + said.err
    assert "Traceback" not in said.out + said.err
    assert main([*arguments, "--debug"]) == 2
    said = capsys.readouterr()
    assert "Traceback" in said.err
    assert ", line 2, in deep" in said.err
    assert "__main__.py:2: KeyError: 'absent'" in said.out + said.err


# -- starting --------------------------------------------------------------------------------------------------------------------

LIGHT = """
import sys
from eks_inference_tools.cli import main
try:
    main({arguments})
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""
HEAVY = {
    "boto3",
    "pulumi",
    "pulumi_aws",
    "pydantic",
    "yaml",
    "rich",
    "jinja2",
    "requests",
    "google",
    "grpc",
    "asyncio",
    "subprocess",
}


def loaded(*arguments: str) -> set[str]:
    """The modules that a command line loads."""
    program = LIGHT.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.split())


def of_commands(modules: set[str]) -> set[str]:
    return {name.rpartition(".")[2] for name in modules if name.startswith("eks_inference_tools.commands.")}


def test_help_loads_the_commands_and_nothing_heavy():
    modules = loaded("--help")
    assert of_commands(modules) == {name.replace("-", "_") for name in COMMANDS} | SHARED
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()
    light = ("stackgraph.cli", "stackgraph.interrupts", "stackgraph.commands")
    assert {name for name in modules if name.startswith("stackgraph.") and not name.startswith(light)} == set()


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_loaded_alone_and_its_help_costs_nothing(name):
    modules = loaded(name, "--help")
    assert of_commands(modules) - SHARED == {name.replace("-", "_")}
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()
