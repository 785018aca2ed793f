"""Disaggregated inference over NIXL, and KV cache connectors: loads ``nixl.toml`` and ``connectors.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.tables import Row, arguments, find, load, table

Mark = Literal["documented", "inferred", "unknown"]
"""How sure a fact is: its maker says it or its code does, it follows from what was read, or nobody has said it."""


@dataclass(frozen=True, kw_only=True)
class Marked(Row):
    """A row that says how sure it is."""

    mark: Mark


@dataclass(frozen=True, kw_only=True)
class NixlProfile(Marked):
    """What NIXL needs on one kind of accelerator: ``neuron`` or ``nvidia``."""

    chips: tuple[str, ...]
    """Chips whose memory EFA interfaces read and write directly."""
    elsewhere: str
    """Why other chips are not supported."""
    buffer_device: str
    """``kv_buffer_device`` of ``--kv-transfer-config``."""
    buffer_device_required: bool
    """Whether it has to be written, since no default works."""
    backends: tuple[str, ...]
    """NIXL backends that carry KV caches over EFA at its speed."""
    connector: str
    """``kv_connector`` for models whose layers all attend to everything."""
    connector_of_windows: str
    """``kv_connector`` for models with sliding windows, and for decode context parallelism."""
    environment: Mapping[str, str]
    """Variables of all servers."""
    interfaces_per_device: int
    """EFA interfaces that a pod requests for each device. 0: the pod gets interfaces in proportion to its devices."""
    models: tuple[str, ...]
    """Models of the catalog documented for disaggregated inference; empty: all that the engine serves, except ``unproven``."""
    unlisted: str
    """What the documents list, for messages about other models."""
    unproven: tuple[str, ...]
    """Architectures that the documents mark as not validated."""

    def reason_against(self, instance: InstanceType) -> str:
        """Why KV caches do not cross EFA on an instance type; empty if they do."""
        if instance.chip not in self.chips:
            return self.elsewhere
        return "" if instance.efa_interfaces else "it has no EFA"

    def connector_for(self, window: int, *, context_parallel: bool = False) -> str:
        """Returns the connector for a model with this sliding window (0: none)."""
        return self.connector_of_windows if window or context_parallel else self.connector


@dataclass(frozen=True, kw_only=True)
class Leases(Marked):
    """How long prefill keeps what decode has not read."""

    key: str
    """Key of ``kv_connector_extra_config``, in seconds."""
    since: tuple[int, ...]
    """First vLLM release with leases."""
    engine_default_s: int
    least_s: int
    most_s: int
    """Sensible values."""


@dataclass(frozen=True, kw_only=True)
class SideChannel(Marked):
    """Where servers ask each other for the addresses of KV caches."""

    host: str
    """Variable with the address of a server, which prefill hands to decode."""
    host_field: str
    """The field of a pod that it comes from."""
    port: str
    """Variable with the port; with data parallelism the first of several."""
    default_port: int


@dataclass(frozen=True, kw_only=True)
class NixlConnectorRow(Marked):
    """A connector over NIXL."""

    same_as: str = ""
    """Another name of the same connector; empty where it has none."""
    refused: str = ""
    """Why the library refuses it; empty where it does not."""


def nixl_profile(accelerator: str) -> NixlProfile:
    """Returns what NIXL needs on a kind of accelerator. Raises ``KeyError`` for a kind without a row."""
    return find("nixl.toml [profiles]", accelerator, _profiles())


@cache
def leases() -> Leases:
    return Leases(name="leases", **arguments(table("nixl.toml")["leases"]))


@cache
def side_channel() -> SideChannel:
    return SideChannel(name="side_channel", **arguments(table("nixl.toml")["side_channel"]))


@cache
def nixl_connectors() -> dict[str, NixlConnectorRow]:
    """All known connectors over NIXL, by their ``kv_connector`` name."""
    return {name: NixlConnectorRow(name=name, **arguments(row)) for name, row in table("nixl.toml")["connectors"].items()}


@cache
def _profiles() -> dict[str, NixlProfile]:
    return {name: NixlProfile(name=name, **arguments(row)) for name, row in table("nixl.toml")["profiles"].items()}


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
