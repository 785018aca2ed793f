"""What a shared file system must keep to. Numbers STO…"""

from collections.abc import Iterator

from eks_inference.rules import Judgement, ReadRule, rule
from eks_inference.storage.capacity import lustre_size_gib
from eks_inference.storage.facts import StoreFacts
from eks_inference.storage.spec import ExistingStoreSpec, LustreStoreSpec

LUSTRE_SIZES = ReadRule(
    "STO003",
    "FSx for Lustre has a size that there is.",
    fix="give 1200, or a multiple of 2400",
    source="FSx API reference, CreateFileSystem: StorageCapacity",
)


@rule(
    "STO001",
    "Nodes are in the zone of the file system they mount.",
    severity="warning",
    fix="give the pool's zone_ids that zone alone, or take kind: efs, which is in every zone",
    source="FSx for Lustre user guide, Best practices: data between zones costs and waits; FSx for Lustre is in one",
)
def nodes_are_near(store: StoreFacts) -> Iterator[Judgement]:
    if store.zone_id is None:
        return
    for pool, zone_ids in store.pools.items():
        yield Judgement(
            holds=set(zone_ids) == {store.zone_id},
            path=store.path,
            working=(f"file system: {store.zone_id}; pool '{pool}': {', '.join(zone_ids) or 'any zone'}",),
            message=f"nodes of pool '{pool}' may start outside of {store.zone_id}, where the file system is",
            given=", ".join(zone_ids),
            allowed=store.zone_id,
        )


@rule(
    "STO002",
    "A file system of a fixed size holds the model, and its weights split up for each degree it is compiled for.",
    fix="choose a larger file system, or kind: efs, which has no size",
    source="NxD Inference: save_sharded_checkpoint keeps the weights once more for each tensor parallel degree",
)
def has_room(store: StoreFacts) -> Iterator[Judgement]:
    if store.size_gib is None or not store.contents:
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
    "The network has private subnets where the file system is to be.",
    fix="name a zone of the network, or span the network over that zone (network.zone_ids)",
    source="EFS API reference, CreateMountTarget; FSx API reference, CreateFileSystem: one subnet for a Lustre file system",
)
def subnets_where_it_is(store: StoreFacts) -> Iterator[Judgement]:
    if isinstance(store.spec, ExistingStoreSpec):
        return
    zones = ", ".join(store.network_zone_ids) or "none"
    lustre = isinstance(store.spec, LustreStoreSpec)
    place = (store.zone_id or "no zone named") if lustre else "every zone"
    yield Judgement(
        holds=store.zone_id in store.network_zone_ids if lustre else bool(store.network_zone_ids),
        path=(*store.path, "zone_id") if lustre else store.path,
        working=(f"file system: {place}; private subnets: {zones}",),
        message="FSx for Lustre is in one zone, and none is named"
        if lustre and not store.zone_id
        else "the network has no private subnet where the file system is to be",
        given=store.zone_id or "",
        allowed=zones,
    )
