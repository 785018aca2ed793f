"""Finds the servers of a stack that a day can be played for: what they take, what comes, and how long their pods start. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from eks_inference.observability.spec import Objectives
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.traffic import TrafficSpec
from eks_inference.speed.rules import TrafficFacts
from eks_inference.speed.takes import Takes, takes
from eks_inference_tools.reading.live_objects import Object, identity_of, labels_of
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates, prefetched
from eks_inference_tools.simulate.day.requests import Load, Rates
from eks_inference_tools.timeline.pods import PodStart, phases
from eks_inference_tools.timeline.starts import Starts
from stackgraph.graph.document import Graph

LATE_SECONDS = 5.0
"""Without an objective for the first token."""
_SHARE = 0.5
"""The share of the starting pods' capacity that is offered when the stack does not say its traffic."""
_WANTED = Objectives(time_to_first_token_seconds=LATE_SECONDS)
_TOKENS = (250, 100)
"""A prompt and an answer where nothing tells them: a question in a chat."""


@dataclass(frozen=True)
class Subject:
    """A server. ``seconds`` is what a pod takes until it answers, on a node with its image; ``pull_seconds`` the image."""

    name: str
    template: PodTemplate
    takes: Takes
    load: Load
    copies: int
    seconds: float
    pull_seconds: float
    untimed: tuple[str, ...] = ()
    """Phases of the start that nobody has measured: they count nothing."""
    prefetched: bool = False
    """Whether a DaemonSet brings the image to each node."""
    least: int = 1
    """Pods without load."""
    from_hub: bool = False
    """Whether a pod downloads the model from the hub when it starts."""

    def owns(self, pod: Object) -> bool:
        wanted = self.template.labels
        return identity_of(pod)[0] == self.template.namespace and bool(wanted) and wanted.items() <= labels_of(pod).items()


def subjects(
    graph: Graph,
    facts: Mapping[str, ServingFacts],
    asked: Mapping[str, TrafficFacts],
    rate: Rates = (),
    rates: Mapping[str, Rates] = MappingProxyType({}),
) -> Iterator[Subject | str]:
    """Yields the servers of the stack; as a text why one cannot be played. ``rate`` replaces what comes to each,
    ``rates`` what comes to some.
    """
    starts = Starts(graph)
    templates = {pod_template.urn: pod_template for pod_template in pod_templates(graph)}
    there = prefetched(graph)
    for urn, name in starts.servers.items():
        template, start, server = templates[urn], starts.by_urn[urn], facts.get(name)
        if template.kind != "Deployment" or server is None:
            yield f"{name}: only Deployments that a stack file describes are played"
            continue
        found = asked[name].found if name in asked else takes(server, _traffic(server), _WANTED, "random")
        yield (
            f"{name}: {found}"
            if isinstance(found, str)
            else _subject(name, template, start, found, server, rates.get(name, rate), start.image in there)
        )


def _subject(
    name: str,
    template: PodTemplate,
    start: PodStart,
    found: Takes,
    server: ServingFacts,
    rate: Rates,
    is_there: bool,
) -> Subject:
    asked = found.traffic
    rate = rate or ((0.0, asked.rate or found.output_tokens_per_second / asked.mean_share / asked.output_tokens),)
    late = found.objectives.first_token
    load = Load(rate, asked.input_tokens, asked.output_tokens, LATE_SECONDS if late is None else late, asked.cached_share)
    parts = [phase for phase in phases(start) if phase.name != "node"]
    whole = sum(part.time.p50 for part in parts if part.time)
    pull = sum(part.time.p50 for part in parts if part.time and part.name == "pull")
    untimed = tuple(part.title for part in parts if part.time is None)
    hub = start.from_hub and not start.weights_stored
    return Subject(name, template, found, load, server.copies, whole - pull, pull, untimed, is_there, server.pods_min, hub)


def _traffic(server: ServingFacts) -> TrafficSpec:
    """Returns a load for a server whose stack file names none: half of what its fewest pods take."""
    prompt, answer = _TOKENS
    prompt, answer = min(prompt, server.max_model_len // 2), min(answer, server.max_model_len // 4)
    asked = TrafficSpec(rate=1.0, input_tokens=prompt, output_tokens=answer)
    found = takes(server, asked, _WANTED, "random")
    if isinstance(found, str):
        return asked
    return asked.model_copy(update={"rate": _SHARE * found.most / server.pods_max * max(server.pods_min, 1)})
