"""``make newer``: which pins it knows, whom it asks, and what it says. Asks nobody."""

import subprocess
from typing import Any

import pytest

from eks_inference.catalog import versions
from eks_inference.catalog.engines import engines
from eks_inference.catalog.tables import rows, table
from refresh import _newer


def test_every_chart_image_and_engine_has_a_version_that_can_be_compared() -> None:
    pinned = _newer.pins()
    named = {f"{section}.{name}" for section in ("charts", "images") for name in rows(table("versions.toml")[section])}
    assert pinned.keys() == named | {"engines.ray", "engines.vllm"}
    assert pinned["charts.keda"] == versions.chart("keda").version
    assert (pinned["images.buildkit"], pinned["images.kube-scheduler"]) == ("0.32.2", "1.36.2")
    assert pinned["engines.vllm"] == engines()["cuda-vllm-0.33"].vllm
    assert {*_newer.PACKAGES, *_newer.MODULES} <= pinned.keys()


def test_what_is_newer_is_told_and_what_nobody_asked_for() -> None:
    pinned = {"charts.a": "1.9.0", "charts.b": "2.0", "images.c": "1.0.0"}
    said = list(_newer.report(pinned, {"charts.a": "1.10.0", "charts.b": "2.0"}))
    assert said == ["charts.a             1.9.0 → 1.10.0", "not asked: images.c"]


@pytest.mark.parametrize("ended", [0, 1])
def test_pip_and_go_are_asked_and_one_that_does_not_answer_is_left_out(ended: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"vllm": "vllm (0.34.1)\nAvailable versions: 0.34.1, 0.33.0", "github.com/kedacore/keda/v2@latest": "v2.21.3"}

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, ended, answers.get(command[-1], "") if not ended else "", "403 Forbidden")

    monkeypatch.setattr(_newer.shutil, "which", lambda name: name)
    monkeypatch.setattr(_newer.subprocess, "run", run)
    assert _newer.released() == ({} if ended else {"engines.vllm": "0.34.1", "charts.keda": "2.21.3"})
