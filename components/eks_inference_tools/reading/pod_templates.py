"""Reads the pod templates of a graph, with the number of pods, from every kind of object that creates pods. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from eks_inference_tools.reading.devices import claim_templates, claimed
from eks_inference_tools.reading.object_kinds import group_kind, name_of, namespace_of, title
from eks_inference_tools.reading.pods import Container, PodSpec
from eks_inference_tools.reading.scalars import whole
from stackgraph.graph.describe import is_kubernetes_object, span
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at, is_token, items, joined, table, text

# Labels that controllers add to the pods of a template.
_SET_BY_CONTROLLERS = (
    "apps.kubernetes.io/",
    "batch.kubernetes.io/",
    "controller-uid",
    "job-name",
    "leaderworkerset.sigs.k8s.io/",
    "pod-template-hash",
    "statefulset.kubernetes.io/",
)
_RAY_LABELS = ("app.kubernetes.io/", "ray.io/")


@dataclass(frozen=True)
class _Pods:
    """Fields of a ``PodTemplate``."""

    template: Any
    replicas: str
    pods: int | None
    part: str = ""
    between: tuple[int, int] | None = None
    per_replica: int = 1


@dataclass(frozen=True, eq=False)
class PodTemplate:
    """A pod template of an object in the graph. ``template`` is as given and may have any type.

    ``replicas`` is for display (``1–4 by Ray``, ``each node``). ``pods`` is the initial number of pods, None when only a cluster
    knows it. ``between`` is the least and most pods where the object itself scales them, as Ray does. ``per_replica`` is the
    number of pods that one more replica of the object means. ``given_namespace`` is empty when the program leaves it out.
    """

    owner: Resource
    kind: str
    given_namespace: str
    name: str
    template: Any
    replicas: str
    pods: int | None
    part: str
    between: tuple[int, int] | None = None
    per_replica: int = 1
    claimed: Mapping[str, Decimal] = field(default_factory=dict)
    """What the claims of one pod ask for."""

    @property
    def urn(self) -> str:
        return self.owner.urn

    @property
    def namespace(self) -> str:
        return self.given_namespace or "default"

    @cached_property
    def title(self) -> str:
        return title(self.kind, self.given_namespace, self.name, self.part)

    @cached_property
    def spec(self) -> PodSpec:
        return PodSpec(at(self.template, "spec"), self.claimed)

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        return self.spec.containers

    @cached_property
    def requests(self) -> Mapping[str, Decimal]:
        """What the scheduler reserves for one pod."""
        return self.spec.requests

    @cached_property
    def _labels(self) -> Any:
        source = self.owner.inputs if self.kind == "Pod" else self.template
        return at(source, "metadata", "labels")

    @cached_property
    def labels(self) -> Mapping[str, Any]:
        """The labels that the program gives its pods."""
        return table(self._labels)

    def has_labels(self, selector: Mapping[str, Any]) -> bool:
        """Whether a label selector matches its pods. Labels that controllers add and unknown labels count as matching."""
        if is_token(self._labels):
            return True
        labels, other_role = table(self._labels), "worker" if self.part == "head" else "head"
        unseen = (*_SET_BY_CONTROLLERS, *(_RAY_LABELS if self.kind.startswith("Ray") else ()))
        for key, value in selector.items():
            if key in labels:
                own = labels[key]
                if text(own) != text(value) and not is_token(own) and not is_token(value):
                    return False
            # KubeRay sets ray.io/node-type to the role of the pod.
            elif not key.startswith(unseen) or (key == "ray.io/node-type" and text(value) == other_role):
                return False
        return True


def prefetched(graph: Graph) -> frozenset[str]:
    """The images that a DaemonSet keeps on its nodes."""
    return frozenset(one.image for pods in pod_templates(graph) if pods.kind == "DaemonSet" for one in pods.containers)


def pod_templates(graph: Graph) -> Iterator[PodTemplate]:
    """All pod templates, in the order of the graph."""
    claims = claim_templates(graph)
    for resource in graph.resources:
        templates_of = _KINDS.get(group_kind(resource)) if is_kubernetes_object(resource) else None
        for pods in templates_of(resource.inputs.get("spec")) if templates_of else ():
            kind, namespace, name = group_kind(resource)[1], namespace_of(resource), name_of(resource)
            asked = claimed(at(pods.template, "spec"), namespace or "default", claims) if claims else {}
            yield PodTemplate(resource, kind, namespace, name, **vars(pods), claimed=asked)


# -- templates -------------------------------------------------------------------------------------------------------------------


def _count(spec: Any, key: str = "replicas") -> Any:
    """A number of pods as given, or the default of Kubernetes, which is 1."""
    count = at(spec, key)
    return 1 if count is None else count


def _replicated(spec: Any) -> Iterator[_Pods]:
    yield _Pods(at(spec, "template"), text(_count(spec)), whole(_count(spec)))


def _on_each_node(spec: Any) -> Iterator[_Pods]:
    yield _Pods(at(spec, "template"), "each node", None)


def _job(spec: Any) -> Iterator[_Pods]:
    count = _count(spec, "parallelism")
    yield _Pods(at(spec, "template"), joined(text(count), "once"), whole(count))


def _cron_job(spec: Any) -> Iterator[_Pods]:
    yield _Pods(at(spec, "jobTemplate", "spec", "template"), f"at {text(at(spec, 'schedule'))}", None)


def _ray_cluster(spec: Any) -> Iterator[_Pods]:
    yield _Pods(at(spec, "headGroupSpec", "template"), "1", 1, "head")
    for group in items(at(spec, "workerGroupSpecs")):
        count, least, most = _count(group), whole(at(group, "minReplicas")), whole(at(group, "maxReplicas"))
        bounds = span(at(group, "minReplicas"), at(group, "maxReplicas"))
        scaled = "–" in bounds and at(spec, "enableInTreeAutoscaling") is True
        yield _Pods(
            template=at(group, "template"),
            replicas=f"{bounds} by Ray" if scaled else text(count),
            pods=whole(count),
            part=joined("worker", at(group, "groupName")),
            between=(least, most) if scaled and least is not None and most is not None else None,
        )


def _ray_cluster_within(spec: Any) -> Iterator[_Pods]:
    yield from _ray_cluster(at(spec, "rayClusterConfig") or at(spec, "rayClusterSpec"))


def _leader_worker_set(spec: Any) -> Iterator[_Pods]:
    groups, group = _count(spec), at(spec, "leaderWorkerTemplate")
    size, count = whole(at(group, "size")), whole(groups)
    leader, worker = at(group, "leaderTemplate"), at(group, "workerTemplate")
    others = size - 1 if size and leader is not None else size
    if leader is not None:
        yield _Pods(leader, text(groups), count, "leader")
    pods = count * others if count is not None and others is not None else None
    shown = text(groups) if others is None else f"{text(groups)} × {others}"
    yield _Pods(worker, shown, pods, "worker", per_replica=1 if others is None else others)


def _one_pod(spec: Any) -> Iterator[_Pods]:
    yield _Pods({"spec": spec}, "1", 1)


_KINDS: Mapping[tuple[str, str], Callable[[Any], Iterator[_Pods]]] = {
    ("apps", "DaemonSet"): _on_each_node,
    ("apps", "Deployment"): _replicated,
    ("apps", "ReplicaSet"): _replicated,
    ("apps", "StatefulSet"): _replicated,
    ("batch", "CronJob"): _cron_job,
    ("batch", "Job"): _job,
    ("core", "Pod"): _one_pod,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("ray.io", "RayCluster"): _ray_cluster,
    ("ray.io", "RayJob"): _ray_cluster_within,
    ("ray.io", "RayService"): _ray_cluster_within,
}
