"""Other numbers of replicas than a stack begins with: what would happen if it were scaled? Pure."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from eks_inference_tools.reading.autoscalers import autoscalers
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.simulate.world.objects import ClusterObject
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items
from stackgraph.problems import Problem, ProblemsFound


def with_replicas(objects: Sequence[ClusterObject], wanted: Mapping[str, int]) -> tuple[ClusterObject, ...]:
    """The objects with other replicas. ``wanted`` is by ``namespace/name`` of a Deployment, StatefulSet, LeaderWorkerSet or
    RayService; of the last it is the number of workers in each group. Raises ``ProblemsFound`` for what is not among them.
    """
    known = scalable(objects)
    problems = [
        Problem(
            "there is nothing of this name whose replicas can be set",
            key="--scale",
            given=name,
            allowed=", ".join(sorted(known)) or "nothing in this stack",
            hint=f"did you mean '{near[0]}'?" if (near := get_close_matches(name, known, n=1)) else "",
        )
        for name in wanted
        if name not in known
    ]
    if problems:
        raise ProblemsFound(problems)
    return tuple(
        _scaled(item, wanted[_name(item)]) if item.kind in _SETTERS and _name(item) in wanted else item for item in objects
    )


def scalable(objects: Sequence[ClusterObject]) -> frozenset[str]:
    """Everything whose replicas can be set, as ``namespace/name``."""
    return frozenset(_name(item) for item in objects if item.kind in _SETTERS)


def most_replicas(graph: Graph) -> Mapping[str, int]:
    """As many as the graph's autoscalers may ask for, by ``namespace/name``; Ray's own autoscaler included.

    They may scale what the graph does not make, e.g. a Deployment of a chart.
    """
    return dict(_most(graph))


def _most(graph: Graph) -> Iterator[tuple[str, int]]:
    for scaler in autoscalers(graph):
        namespace, _, name = scaler.target
        most = whole(scaler.bounds.rpartition("–")[2])
        if most is not None:
            yield f"{namespace}/{name}", most
    for resource in graph.of_type("kubernetes:ray.io/v1:RayService"):
        cluster = at(resource.inputs, "spec", "rayClusterConfig")
        counts = [whole(at(group, "maxReplicas")) for group in items(at(cluster, "workerGroupSpecs"))]
        known = [count for count in counts if count is not None]
        if at(cluster, "enableInTreeAutoscaling") is True and known:
            yield f"{at(resource.inputs, 'metadata', 'namespace')}/{at(resource.inputs, 'metadata', 'name')}", max(known)


def _name(item: ClusterObject) -> str:
    return f"{item.namespace}/{item.name}"


def _scaled(item: ClusterObject, count: int) -> ClusterObject:
    changed = copy.deepcopy(item.manifest)
    _SETTERS[item.kind](changed["spec"], count)
    return replace(item, manifest=changed)


def _set_replicas(spec: dict[str, Any], count: int) -> None:
    spec["replicas"] = count


def _set_workers(spec: dict[str, Any], count: int) -> None:
    for group in spec["rayClusterConfig"].get("workerGroupSpecs", ()):
        group["replicas"] = count
        group["minReplicas"] = min(count, group.get("minReplicas", count))
        group["maxReplicas"] = max(count, group.get("maxReplicas", count))


_SETTERS: Mapping[str, Callable[[dict[str, Any], int], None]] = {
    "Deployment": _set_replicas,
    "LeaderWorkerSet": _set_replicas,
    "RayService": _set_workers,
    "StatefulSet": _set_replicas,
}
