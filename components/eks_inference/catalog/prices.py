"""List prices of AWS in USD: instances from ``prices_instances.json``, what it lacks and everything else from ``prices.toml``.

A price holds for one region and the day of its source. A region without a row has no price; another region's price is never used.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from eks_inference.catalog import tables
from eks_inference.catalog.tables import find, rows, table
from eks_inference.catalog.zones import regions

REFERENCE_REGION = "us-east-1"
"""Where both tables of instance prices are compared."""

HOUR = "hour"

ROUNDED = "rounded to cents"
"""The note of an instance's price in ``prices.toml``."""

BLOCK = "capacity block: AWS sells this type in no other way"
"""The note of a capacity block's price."""

EVERY_REGION = "every"
"""Stands in ``prices.toml`` for all regions of the catalog."""

_NameAndRegion = tuple[str, str]


@dataclass(frozen=True)
class Price:
    """What AWS, or whoever gave the price, asks for one unit."""

    name: str
    """An instance type, or the name of a service in ``prices.toml``."""
    region: str
    usd: float
    unit: str
    """``hour``, ``GB``, ``GiB-month`` and so on. A month has 730 hours, as in AWS's price list."""
    source: str
    as_of: str
    """The month or day (ISO) on which the source had this price; empty for a price that a user gave."""
    notes: tuple[str, ...] = ()
    """Caveats about the price, such as a single source."""


@dataclass(frozen=True)
class Service:
    """What a price of ``prices.toml`` is for."""

    name: str
    unit: str
    what: str
    """What one unit is of, in words."""


def instance_price(type_: str, region: str) -> Price | None:
    """On demand, Linux, shared hardware, for one hour. None without a price, or with an outdated one only."""
    return _instance_prices(type_, region)[0]


def outdated(type_: str, region: str) -> Price | None:
    """The price that ``instance_price`` leaves out: newer sources differ in us-east-1, or have none on demand. See its note."""
    return _instance_prices(type_, region)[1]


def block_price(type_: str, region: str) -> Price | None:
    """An hour of a capacity block, for the types that AWS sells in no other way."""
    blocks = table("prices.toml")["capacity_blocks"]
    usd = blocks["usd"].get(type_, {}).get(region)
    return Price(type_, region, usd, HOUR, blocks["source"], blocks["read"], (BLOCK,)) if usd else None


def services() -> Mapping[str, Service]:
    """All services that may have prices, by name."""
    return _services()


def service_price(name: str, region: str) -> Price | None:
    """The price of a service. None if the region has no row. Raises ``KeyError`` with the nearest names for an unknown name."""
    find("service", name, _services())
    return _service_prices().get((name, region))


# -- instances ------------------------------------------------------------------------------------------------------------------


@cache
def instance_tables() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Both tables as their sources have them: the newer, of us-east-1 only, and the older, of all regions."""
    found = json.loads((tables.FOLDER / "prices_instances.json").read_text("utf-8"))
    return found["newer"], found["older"]


@cache
def _instance_prices(type_: str, region: str) -> tuple[Price | None, Price | None]:
    """The price of a type, or the outdated one."""
    newer, older = instance_tables()
    now, before = (one["usd"][REFERENCE_REGION].get(type_) for one in (newer, older))
    notes = () if now and before else ("single source",)
    if usd := newer["usd"].get(region, {}).get(type_):
        return Price(type_, region, usd, HOUR, newer["source"], newer["as_of"], notes), None
    rounded = table("prices.toml")["gpu_instances"]
    if usd := rounded["usd"].get(type_, {}).get(region):
        return Price(type_, region, usd, HOUR, rounded["source"], rounded["read"], (*notes, ROUNDED)), None
    if not (usd := older["usd"].get(region, {}).get(type_)):
        return None, None
    price = Price(type_, region, usd, HOUR, older["source"], older["as_of"], notes)
    if read := _no_longer_on_demand(type_):
        return None, replace(price, notes=(f"outdated: {usd:g} in {older['as_of']}, none on demand in {read}",))
    if now and before and now != before:
        note = f"outdated: in {REFERENCE_REGION} {before:g} in {older['as_of']}, {now:g} in {newer['as_of']}"
        return None, replace(price, notes=(note,))
    return price, None


def _no_longer_on_demand(type_: str) -> str:
    """When a source had no price on demand for a type; empty if none said so."""
    return max((one["read"] for one in table("prices.toml")["blocks_only"].values() if type_ in one["types"]), default="")


# -- services -------------------------------------------------------------------------------------------------------------------


@cache
def _services() -> Mapping[str, Service]:
    return {name: Service(name=name, **row) for name, row in rows(table("prices.toml")["services"]).items()}


@cache
def _service_prices() -> Mapping[_NameAndRegion, Price]:
    found: dict[_NameAndRegion, Price] = {}
    lists = [(one, of, row) for one in table("prices.toml")["lists"].values() for of, row in one["usd"].items()]
    # A region's own rows come last, and so before those for every region.
    for one, of, row in sorted(lists, key=lambda each: each[1] != EVERY_REGION):
        for region in regions() if of == EVERY_REGION else (of,):
            for name, usd in row.items():
                found[name, region] = Price(name, region, usd, _services()[name].unit, one["source"], one["read"])
    return found
