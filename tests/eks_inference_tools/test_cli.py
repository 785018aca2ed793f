"""The command as a person or a script uses it."""

import json
import os
import pty
import shlex
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

from clones import copy_project
from conftest import ROOT, recorded
from eks_inference_tools.cli import COMMANDS, GROUPS, main, parser

COMMAND = [sys.executable, "-m", "eks_inference_tools"]
STACK = "inf2-llama3"


@pytest.fixture(autouse=True)
def in_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def on_a_terminal(*arguments: str, **environment: str) -> tuple[str, str]:
    """What a person sees on standard output and standard error, each a terminal of its own."""
    out, out_end = pty.openpty()
    err, err_end = pty.openpty()
    run = subprocess.Popen([*COMMAND, *arguments], stdout=out_end, stderr=err_end, env={**os.environ, **environment})
    os.close(out_end)
    os.close(err_end)
    # Both at once: a terminal nobody reads fills up and stops the program.
    with ThreadPoolExecutor() as readers:
        seen = [readers.submit(_all, end) for end in (out, err)]
        assert run.wait(timeout=60) == 0
    os.close(out)
    os.close(err)
    return seen[0].result(), seen[1].result()


def _all(end: int) -> str:
    return b"".join(iter(lambda: _read(end), b"")).decode()


def _read(end: int) -> bytes:
    try:
        return os.read(end, 65536)
    except OSError:  # Linux says EIO when the other end is closed.
        return b""


@pytest.mark.thorough
def test_json_is_the_recorded_graph(capsys):
    assert main(["preview", STACK, "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown.pop("cost")["totals"]["idle"]["perHour"] > 0
    assert shown == json.loads(recorded(STACK).to_json())


@pytest.mark.thorough
def test_a_file_gets_what_standard_output_would(recorded_once, tmp_path, capsys):
    for format_ in ("tree", "json", "manifests", "mermaid"):
        assert main(["preview", STACK, "--format", format_]) == 0
        shown = capsys.readouterr().out
        file = tmp_path / format_
        assert main(["preview", STACK, "--format", format_, "-o", str(file)]) == 0
        assert file.read_text() == shown
        assert capsys.readouterr().out == ""


@pytest.fixture
def small(tmp_path: Path) -> tuple[str, ...]:
    """What previews a small program: a process of its own takes a quarter of the time that a shipped stack takes."""
    (tmp_path / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  aws:region: eu-west-1\n")
    (tmp_path / "__main__.py").write_text("import pulumi_aws as aws\naws.sqs.Queue('jobs')\n")
    return ("preview", "dev", "--program", str(tmp_path))


@pytest.mark.thorough
def test_progress_and_colour_are_for_terminals_only(small):
    out, err = on_a_terminal(*small, NO_COLOR="")
    assert "recording dev: 1" in err
    assert "\x1b[" in out
    done = subprocess.run([*COMMAND, *small], capture_output=True, text=True, timeout=60, check=True)
    assert not [line for line in done.stderr.splitlines() if not line.startswith("recording dev")]
    assert "jobs" in done.stdout
    assert "\x1b[" not in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "check --help",
        "preview dev --program SMALL --format json",
        "check dev --program SMALL --format json",
        "check --rules --format json",
        "plan --model OPT-350M --instance g4dn.xlarge --format json",
    ],
)
def test_what_a_program_reads_is_written_without_what_draws_for_people(command: str, small: tuple[str, ...]):
    arguments = command.replace("SMALL", small[-1]).split()
    code = (
        "import contextlib, sys\n"
        "from eks_inference_tools.cli import main\n"
        "with contextlib.suppress(SystemExit):\n"
        f"    main({arguments!r})\n"
        "sys.exit([name for name in sys.modules if name.partition('.')[0] in ('rich', 'markupsafe')] or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.thorough
def test_a_reader_that_goes_away_is_no_error():
    run = subprocess.Popen([*COMMAND, "preview", STACK, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.read(10)
    run.stdout.close()
    # On a busy machine a preview takes half a minute, and a log has a line then.
    assert not [line for line in run.stderr.read().splitlines() if not line.startswith(b"recording ")]
    assert run.wait(timeout=60) == 0


@pytest.mark.thorough
def test_the_only_stack_need_not_be_named(tmp_path, capsys):
    (tmp_path / "Pulumi.yaml").write_text("name: other\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").touch()
    (tmp_path / "__main__.py").touch()
    assert main(["preview", "--program", str(tmp_path)]) == 0
    assert "would create" in capsys.readouterr().out


def test_options_may_stand_between_arguments():
    for given in ("check a --strict b -o x", "check --strict a -o x b", "check -o x -- a b --strict"):
        options = parser(["check"]).parse_args(given.split())
        assert options.stacks[:2] == ["a", "b"]
        assert str(options.output) == "x"
    options = parser(["first-flight"]).parse_args(["first-flight", "report", "--format", "json", "bundle.json"])
    assert (options.stack, str(options.bundle), options.format) == ("report", "bundle.json", "json")


@pytest.mark.thorough
def test_the_schema_is_one_for_stack_files(capsys):
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema == json.loads((ROOT / "stacks" / "schema.json").read_text())
    assert set(schema["properties"]["config"]["required"]) == {"aws:region", "eks-inference:stack"}


@pytest.mark.thorough
def test_nothing_is_shown_of_the_machine(recorded_once, capsys):
    assert main(["preview", STACK, "--format", "json"]) == 0
    shown = capsys.readouterr().out
    assert str(ROOT) not in shown
    assert str(Path.home()) + "/" not in shown


# -- what is given is taken as it is, or refused ---------------------------------------------------------------------------------


def options_of(command: str) -> list[str]:
    (commands,) = (action.choices for action in parser([command])._actions if isinstance(action.choices, dict))
    return [option for option in commands[command]._option_string_actions if option.startswith("--")]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_option_can_be_abbreviated(command: str):
    for option in options_of(command):
        with pytest.raises(SystemExit) as ended:
            main([command, option[:-1], "1"])
        assert ended.value.code == 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--wait", "-1"], "given: -1\n    allowed: a number of seconds from 0 to 999999"),
        (["--wait", "nan"], "given: nan\n    allowed: a number of seconds from 0 to 999999"),
        (["--timeout", "0"], "0 seconds leave no time for an answer"),
    ],
)
def test_chat_takes_only_times_that_can_be(given: list[str], says: str, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["chat", *given])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("also", [[STACK], ["--explain", "NEU008"]])
def test_the_list_of_rules_takes_nothing_else(also: list[str], capsys):
    assert main(["check", "--rules", *also]) == 2
    assert "error: --rules: takes nothing else\n    given: " + also[0] in capsys.readouterr().err


def test_no_rule_is_counted_of_a_stack_that_cannot_be_read(tmp_path, monkeypatch, capsys):
    (tmp_path / "Pulumi.yaml").write_text("name: team\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {'eks-inference:stack': {nam: x}}\n")
    (tmp_path / "__main__.py").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 2
    assert capsys.readouterr().out.splitlines()[-2] == "dev: refused: 3 errors, 0 warnings"


# -- what a person sees first ----------------------------------------------------------------------------------------------------


def test_the_bare_command_shows_its_help(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == shown
    lines = shown.splitlines()
    for title, names in GROUPS.items():
        start = lines.index(f"{title}:")
        listed = [line.split()[0] for line in lines[start + 1 : lines.index("", start)] if line[2] != " "]
        assert listed == [*names]


def test_the_version_is_the_package_s(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert (
        capsys.readouterr().out == f"eks-inference {tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['version']}\n"
    )


@pytest.mark.parametrize("given", [f"./stacks/../stacks/Pulumi.{STACK}.yaml"])
def test_the_file_of_a_stack_stands_for_its_name(recorded_once, capsys, given):
    assert main(["check", STACK]) == 0
    expected = capsys.readouterr().out
    assert main(["check", given]) == 0
    assert capsys.readouterr().out == expected


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["preview", "check", "diff"])
def test_a_stack_file_of_another_project_is_refused(tmp_path, capsys, command):
    (tmp_path / f"Pulumi.{STACK}.yaml").write_text("config: {}\n")
    assert main([command, str(tmp_path / f"Pulumi.{STACK}.yaml")]) == 2
    said = capsys.readouterr()
    assert "this is not a stack file of the project" in said.out + said.err
    assert "allowed: a name, or a file in stacks" in said.out + said.err


def test_outside_of_a_project_the_option_that_names_one_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["preview"]) == 2
    assert "--program DIR" in capsys.readouterr().err


EXAMPLES = [
    pytest.param(command, example, marks=pytest.mark.thorough if place else ())
    for command in COMMANDS
    for place, example in enumerate(reversed(import_module(f"eks_inference_tools.commands.{command.replace('-', '_')}").EXAMPLES))
]
"""The last of each command, and with ``thorough`` the others, such as ``check`` of all stacks."""
ELSEWHERE = {
    "doctor",
    "first-flight",
    "simulate",
    "rehearse",
    "verify",
    "chat",
    "loadtest",
    "diff-comment",
    "diff",
    "new",
}
"""Commands whose examples need a cluster, tools, a repository or a file, or write into the project: their examples are parsed."""


@pytest.mark.parametrize(("command", "example"), EXAMPLES)
def test_an_example_of_the_help_works(recorded_once, tmp_path, monkeypatch, capsys, command, example):
    words = shlex.split(example)
    if words == ["check"]:
        # All stacks of the folder are meant, in this clone also a user's own.
        monkeypatch.chdir(copy_project(tmp_path))
    assert words[0] == command
    options = parser([command]).parse_args(words)
    assert options.run
    files = {"../my-program", "./config.json", "--hub"} & {*words}
    if command not in ELSEWHERE and not files:
        assert main([str(tmp_path / Path(word).name) if before == "-o" else word for before, word in pairwise(["", *words])]) == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_with_examples(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = capsys.readouterr().out
    _, found, examples = shown.partition("\nexamples:\n")
    assert found
    assert all(line.startswith("  eks-inference ") for line in examples.strip("\n").splitlines())
