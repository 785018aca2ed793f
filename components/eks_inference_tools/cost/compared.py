"""Says what a change does to the cost of a stack, as two fresh creations. Pure."""

from collections.abc import Iterator

from eks_inference_tools.cost.estimate import Estimate, Total
from eks_inference_tools.cost.words import NAMES, in_short, money, total
from stackgraph.diff.domain import Danger

_TWICE = 2.0
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
    # What a stack costs as deployed is told where it differs from both of its ends.
    shown = [change for change in zip(changes, NAMES, strict=True) if change[0]]
    return ", ".join(f"{amount}/h {name}" for amount, name in shown)


def _difference(before: Total, after: Total) -> str:
    changed = after.usd_per_hour - before.usd_per_hour
    if abs(changed) < _CENT:
        return "unknown change" if after.at_least and not before.at_least else ""
    sign = "+" if changed > 0 else ""
    return f"{'at least ' if after.at_least else ''}{sign}{money(changed)}"


def dangers(before: Estimate, after: Estimate) -> Iterator[Danger]:
    """Yields a danger when a stack costs at least twice as much as before."""
    for old, new, name in zip(before.totals, after.totals, NAMES, strict=True):
        if old.usd_per_hour and new.usd_per_hour >= _TWICE * old.usd_per_hour:
            times = new.usd_per_hour / old.usd_per_hour
            yield Danger("cost", f"costs {times:.1f} times as much {_WHEN[name]}: {total(old)}/h → {total(new)}/h")
            return


_WHEN = {"idle": "when idle", "deployed": "as deployed", "at most": "at most"}
