"""Previews, creates and destroys a stack with the engine of the ``pulumi`` command on PATH: a new state, echo providers, no
network but loopback.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from engine import pace
from stackgraph.recorder.project import Project

ECHO = Path(__file__).with_name("echo.py")
PACKAGES = ("aws", "eks", "kubernetes")


@dataclass(frozen=True)
class EnginePreview:
    """What the engine tells of a preview, by URN.

    ``states`` is what ``pulumi preview --json`` shows: all but default providers. ``goals`` is what the plan of ``--save-plan``
    asks for: all but resources that are only read, and without the youngest options.
    """

    states: Mapping[str, Mapping[str, Any]]
    goals: Mapping[str, Mapping[str, Any]]


def missing() -> str:
    """Why no engine can be run here; empty when one can."""
    lacking = [command for command in ("pulumi", "pulumi-language-python") if not shutil.which(command)]
    return f"no `{'`, no `'.join(lacking)}` command on PATH (https://www.pulumi.com/docs/install)" if lacking else ""


def preview(project: Project, stack: str, work: Path, secrets: Mapping[str, str] | None = None) -> EnginePreview:
    """Preview the program of a project, in an empty folder ``work``, from copies of its ``Pulumi.yaml`` and stack file.

    ``secrets`` are set on top of the stack file. Raises ``AssertionError`` with the engine's own words when it fails.
    """
    pulumi = _new_stack(project, stack, work, secrets)
    plan = work / "plan.json"
    steps = json.loads(pulumi("preview", "--json", f"--save-plan={plan}"))["steps"]
    planned = json.loads(plan.read_text())["resourcePlans"]
    return EnginePreview(
        states={step["urn"]: step["newState"] for step in steps},
        goals={urn: resource["goal"] for urn, resource in planned.items() if resource.get("goal")},
    )


def up_and_destroy(
    project: Project,
    stack: str,
    work: Path,
    secrets: Mapping[str, str],
    seconds: Mapping[str, Mapping[str, float]],
    parallel: int,
) -> Sequence[pace.Ran]:
    """Create a stack and destroy it, with providers that take ``seconds`` by action ("create", "delete") and URN.

    As many operations as ``parallel`` says run at once. Otherwise as ``preview``.
    """
    file = work / "pace.json"
    file.write_text(json.dumps(seconds))
    pulumi = _new_stack(project, stack, work, secrets, {pace.VARIABLE: str(file)})
    for command in ("up", "destroy"):
        pulumi(command, "--yes", "--skip-preview", f"--parallel={parallel}")
    return pace.steps(file)


def _new_stack(
    project: Project, stack: str, work: Path, secrets: Mapping[str, str] | None, more: Mapping[str, str] | None = None
) -> Callable[..., str]:
    """Returns a function that runs a command of the engine on the new stack; ``more`` variables are in its environment."""
    environment = {**new_project(project, stack, work), **(more or {})}

    def pulumi(*arguments: str) -> str:
        command = ["pulumi", *arguments, f"--stack={stack}", "--non-interactive", "--color=never"]
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise AssertionError(f"`{' '.join(command)}` failed:\n{_errors(done.stdout)}{done.stderr}")
        return done.stdout

    pulumi("stack", "init")
    if secrets:
        pulumi("config", "set-all", *(f"--secret={key}={value}" for key, value in secrets.items()))
    return pulumi


def new_project(project: Project, stack: str, work: Path) -> Mapping[str, str]:
    """Copies ``Pulumi.yaml`` and a stack file into an empty folder, and returns the environment of commands there."""
    data = project.file.data | {"main": str(project.main), "stackConfigDir": "stacks", "runtime": _runtime()}
    (work / "Pulumi.yaml").write_text(yaml.safe_dump(data))
    (work / "stacks").mkdir()
    shutil.copy(project.stack_file(stack).path, work / "stacks")
    return _environment(work)


def _errors(output: str) -> str:
    """What a command says went wrong: a preview as JSON tells it after everything else."""
    try:
        found = json.loads(output).get("diagnostics", [])
    except ValueError:
        return output
    return "".join(item["message"] for item in found if item["severity"] == "error")


def _runtime() -> dict[str, Any]:
    """The interpreter of this process, so that both sides use the same SDKs."""
    options = {"virtualenv": sys.prefix} if sys.prefix != sys.base_prefix else {}
    return {"name": "python", "options": options}


def _environment(work: Path) -> dict[str, str]:
    tools, state = work / "bin", work / "state"
    tools.mkdir()
    state.mkdir()
    for package in PACKAGES:
        plugin = tools / f"pulumi-resource-{package}"
        plugin.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ECHO}" {package} {version(f"pulumi-{package}")} "$@"\n')
        plugin.chmod(0o755)
    # Nothing of this machine's accounts, clusters and Pulumi settings.
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "AWS_", "KUBE"))}
    return kept | {
        # Without a virtual environment the language host takes the first Python on PATH.
        "PATH": os.pathsep.join([str(tools), str(Path(sys.executable).parent), kept["PATH"]]),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PULUMI_HOME": str(work / "home"),
        "PULUMI_BACKEND_URL": f"file://{state}",
        "PULUMI_CONFIG_PASSPHRASE": "parity",
        "PULUMI_EXPERIMENTAL": "true",
        # Writing the state after each step would take longer than the steps.
        "PULUMI_SKIP_CHECKPOINTS": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_REGISTRY_RESOLVE": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    }
