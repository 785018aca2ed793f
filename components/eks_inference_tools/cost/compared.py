"""Says what a change does to the cost of a stack, as two fresh creations. Pure."""

from collections import Counter
from collections.abc import Iterator

from eks_inference_tools.cost.charges import SCALES, Charge
from eks_inference_tools.cost.estimate import Estimate, Total
from eks_inference_tools.cost.words import by_scale, in_short, money
from stackgraph.diff.domain import Danger
from stackgraph.graph.values import joined, unique

_TWICE = 2.0
_MATTERS = 0.1
_LEAST = 0.1
_CENT = 0.005
"""A change below half a cent an hour is not told."""


def change(before: Estimate | None, after: Estimate | None) -> str:
    """``+$1.04/h idle, +$12.98/h at most``; the cost itself of a new stack; empty for no change.

    What has no price is in no difference. It is named when it changes.
    """
    if before is None:
        return in_short(after) if after and after.lines else ""
    after = after or Estimate((), (), ())
    shown = by_scale(_difference(*pair) for pair in zip(before.totals, after.totals, strict=True))
    return joined(shown, "a change without a price" if _without_price(before) != _without_price(after) else "", by=", and ")


def _difference(before: Total, after: Total) -> str:
    changed = after.usd_per_hour - before.usd_per_hour
    sign = "+" if changed > 0 else ""
    return f"{sign}{money(changed)}/h" if abs(changed) >= _CENT else ""


def _without_price(found: Estimate) -> tuple[Counter[Charge], frozenset[str]]:
    """What is in no total."""
    return Counter(one.charge for one in found.lines if one.price is None), frozenset(one.shown for one in found.uncounted)


def dangers(before: Estimate, after: Estimate) -> Iterator[Danger]:
    """Yields a danger when a stack, or else a pool that matters, costs at least twice as much as before.

    A stack matters when its difference is ten cents an hour or more: a second key doubles a program that has only one. A pool
    matters when its difference is a tenth or more of what the stack cost.
    """
    for scale, (old, new) in enumerate(zip(before.totals, after.totals, strict=True)):
        if _doubled(old.usd_per_hour, new.usd_per_hour) and new.usd_per_hour - old.usd_per_hour >= _LEAST:
            what = "what has a price " if old.at_least or new.at_least else ""
            yield _danger(what, scale, old.usd_per_hour, new.usd_per_hour)
            return
    for pool in unique(one.charge.owner for one in before.lines if one.charge.part == "nodes"):
        for scale in range(len(SCALES)):
            old, new = (_of_pool(found, pool, scale) for found in (before, after))
            if _doubled(old, new) and new - old >= _MATTERS * before.totals[scale].usd_per_hour:
                yield _danger(f"pool {pool} ", scale, old, new)
                break


def _doubled(before: float, after: float) -> bool:
    return bool(before) and after >= _TWICE * before


def _of_pool(found: Estimate, pool: str, scale: int) -> float:
    return sum(one.usd_per_hour(scale) for one in found.lines if one.charge.part == "nodes" and one.charge.owner == pool)


def _danger(what: str, scale: int, before: float, after: float) -> Danger:
    when = _WHEN[scale]
    return Danger("cost", f"{what}costs {after / before:.1f} times as much {when}: {money(before)}/h → {money(after)}/h")


_WHEN = ("when idle", "as deployed", "at most")
