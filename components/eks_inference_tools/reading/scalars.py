"""Numbers, quantities and switches as programs, providers and API servers write them. Pure; what is no such value is None."""

from decimal import Decimal
from typing import Any

from eks_inference.kubernetes.quantity import amount
from stackgraph.graph.values import table, text, unique

# Quantities are 64-bit numbers; longer texts are none.
_LONGEST_QUANTITY = 24


def whole(value: Any) -> int | None:
    """A whole number; None for anything else, tokens included."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10 else None


def quantity(value: Any) -> Decimal | None:
    """A quantity as a number; None for what is none or not known."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    shown = str(value)
    try:
        return amount(shown) if len(shown) <= _LONGEST_QUANTITY else None
    except ValueError:
        return None


def quantities(value: Any) -> dict[str, Decimal]:
    """A table of quantities as numbers, e.g. ``allocatable`` of a node; without those that are none or not known."""
    return {name: found for name, given in table(value).items() if (found := quantity(given)) is not None}


def number(value: Decimal) -> str:
    """A number for people, with three places at most."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def span(low: Any, high: Any) -> str:
    """``1–4``, or just one of them when they are the same."""
    return "–".join(unique((text(low), text(high))))


def is_true(value: Any) -> bool:
    """Whether a switch is on: providers take texts, too."""
    return value is True or value == "true"
