"""What would make the first answer come sooner: the timeline again, with one fact changed. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from eks_inference.catalog.disks import FAST_IMAGE_PULL
from eks_inference.catalog.times import instance_types_of
from eks_inference_tools.timeline.pods import PodStart
from eks_inference_tools.timeline.timeline import Timeline

_FAST_MIB_S = 1000
"""Throughput of a root volume in the what-if: the figures of soci-snapshotter's authors are for this one."""

_WORTH_S = 5
"""Savings below this are not shown."""


@dataclass(frozen=True)
class WhatIf:
    """A change and what it saves until a server answers first, in seconds (p50)."""

    change: str
    server: str
    saves: float


def what_ifs(timeline: Timeline) -> tuple[WhatIf, ...]:
    """Returns the changes that save time, the largest first. One whose effect has no typical time is left out."""
    found = {one.change: one for one in sorted(_all(timeline), key=lambda one: one.saves)}
    return tuple(sorted(found.values(), key=lambda one: (-one.saves, one.change)))


def _all(timeline: Timeline) -> Iterator[WhatIf]:
    before = {end.name: end for end in timeline.answers}
    for words, change in _changes(timeline):
        starts = {urn: change(start) for urn, start in timeline.starts.items()}
        if starts == timeline.starts:
            continue
        for after in replace(timeline, starts=starts).answers:
            known = len(after.untimed) <= len(before[after.name].untimed)
            if known and (saves := before[after.name].p50 - after.p50) >= _WORTH_S:
                yield WhatIf(words, after.name, saves)


def _changes(timeline: Timeline) -> Iterator[tuple[str, Callable[[PodStart], PodStart]]]:
    yield (
        f"fast_image_pull on the pool (it wants root_volume_mib_s of {FAST_IMAGE_PULL.mib_s} or more)",
        lambda start: replace(start, fast_image_pull=True, disk_mib_s=_at_least(start.disk_mib_s, FAST_IMAGE_PULL.mib_s)),
    )
    yield (
        f"root_volume_mib_s = {_FAST_MIB_S}",
        lambda start: replace(start, disk_mib_s=_at_least(start.disk_mib_s, _FAST_MIB_S)),
    )
    yield (
        "the weights in a store before (what reading them there takes is not counted)",
        lambda start: replace(start, weights_stored=True),
    )
    yield (
        "the model compiled before, as at a second start with the cache of the first",
        lambda start: replace(start, compiled=True),
    )
    formats = {start.fast_load for start in timeline.starts.values() if start.fast_load}
    for name in sorted(formats):
        yield (
            f"load-format: {name} in extra_args (its buffers in the host's memory are not judged)",
            lambda start, name=name: replace(start, load_format=name) if start.fast_load == name else start,
        )
    yield "a node that stands, with the image on it", lambda start: replace(start, new_node="", no_node=False, pulled=True)
    for name in sorted({other for start in timeline.starts.values() for other in _other_types(start)}):
        yield f"{name} for the server", lambda start, name=name: _on(start, name)


def _at_least(mib_s: int | None, least: int) -> int | None:
    return None if mib_s is None else max(mib_s, least)


def _other_types(start: PodStart) -> Iterator[str]:
    """Yields instance types with a typical time of their own for the same model."""
    if start.role == "server" and start.instance_type:
        types = instance_types_of("download and start", start.accelerator, start.billions)
        if start.instance_type in types:
            yield from types - {start.instance_type}


def _on(start: PodStart, instance_type: str) -> PodStart:
    return replace(start, instance_type=instance_type) if instance_type in _other_types(start) else start
