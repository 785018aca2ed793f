"""What a deployed stack should look like, worked out from its recorded graph. There is no second list."""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from eks_inference.placement import KARPENTER_POOL_LABEL, NODE_GROUP_LABEL, POOL_LABEL
from eks_inference_tools.reading.facts import Facts, facts_of
from eks_inference_tools.reading.workloads import whole
from stackgraph.graph.describe import is_kubernetes_object, short_component_type, short_type
from stackgraph.graph.document import CHART_TYPE, Graph, Resource, is_component, is_read
from stackgraph.graph.structure import Structure
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, table, text, texts

ADDON_TYPE = "aws:eks/addon:Addon"

DAEMON_SETS = "daemonsets.apps"
DEPLOYMENTS = "deployments.apps"
ENDPOINT_SLICES = "endpointslices.discovery.k8s.io"
JOBS = "jobs.batch"
LEADER_WORKER_SETS = "leaderworkersets.leaderworkerset.x-k8s.io"
NAMESPACES = "namespaces"
NODES = "nodes"
NODE_CLASSES = "ec2nodeclasses.karpenter.k8s.aws"
NODE_POOLS = "nodepools.karpenter.sh"
PODS = "pods"
RAY_SERVICES = "rayservices.ray.io"
SERVICES = "services"
STATEFUL_SETS = "statefulsets.apps"
STORAGE_CLASSES = "storageclasses.storage.k8s.io"
VOLUME_CLAIMS = "persistentvolumeclaims"

CHECKED: Mapping[tuple[str, str], str] = {
    ("", "Namespace"): NAMESPACES,
    ("", "PersistentVolumeClaim"): VOLUME_CLAIMS,
    ("", "Service"): SERVICES,
    ("apps", "DaemonSet"): DAEMON_SETS,
    ("apps", "Deployment"): DEPLOYMENTS,
    ("apps", "StatefulSet"): STATEFUL_SETS,
    ("batch", "Job"): JOBS,
    ("karpenter.k8s.aws", "EC2NodeClass"): NODE_CLASSES,
    ("karpenter.sh", "NodePool"): NODE_POOLS,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): LEADER_WORKER_SETS,
    ("ray.io", "RayService"): RAY_SERVICES,
    ("storage.k8s.io", "StorageClass"): STORAGE_CLASSES,
}
"""By API group and kind, the resources (as kubectl names them) whose objects have a state of their own worth a check."""

WORKLOADS = (DAEMON_SETS, DEPLOYMENTS, JOBS, LEADER_WORKER_SETS, STATEFUL_SETS)

KINDS = {resource: kind for (_, kind), resource in CHECKED.items()}


@dataclass(frozen=True)
class ExpectedObject:
    """An object that the stack makes. ``name`` is empty where only the deployment knows it; ``area`` is the class of the
    component that it is part of.
    """

    resource: str
    namespace: str
    name: str
    area: str
    manifest: Mapping[str, Any]

    @property
    def subject(self) -> str:
        return subject_of(self.resource, self.namespace, self.name)


@dataclass(frozen=True)
class ExpectedPool:
    """Nodes of one managed node group or Karpenter NodePool. ``least`` nodes are always there; None: as many as pods need."""

    name: str
    selector: Mapping[str, str]
    least: int | None
    instance_types: tuple[str, ...]
    families: tuple[str, ...]


@dataclass(frozen=True)
class ExpectedRelease:
    """A Helm release. ``chart`` is the chart's bare name."""

    namespace: str
    name: str
    chart: str
    version: str
    area: str


@dataclass(frozen=True)
class ExpectedAddon:
    """An EKS add-on and the workloads it runs, as (resource, namespace, name)."""

    name: str
    version: str
    area: str
    workloads: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Expected:
    """Everything that is looked for. ``areas`` are the headings of a report in the order in which the parts are completed.

    ``unchecked`` counts what is in the graph and has no check, by type.
    """

    stack: str
    cluster: str
    version: str
    access_command: str
    areas: tuple[str, ...]
    objects: tuple[ExpectedObject, ...]
    pools: tuple[ExpectedPool, ...]
    releases: tuple[ExpectedRelease, ...]
    addons: tuple[ExpectedAddon, ...]
    unchecked: Mapping[str, int] = field(default_factory=dict)

    def resources(self) -> tuple[str, ...]:
        """Which resources a check needs to see, as kubectl names them."""
        needed = {item.resource for item in self.objects} | {NODES}
        if self.releases or self.addons:
            needed |= {DAEMON_SETS, DEPLOYMENTS}
        if self.releases:
            needed |= {JOBS, STATEFUL_SETS}
        if needed & {*WORKLOADS, RAY_SERVICES, SERVICES}:
            needed.add(PODS)
        if needed & {RAY_SERVICES, SERVICES}:
            needed |= {SERVICES, ENDPOINT_SLICES}
        return tuple(sorted(needed))

    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that the stack makes, and so is alone in."""
        return tuple(sorted(item.name for item in self.objects if item.resource == NAMESPACES and item.name))


def expected_of(graph: Graph) -> Expected:
    """What the stack should look like when it is deployed and well."""
    structure = Structure(graph)
    facts = facts_of(graph)
    level: dict[str, int] = {}
    objects: list[ExpectedObject] = []
    releases: list[ExpectedRelease] = []
    addons: list[ExpectedAddon] = []
    unchecked: Counter[str] = Counter()
    for resource in sorted(graph.resources, key=lambda r: (structure.level.get(r.urn, 0), r.urn)):
        area = _area(resource, structure)
        if resource.type == CHART_TYPE and not is_read(resource):
            releases.append(_release(resource, area))
        elif resource.type == ADDON_TYPE and not is_read(resource):
            addon = _addon(resource, area)
            if addon is None:
                unchecked[f"add-on {text(resource.inputs.get('addonName'))}"] += 1
                continue
            addons.append(addon)
        elif is_kubernetes_object(resource):
            found = _object(resource, area)
            if found is None:
                unchecked[short_type(resource.type)] += 1
                continue
            objects.append(found)
        else:
            continue
        level[area] = structure.level.get(resource.urn, 0)
    cluster = next(iter(facts.clusters), None)
    return Expected(
        stack=graph.stack,
        cluster=cluster.name if cluster else _existing_cluster(graph),
        version=cluster.version if cluster and not is_token(cluster.version) else "",
        access_command=text(graph.outputs.get("kubeconfigCommand")),
        areas=tuple(sorted(level, key=lambda area: (level[area], area))),
        objects=tuple(objects),
        pools=tuple(_pools(graph, facts)),
        releases=tuple(releases),
        addons=tuple(addons),
        unchecked=dict(sorted(unchecked.items())),
    )


def subject_of(resource: str, namespace: str, name: str) -> str:
    """``DaemonSet kube-system/neuron-device-plugin``"""
    return f"{KINDS[resource]} {namespace}/{name}" if namespace else f"{KINDS[resource]} {name}"


def _area(resource: Resource, structure: Structure) -> str:
    above = [structure.graph.by_urn[urn] for urn in structure.above(resource.urn)]
    components = [short_component_type(item.type) for item in above if is_component(item)]
    return components[-1] if components else "Stack"


def _existing_cluster(graph: Graph) -> str:
    """The name that the stack's own Kubernetes provider gives to a cluster that it did not make."""
    providers = [r for r in graph.of_type("pulumi:providers:kubernetes") if not r.is_default_provider]
    names = {text(provider.inputs.get("clusterIdentifier")) for provider in providers}
    return next(iter(names)) if len(names) == 1 else ""


def _object(resource: Resource, area: str) -> ExpectedObject | None:
    group = text(resource.inputs.get("apiVersion")).rpartition("/")[0]
    kubectl_name = CHECKED.get((group, text(resource.inputs.get("kind"))))
    if kubectl_name is None:
        return None
    metadata = resource.inputs.get("metadata")
    name, namespace = at(metadata, "name"), at(metadata, "namespace")
    namespaced = kubectl_name not in (NAMESPACES, NODE_CLASSES, NODE_POOLS, STORAGE_CLASSES)
    return ExpectedObject(
        resource=kubectl_name,
        namespace=(text(namespace) or "default") if namespaced else "",
        name="" if name is None or is_token(name) or is_token(namespace) else text(name),
        area=area,
        manifest=resource.inputs,
    )


def _pools(graph: Graph, facts: Facts) -> Iterator[ExpectedPool]:
    for capacity in facts.capacity:
        if POOL_LABEL in capacity.labels:
            selector = {POOL_LABEL: capacity.labels[POOL_LABEL]}
        elif capacity.manager == "Karpenter":
            selector = {KARPENTER_POOL_LABEL: capacity.name}
        else:
            selector = {NODE_GROUP_LABEL: capacity.name}
        yield ExpectedPool(
            name=next(iter(selector.values())),
            selector=selector,
            least=_least(graph.by_urn[capacity.urn]) if capacity.manager == "node group" else None,
            instance_types=capacity.instance_types,
            families=capacity.families,
        )


def _least(node_group: Resource) -> int:
    """Nodes that a node group has in any case: where something scales it, its lower bound."""
    scaling = node_group.inputs.get("scalingConfig")
    low, size, high = (whole(at(scaling, key)) for key in ("minSize", "desiredSize", "maxSize"))
    if low is not None and high is not None and low < high and size != 0:
        return low
    return size or 0


def _release(resource: Resource, area: str) -> ExpectedRelease:
    chart = text(resource.inputs.get("chart")).rstrip("/").rpartition("/")[2]
    return ExpectedRelease(
        namespace=text(resource.inputs.get("namespace")) or "default",
        name=text(resource.inputs.get("name")) or text(resource.name),
        chart=chart,
        version=text(resource.inputs.get("version")),
        area=area,
    )


def _addon(resource: Resource, area: str) -> ExpectedAddon | None:
    name = text(resource.inputs.get("addonName"))
    row = _addon_rows().get(name)
    if row is None:
        return None
    kinds = ((DEPLOYMENTS, "deployments"), (DAEMON_SETS, "daemonsets"))
    return ExpectedAddon(
        name=name,
        version=text(resource.inputs.get("addonVersion")),
        area=area,
        workloads=tuple(
            (kubectl_name, row["namespace"], workload) for kubectl_name, key in kinds for workload in texts(row.get(key))
        ),
    )


@cache
def _addon_rows() -> Mapping[str, Mapping[str, Any]]:
    return table(tomllib.loads(files("eks_inference_tools.reading").joinpath("addons.toml").read_text("utf-8")))
