"""Rules about shared file systems. Ids STO…"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from eks_inference.rules import Judgement, Path, ReadRule, not_judged, rule
from eks_inference.storage.plan import store_zone
from eks_inference.storage.spec import EfsStoreSpec, ExistingStoreSpec, LustreStoreSpec, StoreSpec, lustre_size_gib


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


LUSTRE_SIZES = ReadRule(
    "STO003",
    "The size of an FSx for Lustre file system is available.",
    fix="choose 1200 or a multiple of 2400",
    source="FSx API reference, CreateFileSystem: StorageCapacity",
)


@rule(
    "STO001",
    "Nodes are in the zone of the file system they mount.",
    severity="warning",
    fix="set the pool's zone_ids to that zone only, or choose kind: efs, which is in every zone",
    source="FSx for Lustre user guide, Best practices: a file system is in one zone; other zones pay for traffic and wait",
)
def nodes_are_near(store: StoreFacts) -> Iterator[Judgement]:
    if store.zone_id is None:
        return
    for pool, zone_ids in store.pools.items():
        yield Judgement(
            holds=set(zone_ids) == {store.zone_id},
            path=store.path,
            working=(f"file system: {store.zone_id}; pool '{pool}': {', '.join(zone_ids) or 'any zone'}",),
            message=f"nodes of pool '{pool}' may start outside {store.zone_id}, the zone of the file system",
            given=", ".join(zone_ids),
            allowed=store.zone_id,
        )


@rule(
    "STO002",
    "A file system of a fixed size holds the model and its sharded weights for each tensor parallel degree.",
    fix="choose a larger file system, or kind: efs, which has no fixed size",
    source="NxD Inference: save_sharded_checkpoint stores another copy of the weights per tensor parallel degree",
)
def has_room(store: StoreFacts) -> Iterator[Judgement]:
    if store.size_gib is None:
        return
    if not store.contents:
        yield not_judged(
            "room",
            f"a file system of {store.size_gib} GiB",
            (*store.path, "size_gib"),
            why="the catalog does not know the model, so not its size either",
            fix="add the model's row to catalog/models.toml, or compare the size with that of its files",
        )
        return
    needed = sum(content.gib for content in store.contents)
    parts = " + ".join(f"{content.gib:.1f} ({content.what})" for content in store.contents)
    ours = isinstance(store.spec, LustreStoreSpec)
    yield Judgement(
        holds=needed <= store.size_gib,
        path=(*store.path, "size_gib"),
        working=(f"{parts} = {needed:.1f} GiB of {store.size_gib} GiB ({needed / store.size_gib:.0%})",),
        message=f"{needed:.1f} GiB do not fit into {store.size_gib} GiB",
        given=str(store.size_gib),
        allowed=f"at least {lustre_size_gib(needed) if ours else f'{needed:.0f}'}",
    )


@rule(
    "STO004",
    "The network has private subnets in the zones of the file system.",
    fix="choose a zone of the network, or add the zone to the network (network.zone_ids)",
    source="EFS API reference, CreateMountTarget; FSx API reference, CreateFileSystem: a Lustre file system has one subnet",
)
def subnets_where_it_is(store: StoreFacts) -> Iterator[Judgement]:
    if isinstance(store.spec, ExistingStoreSpec):
        return
    zones = ", ".join(store.network_zone_ids) or "none"
    lustre = isinstance(store.spec, LustreStoreSpec)
    place = (store.zone_id or "no zone specified") if lustre else "every zone"
    yield Judgement(
        holds=store.zone_id in store.network_zone_ids if lustre else bool(store.network_zone_ids),
        path=(*store.path, "zone_id") if lustre else store.path,
        working=(f"file system: {place}; private subnets: {zones}",),
        message="FSx for Lustre is in one zone, and none is specified"
        if lustre and not store.zone_id
        else "the network has no private subnet for the file system",
        given=store.zone_id or "",
        allowed=zones,
    )
