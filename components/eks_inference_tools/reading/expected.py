"""Derives from a recorded graph what its deployed stack should contain. No other list of expectations exists."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eks_inference.place.placement import INSTANCE_TYPE_LABEL, KARPENTER_POOL_LABEL, NODE_GROUP_LABEL, POOL_LABEL
from eks_inference_tools.reading.clusters import clusters
from eks_inference_tools.reading.node_groups import node_groups
from eks_inference_tools.reading.node_pools import FAMILY_LABEL, node_pools
from eks_inference_tools.reading.object_kinds import (
    CHECKED,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    JOBS,
    NAMESPACES,
    NODE_CLASSES,
    NODE_POOLS,
    NODES,
    PODS,
    RAY_SERVICES,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    WORKLOADS,
    subject_of,
)
from eks_inference_tools.reading.releases import ADDON_TYPE, Addon, chart_of
from stackgraph.graph.describe import is_kubernetes_object, short_component_type, short_type
from stackgraph.graph.document import CHART_TYPE, Graph, Resource, is_component, is_read
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import at, is_token, table, text, texts


@dataclass(frozen=True)
class ExpectedObject:
    """An object of the stack. ``name`` is empty when only the deployment knows it. ``area`` is the class of its component."""

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
    """Nodes of one managed node group or NodePool. ``least`` is their minimum number, None when it depends on the pods."""

    name: str
    selector: Mapping[str, str]
    least: int | None
    instance_types: tuple[str, ...]
    families: tuple[str, ...]


@dataclass(frozen=True)
class ExpectedRelease:
    """A Helm release. ``chart`` is the name of the chart without repository."""

    namespace: str
    name: str
    chart: str
    version: str
    area: str


@dataclass(frozen=True)
class ExpectedAddon:
    """An EKS add-on and its workloads, as (resource, namespace, name)."""

    name: str
    version: str
    area: str
    workloads: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Expected:
    """The expected contents of a deployed stack. ``areas`` are the headings of a report, in the order of deployment.

    ``unchecked`` counts by type the resources that no check covers.
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
        """The resources that the checks read, as kubectl names them."""
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
        """The namespaces that the stack creates. It is their only owner."""
        return tuple(sorted(item.name for item in self.objects if item.resource == NAMESPACES and item.name))


def expected_of(graph: Graph) -> Expected:
    """Derives what the stack should contain when it is deployed and healthy."""
    structure = Structure(graph)
    level: dict[str, int] = {}
    objects: list[ExpectedObject] = []
    releases: list[ExpectedRelease] = []
    addons: list[ExpectedAddon] = []
    unchecked: Counter[str] = Counter()
    for resource in sorted(graph.resources, key=lambda r: (structure.level.get(r.urn, 0), r.urn)):
        area = _area(resource, structure)
        if resource.type == CHART_TYPE and not is_read(resource):
            chart = chart_of(resource)
            releases.append(ExpectedRelease(chart.namespace, chart.release, chart.name, chart.version, area))
        elif resource.type == ADDON_TYPE and not is_read(resource):
            addon = Addon(resource)
            if addon.runs is None:
                unchecked[f"add-on {addon.name}"] += 1
                continue
            addons.append(ExpectedAddon(addon.name, addon.version, area, tuple(_addon_workloads(addon.runs))))
        elif is_kubernetes_object(resource):
            found = _object(resource, area)
            if found is None:
                unchecked[short_type(resource.type)] += 1
                continue
            objects.append(found)
        else:
            continue
        level[area] = structure.level.get(resource.urn, 0)
    cluster = next(iter(clusters(graph)), None)
    return Expected(
        stack=graph.stack,
        cluster=cluster.name if cluster else _existing_cluster(graph),
        version=cluster.version if cluster and not is_token(cluster.version) else "",
        access_command=text(graph.outputs.get("kubeconfigCommand")),
        areas=tuple(sorted(level, key=lambda area: (level[area], area))),
        objects=tuple(objects),
        pools=tuple(_pools(graph)),
        releases=tuple(releases),
        addons=tuple(addons),
        unchecked=dict(sorted(unchecked.items())),
    )


def _area(resource: Resource, structure: Structure) -> str:
    above = [structure.graph.by_urn[urn] for urn in structure.above(resource.urn)]
    components = [short_component_type(item.type) for item in above if is_component(item)]
    return components[-1] if components else "Stack"


def _existing_cluster(graph: Graph) -> str:
    """The name of a cluster outside the graph, as the stack's explicit Kubernetes provider gives it. Empty when ambiguous."""
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


def _pools(graph: Graph) -> Iterator[ExpectedPool]:
    for group in node_groups(graph):
        low, size, high = group.sizes
        # Where something may scale the group, only the lower bound is certain.
        scaled = low is not None and high is not None and low < high and size != 0
        least = (low if scaled else size) or 0
        yield _pool(group.labels, {NODE_GROUP_LABEL: group.name}, least, group.instance_types)
    for pool in node_pools(graph):
        types, families = pool.chosen(INSTANCE_TYPE_LABEL), pool.chosen(FAMILY_LABEL)
        yield _pool(pool.labels, {KARPENTER_POOL_LABEL: pool.name}, pool.replicas, types, families)


def _pool(
    labels: Any, own: Mapping[str, str], least: int | None, types: tuple[str, ...], families: tuple[str, ...] = ()
) -> ExpectedPool:
    """Selects nodes by the library's label, which pools share with their successors, else by the label of EKS or Karpenter."""
    pool = table(labels).get(POOL_LABEL)
    selector = own if pool is None else {POOL_LABEL: text(pool)}
    return ExpectedPool(next(iter(selector.values())), selector, least, types, families)


def _addon_workloads(row: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for resource, key in ((DEPLOYMENTS, "deployments"), (DAEMON_SETS, "daemonsets")):
        yield from ((resource, row["namespace"], workload) for workload in texts(row.get(key)))
