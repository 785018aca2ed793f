"""Changes the replica counts of a stack's objects, and reads how far autoscalers may scale them. Pure."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from eks_inference_tools.reading.autoscalers import autoscalers
from eks_inference_tools.reading.live_objects import identity_of
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.simulate.world.objects import ClusterObject
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items
from stackgraph.problems import Problem, ProblemsFound

_SCALABLE = ("Deployment", "LeaderWorkerSet", "RayService", "StatefulSet")


def with_replicas(objects: Sequence[ClusterObject], wanted: Mapping[str, int]) -> tuple[ClusterObject, ...]:
    """Returns the objects with other replica counts.

    ``wanted`` maps ``namespace/name`` of a Deployment, StatefulSet, LeaderWorkerSet or RayService to its replicas: the workers of
    each group in the case of a RayService. Raises ``ProblemsFound`` for a name that is not among the objects.
    """
    known = scalable(objects)
    problems = [
        Problem(
            "no workload with this name has replicas to set",
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
        _scaled(item, wanted[_name(item)]) if item.kind in _SCALABLE and _name(item) in wanted else item for item in objects
    )


def scalable(objects: Sequence[ClusterObject]) -> frozenset[str]:
    """Returns ``namespace/name`` of every object whose replicas can be set."""
    return frozenset(_name(item) for item in objects if item.kind in _SCALABLE)


def most_replicas(graph: Graph) -> Mapping[str, int]:
    """Returns the maximum replicas that autoscalers may ask for, including Ray's own, by ``namespace/name`` of the target.

    A target may be absent from the graph, e.g. a Deployment of a chart.
    """
    return dict(_most(graph))


def _most(graph: Graph) -> Iterator[tuple[str, int]]:
    for scaler in autoscalers(graph):
        namespace, _, name = scaler.target
        most = scaler.most
        if most is not None:
            yield f"{namespace}/{name}", most
    for resource in graph.of_type("kubernetes:ray.io/v1:RayService"):
        cluster = at(resource.inputs, "spec", "rayClusterConfig")
        counts = [whole(at(group, "maxReplicas")) for group in items(at(cluster, "workerGroupSpecs"))]
        known = [count for count in counts if count is not None]
        if at(cluster, "enableInTreeAutoscaling") is True and known:
            yield "/".join(identity_of(resource.inputs)), max(known)


def _name(item: ClusterObject) -> str:
    return f"{item.namespace}/{item.name}"


def _scaled(item: ClusterObject, count: int) -> ClusterObject:
    manifest = copy.deepcopy(item.manifest)
    spec = manifest["spec"]
    if item.kind != "RayService":
        spec["replicas"] = count
        return replace(item, manifest=manifest)
    for group in spec["rayClusterConfig"].get("workerGroupSpecs", ()):
        group["replicas"] = count
        group["minReplicas"] = min(count, group.get("minReplicas", count))
        group["maxReplicas"] = max(count, group.get("maxReplicas", count))
    return replace(item, manifest=manifest)
