"""A user's own rows: files of the catalog, which count while a stack is read, and prices in a stack file or a price file
(negotiated, or those of a Savings Plan, a capacity block or one day).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.own import LARGEST, count
from eks_inference.catalog.prices import block_price, instance_price, services
from eks_inference.catalog.tables import nearest
from eks_inference.faults import Fault
from eks_inference.specs.base import Spec, listed
from eks_inference.specs.project_files import read_file

MOST_USD = 1000
"""The dearest instance costs 361 USD an hour (u7in-32tb.224xlarge, the list of Karpenter 1.14.1). More has another unit."""

Usd = Annotated[float, Field(gt=0, le=MOST_USD, allow_inf_nan=False)]

PricedName = Annotated[str, Field(json_schema_extra=listed("Price"))]
"""An instance type, or a service of the catalog."""

CAPACITIES = ("on_demand", "spot", "reserved")

_INSTANCE_TYPE = re.compile(r"[a-z][a-z0-9-]*\.(nano|micro|small|medium|(\d+x)?large|metal(-\d+xl)?)")


class OwnPrice(Spec):
    """What a user pays for one instance type or one service, in USD."""

    on_demand: Usd | None = Field(default=None, description="An hour of an instance on demand, also within a Savings Plan.")
    spot: Usd | None = Field(default=None, description="An hour of a spot instance.")
    reserved: Usd | None = Field(default=None, description="An hour of an instance in a capacity reservation or capacity block.")
    usd: Usd | None = Field(default=None, description="One unit of a service. The unit is that of the list price.")
    source: str = Field(min_length=3, max_length=200, description="Where the price is from. Reports show it beside the price.")


def node_prices(types: Iterable[str], own: Mapping[str, OwnPrice], region: str) -> Mapping[str, float]:
    """USD an hour of instance types, of those that have a price. Spot counts as on demand, unless there is an own price alone."""
    found: dict[str, float] = {}
    for name in types:
        given = [usd for key in CAPACITIES if name in own and (usd := getattr(own[name], key)) is not None]
        listed_price = instance_price(name, region) or block_price(name, region)
        if given or listed_price:
            found[name] = max(given) if given or listed_price is None else listed_price.usd
    return found


def price_faults(prices: Mapping[str, OwnPrice], above: tuple[str, ...], *, catalog_only: bool) -> Iterator[Fault]:
    """Yields names that have no price, and prices of a kind that the name does not have.

    ``catalog_only`` refuses instance types that the catalog lacks, as no pool of a stack can have them. A file for several
    programs may name any type whose family the catalog does not list completely.
    """
    for name, own in prices.items():
        path = (*above, name)
        given = [key for key in (*CAPACITIES, "usd") if getattr(own, key) is not None]
        if name in services():
            allowed = ["usd"]
        elif name in instance_types() or (not catalog_only and _may_be_sold(name)):
            allowed = list(CAPACITIES)
        else:
            like = nearest(name, [*services(), *instance_types()])
            hint = f"nearest: {', '.join(like)}" if like else ""
            yield Fault(path, "nothing with a price has this name", name, "an instance type or a service of the catalog", hint)
            continue
        for key in given:
            if key not in allowed:
                yield Fault((*path, key), f"{name} has no such price", key, ", ".join(allowed))
        if not given:
            yield Fault(path, "the price is missing", "only a source", ", ".join(allowed))


def _may_be_sold(name: str) -> bool:
    """Whether a name has the form of an instance type, of a family of which EC2 may sell sizes that the catalog lacks."""
    family = name.partition(".")[0]
    complete = {instance_type.family for instance_type in instance_types().values() if instance_type.every_size}
    return bool(_INSTANCE_TYPE.fullmatch(name)) and family not in complete


def use_catalog(files: Sequence[str]) -> None:
    """Makes the rows of these files count, in place of those of the stack before. Raises ``SpecError`` with every fault."""
    count({file: read_file(file, LARGEST) for file in files})
