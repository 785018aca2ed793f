"""Counts the pods of a graph's templates at its least, as deployed, and at the most that autoscalers allow. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from eks_inference_tools.placing.footprint import footprints
from eks_inference_tools.reading.autoscalers import Autoscaler, autoscalers
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at, text

Scale = Literal["least", "initial", "most"]
"""How many pods run: the fewest that autoscalers keep, those that `pulumi up` starts, the most that autoscalers start.

Autoscalers correct a number outside of their bounds at once.
"""

_ENDING = ("CronJob", "Job", "RayJob")
"""Kinds whose pods end by themselves."""


@dataclass(frozen=True, eq=False)
class Workloads:
    """The pod templates of one cluster, with those that stand in for the pods of its charts and add-ons."""

    graph: Graph

    @cached_property
    def stood_in(self) -> tuple[Resource, ...]:
        """What stands in for charts and add-ons, as if the program had made it."""
        return tuple(_resource(urn, item) for urn, made in footprints(self.graph).items() for item in made)

    @cached_property
    def templates(self) -> tuple[PodTemplate, ...]:
        return (*pod_templates(self.graph), *pod_templates(replace(self.graph, resources=self.stood_in)))

    @cached_property
    def daemons(self) -> tuple[PodTemplate, ...]:
        return tuple(one for one in self.templates if one.kind == "DaemonSet")

    @cached_property
    def by_scale(self) -> Mapping[PodTemplate, tuple[int, int, int]]:
        """The pods of each template whose pods do not end, at the least, as deployed and at the most; 0 for an unknown number."""
        least, initial, most = (dict(self.counted(scale)) for scale in ("least", "initial", "most"))
        return {one: (_some(least[one]), _some(initial[one]), _some(most[one])) for one in initial}

    def counted(self, scale: Scale, *, ending: bool = False) -> Iterator[tuple[PodTemplate, int | None]]:
        """Yields each template with its pods, None if only a cluster knows it. Leaves out DaemonSets.

        With ``ending``, the pods of Jobs count as well. Those of CronJobs never count.
        """
        for one in self.templates:
            if one.kind == "CronJob" or one.kind == "DaemonSet" or (one.kind in _ENDING and not ending):
                continue
            yield one, self._pods(one, scale)

    def _pods(self, template: PodTemplate, scale: Scale) -> int | None:
        least, most = self._bounds(template)
        if scale != "initial":
            return most if scale == "most" else least
        if template.pods is None or least is None or most is None:
            return template.pods
        return min(max(template.pods, least), most)

    def _bounds(self, template: PodTemplate) -> tuple[int | None, int | None]:
        scaler = self._scalers.get((template.given_namespace, template.kind, template.name))
        if template.between or scaler is None:
            return template.between or (template.pods, template.pods)
        least, most = (None if bound is None else bound * template.per_replica for bound in (scaler.least, scaler.most))
        return least, most

    @cached_property
    def _scalers(self) -> Mapping[tuple[str, str, str], Autoscaler]:
        return {one.target: one for one in autoscalers(self.graph)}


def _resource(urn: str, manifest: Mapping[str, object]) -> Resource:
    kind, name = text(manifest["kind"]), text(at(manifest, "metadata", "name"))
    return Resource(urn=urn, type=f"kubernetes:{text(manifest['apiVersion'])}:{kind}", name=name, inputs=manifest)


def _some(number: int | None) -> int:
    """The number; 0 for none, and for one that an API server refuses."""
    return max(number or 0, 0)
