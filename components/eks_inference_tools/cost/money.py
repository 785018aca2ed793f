"""Money in words, what a change does to the cost of a stack, and whether it leaves the budget. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.prices import BLOCK, HOUR, Price, block_price, instance_price, outdated
from eks_inference.catalog.quotas import Quota, quota_of
from eks_inference.catalog.zones import regions
from eks_inference_tools.cost.estimate import Estimate, Total, Unused
from eks_inference_tools.cost.price_book import OWN, SCALES, Charge, PriceBook
from eks_inference_tools.reading.clusters import PLATFORM
from stackgraph.diff.comparison_domain import Danger
from stackgraph.graph.document import Graph
from stackgraph.graph.values import joined, unique

NAMES = ("idle", "deployed", "at most")
"""What views call each of ``charges.SCALES``."""

MEANING = (
    "By list prices. Idle: the fewest pods that autoscalers keep. At most: the most pods that they start, and all nodes of "
    "managed node groups. Karpenter's nodes are those that the pods ask for. Jobs, which end, are not counted."
)

_TWICE = 2.0
_MATTERS = 0.1
_LEAST = 0.1
_CENT = 0.005
"""A change below half a cent an hour is not told."""


def money(usd: float) -> str:
    """``$12.98``; amounts below ten cents with two significant digits: ``$0.005``."""
    if usd < 0:
        return f"−{money(-usd)}"
    return f"${usd:,.2f}" if usd >= 0.095 or usd == 0 else f"${usd:.2g}"


def unit_price(price: Price) -> str:
    """``$0.08 per GiB-month``; per hour where nothing is said."""
    return f"${price.usd:.6f}".rstrip("0").rstrip(".") + ("" if price.unit == HOUR else f" per {price.unit}")


def per_month(usd: float) -> str:
    """``$2,468``: whole dollars."""
    return f"${usd:,.0f}"


def total(amount: Total) -> str:
    """``$12.98``, ``at least $12.98``, or ``no price`` if nothing has one."""
    if amount.at_least and not amount.usd_per_hour:
        return "no price"
    return f"{'at least ' if amount.at_least else ''}{money(amount.usd_per_hour)}"


def summary(found: Estimate) -> Iterator[str]:
    """Yields what a stack costs in one line; nothing if nothing costs anything."""
    if found.lines:
        unpriced = "".join(f" and {number:g} x {type_} without a price" for type_, number in found.without_price().items())
        yield f"costs {in_short(found)}{unpriced}, by list prices; traffic, logs and contents of stores are extra"
        yield from (_unused(unused, found) for unused in found.unused)
    elif found.uncounted:
        first, *others = found.uncounted
        yield f"costs are not known: {first.shown}{f', and {len(others)} more' if others else ''}"


def _unused(one: Unused, found: Estimate) -> str:
    """``no pod uses 1 of 2 p5.48xlarge: $55.04/h``."""
    whole = f"{one.nodes} of {one.of_nodes} {one.type}" if one.nodes else ""
    part = f"{one.devices} of {one.of_devices} devices of {'the others' if whole else one.type}" if one.devices else ""
    price = found.price_of(one.urn, one.type)
    each = one.of_devices / (one.of_nodes - one.nodes) if one.devices else 1
    cost = f": {money((one.nodes + one.devices / each) * price.usd)}/h" if price else ""
    return f"no pod uses {joined(whole, part, by=', nor ')}{cost}"


def in_short(found: Estimate) -> str:
    """``at least $3.38/h idle and deployed, $7.43/h at most``: equal amounts once."""
    at_least = "at least " if any(one.at_least for one in found.totals) else ""
    return at_least + by_scale(f"{money(one.usd_per_hour)}/h" for one in found.totals)


def by_scale(amounts: Iterable[str]) -> str:
    """Amounts with the names of their scales: equal ones once, without names if all are equal. Leaves out empty ones."""
    names: dict[str, list[str]] = {}
    for amount, name in zip(amounts, NAMES, strict=True):
        names.setdefault(amount, []).append(name)
    if len(names) == 1:
        return next(iter(names))
    return ", ".join(f"{amount} {' and '.join(called)}" for amount, called in names.items() if amount)


def change(before: Estimate | None, after: Estimate | None) -> str:
    """``+$1.04/h idle, +$12.98/h at most``; the cost itself of a new stack; ``stays $3.47/h`` for no change.

    What has no price is in no difference. It is named when it changes, as is what no pod uses any more.
    """
    if before is None:
        return in_short(after) if after and after.lines else ""
    after = after or Estimate((), (), ())
    shown = by_scale(_difference(*pair) for pair in zip(before.totals, after.totals, strict=True))
    unpriced = "a change without a price" if _without_price(before) != _without_price(after) else ""
    stays = f"stays {in_short(after)}" if before.lines and after.lines and not (shown or unpriced) else ""
    idle = (_unused(unused, after) for unused in after.unused if unused not in before.unused)
    return joined(stays, joined(shown, unpriced, by=", and "), *idle, by="; ")


def _difference(before: Total, after: Total) -> str:
    changed = after.usd_per_hour - before.usd_per_hour
    sign = "+" if changed > 0 else ""
    return f"{sign}{money(changed)}/h" if abs(changed) >= _CENT else ""


def _without_price(found: Estimate) -> tuple[Counter[Charge], frozenset[str]]:
    """What is in no total."""
    return Counter(line.charge for line in found.lines if line.price is None), frozenset(one.shown for one in found.uncounted)


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
    for pool in unique(line.charge.owner for line in before.lines if line.charge.part == "nodes"):
        for scale in range(len(SCALES)):
            old, new = (_of_pool(found, pool, scale) for found in (before, after))
            if _doubled(old, new) and new - old >= _MATTERS * before.totals[scale].usd_per_hour:
                yield _danger(f"pool {pool} ", scale, old, new)
                break


def _doubled(before: float, after: float) -> bool:
    return bool(before) and after >= _TWICE * before


def _of_pool(found: Estimate, pool: str, scale: int) -> float:
    return sum(line.usd_per_hour(scale) for line in found.lines if line.charge.part == "nodes" and line.charge.owner == pool)


def _danger(what: str, scale: int, before: float, after: float) -> Danger:
    when = _WHEN[scale]
    return Danger("cost", f"{what}costs {after / before:.1f} times as much {when}: {money(before)}/h → {money(after)}/h")


_WHEN = ("when idle", "as deployed", "at most")


_MOST_REGIONS = 4


@dataclass(frozen=True)
class Offer:
    """An instance type in a region. ``price`` and ``quota`` are None if nobody told."""

    instance: InstanceType
    region: str
    price: Price | None
    quota: Quota | None

    def per_pod(self, pods: int) -> float | None:
        """USD per hour of one pod, where ``pods`` of them fill a node."""
        return self.price.usd / pods if self.price and pods else None

    @property
    def price_kind(self) -> str:
        """How the price is asked: ``on demand``, ``block``, ``own``; empty without one."""
        if self.price is None:
            return ""
        return "block" if BLOCK in self.price.notes else "own" if OWN in self.price.notes else "on demand"

    @property
    def source(self) -> str | None:
        """Where the price is from, with its day if the catalog has it."""
        return joined(self.price.source, self.price.as_of, by=", ") if self.price else None

    @property
    def words(self) -> str:
        """``$12.98127 an hour in us-east-1, on demand, 2026-07-06; quota: 192 vCPU of Running On-Demand Inf instances``."""
        limit = f"quota: {self.instance.vcpus} vCPU of {self.quota.title}" if self.quota else ""
        if self.price:
            how = "" if BLOCK in self.price.notes else "on demand"
            asked = joined(f"{unit_price(self.price)} an hour in {self.region}", how, by=", ")
            return joined(joined(asked, self.price.as_of, by=", "), *self.price.notes, limit, by="; ")
        old, others = outdated(self.instance.name, self.region), self._elsewhere()
        return joined(f"no price in {self.region}", *(old.notes if old else ()), others, limit, by="; ")

    def _elsewhere(self) -> str:
        name = self.instance.name
        found = sorted(region for region in regions() if instance_price(name, region) or block_price(name, region))
        return f"there is one in {', '.join(found[:_MOST_REGIONS])} (--region)" if found else ""


def offer(instance: InstanceType, region: str, book: PriceBook) -> Offer:
    """Returns what a region asks for an instance type."""
    return Offer(instance, region, book.instance(instance.name, region), quota_of(instance.name, "on_demand"))


def budget_of(graph: Graph) -> float | None:
    """USD a month of all stacks of a graph; None without one."""
    found = [resource.inputs.get("budgetUsdPerMonth") for resource in graph.of_type(PLATFORM)]
    known = [float(one) for one in found if isinstance(one, int | float) and not isinstance(one, bool)]
    return sum(known) if known else None


def leaves_budget(before: Graph, after: Graph, old: Estimate, new: Estimate) -> Iterator[Danger]:
    """Yields a danger where a stack beyond its budget costs more than before, or where its budget was higher."""
    budget, cost, earlier = budget_of(after), new.totals[1].usd_per_month, budget_of(before)
    if budget is not None and cost > budget and (cost > old.totals[1].usd_per_month or (earlier or math.inf) > budget):
        said = f"the stack costs {per_month(cost)} a month as deployed; its budget is {per_month(budget)}"
        yield Danger("over-budget", said, effects=("budget",))
