"""The timeline of a graph: when `pulumi up` is done, when each model server answers first, how long a destroy takes. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from eks_inference.catalog.times import PASSES, Pass
from eks_inference_tools.reading.objects import title_of
from eks_inference_tools.reading.parts import parts
from eks_inference_tools.timeline.planner import Schedule, Step, schedules
from eks_inference_tools.timeline.pods import PodStart
from eks_inference_tools.timeline.starts import Starts
from eks_inference_tools.timeline.steps import creation, deletion
from stackgraph.graph.document import Graph, Resource

CAVEAT = "Typical times that others published: no promises, and nothing here was measured with this program."


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
    """The timeline of a graph. ``starts`` are those of ``Starts``. ``servers`` are its servers, no two of one name."""

    graph: Graph
    starts: Mapping[str, PodStart]
    servers: Mapping[str, str]

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
    return Timeline(graph, starts, _told_apart(forms))


def _forms(name: str, resource: Resource, cluster: str) -> tuple[str, ...]:
    return name, f"{name} ({title_of(resource)})", f"{name} ({title_of(resource)} in {cluster})", resource.urn


def _told_apart(forms: Mapping[str, tuple[str, ...]]) -> Mapping[str, str]:
    """Returns the shortest form of each name that no other has: readers and comparisons know a server by it."""
    used = Counter(form for names in forms.values() for form in set(names))
    return {urn: next((form for form in names if used[form] == 1), urn) for urn, names in forms.items()}
