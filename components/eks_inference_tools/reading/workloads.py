"""What runs on the nodes: every kind of object that makes pods, with what one of its pods asks for."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, joined, table, text, texts, unique


@dataclass(frozen=True)
class Workload:
    """Pods of one template.

    ``part`` tells the templates of one object apart (``head``, ``worker inf2-group``). ``replicas`` is what a person reads
    (``1–4 by HPA``, ``each node``); ``pods`` is their number to begin with, None when only a cluster knows it. ``accelerators``
    are the extended resources that one pod asks for; ``cpu`` and ``memory`` its requests. ``models`` are those that its command
    line or environment names.
    """

    urn: str
    kind: str
    namespace: str
    name: str
    part: str = ""
    replicas: str = ""
    pods: int | None = None
    images: tuple[str, ...] = ()
    accelerators: Mapping[str, str] = field(default_factory=dict)
    cpu: str = ""
    memory: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """``Deployment demo/server`` or ``RayService demo/llama (head)``."""
        return _title(self.kind, self.namespace, self.name, self.part)


@dataclass(frozen=True)
class _Pods:
    """One pod template of an object."""

    template: Any
    replicas: str
    pods: int | None = None
    part: str = ""


@dataclass(frozen=True)
class PodTemplate:
    """One pod template as the graph holds it, and what it is part of. ``template`` may be anything a program hands over."""

    owner: Resource
    kind: str
    namespace: str
    name: str
    part: str
    replicas: str
    pods: int | None
    template: Any

    @property
    def title(self) -> str:
        """``Deployment demo/server`` or ``RayService demo/llama (head)``."""
        return _title(self.kind, self.namespace, self.name, self.part)


@dataclass(frozen=True)
class Autoscaler:
    """An HPA or a ScaledObject. ``target`` is namespace, kind and name of what it scales, ``bounds`` and ``by`` are words."""

    urn: str
    kind: str
    namespace: str
    name: str
    target: tuple[str, str, str]
    bounds: str
    by: str


def workloads(graph: Graph) -> tuple[Workload, ...]:
    """Everything that makes pods; what asks for accelerators comes first."""
    scaled = {scaler.target: f"{scaler.bounds} by {scaler.by}" for scaler in autoscalers(graph)}
    found = [_workload(pods, scaled.get((pods.namespace, pods.kind, pods.name), "")) for pods in pod_templates(graph)]
    return tuple(sorted(found, key=lambda w: (not w.accelerators, w.namespace, w.name, w.kind, w.part, w.urn)))


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


def requested(found: tuple[Workload, ...]) -> Mapping[str, int]:
    """Extended resources that all pods of known number ask for together."""
    total: dict[str, int] = {}
    for workload in found:
        for resource, amount in workload.accelerators.items():
            if workload.pods is not None and amount.isdecimal():
                total[resource] = total.get(resource, 0) + workload.pods * int(amount)
    return dict(sorted(total.items()))


def whole(value: Any) -> int | None:
    """A whole number; None for anything else, tokens included."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10 else None


def span(low: Any, high: Any) -> str:
    """``1–4``, or just one of them when they are the same."""
    return "–".join(unique((text(low), text(high))))


def _workload(pods: PodTemplate, by_autoscaler: str) -> Workload:
    pod = at(pods.template, "spec")
    containers = items(at(pod, "containers"))
    first = items(at(pod, "initContainers"))
    serve_config = at(pods.owner.inputs.get("spec"), "serveConfigV2")
    return Workload(
        urn=pods.owner.urn,
        kind=pods.kind,
        namespace=pods.namespace,
        name=pods.name,
        part=pods.part,
        replicas=by_autoscaler or pods.replicas,
        pods=pods.pods,
        images=unique(text(at(container, "image")) for container in containers),
        accelerators=_accelerators(first) | _accelerators(containers),
        cpu=_request(containers, "cpu"),
        memory=_request(containers, "memory"),
        node_selector=_node_selector(pod),
        models=unique((*(model for container in containers for model in _models(container)), *_serve_models(serve_config))),
    )


def _title(kind: str, namespace: str, name: str, part: str) -> str:
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


def autoscalers(graph: Graph) -> Iterator[Autoscaler]:
    """Everything that changes the number of pods, in the graph's order."""
    for resource in graph.resources:
        kind = group_kind(resource)[1] if is_kubernetes_object(resource) else ""
        if kind not in ("HorizontalPodAutoscaler", "ScaledObject"):
            continue
        spec, metadata = resource.inputs.get("spec"), resource.inputs.get("metadata")
        target = at(spec, "scaleTargetRef")
        if kind == "ScaledObject":
            # KEDA's defaults; the kind, too, may be left out.
            low, high, by = at(spec, "minReplicaCount") or 0, at(spec, "maxReplicaCount") or 100, "KEDA"
        else:
            low, high, by = at(spec, "minReplicas") or 1, at(spec, "maxReplicas"), "HPA"
        namespace = text(at(metadata, "namespace"))
        scaled = (namespace, text(at(target, "kind")) or "Deployment", text(at(target, "name")))
        name = text(at(metadata, "name")) or text(resource.name)
        yield Autoscaler(resource.urn, kind, namespace, name, scaled, span(low, high), by)


# -- one pod ---------------------------------------------------------------------------------------------------------------------


def requests_of(container: Any) -> Mapping[str, Any]:
    """Requests of a container; what only has a limit requests that."""
    resources = at(container, "resources")
    if is_token(resources):
        return {}
    return {**table(at(resources, "limits")), **table(at(resources, "requests"))}


def _accelerators(containers: Any) -> dict[str, str]:
    """Extended resources: their names have a domain, which those of Kubernetes itself have not."""
    found: dict[str, list[Any]] = {}
    for container in containers:
        for resource, amount in requests_of(container).items():
            if "/" in resource:
                found.setdefault(text(resource), []).append(amount)
    return {resource: _sum(amounts) for resource, amounts in sorted(found.items())}


def _request(containers: Any, resource: str) -> str:
    return _sum([amount for container in containers if (amount := requests_of(container).get(resource)) is not None])


# Suffixes of quantities in the order in which a sum is written (Kubernetes, apimachinery, resource.Quantity).
_BINARY = {"Ti": 2**40, "Gi": 2**30, "Mi": 2**20, "Ki": 2**10}
_SUFFIXES = {**_BINARY, "T": 10**12, "G": 10**9, "M": 10**6, "k": 10**3, "": 1, "m": Decimal("0.001")}
_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([TGMK]i|[TGMkm]|)", re.ASCII)


def _sum(amounts: list[Any]) -> str:
    """The sum of quantities; a single one as it is given, and all of them where one is no quantity."""
    shown = [text(amount) for amount in amounts]
    parsed = [_QUANTITY.fullmatch(amount) for amount in shown]
    known = [Decimal(match[1]) * _SUFFIXES[match[2]] for match in parsed if match]
    if len(shown) < 2 or len(known) < len(shown):
        return " + ".join(shown)
    total = sum(known, Decimal())
    binary = any(match and match[2] in _BINARY for match in parsed)
    suffix = next((suffix for suffix, unit in _BINARY.items() if binary and total % unit == 0), "")
    return f"{(total / _SUFFIXES[suffix]).normalize():f}{suffix}"


def _node_selector(pod: Any) -> dict[str, str]:
    """Node labels a pod insists on, those of its affinity's first term included."""
    selector = at(pod, "nodeSelector")
    found = {"nodes": text(selector)} if is_token(selector) else {text(key): text(v) for key, v in table(selector).items()}
    affinity = at(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = items(at(affinity, "nodeSelectorTerms"))
    for expression in items(at(terms[0], "matchExpressions")) if terms else ():
        if at(expression, "operator") == "In":
            found.setdefault(text(at(expression, "key")), ", ".join(texts(at(expression, "values"))))
    return dict(sorted(found.items()))


# -- models ----------------------------------------------------------------------------------------------------------------------

_MODEL_VARIABLES = ("HF_MODEL", "HF_MODEL_ID", "MODEL", "MODEL_ID", "MODEL_NAME")
_MODEL_ARGUMENT = re.compile(r"(?:^|\s)(?:--model(?:-id)?[=\s]|vllm\s+serve\s)\s*[\"']?([^\s\"'$\\-][^\s\"'\\]*)")
# Ray Serve's configuration is a text inside the object; one line of it names the model.
_SERVE_VARIABLE = re.compile(
    rf"^[\s\-{{]*[\"']?(?:{'|'.join(_MODEL_VARIABLES)})[\"']?\s*:\s*[\"']?([^\s\"'#,{{}}]+)", re.MULTILINE
)


def _models(container: Any) -> Iterator[str]:
    for variable in items(at(container, "env")):
        if at(variable, "name") in _MODEL_VARIABLES and not is_token(at(variable, "value")):
            yield text(at(variable, "value"))
    line = " ".join((*texts(at(container, "command")), *texts(at(container, "args"))))
    yield from _MODEL_ARGUMENT.findall(line)


def _serve_models(serve_config: Any) -> Iterator[str]:
    if isinstance(serve_config, str) and not is_token(serve_config):
        yield from (text(model) for model in _SERVE_VARIABLE.findall(serve_config))
