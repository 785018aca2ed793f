"""The engine's order of work, in small: what ``pulumi up`` and ``pulumi destroy`` of a graph do at which second.

Follows pkg/resource/deploy of pulumi/pulumi v3.260: step_executor.go (workers), step_generator.go (``ScheduleDeletes``) and
deployment_executor.go (``performPostSteps``). A clock goes from event to event; nothing else is shared with the planner.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stackgraph.graph.document import Graph, Resource, is_read

Spans = Mapping[str, tuple[float, float]]
"""Begin and end of each step in seconds, by URN."""


@dataclass
class Workers:
    """At most ``parallel`` steps run at once. Who waits longest is next."""

    parallel: int
    now: float = 0.0
    running: dict[str, float] = field(default_factory=dict)
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)

    def run(self, waits: Mapping[str, Iterable[str]], seconds: Mapping[str, float]) -> None:
        """Runs all steps of ``waits``, each after those that it waits for."""
        missing = {urn: set(others) & waits.keys() for urn, others in waits.items()}
        line = deque(urn for urn, others in missing.items() if not others)
        while line or self.running:
            while line and len(self.running) < self.parallel:
                urn = line.popleft()
                end = self.now + seconds.get(urn, 0.0)
                self.running[urn] = end
                self.spans[urn] = (self.now, end)
            self.now = min(self.running.values())
            for done in [urn for urn, end in self.running.items() if end == self.now]:
                del self.running[done]
                for urn, others in missing.items():
                    if done in others:
                        others.discard(done)
                        if not others:
                            line.append(urn)


def created(graph: Graph, seconds: Mapping[str, float], parallel: int) -> Spans:
    """``pulumi up`` of a new stack."""
    workers = Workers(parallel)
    workers.run({resource.urn: _needs(resource) for resource in graph.resources}, seconds)
    return workers.spans


def destroyed(graph: Graph, seconds: Mapping[str, float], parallel: int) -> Spans:
    """``pulumi destroy``: rounds, each of which is over before the next begins."""
    workers = Workers(parallel)
    for urns in reversed(_rounds(graph)):
        workers.run(dict.fromkeys(urns, ()), {urn: _deletion(graph.by_urn[urn], seconds) for urn in urns})
    return workers.spans


def _rounds(graph: Graph) -> Sequence[Sequence[str]]:
    """The resources that stand on nothing, those that stand only on these, and so on."""
    left = {resource.urn: _needs(resource) & graph.by_urn.keys() for resource in graph.resources}
    rounds = []
    while left:
        rounds.append([urn for urn, needs in left.items() if not needs & left.keys()])
        left = {urn: needs for urn, needs in left.items() if urn not in rounds[-1]}
    return rounds


def _needs(resource: Resource) -> set[str]:
    options = resource.options
    others = {resource.parent, resource.provider, options.get("deletedWith", ""), *options.get("replaceWith", ())}
    return others.union(resource.dependencies, *resource.property_dependencies.values()) - {""}


def _deletion(resource: Resource, seconds: Mapping[str, float]) -> float:
    """No provider is asked to delete what goes with another resource, what is kept, or what the program only read."""
    goes_alone = not (resource.options.get("deletedWith") or resource.options.get("retainOnDelete") or is_read(resource))
    return seconds.get(resource.urn, 0.0) if goes_alone else 0.0
