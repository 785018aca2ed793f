"""The timeline of a graph: when `pulumi up` is done, when each model server answers first, how long a destroy takes. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from eks_inference.catalog.instances import FAST_IMAGE_PULL
from eks_inference.catalog.times import PASSES, Pass, instance_types_of
from eks_inference_tools.reading.clusters import parts
from eks_inference_tools.reading.object_kinds import title_of
from eks_inference_tools.timeline.pod_phases import PodStart
from eks_inference_tools.timeline.schedule import Schedule, Step, schedules
from eks_inference_tools.timeline.starts import Starts
from eks_inference_tools.timeline.update_steps import creation, deletion
from stackgraph.graph.document import Graph, Resource

CAVEAT = "Typical times that others published. They are no promise: they were not measured with this program."


@dataclass(frozen=True)
class End:
    """When something has happened, in seconds from the beginning.

    ``step`` is the id of the step that decides, empty if nothing takes time. ``untimed`` are the steps before it, itself among
    them, that have no typical time: with any of them, the seconds are a lower bound.
    """

    name: str
    step: str
    p50: float
    low: float
    high: float
    untimed: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Course:
    """Steps with one schedule for each pass."""

    steps: tuple[Step, ...]

    @cached_property
    def schedules(self) -> Mapping[Pass, Schedule]:
        return schedules(self.steps)

    @property
    def typical(self) -> Schedule:
        return self.schedules["p50"]

    def end(self, name: str, among: Iterable[str]) -> End:
        """Returns when all of these steps have ended."""
        ids = tuple(among)
        low, p50, high = (max((self.schedules[which].spans[id_].end for id_ in ids), default=0.0) for which in PASSES)
        return End(name, self.typical.last(ids), p50, low, high, self._untimed(ids))

    def path(self, end: End) -> tuple[Step, ...]:
        """Returns the steps that decide when an end is reached, as ``Schedule.path``."""
        return self.typical.path(end.step)

    def _untimed(self, ids: Iterable[str]) -> tuple[Step, ...]:
        by_id, seen, waiting = self.typical.steps, set[str](), list(ids)
        while waiting:
            if (id_ := waiting.pop()) not in seen and id_ in by_id:
                seen.add(id_)
                waiting += by_id[id_].after
        return tuple(step for step in self.steps if step.id in seen and step.time is None)


@dataclass(frozen=True)
class Timeline:
    """The timeline of a graph. ``starts`` are those of ``Starts``. ``servers`` are its servers, no two of one name.

    ``led_to`` are the starts of what else a Service leads to.
    """

    graph: Graph
    starts: Mapping[str, PodStart]
    servers: Mapping[str, str]
    led_to: Mapping[str, PodStart] = field(default_factory=dict)

    @cached_property
    def answering(self) -> "Timeline":
        """The same with whatever a Service leads to among the servers, by its title."""
        titles = {urn: title_of(self.graph.by_urn[urn]) for urn in self.led_to}
        return replace(self, starts={**self.starts, **self.led_to}, servers={**self.servers, **titles}, led_to={})

    @cached_property
    def creation(self) -> Course:
        return Course(creation(self.graph, self.starts))

    @cached_property
    def deletion(self) -> Course:
        return Course(deletion(self.graph))

    @cached_property
    def update(self) -> End:
        """When `pulumi up` is done."""
        return self.creation.end("pulumi up", [step.id for step in self.creation.steps if step.in_update])

    @cached_property
    def answers(self) -> tuple[End, ...]:
        """When each model server answers first, the last one first."""
        last = {step.urn: step.id for step in self.creation.steps if step.urn in self.servers}
        found = [self.creation.end(name, [last[urn]]) for urn, name in self.servers.items()]
        return tuple(sorted(found, key=lambda end: (-end.p50, end.name)))

    @cached_property
    def destroy(self) -> End:
        """When `pulumi destroy` is done."""
        return self.deletion.end("pulumi destroy", [step.id for step in self.deletion.steps])


def timeline(graph: Graph) -> Timeline:
    """Returns the timeline of a graph. Each of its clusters has its own pools and pods."""
    found = [(part.cluster, Starts(part.graph)) for part in parts(graph)]
    starts = {urn: start for _, one in found for urn, start in one.by_urn.items()}
    forms = {urn: _forms(name, graph.by_urn[urn], cluster) for cluster, one in found for urn, name in one.servers.items()}
    led_to = {urn: start for _, one in found for urn, start in one.led_to.items()}
    return Timeline(graph, starts, _told_apart(forms), led_to)


def _forms(name: str, resource: Resource, cluster: str) -> tuple[str, ...]:
    return name, f"{name} ({title_of(resource)})", f"{name} ({title_of(resource)} in {cluster})", resource.urn


def _told_apart(forms: Mapping[str, tuple[str, ...]]) -> Mapping[str, str]:
    """Returns the shortest form of each name that no other has: readers and comparisons know a server by it."""
    used = Counter(form for names in forms.values() for form in set(names))
    return {urn: next((form for form in names if used[form] == 1), urn) for urn, names in forms.items()}


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
    found = {one.change: one for one in sorted(_all(timeline), key=lambda what_if: what_if.saves)}
    return tuple(sorted(found.values(), key=lambda what_if: (-what_if.saves, what_if.change)))


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
