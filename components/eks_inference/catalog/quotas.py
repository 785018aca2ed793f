"""Service Quotas of an account and region: loads ``quotas.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from eks_inference.catalog.instances import InstanceType, instance_type
from eks_inference.catalog.tables import Row, arguments, find, rows, table


@dataclass(frozen=True, kw_only=True)
class Quota(Row):
    """How much of something an account may have."""

    title: str
    """The quota's name in Service Quotas."""
    service: str
    """The service's code in Service Quotas: ``ec2``."""
    code: str
    """The quota's code there: ``L-1945791B``."""
    unit: str
    """What is counted: ``vCPU``, ``GiB``, ``gateway``."""
    default: int
    """The value of a new account; that of an account in use is often higher."""
    families: tuple[str, ...] = ()
    """The instance families with accelerators that count towards it."""
    of_general: bool = False
    """Whether instances without accelerators count towards it."""

    @property
    def of_instances(self) -> bool:
        return bool(self.families) or self.of_general

    def counts(self, instance: InstanceType) -> bool:
        # The title lists the first letters of families: one of your own may count towards another quota.
        letters = self.title.partition("(")[2].partition(")")[0].split(", ")
        standard = self.of_general and instance.family[:1].upper() in letters
        return instance.family in self.families if instance.accelerator else standard


def quota_of(type_: str, capacity: str) -> Quota | None:
    """The quota that an instance counts towards, in vCPUs. ``capacity`` is ``on_demand``, ``spot`` or ``reserved``.

    None where the catalog lacks it. ``reserved`` has none: EC2 counted a reservation as on demand when it was made, and capacity
    blocks have quotas of their own. Raises ``KeyError`` for an unknown type.
    """
    found = instance_type(type_)
    return next((one for one in quotas_of(capacity).values() if one.counts(found)), None)


def quota(name: str) -> Quota:
    """A quota of something else, by its name in ``quotas.toml``. Raises ``KeyError`` with the nearest names."""
    return find("quota", name, quotas_of("others"))


@cache
def quotas_of(section: str) -> Mapping[str, Quota]:
    """The quotas of a section of ``quotas.toml``, by name: ``on_demand``, ``spot`` or ``others``; empty for another."""
    around = table("quotas.toml").get(section, {})
    origin = {"source": around.get("source", ""), "read": around.get("read", "")}
    return {name: Quota(name=name, **origin, **arguments(row)) for name, row in rows(around).items()}
