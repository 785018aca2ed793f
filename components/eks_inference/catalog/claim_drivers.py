"""Dynamic resource allocation: loads ``claims.toml``."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.tables import Row, arguments, find, table


@dataclass(frozen=True)
class Driver(Row):
    """A driver that offers one kind of device for claims: ``neuron``, ``nvidia`` or ``efa``."""

    driver: str
    """Its name in ResourceSlices and attributes."""
    device_class: str
    """The DeviceClass that its chart installs and that claims name."""
    selector: str
    """The expression (CEL) by which the DeviceClass selects devices."""
    chart: str
    """Its Helm chart, a row of ``versions.toml``."""
    kubernetes: str
    """Oldest Kubernetes version of the control plane that the driver is documented for."""
    nodes: str = ""
    """Oldest Kubernetes release of nodes, where the documents name one."""


@dataclass(frozen=True)
class Published(Row):
    """What the Neuron driver publishes of the devices of an instance family."""

    groups: tuple[int, ...]
    """Numbers of connected devices for which devices have an attribute ``resource.aws.com/devicegroup<number>_id``."""
    columns: int
    """Devices in a row of the torus: device = columns * x + y. 0: not a torus, or unknown."""
    assumed: str = ""
    """What of this is assumed; empty where a slice was seen."""
    doubt: str = ""
    """Why it is doubtful that the driver serves the family; empty where it is not."""


def driver(kind: str) -> Driver:
    """Returns the driver of a kind of device. Raises ``KeyError`` for a kind without one."""
    return find("claims.toml [drivers]", kind, drivers())


@cache
def drivers() -> dict[str, Driver]:
    """All known drivers by kind of device."""
    return {name: Driver(name=name, **arguments(row)) for name, row in _tables("drivers").items()}


def published(instance: InstanceType) -> Published | None:
    """What the driver publishes of the devices of an instance type; None where the catalog does not say."""
    return _published().get(instance.family)


@cache
def _published() -> dict[str, Published]:
    return {name: Published(name=name, **arguments(row)) for name, row in _tables("published").items()}


def most_devices_per_claim() -> int:
    """The most devices that a scheduler may allocate to one claim."""
    return table("claims.toml")["limits"]["devices_per_claim"]


def _tables(section: str) -> dict[str, Any]:
    return table("claims.toml")[section]
