"""What a platform engineer looks for in a graph, apart from how it is shown: capacity, workloads, models, endpoints.

Everything follows from resource types and inputs. How many devices an instance type has is not among them: pods say what they ask
for, node groups say which instance types they start and how many.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eks_inference_tools.reading.words import endpoint_access, taint
from eks_inference_tools.reading.workloads import Workload, span, whole, workloads
from stackgraph.graph.describe import (
    efa_interfaces,
    is_kubernetes_object,
    ports,
    root_disk,
    short_type,
)
from stackgraph.graph.document import Graph, Resource, is_component, is_read
from stackgraph.graph.structure import Structure
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, joined, plain, table, text, texts, unique

NODE_GROUP_TYPE = "aws:eks/nodeGroup:NodeGroup"
LAUNCH_TEMPLATE_TYPE = "aws:ec2/launchTemplate:LaunchTemplate"
NODE_POOL_TYPE = "kubernetes:karpenter.sh/v1:NodePool"
NODE_CLASS_TYPE = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"


@dataclass(frozen=True)
class Cluster:
    """An EKS control plane."""

    urn: str
    name: str
    version: str
    access: str
    """Who reaches its API, in words."""


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
        clusters=tuple(_clusters(graph)),
        capacity=tuple(_capacity(graph)),
        workloads=running,
        models=tuple(_models(graph, running)),
        endpoints=tuple(sorted(_endpoints(graph), key=lambda e: (not e.outside, e.namespace, e.name, e.kind, e.urn))),
    )


# -- clusters and nodes ----------------------------------------------------------------------------------------------------------


def _clusters(graph: Graph) -> Iterator[Cluster]:
    for resource in graph.resources:
        if resource.type == "aws:eks/cluster:Cluster" and not is_read(resource):
            network = resource.inputs.get("vpcConfig")
        elif resource.type == "eks:index:Cluster":
            network = resource.inputs
        else:
            continue
        keys = ("endpointPrivateAccess", "endpointPublicAccess", "publicAccessCidrs")
        yield Cluster(
            urn=resource.urn,
            name=text(resource.inputs.get("name")) or text(resource.name),
            version=text(resource.inputs.get("version")),
            access=endpoint_access(*(at(network, key) for key in keys)),
        )


def _capacity(graph: Graph) -> Iterator[NodeCapacity]:
    templates = {resource.urn: resource.inputs for resource in graph.of_type(LAUNCH_TEMPLATE_TYPE)}
    for resource in graph.of_type(NODE_GROUP_TYPE):
        if not is_read(resource):
            urns = resource.property_dependencies.get("launchTemplate", ())
            yield _node_group(resource, next((templates[urn] for urn in urns if urn in templates), {}))
    classes = {text(at(r.inputs, "metadata", "name")): r.inputs.get("spec") for r in _objects(graph, NODE_CLASS_TYPE)}
    for resource in _objects(graph, NODE_POOL_TYPE):
        reference = text(at(resource.inputs, "spec", "template", "spec", "nodeClassRef", "name"))
        yield _node_pool(resource, classes.get(reference))


def _objects(graph: Graph, type_: str) -> list[Resource]:
    return [resource for resource in graph.of_type(type_) if is_kubernetes_object(resource)]


def _node_group(resource: Resource, template: Mapping[str, Any]) -> NodeCapacity:
    inputs = resource.inputs
    scaling = inputs.get("scalingConfig")
    size, low, high = (at(scaling, key) for key in ("desiredSize", "minSize", "maxSize"))
    # EKS takes no maximum of 0: a group of fixed size 0 has 0 to 1.
    fixed = low == size and (high == size or (size == 0 and high == 1))
    bounds = "" if fixed else span(low, high)
    bought = text(inputs.get("capacityType")) or "ON_DEMAND"
    return NodeCapacity(
        urn=resource.urn,
        name=text(inputs.get("nodeGroupName")) or text(resource.name),
        manager="node group",
        # A capacity block's instance type stands in the template.
        instance_types=texts(inputs.get("instanceTypes")) or texts(template.get("instanceType")),
        size=joined(size, f"({bounds})" if "–" in bounds else ""),
        nodes=whole(size),
        capacity_types=(bought if is_token(bought) else bought.lower().replace("_", "-"),),
        labels=_labels(inputs.get("labels")),
        taints=tuple(taint(item) for item in items(inputs.get("taints"))),
        image=joined(inputs.get("amiType") or template.get("imageId"), inputs.get("releaseVersion")),
        root_disk=root_disk(template),
        interfaces=efa_interfaces(template),
    )


def _node_pool(resource: Resource, node_class: Any) -> NodeCapacity:
    spec = resource.inputs.get("spec")
    template = at(spec, "template")
    chosen: dict[str, tuple[str, ...]] = {}
    others = []
    for requirement in items(at(template, "spec", "requirements")):
        key, operator = text(at(requirement, "key")), at(requirement, "operator")
        if operator == "In" and key in _CHOICES:
            chosen[key] = (*chosen.get(key, ()), *texts(at(requirement, "values")))
        elif key != "kubernetes.io/os":
            others.append(_requirement(requirement))
    image = next(iter(items(at(node_class, "amiSelectorTerms"))), None)
    return NodeCapacity(
        urn=resource.urn,
        name=text(at(resource.inputs, "metadata", "name")) or text(resource.name),
        manager="Karpenter",
        instance_types=chosen.get("node.kubernetes.io/instance-type", ()),
        families=chosen.get("karpenter.k8s.aws/instance-family", ()),
        capacity_types=chosen.get("karpenter.sh/capacity-type", ()),
        limits=_labels(at(spec, "limits")),
        requirements=unique(others),
        labels=_labels(at(template, "metadata", "labels")),
        taints=tuple(taint(item) for item in items(at(template, "spec", "taints"))),
        image=text(at(image, "alias") or at(image, "id") or at(image, "name")),
        root_disk=root_disk(node_class),
    )


_CHOICES = ("node.kubernetes.io/instance-type", "karpenter.k8s.aws/instance-family", "karpenter.sh/capacity-type")
_OPERATORS = {"In": "", "NotIn": "not", "Gt": ">", "Lt": "<", "Gte": "≥", "Lte": "≤", "Exists": "any", "DoesNotExist": "none"}


def _requirement(requirement: Any) -> str:
    if not isinstance(requirement, Mapping):
        return text(requirement)
    operator = text(requirement.get("operator"))
    values = " or ".join(texts(requirement.get("values")))
    return joined(text(requirement.get("key")).rpartition("/")[2], _OPERATORS.get(operator, operator), values)


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
    structure = Structure(graph)
    named = {r.urn: tuple(_named_models(plain(r.inputs))) for r in graph.resources if is_component(r) or r.remote}
    known = set()
    for urn, found in named.items():
        deeper = {model for below in structure.inside(urn) for model, _ in named.get(below.urn, ())}
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
