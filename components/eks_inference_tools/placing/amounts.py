"""Amounts of resources by name (CPU, memory, devices, pods), and arithmetic with them. Pure."""

from collections.abc import Mapping
from decimal import Decimal

Amounts = Mapping[str, Decimal]


def add(total: dict[str, Decimal], amounts: Amounts, sign: int = 1) -> None:
    """Adds amounts to a total in place; a ``sign`` of -1 subtracts them."""
    for name, amount in amounts.items():
        total[name] = total.get(name, Decimal()) + sign * amount


def covers(free: Amounts, needs: Amounts) -> bool:
    """Whether there is enough of everything that is needed."""
    return all(needed <= free.get(name, Decimal()) for name, needed in needs.items())
