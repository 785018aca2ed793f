"""A control plane with stand-ins at work, as several tests use it."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from conftest import ROOT
from eks_inference_tools.reading.live_objects import labels_of
from eks_inference_tools.reading.object_kinds import PODS
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api
from eks_inference_tools.simulate.stand_ins.loop import StandIns
from readme import commands_of


@dataclass(frozen=True)
class Running:
    """``seconds`` is how long ``until`` waits."""

    plane: ControlPlane
    stand_ins: StandIns
    seconds: float

    @property
    def api(self) -> Api:
        return self.plane.api

    def until(self, check: Callable[[], bool], what: str) -> None:
        def checked() -> bool:
            self.stand_ins.ensure_alive()
            return check()

        self.plane.processes.wait_until(checked, seconds=self.seconds, what=what)

    def pods(self, **labels: str) -> list[dict[str, Any]]:
        return [pod for pod in self.api.list(PODS) if labels.items() <= labels_of(pod).items()]


def followed(plane: ControlPlane, page: str, words: str, **values: str) -> str:
    """What the command of a page of the runbook says that contains some words, with values for its capitals."""
    if not shutil.which("kubectl"):
        pytest.skip("no kubectl on PATH")
    (command,) = [one for one in commands_of(ROOT / "docs" / "runbook" / f"{page}.md", "kubectl") if words in " ".join(one)]
    program, *filled = [values.get(word, word) for word in command]
    done = subprocess.run([program, f"--kubeconfig={plane.kubeconfig}", *filled], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
