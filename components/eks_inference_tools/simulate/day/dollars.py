"""What the nodes of a day cost: as long as AWS has them, by list prices or a stack's own. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from eks_inference.place.placement import CAPACITY_TYPE_LABEL, INSTANCE_TYPE_LABEL
from eks_inference_tools.cost.price_book import Capacity, PriceBook
from eks_inference_tools.reading.live_objects import Object, labels_of
from eks_inference_tools.simulate.day.loss import GROUPS_CAPACITY_LABEL

_REGION_LABEL = "topology.kubernetes.io/region"
_BOUGHT: dict[str, Capacity] = {"SPOT": "spot", "spot": "spot", "reserved": "reserved", "CAPACITY_BLOCK": "reserved"}


@dataclass(frozen=True)
class Dollars:
    """``usd`` of the nodes that have a price; ``unpriced`` are types without one, ``notes`` what to know of the others."""

    usd: float
    node_hours: float
    unpriced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class Bill:
    """How long which nodes have been there: a node that is cut off costs on."""

    book: PriceBook
    seconds: Counter[tuple[str, str, Capacity]] = field(default_factory=Counter[tuple[str, str, Capacity]])

    def add(self, nodes: Iterable[Object], seconds: float) -> None:
        for node in nodes:
            labels = labels_of(node)
            bought = labels.get(CAPACITY_TYPE_LABEL) or labels.get(GROUPS_CAPACITY_LABEL, "")
            key = labels.get(INSTANCE_TYPE_LABEL, "?"), labels.get(_REGION_LABEL, ""), _BOUGHT.get(bought, "on_demand")
            self.seconds[key] += seconds  # pyright: ignore[reportArgumentType]

    def dollars(self) -> Dollars:
        usd, unpriced, notes = 0.0, dict[str, None](), dict[str, None]()
        for (type_, region, capacity), seconds in self.seconds.items():
            price = self.book.instance(type_, region, capacity)
            if price is None:
                unpriced[f"{type_} in {region}"] = None
                continue
            usd += price.usd * seconds / 3600
            notes |= dict.fromkeys(f"{type_}: {note}" for note in price.notes)
        return Dollars(usd, sum(self.seconds.values()) / 3600, tuple(unpriced), tuple(notes))
