"""Pod templates of a graph: every kind of object that makes pods, with how many it makes. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from eks_inference_tools.reading.pods import Container, PodSpec
from eks_inference_tools.reading.scalars import span, whole
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, joined, table, text

# Labels that controllers put on the pods of a template.
_PUT_ON_PODS = (
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
    """One pod template of an object."""

    template: Any
    replicas: str
    pods: int | None = None
    part: str = ""


@dataclass(frozen=True, eq=False)
class PodTemplate:
    """One pod template as the graph holds it, and what it is part of. ``template`` may be anything a program hands over.

    ``replicas`` is what a person reads (``1–4 by Ray``, ``each node``), ``pods`` their number to begin with, None when only a
    cluster knows it. ``given_namespace`` is empty where the program leaves it out.
    """

    owner: Resource
    kind: str
    given_namespace: str
    name: str
    part: str
    replicas: str
    pods: int | None
    template: Any

    @property
    def urn(self) -> str:
        return self.owner.urn

    @property
    def namespace(self) -> str:
        return self.given_namespace or "default"

    @cached_property
    def title(self) -> str:
        """``Deployment demo/server`` or ``RayService demo/llama (head)``."""
        return title_of(self.kind, self.given_namespace, self.name, self.part)

    @cached_property
    def spec(self) -> PodSpec:
        return PodSpec(at(self.template, "spec"))

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

    def has_labels(self, selector: Mapping[str, Any]) -> bool:
        """Whether a selector of equal labels takes its pods; labels that controllers or secrets give are taken to match."""
        if is_token(self._labels):
            return True
        labels = table(self._labels)
        unseen = (*_PUT_ON_PODS, *(_RAY_LABELS if self.kind.startswith("Ray") else ()))
        for key, value in selector.items():
            if key in labels:
                own = labels[key]
                if text(own) != text(value) and not is_token(own) and not is_token(value):
                    return False
            elif not key.startswith(unseen) or text(value) in self._other_roles(key):
                return False
        return True

    def _other_roles(self, key: str) -> tuple[str, ...]:
        """Values KubeRay gives that label on the object's other pods only."""
        if key != "ray.io/node-type":
            return ()
        return ("worker",) if self.part == "head" else ("head",)


def pod_templates(graph: Graph) -> Iterator[PodTemplate]:
    """Every pod template of every kind of object that makes pods, in the graph's order."""
    for resource in graph.resources:
        templates_of = _KINDS.get(group_kind(resource)) if is_kubernetes_object(resource) else None
        if templates_of is None:
            continue
        metadata = resource.inputs.get("metadata")
        namespace, name = text(at(metadata, "namespace")), text(at(metadata, "name")) or text(resource.name)
        for pods in templates_of(resource.inputs.get("spec")):
            kind = group_kind(resource)[1]
            yield PodTemplate(resource, kind, namespace, name, pods.part, pods.replicas, pods.pods, pods.template)


def title_of(kind: str, namespace: str, name: str, part: str) -> str:
    return joined(kind, joined(namespace, name, by="/"), f"({part})" if part else "")


def group_kind(resource: Resource) -> tuple[str, str]:
    """``("apps", "Deployment")`` for ``kubernetes:apps/v1:Deployment``."""
    _, _, rest = resource.type.partition(":")
    module, _, kind = rest.rpartition(":")
    return module.partition("/")[0], kind


# -- templates -------------------------------------------------------------------------------------------------------------------


def _replicated(spec: Any) -> Iterator[_Pods]:
    # Kubernetes makes one where nothing is said.
    count = at(spec, "replicas")
    count = 1 if count is None else count
    yield _Pods(at(spec, "template"), text(count), whole(count))


def _on_each_node(spec: Any) -> Iterator[_Pods]:
    yield _Pods(at(spec, "template"), "each node")


def _job(spec: Any) -> Iterator[_Pods]:
    count = at(spec, "parallelism")
    count = 1 if count is None else count
    yield _Pods(at(spec, "template"), joined(text(count), "once"), whole(count))


def _cron_job(spec: Any) -> Iterator[_Pods]:
    yield _Pods(at(spec, "jobTemplate", "spec", "template"), f"at {text(at(spec, 'schedule'))}")


def _ray_cluster(spec: Any) -> Iterator[_Pods]:
    yield _Pods(at(spec, "headGroupSpec", "template"), "1", 1, "head")
    for group in items(at(spec, "workerGroupSpecs")):
        count = at(group, "replicas")
        count = 1 if count is None else count
        bounds = span(at(group, "minReplicas"), at(group, "maxReplicas"))
        between = "–" in bounds and at(spec, "enableInTreeAutoscaling") is True
        yield _Pods(
            at(group, "template"),
            f"{bounds} by Ray" if between else text(count),
            whole(count),
            joined("worker", at(group, "groupName")),
        )


def _ray_cluster_within(spec: Any) -> Iterator[_Pods]:
    yield from _ray_cluster(at(spec, "rayClusterConfig") or at(spec, "rayClusterSpec"))


def _leader_worker_set(spec: Any) -> Iterator[_Pods]:
    groups = at(spec, "replicas")
    groups = 1 if groups is None else groups
    group = at(spec, "leaderWorkerTemplate")
    size, count = whole(at(group, "size")), whole(groups)
    leader, worker = at(group, "leaderTemplate"), at(group, "workerTemplate")
    others = size - 1 if size and leader is not None else size
    if leader is not None:
        yield _Pods(leader, text(groups), count, "leader")
    pods = count * others if count is not None and others is not None else None
    yield _Pods(worker, text(groups) if others is None else f"{text(groups)} × {others}", pods, "worker")


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
