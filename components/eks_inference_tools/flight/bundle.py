"""The bundle of a flight: what one can send to others. Nothing in it belongs to an account (``redaction.py``). Pure."""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from eks_inference.catalog.prices import HOUR
from eks_inference_tools.cost.price_book import OwnPrices
from eks_inference_tools.flight.evidence import LOAD_METRICS, LOAD_STATISTICS
from eks_inference_tools.flight.journal import Journal
from eks_inference_tools.flight.meter import spent
from eks_inference_tools.flight.planner import Leg
from eks_inference_tools.flight.redaction import redacted_document

SCHEMA = 1
KIND = "eks-inference first flight"

PACKAGES = ("eks-inference", "pulumi", "pulumi-aws", "pulumi-eks", "pulumi-kubernetes")

COLUMNS: Mapping[str, frozenset[str]] = {
    "time": frozenset({"action", "type", "what", "seconds"}),
    "pull": frozenset({"image", "seconds", "gb"}),
    "answer": frozenset({"first_token_s"}),
    "load": frozenset({"tool", "model", "type", "chips", "users", "completed", "failed", "output_tokens_per_s"})
    | frozenset(f"{name}_{statistic}" for name in LOAD_METRICS for statistic in LOAD_STATISTICS),
    "capacity": frozenset({"type", "cpu", "memory_mib", "aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "nvidia.com/gpu"})
    | frozenset({"vpc.amazonaws.com/efa"}),
    "version": frozenset({"what", "value"}),
    "image": frozenset({"image", "started", "why"}),
    "metric": frozenset({"name"}),
    "price": frozenset({"item", "sold", "region", "usd", "unit"}),
    "account": frozenset({"topic", "facts"}),
}
"""The kinds of rows, and what each may have beside ``kind`` and ``date``. Nothing else gets into a bundle."""


def bundle_of(
    journal: Journal,
    legs: Sequence[Leg],
    *,
    region: str,
    now: float,
    landing: str,
    tools: Mapping[str, str],
    prices: OwnPrices,
    known: Collection[str] = (),
) -> dict[str, Any]:
    """Returns the document of a flight.

    ``tools`` are versions of commands. ``known`` are texts that must not be in it, such as names of the stack and of the user.
    """
    date = datetime.fromtimestamp(now, UTC).date().isoformat()
    by_name = {leg.name: leg for leg in legs}
    found = {
        "date": date,
        "region": region,
        "landing": landing,
        "usd_by_price_list": round(spent(journal.spans, now), 2),
        "versions": {**{name: version(name) for name in PACKAGES}, **tools},
        "rungs": [
            {
                "rung": one.rung,
                "outcome": one.outcome,
                "seconds": round(one.seconds),
                "expected": _expected(by_name.get(one.rung)),
                "words": list(one.words),
            }
            for one in journal.passed
        ],
        "rows": [*map(_row, journal.rows), *_price_rows(prices, region, date)],
    }
    # JSON first: what was read from an account may have values of any type.
    plain = json.loads(json.dumps(found, default=str))
    return {"kind": KIND, "schema": SCHEMA, **redacted_document(plain, known)}


def _expected(leg: Leg | None) -> dict[str, Any]:
    if leg is None or not leg.deployments:
        return {}
    seconds = {"low": round(leg.climb.low), "p50": round(leg.climb.p50), "high": round(leg.climb.high)}
    return {"seconds": seconds, "at_least": bool(leg.climb.untimed), "usd_per_hour": round(leg.usd_per_hour, 4)}


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    price = row.get("facts", {}).get("price")
    if price:
        row = {"kind": "price", "sold": price["key"], **price, "date": row["date"]}
    allowed = COLUMNS.get(str(row.get("kind")), frozenset()) | {"kind", "date"}
    return {key: value for key, value in row.items() if key in allowed}


def _price_rows(prices: OwnPrices, region: str, date: str) -> list[dict[str, Any]]:
    """The user's own prices: they may be those that the account was told."""
    found: list[dict[str, Any]] = []
    for item, own in prices.get(region, {}).items():
        for sold in ("on_demand", "spot", "reserved", "usd"):
            if (usd := getattr(own, sold)) is not None:
                row = {"kind": "price", "item": item, "sold": sold, "region": region, "usd": usd, "date": date}
                found.append(row | ({} if sold == "usd" else {"unit": HOUR}))
    return found
