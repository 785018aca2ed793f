"""Answers of the stand-in for kubectl (``stand_in_kubectl.py``), as files."""

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import stand_in_kubectl


def without_processes(monkeypatch: pytest.MonkeyPatch, states: Path) -> None:
    """Runs the stand-in in this process: starting one for each question takes most of the time."""
    real = subprocess.run

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if Path(command[0]).name != "kubectl":
            return real(command, **options)
        out, err = io.StringIO(), io.StringIO()
        code = stand_in_kubectl.main(command[1:], str(states), out, err)
        return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())

    monkeypatch.setattr(subprocess, "run", run)


def answer(folder: Path, *states: dict[str, Any]) -> None:
    """Writes the states of a cluster, one after the other."""
    for number, state in enumerate(states):
        (folder / f"{number}.json").write_text(json.dumps({key: state[key] for key in state if key != "objects"}))
        for kind, items in state.get("objects", {}).items():
            (folder / f"{number}.{kind}").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
