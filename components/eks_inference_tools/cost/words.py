"""Money in words."""

from eks_inference_tools.cost.estimate import Estimate, Total

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


def per_month(usd: float) -> str:
    """``$2,468``: whole dollars."""
    return f"${usd:,.0f}"


def total(amount: Total) -> str:
    """``$12.98``, ``at least $12.98``, or ``no price`` if nothing has one."""
    if amount.at_least and not amount.usd_per_hour:
        return "no price"
    return f"{'at least ' if amount.at_least else ''}{money(amount.usd_per_hour)}"


def in_short(found: Estimate) -> str:
    """``$3.38/h idle, $3.38/h deployed, $7.43/h at most``; one amount if all are equal."""
    least, initial, most = found.totals
    if least == initial == most:
        return f"{total(most)}/h"
    return ", ".join(f"{total(one)}/h {name}" for one, name in zip(found.totals, NAMES, strict=True))
