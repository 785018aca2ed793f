"""Prices of the region, by AWS's price list of today, as the file that ``--prices`` reads. Pure."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cache, partial
from importlib.resources import files
from typing import Any

import yaml

from eks_inference.stack.own_rows import MOST_USD
from eks_inference_tools.cost.estimate import Estimate, Priced
from eks_inference_tools.cost.price_book import OWN
from eks_inference_tools.doctor.findings import Finding, ok, unknown
from eks_inference_tools.doctor.questions import Call, Inquiry, call
from stackgraph.graph.values import at, items, text

TOPIC = "prices"

_LIST_REGIONS = {"ap-": "ap-south-1", "cn-": "cn-northwest-1"}
"""Where the price list is asked for regions that begin so; for all others in us-east-1. Source: Karpenter 1.14.1,
pkg/providers/pricing."""

_INSTANCE = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
"""What else a product is (the same source)."""

_HOURS = ("Hrs", "Hours", "hours")


def prices(found: Estimate, today: date) -> Iterator[Inquiry]:
    """Yields what the stack is billed for by the hour or month, once for each item and region."""
    lines = {(one.charge.item, one.charge.region, one.charge.capacity or ""): one for one in found.lines if one.charge.region}
    for (item, region, capacity), line in sorted(lines.items()):
        if capacity == "spot":
            asked = call("ec2.DescribeSpotPriceHistory", region, **_spot_now(item, today))
            yield Inquiry(TOPIC, f"{item}, spot", (asked,), partial(_spot, line=line, today=today))
        elif capacity:
            asked = _list(region, "AmazonEC2", instanceType=item, **_INSTANCE)
            yield Inquiry(
                TOPIC, item, (asked,), partial(_listed, line=line, key="on_demand", units=_HOURS, usage="", today=today)
            )
        elif row := price_rows().get(item):
            filters = {"productFamily": row["family"]} if "family" in row else {}
            asked = _list(region, row["service"], containing=row["usage"], **filters)
            units = _HOURS if row["unit"] in _HOURS else (row["unit"],)
            judge = partial(_listed, line=line, key="usd", units=units, usage=row["usage"], today=today)
            yield Inquiry(TOPIC, item, (asked,), judge)


def price_file(findings: Sequence[Finding]) -> str:
    """The prices among findings as a file of prices (docs/cost.md). Empty without any."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for price in (finding.facts["price"] for finding in findings if "price" in finding.facts):
        row = found.setdefault(price["region"], {}).setdefault(price["item"], {"source": price["source"]})
        row[price["key"]] = price["usd"]
    return yaml.safe_dump(found, sort_keys=True, allow_unicode=True) if found else ""


@cache
def price_rows() -> Mapping[str, Mapping[str, str]]:
    """Where the price list has a service, by the catalog's name: the rows of ``prices.toml``."""
    text_ = files("eks_inference_tools.doctor").joinpath("prices.toml").read_text("utf-8")
    return {name: row for name, row in tomllib.loads(text_)["services"].items() if isinstance(row, dict)}


# -- AWS's price list ------------------------------------------------------------------------------------------------------------


def _list(region: str, service: str, *, containing: str = "", **equal: str) -> Call:
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in {"regionCode": region, **equal}.items()]
    if containing:
        filters.append({"Type": "CONTAINS", "Field": "usagetype", "Value": containing})
    place = next((place for prefix, place in _LIST_REGIONS.items() if region.startswith(prefix)), "us-east-1")
    return call("pricing.GetProducts", place, ServiceCode=service, Filters=filters)


def _listed(
    answer: Mapping[str, Any], line: Priced, key: str, units: Sequence[str], usage: str, today: date
) -> Iterator[Finding]:
    item, region = line.charge.item, line.charge.region
    amounts = sorted({usd for product in _products(answer, usage) for usd in _amounts(product, units)})
    if len(amounts) == 1:
        yield from _price(line, key, amounts[0], "AWS price list", today)
    elif amounts:
        yield unknown(f"{item} in {region}: the price list has several prices, {', '.join(f'${amount:g}' for amount in amounts)}")
    else:
        yield unknown(f"{item} in {region}: the price list has none")


def _products(answer: Mapping[str, Any], usage: str) -> Iterator[Mapping[str, Any]]:
    for item in items(answer.get("PriceList")):
        try:
            product = json.loads(item) if isinstance(item, str) else item
        except ValueError:
            continue
        type_ = text(at(product, "product", "attributes", "usagetype"))
        if isinstance(product, Mapping) and (not usage or type_ == usage or type_.endswith(f"-{usage}")):
            yield product


def _amounts(product: Mapping[str, Any], units: Sequence[str]) -> Iterator[float]:
    """The prices above zero of a product on demand, in USD: of its first tier that costs anything."""
    terms = at(product, "terms", "OnDemand")
    for term in terms.values() if isinstance(terms, Mapping) else ():
        tiers = at(term, "priceDimensions")
        found = [
            (_number(at(tier, "beginRange")), usd)
            for tier in (tiers.values() if isinstance(tiers, Mapping) else ())
            if text(at(tier, "unit")) in units and 0 < (usd := _number(at(tier, "pricePerUnit", "USD"))) <= MOST_USD
        ]
        if found:
            yield min(found)[1]


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


# -- spot ------------------------------------------------------------------------------------------------------------------------


def _spot_now(item: str, today: date) -> dict[str, Any]:
    """The parameters for the spot prices that hold now: those since today."""
    return {"InstanceTypes": [item], "ProductDescriptions": ["Linux/UNIX"], "StartTime": f"{today.isoformat()}T00:00:00Z"}


def _spot(answer: Mapping[str, Any], line: Priced, today: date) -> Iterator[Finding]:
    """The dearest zone of today: pods may land there."""
    found = [usd for item in items(answer.get("SpotPriceHistory")) if 0 < (usd := _number(item.get("SpotPrice"))) <= MOST_USD]
    if found:
        yield from _price(line, "spot", max(found), "spot price, the dearest zone of the day", today)
    else:
        yield unknown(f"{line.charge.item} in {line.charge.region}: no spot price today")


def _price(line: Priced, key: str, usd: float, whence: str, today: date) -> Iterator[Finding]:
    item, region, ours = line.charge.item, line.charge.region, line.price
    compared = ""
    if ours and OWN in ours.notes:
        compared = f"; yours is ${ours.usd:g}"
    elif ours and key != "spot":
        same = abs(ours.usd - usd) < 5e-6
        compared = "; the catalog has the same" if same else f"; the catalog has ${ours.usd:g} of {ours.as_of}"
    fact = {"item": item, "region": region, "key": key, "usd": usd, "source": f"{whence}, {today.isoformat()}"}
    yield ok(f"{item} in {region}: ${usd:g} ({whence}){compared}", price=fact)
