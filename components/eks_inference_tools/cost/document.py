"""An estimate as plain data, for JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from eks_inference.catalog.prices import Price
from eks_inference_tools.cost.estimate import Estimate, Priced, Rate, Unused
from eks_inference_tools.cost.money import MEANING
from eks_inference_tools.cost.needed_quotas import Need, needs
from eks_inference_tools.cost.price_book import Charge
from stackgraph.graph.document import Graph
from stackgraph.strict_json import OrNull

_KEYS = ("idle", "deployed", "atMost")
_PRICE = OrNull({"usd": float, **dict.fromkeys(("unit", "source", "asOf"), str), "notes": [str]})
_SCALES = dict.fromkeys(_KEYS, float)
_USE = dict.fromkeys(("part", "what", "item", "region", "urn"), str)
SHAPE = {
    "meaning": str,
    "currency": str,
    "totals": {key: {"perHour": float, "perMonth": float, "atLeast": bool} for key in _KEYS},
    "parts": {"*": _SCALES},
    "lines": [{**_USE, "owner": str, "capacity": str | None, "price": _PRICE, "amounts": _SCALES, "perHour": _SCALES}],
    "perMillionOutputTokens": [{"run": str, "tokensPerSecond": float, "deployed": float, "atLeast": bool}],
    "byUse": [{**_USE, "price": _PRICE}],
    "withoutPrice": [str],
    "notCounted": [dict.fromkeys(("what", "why", "urn"), str)],
    "unused": [Unused],
    "notes": [str],
    "quotas": [
        {
            "region": str,
            "amount": float,
            **dict.fromkeys(("title?", "service?", "code?", "unit?", "unknown?"), str),
            "newAccount?": float | None,
        }
    ],
}
"""``cost`` of `preview`."""


def document(graph: Graph, found: Estimate, measured: Sequence[Rate] = ()) -> dict[str, Any]:
    """The totals and their lines. Amounts are USD per hour; ``atLeast`` says that something in a total has no price."""
    return {
        "meaning": MEANING,
        "currency": "USD",
        "totals": {
            key: {"perHour": round(total.usd_per_hour, 6), "perMonth": round(total.usd_per_month, 2), "atLeast": total.at_least}
            for key, total in zip(_KEYS, found.totals, strict=True)
        },
        "parts": {
            part: {key: round(found.total(scale, part).usd_per_hour, 6) for scale, key in enumerate(_KEYS)}
            for part in found.parts
        },
        "lines": [_line(line) for line in found.lines],
        "perMillionOutputTokens": [
            {
                "run": rate.run,
                "tokensPerSecond": rate.tokens_per_s,
                "deployed": round(rate.usd_per_million(found.totals[1]), 6),
                "atLeast": found.totals[1].at_least,
            }
            for rate in measured
        ],
        "byUse": [
            {"part": use.part, "what": use.what, "item": use.item, "region": use.region, "urn": use.urn, "price": _price(price)}
            for use, price in found.by_use
        ],
        "withoutPrice": list(found.missing()),
        "notCounted": [{"what": uncounted.what, "why": uncounted.why, "urn": uncounted.urn} for uncounted in found.uncounted],
        "unused": [asdict(unused) for unused in found.unused],
        "notes": list(found.notes()),
        "quotas": [_need(need) for need in needs(graph, found)],
    }


def _line(one: Priced) -> dict[str, Any]:
    charge: Charge = one.charge
    return {
        "part": charge.part,
        "owner": charge.owner,
        "what": charge.what,
        "item": charge.item,
        "capacity": charge.capacity,
        "region": charge.region,
        "urn": charge.urn,
        "price": _price(one.price),
        "amounts": dict(zip(_KEYS, charge.amounts, strict=True)),
        "perHour": {key: round(one.usd_per_hour(scale), 6) for scale, key in enumerate(_KEYS)},
    }


def _price(price: Price | None) -> dict[str, Any] | None:
    if price is None:
        return None
    return {"usd": price.usd, "unit": price.unit, "source": price.source, "asOf": price.as_of, "notes": list(price.notes)}


def _need(need: Need) -> dict[str, Any]:
    of, found = {"region": need.region, "amount": need.amount}, need.quota
    if found is None:
        return {**of, "unknown": need.why}
    known = {"title": found.title, "service": found.service, "code": found.code, "unit": found.unit, "newAccount": found.default}
    return {**of, **known}
