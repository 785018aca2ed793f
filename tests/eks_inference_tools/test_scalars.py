"""Numbers as programs, providers and API servers write them."""

from typing import Any

import pytest

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
