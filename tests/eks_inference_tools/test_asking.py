"""Questions on a terminal: what cannot be used is told and asked for again, and the end of the input is an empty answer."""

from collections.abc import Iterator

import pytest

from eks_inference_tools.commands.new import asked
from stackgraph.problems import Problem, ProblemsFound


def number(answer: str) -> int:
    if not answer.isdigit():
        raise ProblemsFound([Problem("no number", given=answer)])
    return int(answer)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    given: list[str] = []

    def answer(question: str) -> str:
        assert question == "How many: "
        if not given:
            raise EOFError
        return given.pop(0)

    monkeypatch.setattr("builtins.input", answer)
    yield given
    assert not given


def test_a_question_is_asked_until_its_answer_can_be_used(answers: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    answers += ["two", " 2 "]
    assert asked("How many", number) == 2
    assert "no number" in capsys.readouterr().err


@pytest.mark.usefixtures("answers")
def test_the_end_of_the_input_is_an_empty_answer_and_the_last() -> None:
    assert asked("How many", len) == 0
    with pytest.raises(ProblemsFound):
        asked("How many", number)
