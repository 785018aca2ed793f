"""What a person at a terminal is asked, and what each answer means."""

from types import SimpleNamespace
from typing import Any

import pytest

from eks_inference_tools.flight import pilots
from eks_inference_tools.flight.pilots import AtTerminal, Unattended


def typed(monkeypatch: pytest.MonkeyPatch, answer: str | None) -> list[str]:
    """Questions that are asked. Each gets this answer; None is the end of the input."""
    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question)
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", ask)
    return asked


@pytest.mark.parametrize(
    ("answer", "goes"), [("y", True), (" Y ", True), ("yes", False), ("", False), ("keep", False), (None, False)]
)
def test_only_y_deploys(monkeypatch: pytest.MonkeyPatch, answer: str | None, goes: bool) -> None:
    leg: Any = SimpleNamespace(rung=SimpleNamespace(title="the network"))
    monkeypatch.setattr(pilots, "typically", lambda leg: "Five minutes.")
    asked = typed(monkeypatch, answer)
    assert AtTerminal().goes_on(leg) is goes
    assert asked == ["deploy the network? Five minutes. [y/N] "]


@pytest.mark.parametrize(("answer", "keeps"), [("keep", True), ("Keep", True), ("y", False), ("", False), (None, False)])
def test_only_keep_keeps(monkeypatch: pytest.MonkeyPatch, answer: str | None, keeps: bool) -> None:
    typed(monkeypatch, answer)
    assert AtTerminal().keeps("it failed") is keeps


def test_the_option_answers_the_question_about_keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = typed(monkeypatch, "")
    assert AtTerminal(keep=True).keeps("it failed")
    assert not asked


@pytest.mark.parametrize("keep", [True, False])
def test_without_a_terminal_nothing_is_deployed_and_the_option_decides(keep: bool) -> None:
    leg: Any = SimpleNamespace(name="node")
    assert (Unattended(keep).goes_on(leg), Unattended(keep).keeps("it failed")) == (False, keep)
