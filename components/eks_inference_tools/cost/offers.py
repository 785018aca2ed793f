"""What a region asks for one instance type, on demand or in capacity blocks. Pure."""

from dataclasses import dataclass

from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.prices import BLOCK, Price, block_price, instance_price, outdated
from eks_inference.catalog.quotas import Quota, quota_of
from eks_inference.catalog.zones import regions
from eks_inference_tools.cost.price_book import OWN, PriceBook
from eks_inference_tools.cost.words import unit_price
from stackgraph.graph.values import joined

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
