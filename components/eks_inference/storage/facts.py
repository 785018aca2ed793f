"""The subject of the storage rules: a shared file system, the pools that mount it, and its contents. Pure; no pulumi."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from eks_inference.rules import Path
from eks_inference.storage.plan import store_zone
from eks_inference.storage.spec import EfsStoreSpec, StoreSpec


@dataclass(frozen=True)
class Content:
    """An item that a store contains."""

    what: str
    gib: float


@dataclass(frozen=True)
class StoreFacts:
    """A planned store. ``pools`` maps each pool whose pods mount it to the zones of its nodes."""

    about: ClassVar[str] = "stores of models and artifacts"

    path: Path
    spec: StoreSpec
    zone_id: str | None
    """The only zone of the store; None: every zone of the network, or unknown."""
    network_zone_ids: tuple[str, ...]
    """Zones with private subnets."""
    pools: Mapping[str, tuple[str, ...]]
    contents: tuple[Content, ...]

    @property
    def size_gib(self) -> int | None:
        """Capacity of the store; None: unlimited."""
        return None if isinstance(self.spec, EfsStoreSpec) else self.spec.size_gib


def store_facts(
    spec: StoreSpec,
    *,
    network_zone_ids: Sequence[str],
    pools: Mapping[str, Sequence[str]],
    contents: Sequence[Content] = (),
    path: Path = (),
) -> StoreFacts:
    """Returns the subject of a store. Without a zone in its spec, a store is in the first zone of the first of ``pools``."""
    zones = next(iter(pools.values()), ())
    mounted_from = {pool: tuple(zone_ids) for pool, zone_ids in pools.items()}
    return StoreFacts(path, spec, store_zone(spec, zones), tuple(network_zone_ids), mounted_from, tuple(contents))


def model_contents(weights_gib: float, tensor_parallel: Sequence[int]) -> tuple[Content, ...]:
    """Returns the contents of a compiled model: its published weights, and another copy, sharded, per tensor parallel degree.

    Compiled graphs are omitted, because they are small in comparison. Source: NxD Inference, ``save_sharded_checkpoint``.
    """
    split = (Content(f"weights for tensor parallel {degree}", weights_gib) for degree in tensor_parallel)
    return (Content("model", weights_gib), *split)
