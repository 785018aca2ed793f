"""What a platform engineer looks for in a graph, apart from how it is shown: capacity, workloads, models, endpoints.

Everything follows from resource types and inputs. How many devices an instance type has is not among them: pods say what they ask
for, node groups say which instance types they start and how many.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eks_inference.placement import CAPACITY_TYPE_LABEL, INSTANCE_TYPE_LABEL
from eks_inference_tools.reading.clusters import Cluster, clusters
from eks_inference_tools.reading.expressions import Expression
from eks_inference_tools.reading.machines import Machine
from eks_inference_tools.reading.node_groups import NodeGroup, node_groups
from eks_inference_tools.reading.node_pools import FAMILY_LABEL, NodePool, node_pools
from eks_inference_tools.reading.scalars import span
from eks_inference_tools.reading.words import taint
from eks_inference_tools.reading.workloads import Workload, workloads
from stackgraph.graph.composition import Composition, is_component, is_read
from stackgraph.graph.describe import is_kubernetes_object, ports, short_type
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, is_token, items, joined, plain, table, text, unique


@dataclass(frozen=True)
class NodeCapacity:
    """Nodes of one managed node group or Karpenter NodePool.

    ``size`` is the number of nodes, with bounds where they differ (``2 (1–4)``), ``nodes`` that number when it is known. What
    Karpenter starts has ``limits`` instead, and ``requirements``: what else its nodes must be.
    """

    urn: str
    name: str
    manager: str
    instance_types: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    size: str = ""
    nodes: int | None = None
    capacity_types: tuple[str, ...] = ()
    limits: Mapping[str, str] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    image: str = ""
    root_disk: str = ""
    interfaces: str = ""


@dataclass(frozen=True)
class ModelFact:
    """A model that a component's inputs, or else a pod's command line or environment, name."""

    owner: str
    owner_type: str
    model: str
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Endpoint:
    """A Service, Ingress or load balancer. ``outside`` is True where more than the pods of the cluster reach it."""

    urn: str
    kind: str
    namespace: str
    name: str
    type: str
    ports: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    outside: bool = False


@dataclass(frozen=True)
class Facts:
    """Everything this module finds in a graph."""

    clusters: tuple[Cluster, ...]
    capacity: tuple[NodeCapacity, ...]
    workloads: tuple[Workload, ...]
    models: tuple[ModelFact, ...]
    endpoints: tuple[Endpoint, ...]


def facts_of(graph: Graph) -> Facts:
    """The facts of a graph. Never fails on values that are secret, unknown or of an unexpected kind."""
    running = workloads(graph)
    return Facts(
        clusters=clusters(graph),
        capacity=tuple(_capacity(graph)),
        workloads=running,
        models=tuple(_models(graph, running)),
        endpoints=tuple(sorted(_endpoints(graph), key=lambda e: (not e.outside, e.namespace, e.name, e.kind, e.urn))),
    )


# -- nodes -----------------------------------------------------------------------------------------------------------------------


def _capacity(graph: Graph) -> Iterator[NodeCapacity]:
    yield from (_of_group(group) for group in node_groups(graph))
    yield from (_of_node_pool(pool) for pool in node_pools(graph))


def _of_group(group: NodeGroup) -> NodeCapacity:
    low, size, high = group.scaling
    # EKS takes no maximum of 0: a group of fixed size 0 has 0 to 1.
    fixed = low == size and (high == size or (size == 0 and high == 1))
    bounds = "" if fixed else span(low, high)
    bought = group.capacity_type
    template = group.template
    count = template.efa_interfaces if template else 0
    return NodeCapacity(
        urn=group.urn,
        name=group.name,
        manager="node group",
        instance_types=group.instance_types,
        size=joined(size, f"({bounds})" if "–" in bounds else ""),
        nodes=group.sizes[1],
        capacity_types=(bought if is_token(bought) else bought.lower().replace("_", "-"),),
        labels=_labels(group.labels),
        taints=tuple(taint(item) for item in group.given_taints),
        image=joined(group.ami_type or (template.image if template else ""), group.release),
        root_disk=_root_disk(template),
        interfaces=f"{count} EFA {'interface' if count == 1 else 'interfaces'}" if count else "",
    )


def _of_node_pool(pool: NodePool) -> NodeCapacity:
    others = (one for one in pool.requirements if one.key != _OS_LABEL and not (one.operator == "In" and one.key in _CHOICES))
    image = next(iter(pool.node_class.images), None) if pool.node_class else None
    return NodeCapacity(
        urn=pool.urn,
        name=pool.name,
        manager="Karpenter",
        instance_types=pool.chosen(INSTANCE_TYPE_LABEL),
        families=pool.chosen(FAMILY_LABEL),
        capacity_types=pool.chosen(CAPACITY_TYPE_LABEL),
        limits=_labels(pool.limits),
        requirements=unique(_requirement(one) for one in others),
        labels=_labels(pool.labels),
        taints=tuple(taint(item) for item in pool.given_taints),
        image=text(at(image, "alias") or at(image, "id") or at(image, "name")),
        root_disk=_root_disk(pool.node_class),
    )


_OS_LABEL = "kubernetes.io/os"
_CHOICES = (INSTANCE_TYPE_LABEL, FAMILY_LABEL, CAPACITY_TYPE_LABEL)
_OPERATORS = {"In": "", "NotIn": "not", "Gt": ">", "Lt": "<", "Gte": "≥", "Lte": "≤", "Exists": "any", "DoesNotExist": "none"}


def _requirement(wanted: Expression) -> str:
    label = wanted.key.rpartition("/")[2] if wanted.is_known else wanted.key
    return joined(label, _OPERATORS.get(wanted.operator, wanted.operator), " or ".join(wanted.values))


def _root_disk(machine: Machine | None) -> str:
    disk = machine.root_disk if machine else None
    size = text(disk.size) if disk else ""
    # EC2 counts GiB; Karpenter's node classes have quantities.
    return joined(f"{size} GiB" if size.isdecimal() else size, disk.type, "root disk") if disk and size else ""


def _labels(value: Any) -> dict[str, str]:
    """A table of texts; what stands for one that is not known is its only value."""
    if is_token(value):
        return {"": text(value)}
    return {text(key): text(item) for key, item in sorted(table(value).items())}


# -- models ----------------------------------------------------------------------------------------------------------------------

# What tells most comes first: of several keys that stand together, it names the model, and the others say how it is called.
_MODEL_KEYS = ("modelid", "hfmodel", "huggingfacemodel", "model", "modelname")
_MODEL_ID_KEYS = ("id", "name", "repository", "repo", "path")
_SETTING_KEYS = (
    "dtype",
    "engine",
    "maxmodellen",
    "maxnumseqs",
    "pipelineparallel",
    "pipelineparallelsize",
    "quantization",
    "revision",
    "tensorparallel",
    "tensorparalleldegree",
    "tensorparallelism",
    "tensorparallelsize",
)


def _models(graph: Graph, running: tuple[Workload, ...]) -> Iterator[ModelFact]:
    composition = Composition(graph)
    named = {r.urn: tuple(_named_models(plain(r.inputs))) for r in graph.resources if is_component(r) or r.remote}
    known = set()
    for urn, found in named.items():
        deeper = {model for below in composition.inside(urn) for model, _ in named.get(below.urn, ())}
        component = graph.by_urn[urn]
        for model, settings in found:
            known.add(model)
            if model not in deeper:
                yield ModelFact(text(component.name), short_type(component.type).rpartition(".")[2], model, settings)
    seen = set()
    for workload in running:
        owner = joined(workload.namespace, workload.name, by="/")
        for model in workload.models:
            if model not in known and (workload.urn, model) not in seen:
                seen.add((workload.urn, model))
                yield ModelFact(owner, workload.kind, model)


def _named_models(value: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Models anywhere in a component's inputs, each with what stands beside it about how it runs."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, list):
            waiting += reversed(here)
        if not isinstance(here, Mapping):
            continue
        waiting += reversed([here[key] for key in sorted(here)])
        names = {key: model for key in _among(here, _MODEL_KEYS) if (model := _model_id(here[key]))}
        if names:
            (chosen, model), *others = names.items()
            inside = here[chosen] if isinstance(here[chosen], Mapping) else {}
            called = {text(key): name for key, name in others if name != model}
            yield model, _settings(here) | _settings(inside) | called


def _model_id(value: Any) -> str:
    if isinstance(value, Mapping):
        value = next((value[key] for key in _among(value, _MODEL_ID_KEYS)), None)
    return text(value) if isinstance(value, str) else ""


def _among(value: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """The keys of a table that are among these, in their order."""
    return sorted((key for key in value if _bare(key) in keys), key=lambda key: (keys.index(_bare(key)), key))


def _settings(value: Mapping[str, Any]) -> dict[str, str]:
    return {
        text(key): text(item)
        for key, item in sorted(value.items())
        if _bare(key) in _SETTING_KEYS and isinstance(item, str | int | float)
    }


def _bare(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


# -- endpoints -------------------------------------------------------------------------------------------------------------------

_SCHEME_ANNOTATIONS = (
    "service.beta.kubernetes.io/aws-load-balancer-scheme",
    "service.beta.kubernetes.io/aws-load-balancer-internal",
    "alb.ingress.kubernetes.io/scheme",
)
_SCHEMES = {"true": "internal", "false": "internet-facing"}


def _endpoints(graph: Graph) -> Iterator[Endpoint]:
    for resource in graph.resources:
        inputs = resource.inputs
        if resource.type in ("aws:lb/loadBalancer:LoadBalancer", "aws:alb/loadBalancer:LoadBalancer") and not is_read(resource):
            scheme = _SCHEMES.get(text(inputs.get("internal")) or "false", "")
            type_ = joined(text(inputs.get("loadBalancerType")) or "application", scheme, by=", ")
            yield Endpoint(resource.urn, short_type(resource.type), "", text(resource.name), type_, outside=True)
        if not is_kubernetes_object(resource):
            continue
        metadata, spec = inputs.get("metadata"), inputs.get("spec")
        namespace, name = text(at(metadata, "namespace")), text(at(metadata, "name")) or text(resource.name)
        annotations = table(at(metadata, "annotations"))
        said = next((text(annotations[key]) for key in _SCHEME_ANNOTATIONS if key in annotations), "")
        scheme = _SCHEMES.get(said, said)
        if resource.type == "kubernetes:core/v1:Service":
            type_ = text(at(spec, "type")) or "ClusterIP"
            type_ = "headless" if at(spec, "clusterIP") == "None" else type_
            outside = type_ not in ("ClusterIP", "ExternalName", "headless")
            type_ = joined(type_, scheme if type_ == "LoadBalancer" else "", by=", ")
            yield Endpoint(resource.urn, "Service", namespace, name, type_, ports(spec), outside=outside)
        elif resource.type == "kubernetes:networking.k8s.io/v1:Ingress":
            hosts = unique(text(at(rule, "host")) for rule in items(at(spec, "rules")))
            type_ = joined(at(spec, "ingressClassName"), scheme, by=", ")
            yield Endpoint(resource.urn, "Ingress", namespace, name, type_, hosts=hosts, outside=True)
