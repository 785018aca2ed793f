"""The GitHub workflows and actions, also those of docs/workflows: what they may do, what they pin, and their scripts, run.

A pull request runs its own code, so that job may do nothing; the job that may comment runs none of it. actionlint checks the rest
where it is on PATH; ci.yml says how to get it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from comparisons import comparison
from conftest import ROOT
from eks_inference_tools import COMMAND
from eks_inference_tools.cli import main
from github_api import BOT, REPOSITORY, GitHubApi
from stackgraph.diff.contents import Contents, Revision
from stackgraph.diff.markdown import marker
from stackgraph.github import report

WORKFLOWS, EXAMPLES, ACTIONS = ROOT / ".github" / "workflows", ROOT / "docs" / "workflows", ROOT / ".github" / "actions"
LINTED = sorted([*WORKFLOWS.glob("*.yml"), *EXAMPLES.glob("*.yml")])
FILES = sorted([*LINTED, *ACTIONS.glob("*/action.yml")])
OURS = re.compile(r"OWNER/eks-inference/(\.github/actions/[\w-]+)@0{40}")
"""An action of ours as the examples name it: which owner and commit is for the reader to say."""

each_file = pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(ROOT)))
each_workflow = pytest.mark.parametrize("file", LINTED, ids=lambda path: str(path.relative_to(ROOT)))


def load(file: Path) -> dict[str, Any]:
    # YAML 1.1 takes the key `on` for a boolean.
    return {"on" if key is True else key: value for key, value in yaml.safe_load(file.read_text()).items()}


def steps(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for part in [document["runs"]] if "runs" in document else document["jobs"].values():
        yield from part["steps"]


def used(document: Mapping[str, Any]) -> list[str]:
    return [step["uses"] for step in steps(document) if "uses" in step]


# -- what they pin ---------------------------------------------------------------------------------------------------------------


@each_file
def test_actions_of_others_are_pinned_by_commit_and_say_which_version_that_is(file):
    for line in file.read_text().splitlines():
        if (match := re.match(r"[ -]*uses: (.*)", line)) and not match[1].startswith("./") and not OURS.fullmatch(match[1]):
            assert re.fullmatch(r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", match[1]), line


def test_an_action_is_pinned_to_the_same_commit_everywhere():
    pins = {tuple(name.split("@")) for file in FILES for name in used(load(file)) if "@" in name}
    names = [action for action, *_ in pins]
    assert sorted(names) == sorted(set(names))


@each_file
def test_actions_of_ours_are_there_and_take_what_they_are_given(file):
    for step in steps(load(file)):
        name = step.get("uses", "")
        if (local := OURS.fullmatch(name)) or name.startswith("./"):
            action = load(ROOT / (local[1] if local else name) / "action.yml")
            assert step.get("with", {}).keys() <= action["inputs"].keys()


def test_no_other_version_floats():
    for file in FILES:
        document = load(file)
        assert all(job["runs-on"] == "ubuntu-24.04" for job in document.get("jobs", {}).values())
        assert "latest" not in file.read_text()
    constraints = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    versions = [
        step["with"].get("pulumi-version") for step in steps(load(EXAMPLES / "deploy.yml")) if "pulumi/actions" in str(step)
    ]
    assert set(versions) - {None} == {constraints["pulumi"]}


# -- what they may do ------------------------------------------------------------------------------------------------------------

READ = {"contents": "read"}
IDENTITY = READ | {"id-token": "write"}
PERMISSIONS: dict[Path, tuple[dict[str, str], dict[str, dict[str, str]]]] = {
    WORKFLOWS / "ci.yml": (READ, {}),
    WORKFLOWS / "diff.yml": (READ, {}),
    WORKFLOWS / "diff-comment.yml": ({}, {"comment": READ | {"actions": "read", "pull-requests": "write"}}),
    WORKFLOWS / "release.yml": (READ, {"release": {"contents": "write"}}),
    EXAMPLES / "diff.yml": (READ, {}),
    EXAMPLES / "diff-comment.yml": ({}, {"comment": {"actions": "read", "pull-requests": "write"}}),
    EXAMPLES / "deploy.yml": ({}, {"preview": IDENTITY, "up": IDENTITY}),
}
"""Of the whole workflow, and of those jobs that say it for themselves."""


@each_workflow
def test_a_workflow_may_do_exactly_what_it_has_to(file):
    document = load(file)
    jobs = {name: job["permissions"] for name, job in document["jobs"].items() if "permissions" in job}
    assert (document["permissions"], jobs) == PERMISSIONS[file]


@each_file
def test_no_secret_and_no_privileged_trigger(file):
    text = file.read_text()
    assert "secrets." not in text
    assert "pull_request_target" not in text
    assert "allow-unsafe" not in text


@each_file
def test_scripts_take_what_others_write_from_the_environment_only(file):
    """An expression in a script is pasted into it: a branch's name would be a command."""
    assert not [step["run"] for step in steps(load(file)) if "${{" in step.get("run", "")]


@each_workflow
def test_a_checkout_leaves_no_token_behind(file):
    for step in steps(load(file)):
        if "actions/checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("folder", [WORKFLOWS, EXAMPLES])
def test_who_may_write_runs_nothing_of_the_pull_request(folder):
    document = load(folder / "diff-comment.yml")
    assert list(document["on"]) == ["workflow_run"]
    assert document["on"]["workflow_run"]["workflows"] == [load(folder / "diff.yml")["name"]]
    for step in steps(document):
        assert "run" not in step
        # Without `ref` and `repository` this event checks out the default branch.
        assert step.get("with", {}).keys() <= {"persist-credentials", "project"}
        # Which project a comment is of is for the default branch to say.
        assert "${{" not in step.get("with", {}).get("project", "")
    names = " ".join(used(document))
    assert "cache" not in names
    assert "download-artifact" not in names


def test_who_runs_code_of_a_pull_request_writes_nothing():
    for file in LINTED:
        document = load(file)
        if "pull_request" in document["on"] and file.parent == WORKFLOWS:
            assert set(document["permissions"].values()) == {"read"}
            assert not any("permissions" in job for job in document["jobs"].values())


def test_deployments_are_not_for_forks_and_not_active_here():
    document = load(EXAMPLES / "deploy.yml")
    assert "head.repo.full_name == github.repository" in document["jobs"]["preview"]["if"]
    assert document["jobs"]["up"]["if"] == "github.event_name == 'push'"
    assert document["on"]["push"]["branches"] == ["main"]
    assert document["jobs"]["up"]["concurrency"]["cancel-in-progress"] is False
    assert not any("id-token" in file.read_text() for file in WORKFLOWS.glob("*.yml"))


@pytest.mark.parametrize("name", ["diff.yml", "diff-comment.yml"])
def test_the_examples_are_what_runs_here_but_for_how_the_program_is_installed(name):
    here, example = load(WORKFLOWS / name), load(EXAMPLES / name)
    for document in (here, example):
        for job in document["jobs"].values():
            del job["steps"]
            # Here the repository is checked out for its own action.
            job.get("permissions", {}).pop("contents", None)
    assert here == example


def test_ci_runs_what_a_change_has_to_pass():
    assert [step.get("run") for step in steps(load(WORKFLOWS / "ci.yml"))][-1] == ".ci/run"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_base_is_a_commit_that_is_checked_out():
    action = load(ACTIONS / "stack-diff" / "action.yml")
    assert action["inputs"]["base"]["default"] == "HEAD^1"
    for folder in (WORKFLOWS, EXAMPLES):
        (checkout,) = (step for step in steps(load(folder / "diff.yml")) if "actions/checkout" in step.get("uses", ""))
        assert checkout["with"]["fetch-depth"] == 2


@pytest.mark.parametrize("action", ["stack-diff", "stack-diff-comment"])
def test_the_documents_tell_every_input_with_its_default(action):
    text = (ROOT / "docs" / "ci.md").read_text()
    _, _, table = text.partition(f"| input of `{action}` |")
    rows = [line.split("|") for line in table.partition("\n\n")[0].splitlines()[2:]]
    inputs = load(ACTIONS / action / "action.yml")["inputs"]
    assert [row[1].strip(" `") for row in rows] == list(inputs)
    for row in rows:
        default = inputs[row[1].strip(" `")].get("default", "")
        assert not default or default.startswith("$") or f"`{default}`" in row[3]


def test_the_documents_tell_what_a_comment_is_found_by():
    told = Contents("eks-inference", Revision("a"), Revision("b"), (), tool=COMMAND)
    assert f"`{marker(told)}`" in (ROOT / "docs" / "ci.md").read_text()


def test_the_documents_tell_what_each_job_runs_and_with_which_token():
    _, _, table = (ROOT / "docs" / "ci.md").read_text().partition("| workflow | job | whose code runs | its token may |")
    cells = [[cell.strip(" `") for cell in line.split("|")] for line in table.partition("\n\n")[0].splitlines()[2:]]
    told = {}
    for _, workflow, job, _, may, _ in cells:
        (file,) = set(re.findall(r"[\w-]+\.yml", workflow))
        told[file, job] = sorted(re.findall(r"[a-z-]+: (?:read|write)", may))
    given = {}
    for file in (*WORKFLOWS.glob("*.yml"), EXAMPLES / "deploy.yml"):
        document = load(file)
        for name, job in document["jobs"].items():
            permissions = job.get("permissions", document["permissions"])
            given[file.name, name] = sorted(f"{what}: {how}" for what, how in permissions.items())
    assert told == given


def test_one_name_of_the_artifact(capsys):
    defaults = {load(file)["inputs"]["artifact"]["default"] for file in ACTIONS.glob("*/action.yml")}
    with pytest.raises(SystemExit):
        main(["diff-comment", "--help"])
    assert f"(default: {defaults.pop()})" in capsys.readouterr().out
    assert not defaults


# -- their scripts, run ----------------------------------------------------------------------------------------------------------


class Script:
    """A step of an action of ours, run by bash as the runner does."""

    def __init__(self, action: str, name: str, folder: Path) -> None:
        document = load(ACTIONS / action / "action.yml")
        (self._step,) = (step for step in document["runs"]["steps"] if step["name"] == name)
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.output, self.summary = folder / "output", folder / "summary"
        self.environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "RUNNER_TEMP": str(folder),
            "GITHUB_ACTION_PATH": str(ACTIONS / action),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }
        self._defaults = {name: given.get("default", "") for name, given in document["inputs"].items()}

    def command(self, name: str, script: str) -> None:
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def run(self, inputs: Mapping[str, str] | None = None, context: Mapping[str, str] | None = None) -> int:
        values = {f"inputs.{name}": value for name, value in (self._defaults | dict(inputs or {})).items()} | dict(context or {})

        def value(match: re.Match[str]) -> str:
            return values[match[1]]

        given = {name: re.sub(r"\$\{\{ (.*?) \}\}", value, str(text)) for name, text in self._step.get("env", {}).items()}
        # https://docs.github.com/actions/reference/workflow-syntax-for-github-actions: `shell: bash`
        assert self._step["shell"] == "bash"
        options = ("--noprofile", "--norc", "-eo", "pipefail", "-c", self._step["run"])
        done = subprocess.run(["bash", *options], env=self.environment | given, cwd=self.folder, timeout=120)
        return done.returncode

    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.output.read_text().splitlines())


REPORTING = r"""
printf '%s\n' "$@" > "$RUNNER_TEMP/arguments"
while [ $# -gt 0 ]; do
  case "$1" in --markdown) markdown="$2" ;; --json) json="$2" ;; --html) html="$2" ;; esac
  shift
done
"""


def compared(folder: Path, code: int = 0, *, written: bool = True) -> Script:
    script = Script("stack-diff", "Compare", folder)
    writes = """echo report > "$markdown"; echo '{}' > "$json"; touch "$html";"""
    script.command("eks-inference", f"{REPORTING}{writes if written else ''} exit {code}")
    return script


NUMBER = {"github.event.pull_request.number": "12"}


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_report_is_kept_whatever_is_found_and_then_judged(tmp_path, code):
    script = compared(tmp_path, code)
    assert script.run(context=NUMBER) == 0
    outputs = script.outputs()
    assert outputs["code"] == str(code)
    assert script.summary.read_text() == "report\n"

    kept = {file.name: file.read_bytes() for file in Path(outputs["report"]).iterdir()}
    assert kept.keys() == {report.NUMBER, report.DIFF, "report.html"}
    (tmp_path / "judge").mkdir()
    judge = Script("stack-diff", "Judge", tmp_path / "judge")
    assert judge.run(context={"steps.compare.outputs.code": outputs["code"]}) == code


def test_without_a_report_the_job_still_ends_with_the_commands_code(tmp_path):
    script = compared(tmp_path, 2, written=False)
    assert script.run(context=NUMBER) == 0
    outputs = script.outputs()
    assert outputs["code"] == "2"
    assert [file.name for file in Path(outputs["report"]).iterdir()] == [report.NUMBER]


def arguments(script: Script) -> list[str]:
    command, *given = (script.folder / "arguments").read_text().splitlines()
    assert command == "diff"
    return [argument for argument in given if not argument.startswith(str(script.folder))]


ALWAYS = ["--markdown", "--json", "--html"]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({}, ["--base", "HEAD^1", "--head", "HEAD"]),
        ({"base": "origin/main"}, ["--base", "origin/main", "--head", "HEAD"]),
        ({"stacks": "dev  prod\nstaging\n"}, ["dev", "prod", "staging", "--base", "HEAD^1", "--head", "HEAD"]),
        ({"program": "my infra"}, ["--base", "HEAD^1", "--head", "HEAD", "--program", "my infra"]),
        ({"fail-on": "replace,delete"}, ["--base", "HEAD^1", "--head", "HEAD", "--fail-on", "replace,delete"]),
        ({"base": "$(touch broken)", "stacks": "*"}, ["*", "--base", "$(touch broken)", "--head", "HEAD"]),
    ],
)
def test_inputs_become_options(tmp_path, inputs, expected):
    script = compared(tmp_path)
    assert script.run(inputs, NUMBER) == 0
    assert arguments(script) == [*expected, *ALWAYS]
    assert not (tmp_path / "broken").exists()


def test_the_command_has_the_options_it_is_given(tmp_path, capsys):
    script = compared(tmp_path)
    assert script.run({"program": "infra", "fail-on": "replace"}, NUMBER) == 0
    with pytest.raises(SystemExit):
        main(["diff", "--help"])
    known = capsys.readouterr().out.split()
    assert {argument for argument in arguments(script) if argument.startswith("--")} <= set(known)


@pytest.mark.parametrize("there", [True, False])
def test_the_command_is_installed_where_the_program_has_none(tmp_path, there):
    script = Script("stack-diff", "Install the command", tmp_path)
    script.command("python", 'echo "$@" >> "$RUNNER_TEMP/called"; [ "$1" != -c ]')
    if there:
        script.command("eks-inference", "exit 0")
    assert script.run() == 0
    called = (tmp_path / "called").read_text().splitlines() if (tmp_path / "called").exists() else []
    if there:
        assert not called
        return
    pydantic, library = (line.split() for line in called if "install" in line)
    assert "--no-deps" in library
    assert (Path(library[-1]) / "pyproject.toml").samefile(ROOT / "pyproject.toml")
    assert pydantic[-1] == "pydantic"
    assert Path(pydantic[pydantic.index("-c") + 1]).samefile(ROOT / "constraints.txt")


def test_the_comment_is_posted_with_the_standard_library_alone(tmp_path):
    """From a folder where the modules it imports are shadowed: an artifact's files may lie in the working directory."""
    script = Script("stack-diff-comment", "Post", tmp_path)
    # -S: no package that is installed can be imported.
    script.command("python3", f'exec {sys.executable} -S "$@"')
    for module in ("json", "zipfile", "eks_inference"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('code of the pull request ran')")
    event = tmp_path / "event"
    head = {
        "id": 7,
        "event": "pull_request",
        "head_sha": "abc",
        "head_repository": {"full_name": REPOSITORY},
        "html_url": "https://run",
    }
    event.write_text(json.dumps({"workflow_run": head}))
    with GitHubApi() as api:
        api.pull_request(12, sha="abc")
        api.artifact(7, "stack-diff", {report.NUMBER: "12", report.DIFF: json.dumps(comparison(project="shop"))})
        script.environment |= {"GITHUB_API_URL": api.url, "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_EVENT_PATH": str(event)}
        script.environment |= {"no_proxy": "127.0.0.1"}
        assert script.run({"project": "shop", "token": api.token}) == 0
        (posted,) = api.comments[12]
        assert posted["user"]["login"] == BOT
        assert posted["body"].startswith("<!-- eks-inference diff: shop -->\n")
        assert "+ tags.owner: team-b" in posted["body"]


# -- actionlint ------------------------------------------------------------------------------------------------------------------

ACTIONLINT = shutil.which("actionlint")


def install_actionlint() -> str:
    """The command, with the version that these files are checked with."""
    (command,) = re.findall(r"go install github\.com/rhysd/actionlint/cmd/actionlint@v[\d.]+", (WORKFLOWS / "ci.yml").read_text())
    return command


@pytest.mark.skipif(not ACTIONLINT, reason=f"actionlint is not on PATH: {install_actionlint()}")
def test_actionlint_finds_nothing():
    done = subprocess.run(
        [str(ACTIONLINT), "-no-color", *map(str, LINTED)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not on PATH")
def test_shellcheck_finds_nothing_in_the_actions():
    """actionlint checks the scripts of workflows, not those of actions."""
    for file in ACTIONS.glob("*/action.yml"):
        for step in steps(load(file)):
            if "run" in step:
                command = ["shellcheck", "--shell=bash", "-"]
                done = subprocess.run(command, input=step["run"], capture_output=True, text=True, timeout=60)
                assert done.returncode == 0, f"{file}: {step['name']}\n{done.stdout}"
