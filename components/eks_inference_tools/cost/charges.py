"""What AWS charges for: amounts of instance types and services, without prices. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from eks_inference_tools.cost.price_book import Capacity
from eks_inference_tools.placing.scale import Scale

Part = Literal["nodes", "control plane", "network", "storage", "logs", "other"]
PARTS: tuple[Part, ...] = ("nodes", "control plane", "network", "storage", "logs", "other")
"""The parts of a bill, in the order in which views show them."""

SCALES: tuple[Scale, ...] = ("least", "initial", "most")

Amounts = tuple[float, float, float]
"""Units at each of ``SCALES``."""


@dataclass(frozen=True)
class Charge:
    """Something that is billed for each hour or month that it exists.

    ``item`` is an instance type, with ``capacity`` as ``PriceBook`` calls it, or the name of a service. ``owner`` says in a word
    whose it is, such as the name of a pool.
    """

    part: Part
    owner: str
    what: str
    item: str
    region: str
    urn: str
    amounts: Amounts
    capacity: Capacity | None = None


@dataclass(frozen=True)
class ByUse:
    """Something that is billed by use, which nobody knows beforehand: traffic, logs, contents of buckets."""

    part: Part
    what: str
    item: str
    region: str
    urn: str


@dataclass(frozen=True)
class Uncounted:
    """Something that may cost money and is in no total, with the reason."""

    what: str
    why: str
    urn: str = ""

    @property
    def shown(self) -> str:
        return f"{self.what}: {self.why}"


Found = Iterator[Charge | ByUse | Uncounted]
