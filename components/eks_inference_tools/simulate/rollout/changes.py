"""Changes a stack's objects: as a new release of its images would, and by their replica counts, as far as autoscalers may scale
them. Pure.
"""

import copy
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eks_inference.faults import did_you_mean
from eks_inference_tools.reading.autoscalers import autoscalers
from eks_inference_tools.reading.live_objects import identity_of
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.simulate.world.api_objects import ClusterObject
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, text
from stackgraph.problems import Problem, ProblemsFound

_NEXT = "next"
_TAG_LENGTH = 128  # OCI distribution specification: a tag has at most 128 characters
_CONTAINERS = ("containers", "initContainers")

# The end of a Job name that stands for the Job's content: serving, clients and load tests append part of a SHA-256.
_HASH = re.compile(r"-([0-9a-f]{8,64})$")


def with_other_images(graph: Graph) -> Graph:
    """Returns the graph with another image in every container of every pod template.

    Everything else stays, except for what follows from the change: where a Job's name ends in a hash of its content, that hash
    changes everywhere (in the ConfigMap of the Job, the volume that mounts it, the image that the Job builds).
    """
    objects = [resource for resource in graph.resources if is_kubernetes_object(resource)]
    jobs = (text(at(resource.inputs, "metadata", "name")) for resource in objects if resource.type.endswith(":Job"))
    hashes = {
        old: hashlib.sha256(f"{old} {_NEXT}".encode()).hexdigest()[: len(old)] for name in jobs for old in _HASH.findall(name)
    }
    old_images = {image for resource in objects for image in images_in(resource.inputs)}
    images = {image: next_image(image) for image in old_images if _rewritten(image, hashes) == image}
    changed = {}
    for resource in objects:
        inputs = changed[resource.urn] = _rewritten(resource.inputs, hashes)
        for container in containers_in(inputs):
            if container.get("image") in images:
                container["image"] = images[container["image"]]
    resources = (replace(one, inputs=changed[one.urn]) if one.urn in changed else one for one in graph.resources)
    return replace(graph, resources=tuple(resources))


def next_image(image: str) -> str:
    """Returns another image of the same repository: another digest if the image has one, else another tag."""
    name, at, digest = image.partition("@")
    if at:
        return f"{name}@sha256:{hashlib.sha256(digest.encode()).hexdigest()}"
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # no tag; a colon here precedes the port of the registry
        return f"{name}:{_NEXT}"
    return f"{repository}:{tag[: _TAG_LENGTH - len(_NEXT) - 1]}-{_NEXT}"


def images_in(manifest: Any) -> Iterator[str]:
    """Yields the image of every container in an object."""
    return (image for container in containers_in(manifest) if isinstance(image := container.get("image"), str))


def containers_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yields the containers of every pod template, at any depth."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in _CONTAINERS and isinstance(item, list):
                yield from (one for one in item if isinstance(one, dict))
            else:
                yield from containers_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from containers_in(item)


def _rewritten(value: Any, hashes: Mapping[str, str]) -> Any:
    """Returns a deep copy of a JSON value with every hash replaced."""
    if isinstance(value, Mapping):
        return {key: _rewritten(item, hashes) for key, item in value.items()}
    if isinstance(value, list):
        return [_rewritten(item, hashes) for item in value]
    if isinstance(value, str):
        for old, new in hashes.items():
            value = value.replace(old, new)
    return value


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
            hint=did_you_mean(name, known),
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
