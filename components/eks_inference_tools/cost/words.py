"""Money in words."""

from eks_inference.catalog.prices import HOUR, Price
from eks_inference_tools.cost.estimate import Estimate, Total
from stackgraph.graph.values import unique

NAMES = ("idle", "deployed", "at most")
"""What views call each of ``charges.SCALES``."""

MEANING = (
    "By list prices. Idle: the fewest pods that autoscalers keep. At most: the most pods that they start, and all nodes of "
    "managed node groups. Karpenter's nodes are those that the pods ask for. Jobs, which end, are not counted."
)


def money(usd: float) -> str:
    """``$12.98``; amounts below ten cents with two significant digits: ``$0.005``."""
    if usd < 0:
        return f"−{money(-usd)}"
    return f"${usd:,.2f}" if usd >= 0.095 or usd == 0 else f"${usd:.2g}"


def unit_price(price: Price) -> str:
    """``$0.08 per GiB-month``; per hour where nothing is said."""
    return f"${price.usd:.6g}" + ("" if price.unit == HOUR else f" per {price.unit}")


def per_month(usd: float) -> str:
    """``$2,468``: whole dollars."""
    return f"${usd:,.0f}"


def total(amount: Total) -> str:
    """``$12.98``, ``at least $12.98``, or ``no price`` if nothing has one."""
    if amount.at_least and not amount.usd_per_hour:
        return "no price"
    return f"{'at least ' if amount.at_least else ''}{money(amount.usd_per_hour)}"


def summary(found: Estimate) -> tuple[str, ...]:
    """What a stack costs, in a few lines for formats without tables. Empty if nothing costs anything."""
    if not found.lines:
        return ()
    months = ", ".join(unique(per_month(one.usd_per_month) for one in found.totals))
    lines = [f"cost: {in_short(found)} ({months} a month), by list prices; without traffic, logs and contents of stores"]
    lines += [f"cost: {line}" for line in (*found.missing(), *(one.shown for one in found.uncounted))]
    return tuple(lines)


def in_short(found: Estimate) -> str:
    """``$3.38/h idle, $3.38/h deployed, $7.43/h at most``; one amount if all are equal."""
    least, initial, most = found.totals
    if least == initial == most:
        return f"{total(most)}/h"
    return ", ".join(f"{total(one)}/h {name}" for one, name in zip(found.totals, NAMES, strict=True))
