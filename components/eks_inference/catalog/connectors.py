"""KV cache connectors: loads ``connectors.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.tables import Row, find, load


@dataclass(frozen=True)
class Connector(Row):
    """Moves a KV cache from one server to another."""

    instance_types: tuple[str, ...]
    """Instance types on which the library offers a pair of servers with this connector."""
    elsewhere: str
    """Why other instance types are not supported."""
    chips: Mapping[str, str] = field(default_factory=dict)
    """Why certain chips are not supported, by chip; overrides ``elsewhere``."""

    def reason_against(self, instance: InstanceType) -> str:
        """Why the connector is not offered on an instance type; empty if it is."""
        return "" if instance.name in self.instance_types else self.chips.get(instance.chip, self.elsewhere)


@cache
def connectors() -> dict[str, Connector]:
    """All known connectors by name."""
    return load(Connector, "connectors.toml")


def connector(name: str) -> Connector:
    """Returns one connector. Raises ``KeyError`` with the nearest names if it is unknown."""
    return find("connector", name, connectors())
