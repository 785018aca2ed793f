"""Tables of instance prices that differ."""

import copy

import pytest

from eks_inference.catalog import prices


def make_inf2_dearer(monkeypatch: pytest.MonkeyPatch) -> None:
    """``inf2.xlarge`` costs more in the newer table than in the older one."""
    newer, older = copy.deepcopy(prices.instance_tables())
    newer["usd"][prices.REFERENCE_REGION]["inf2.xlarge"] = 0.8
    monkeypatch.setattr(prices, "instance_tables", lambda: (newer, older))
    monkeypatch.setattr(prices, "_instance_prices", prices._instance_prices.__wrapped__)
