"""Says what a change does to the cost of a stack, as two fresh creations. Pure."""

from collections.abc import Iterator

from eks_inference_tools.cost.charges import SCALES
from eks_inference_tools.cost.estimate import Estimate, Total
from eks_inference_tools.cost.words import NAMES, in_short, money
from stackgraph.diff.domain import Danger
from stackgraph.graph.values import unique

_TWICE = 2.0
_MATTERS = 0.1
_CENT = 0.005
"""A change below half a cent an hour is not told."""


def change(before: Estimate | None, after: Estimate | None) -> str:
    """``+$1.04/h idle, +$12.98/h at most``; the cost itself of a stack that only one side has; empty for no change."""
    if before is None or after is None:
        found = before or after
        return in_short(found) if found and found.lines else ""
    changes = [_difference(*pair) for pair in zip(before.totals, after.totals, strict=True)]
    if len(set(changes)) == 1:
        return f"{changes[0]}/h" if changes[0] else ""
    shown = [change for change in zip(changes, NAMES, strict=True) if change[0]]
    return ", ".join(f"{amount}/h {name}" for amount, name in shown)


def _difference(before: Total, after: Total) -> str:
    changed = after.usd_per_hour - before.usd_per_hour
    if abs(changed) < _CENT:
        return "unknown change" if after.at_least and not before.at_least else ""
    sign = "+" if changed > 0 else ""
    return f"{'at least ' if after.at_least else ''}{sign}{money(changed)}"


def dangers(before: Estimate, after: Estimate) -> Iterator[Danger]:
    """Yields a danger when a stack, or else a pool that matters, costs at least twice as much as before.

    A pool matters when its difference is a tenth or more of what the stack cost.
    """
    for scale, (old, new) in enumerate(zip(before.totals, after.totals, strict=True)):
        if _doubled(old.usd_per_hour, new.usd_per_hour):
            yield _danger("", scale, old.usd_per_hour, new.usd_per_hour)
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
