"""Reads numbers, quantities and booleans as programs, providers and API servers write them. Pure."""

from decimal import Decimal
from typing import Any

from eks_inference.place.nodes import amount
from stackgraph.graph.values import table

# Quantities are 64-bit numbers, so a longer text is no quantity.
_LONGEST_QUANTITY = 24


def whole(value: Any) -> int | None:
    """The value as a whole number. None for anything else, including tokens."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10 else None


def quantity(value: Any) -> Decimal | None:
    """A Kubernetes quantity as a number. None for anything else, including tokens."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    shown = str(value)
    try:
        return amount(shown) if len(shown) <= _LONGEST_QUANTITY else None
    except ValueError:
        return None


def quantities(value: Any) -> dict[str, Decimal]:
    """A table of quantities, such as ``allocatable`` of a node, as numbers. Leaves out anything else."""
    return {name: found for name, given in table(value).items() if (found := quantity(given)) is not None}


def number(value: Decimal) -> str:
    """A number for display, with at most three decimal places."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def is_true(value: Any) -> bool:
    """Whether a boolean is true. Providers accept texts as well."""
    return value is True or value == "true"
