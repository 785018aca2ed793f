"""The prices that count: a user's own before those of the catalog. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from eks_inference.catalog.prices import BLOCK, HOUR, Price, block_price, instance_price, service_price, services
from eks_inference.catalog.tables import find
from eks_inference.stack.prices import OwnPrice

Capacity = Literal["on_demand", "spot", "reserved"]
"""How EC2 sells an instance; ``reserved`` is a capacity reservation or a capacity block."""

OwnPrices = Mapping[str, Mapping[str, OwnPrice]]
"""Prices by region and by instance type or service."""

OWN = "own price"
"""The note of a price that a user gave."""


@dataclass(frozen=True)
class PriceBook:
    """Prices by region. The first of ``layers`` that has a price decides; below all of them is the catalog."""

    layers: tuple[OwnPrices, ...] = ()

    def instance(self, type_: str, region: str, capacity: Capacity = "on_demand") -> Price | None:
        """The price of one hour. Spot and reserved capacity without an own price count as on demand, which a note says.

        A type that AWS sells in capacity blocks only costs what a block does, unless it is to be spot.
        """
        for own in self._own(type_, region):
            if (usd := getattr(own, capacity)) is not None:
                return Price(type_, region, usd, HOUR, own.source, "", (OWN,))
        if capacity == "on_demand":
            return instance_price(type_, region) or block_price(type_, region)
        price = self.instance(type_, region)
        if price and BLOCK in price.notes:
            return price if capacity == "reserved" else None
        return price and replace(price, notes=(*price.notes, _COUNTED[capacity].format(type_)))

    def service(self, name: str, region: str) -> Price | None:
        """The price of one unit of a service. Raises ``KeyError`` with the nearest names for an unknown one."""
        unit = find("service", name, services()).unit
        for own in self._own(name, region):
            if own.usd is not None:
                return Price(name, region, own.usd, unit, own.source, "", (OWN,))
        return service_price(name, region)

    def _own(self, name: str, region: str) -> list[OwnPrice]:
        return [layer[region][name] for layer in self.layers if name in layer.get(region, {})]


_COUNTED = {
    "spot": "counted as on demand; spot costs less: give prices.{}.spot",
    "reserved": "counted as on demand; a reservation or capacity block has its own price: give prices.{}.reserved",
}
