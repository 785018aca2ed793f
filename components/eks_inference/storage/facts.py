"""What the rules of shared file systems judge: one of them, who mounts it, and what they keep in it. Pure; no pulumi."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eks_inference.rules import Path
from eks_inference.storage.plan import store_zone
from eks_inference.storage.spec import EfsStoreSpec, StoreSpec


@dataclass(frozen=True)
class Content:
    """Something that is kept in a store."""

    what: str
    gib: float


@dataclass(frozen=True)
class StoreFacts:
    """A store as it will be. ``pools`` has the zones that each pool whose pods mount it may start nodes in."""

    path: Path
    spec: StoreSpec
    zone_id: str | None
    """The one zone it is in; None: every zone of the network, or not known."""
    network_zone_ids: tuple[str, ...]
    """Zones with private subnets."""
    pools: Mapping[str, tuple[str, ...]]
    contents: tuple[Content, ...]

    @property
    def size_gib(self) -> int | None:
        """What it holds; None: as much as is put into it."""
        return None if isinstance(self.spec, EfsStoreSpec) else self.spec.size_gib


def store_facts(
    spec: StoreSpec,
    *,
    network_zone_ids: Sequence[str],
    pools: Mapping[str, Sequence[str]],
    contents: Sequence[Content] = (),
    path: Path = (),
) -> StoreFacts:
    """The subject of a store. Where its spec names no zone it is in that of the first of ``pools``."""
    zones = next(iter(pools.values()), ())
    mounted_from = {pool: tuple(zone_ids) for pool, zone_ids in pools.items()}
    return StoreFacts(path, spec, store_zone(spec, zones), tuple(network_zone_ids), mounted_from, tuple(contents))


def model_contents(weights_gib: float, tensor_parallel: Sequence[int]) -> tuple[Content, ...]:
    """What a compiled model takes: its weights as published, and a second time split up for each degree it is compiled for.

    Compiled graphs are small beside them and left out. Source: NxD Inference, ``save_sharded_checkpoint``.
    """
    split = (Content(f"weights for tensor parallel {degree}", weights_gib) for degree in tensor_parallel)
    return (Content("model", weights_gib), *split)
