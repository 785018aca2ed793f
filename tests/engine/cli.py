"""Preview a program with the engine of the ``pulumi`` command on PATH, on a new stack, with echo providers."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ECHO = Path(__file__).with_name("echo.py")
PACKAGES = ("aws", "eks", "kubernetes")


@dataclass(frozen=True)
class EnginePreview:
    """What the engine tells about a preview.

    ``states`` is the state of each resource as ``pulumi preview --json`` shows it (no default providers), ``goals`` what the plan of
    ``--save-plan`` asks for (no resources that are only read, no options younger than the plan's format). Both by URN.
    """

    states: Mapping[str, Mapping[str, Any]]
    goals: Mapping[str, Mapping[str, Any]]


def preview(folder: Path, work: Path, *, project: str, stack: str, config: Mapping[str, str], secrets: Mapping[str, str]) -> EnginePreview:
    """Preview the program in ``folder``. Everything is written below ``work``; the command reaches nothing but loopback."""
    environment = _environment(work)
    home = work / "project"
    home.mkdir()
    runtime = {"name": "python", "options": _python()}
    (home / "Pulumi.yaml").write_text(json.dumps({"name": project, "main": str(folder), "runtime": runtime}))

    def pulumi(*arguments: str) -> str:
        command = ["pulumi", *arguments, "--non-interactive", "--color=never"]
        done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise AssertionError(f"`{' '.join(command)}` failed:\n{_errors(done.stdout)}{done.stderr}")
        return done.stdout

    pulumi("stack", "init", stack)
    plain = [f"--plaintext={key}={value}" for key, value in config.items()]
    secret = [f"--secret={key}={value}" for key, value in secrets.items()]
    if plain or secret:
        pulumi("config", "set-all", f"--stack={stack}", *plain, *secret)
    plan = work / "plan.json"
    digest = json.loads(pulumi("preview", f"--stack={stack}", "--json", f"--save-plan={plan}"))
    goals = json.loads(plan.read_text())["resourcePlans"]
    return EnginePreview(
        states={step["urn"]: step["newState"] for step in digest["steps"]},
        goals={urn: planned["goal"] for urn, planned in goals.items() if planned.get("goal")},
    )


def _errors(output: str) -> str:
    """What a command says went wrong: a preview as JSON reports it at the end of everything else."""
    try:
        found = json.loads(output).get("diagnostics", [])
    except ValueError:
        return output
    return "".join(item["message"] for item in found if item["severity"] == "error")


def _python() -> dict[str, str]:
    """The interpreter of this process, so that both sides run the same SDK: without an environment the language host takes PATH's."""
    return {"virtualenv": sys.prefix} if sys.prefix != sys.base_prefix else {}


def _environment(work: Path) -> dict[str, str]:
    tools = work / "bin"
    tools.mkdir()
    for package in PACKAGES:
        plugin = tools / f"pulumi-resource-{package}"
        plugin.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ECHO}" {package} {version(f"pulumi-{package}")} "$@"\n')
        plugin.chmod(0o755)
    state = work / "state"
    state.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "AWS_", "KUBE"))}
    return kept | {
        "PATH": os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PULUMI_HOME": str(work / "home"),
        "PULUMI_BACKEND_URL": f"file://{state}",
        "PULUMI_CONFIG_PASSPHRASE": "parity",
        "PULUMI_EXPERIMENTAL": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


def missing() -> str:
    """Why there is no engine here; empty when there is one."""
    if not shutil.which("pulumi"):
        return "no `pulumi` command on PATH (https://www.pulumi.com/docs/install/)"
    if not shutil.which("pulumi-language-python"):
        return "no `pulumi-language-python` beside the `pulumi` command on PATH"
    return ""
