"""Connectors of KV caches as data: ``connectors.toml`` and its typed loader."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.tables import arguments, missing, table


@dataclass(frozen=True)
class Connector:
    """What moves a KV cache from one server to another."""

    name: str
    instance_types: tuple[str, ...]
    """The instance types a pair of servers with it is offered for."""
    elsewhere: str
    """Why it is not offered for others."""
    source: str
    """Where the row comes from."""
    read: str
    """When it was read: a month or a day, ISO."""
    chips: Mapping[str, str] = field(default_factory=dict)
    """Why it is not offered for certain chips, by chip."""

    def reason_against(self, instance: InstanceType) -> str:
        """Why it is not offered for an instance type; empty where it is."""
        return "" if instance.name in self.instance_types else self.chips.get(instance.chip, self.elsewhere)


@cache
def connectors() -> dict[str, Connector]:
    """All known connectors by name."""
    return {name: Connector(name=name, **arguments(row)) for name, row in table("connectors.toml").items()}


def connector(name: str) -> Connector:
    """The connector of that name; ``KeyError`` with the nearest names when there is none."""
    if name not in connectors():
        raise missing(f"connector '{name}' is not in the catalog", name, connectors())
    return connectors()[name]
