"""Pods in the place of those that charts and EKS add-ons of a recorded graph would run. Pure.

Nobody installs a chart here. So that nodes are as full as they would be, workloads of the same kinds, numbers and places are
made, whose pods ask for what the catalog (``footprints.toml``) or the graph's own values say, and run nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.accelerators.neuron.plan import neuron_instance_types
from eks_inference.accelerators.nvidia.plan import nvidia_instance_types
from eks_inference.catalog import footprints as catalog
from eks_inference.catalog import versions
from eks_inference.catalog.footprints import ContainerFootprint, WorkloadFootprint
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER, restricted_pod
from eks_inference.merge import merged
from eks_inference.placement import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL
from eks_inference_tools.reading.addons import ADDON_TYPE, Addon
from eks_inference_tools.reading.charts import CHART_TYPES, chart_of
from eks_inference_tools.reading.scalars import is_true, whole
from eks_inference_tools.simulate.world.placeholders import Placeholders
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import at, items, table, text

STANDS_IN_FOR_LABEL = "eks-inference/stands-in-for"
"""On everything made here and its pods: the name of the Helm release or add-on in whose place it is."""

IMAGE_HOST = "stand-in.invalid"
"""Where images would be from whose name the catalog does not know. Nobody pulls any."""

Object = dict[str, Any]

_POLICIES = ("affinity", "nodeSelector", "priorityClassName", "tolerations", "topologySpreadConstraints")
_NOBODY = 65534
_SYSTEM_NAMESPACES = ("default", "kube-system")
_INSTANCE_TYPES = {"neuron": neuron_instance_types, "nvidia": nvidia_instance_types}


@dataclass(frozen=True)
class _Installed:
    """A chart or add-on of the graph. ``marks`` are annotations, ``values`` what it is given, without what is not known yet."""

    resource: Resource
    kind: str
    name: str
    release: str
    namespace: str
    values: Mapping[str, Any]
    marks: Mapping[str, str]
    makes_namespace: bool
    known: Mapping[str, catalog.Footprint]


def footprints(graph: Graph) -> Mapping[str, tuple[Object, ...]]:
    """What stands in for each chart and add-on that the catalog knows, by the URN of its resource: namespaces that come with it,
    volume claims, workloads.
    """
    found: dict[str, tuple[Object, ...]] = {}
    for one in _installed(graph):
        if footprint := one.known.get(one.name):
            made = (item for workload in footprint.workloads for item in _objects(workload, one))
            found[one.resource.urn] = (*_namespace(one), *made)
    return found


def without_footprint(graph: Graph) -> tuple[str, ...]:
    """Charts and add-ons of which the catalog does not know what they run, in words."""
    return tuple(f"{one.kind} {one.name}" for one in _installed(graph) if one.name not in one.known)


# -- what the graph installs -----------------------------------------------------------------------------------------------------


def _installed(graph: Graph) -> Iterator[_Installed]:
    placeholders = Placeholders(graph)
    for resource in graph.resources:
        if resource.type in CHART_TYPES and not is_read(resource):
            chart = chart_of(resource)
            yield _Installed(
                resource=resource,
                kind="chart",
                name=chart.name,
                release=chart.release,
                namespace=chart.namespace,
                values=placeholders.filled(chart.values, resource)[0],
                # Helm puts them on everything it makes; the operators of our charts pass them on.
                marks={"meta.helm.sh/release-name": chart.release, "meta.helm.sh/release-namespace": chart.namespace},
                makes_namespace=is_true(resource.inputs.get("createNamespace")),
                known=catalog.charts(),
            )
        elif resource.type == ADDON_TYPE and not is_read(resource):
            addon = Addon(resource)
            footprint = catalog.addons().get(addon.name)
            namespace = footprint.namespace if footprint else ""
            yield _Installed(
                resource=resource,
                kind="add-on",
                name=addon.name,
                release=addon.name,
                namespace=namespace,
                values=placeholders.filled(addon.configuration, resource)[0],
                marks={},
                makes_namespace=namespace not in _SYSTEM_NAMESPACES,
                known=catalog.addons(),
            )


def _namespace(one: _Installed) -> Iterator[Object]:
    if one.makes_namespace:
        yield {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": one.namespace, "labels": {STANDS_IN_FOR_LABEL: one.release}},
        }


# -- what stands in for it -------------------------------------------------------------------------------------------------------


def _objects(workload: WorkloadFootprint, one: _Installed) -> Iterator[Object]:
    """The workload and, where its pods share one, their volume claim; nothing when the values switch it off."""
    if not all(_is_on(_value(one.values, path), default) for path, default in workload.enabled_at):
        return
    name = workload.name.format(release=one.release)
    metadata = {
        "name": name,
        "namespace": text(_value(one.values, workload.namespace_at)) or one.namespace if workload.namespace_at else one.namespace,
        "labels": {STANDS_IN_FOR_LABEL: one.release},
        **({"annotations": dict(one.marks)} if one.marks else {}),
    }
    selected = {"app.kubernetes.io/instance": one.release, "app.kubernetes.io/name": name}
    pod = _pod(workload, one, selected)
    spec: Object = {"selector": {"matchLabels": selected}}
    claim, claimed = workload.claim.format(release=one.release), _claim(one.values, workload)
    if workload.kind != "DaemonSet":
        given = whole(_value(one.values, workload.replicas_at)) if workload.replicas_at else None
        spec["replicas"] = workload.replicas if given is None else given
    if workload.kind == "StatefulSet":
        spec["serviceName"] = name
        if claimed:
            template = {"metadata": {"name": claim, "labels": {STANDS_IN_FOR_LABEL: one.release}}, "spec": claimed}
            spec["volumeClaimTemplates"] = [template]
        if kept := table(_value(one.values, workload.claim_kept_at)) if workload.claim_kept_at else {}:
            spec["persistentVolumeClaimRetentionPolicy"] = kept
    elif claimed:
        pod["volumes"] = [{"name": "storage", "persistentVolumeClaim": {"claimName": claim}}]
        yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**metadata, "name": claim}, "spec": claimed}
    spec["template"] = {"metadata": {"labels": {**selected, STANDS_IN_FOR_LABEL: one.release}}, "spec": pod}
    yield {"apiVersion": "apps/v1", "kind": workload.kind, "metadata": metadata, "spec": spec}


def _pod(workload: WorkloadFootprint, one: _Installed, selected: Mapping[str, str]) -> Object:
    containers = [_container(container, workload, one) for container in workload.containers]
    own: Object = {"containers": containers, "automountServiceAccountToken": False}
    if workload.host_network:
        own["hostNetwork"] = True
    else:
        # The strictest namespace takes them.
        own["securityContext"] = restricted_pod(_NOBODY)
        for container in containers:
            container["securityContext"] = RESTRICTED_CONTAINER
    if workload.priority:
        own["priorityClassName"] = workload.priority
    if workload.tolerations:
        own["tolerations"] = list(workload.tolerations)
    if affinity := _affinity(workload, selected):
        own["affinity"] = affinity
    if workload.spread:
        own["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": ZONE_LABEL,
                "whenUnsatisfiable": "DoNotSchedule" if workload.spread == "required" else "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(selected)},
            }
        ]
    policies = _policies(workload, one.values)
    for constraint in items(policies.get("topologySpreadConstraints")):
        constraint.setdefault("labelSelector", {"matchLabels": dict(selected)})
    return merged(own, policies)


def _container(container: ContainerFootprint, workload: WorkloadFootprint, one: _Installed) -> Object:
    given = next((found for path in container.at if (found := table(_value(one.values, path)))), None)
    default = {key: amount for key, amount in (("cpu", container.cpu), ("memory", container.memory)) if amount}
    first = container.name == workload.containers[0].name
    return {
        "name": container.name,
        "image": versions.image(container.image) if container.image else f"{IMAGE_HOST}/{one.release}/{container.name}",
        "resources": given or ({"requests": default} if default else {}),
        **({"ports": [{"containerPort": port, "hostPort": port} for port in workload.ports]} if workload.ports and first else {}),
    }


def _affinity(workload: WorkloadFootprint, selected: Mapping[str, str]) -> Object:
    found: Object = {}
    expressions: list[Object] = []
    if workload.without_label:
        expressions.append({"key": workload.without_label, "operator": "DoesNotExist"})
    if workload.devices:
        expressions.append({"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": _INSTANCE_TYPES[workload.devices]()})
    if expressions:
        terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        found["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    term = {"labelSelector": {"matchLabels": dict(selected)}, "topologyKey": HOSTNAME_LABEL}
    if workload.apart == "required":
        found["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    elif workload.apart == "preferred":
        weighed = [{"weight": 100, "podAffinityTerm": term}]
        found["podAntiAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": weighed}
    return found


def _policies(workload: WorkloadFootprint, values: Mapping[str, Any]) -> Object:
    """What the values say of where the pods go, each from the first place that has it."""
    found: Object = {}
    for key in _POLICIES:
        given = (at(_value(values, path), key) for path in workload.place_at)
        if (value := next((one for one in given if one is not None), None)) is not None:
            found[key] = value
    return {key: value for key, value in found.items() if value or key == "tolerations"}


def _claim(values: Mapping[str, Any], workload: WorkloadFootprint) -> Object:
    """The spec of a volume claim: as the values have it, or of a size that they switch on."""
    given = table(_value(values, workload.claim_at)) if workload.claim_at else {}
    if "resources" in given:
        return dict(given)
    if not is_true(given.get("enabled")):
        return {}
    return {
        "accessModes": items(given.get("accessModes")) or ["ReadWriteOnce"],
        "resources": {"requests": {"storage": text(given.get("size"))}},
        **({"storageClassName": name} if (name := text(given.get("storageClassName"))) else {}),
    }


def _value(values: Any, path: str) -> Any:
    return at(values, *path.split(".")) if path else values


def _is_on(value: Any, default: bool) -> bool:
    return default if value is None else is_true(value)
