"""Numbers and days as programs, providers, API servers and environments write them."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from eks_inference_tools.reading.calendar import today
from eks_inference_tools.reading.scalars import whole


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3),
        (3.0, 3),
        (3.5, None),
        (True, None),
        ("3", 3),
        ("-3", None),
        ("999999999", 999_999_999),
        ("1000000000", None),
        ("\N{ARABIC-INDIC DIGIT THREE}", None),
        ("<pool.size>", None),
        (None, None),
    ],
)
def test_whole_numbers(value: Any, number: int | None) -> None:
    assert whole(value) == number


def test_today_is_the_day_of_source_date_epoch_if_that_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "9" * 11)
    assert today() == date(5138, 11, 16)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "9" * 12)
    assert today() <= datetime.now(UTC).date()
