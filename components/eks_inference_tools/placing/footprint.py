"""Builds the pods that stand in for those of a recorded graph's charts and EKS add-ons. Pure.

Charts are not installed. So that nodes are as full as in a real cluster, workloads of the same kinds, replicas and placement are
created. Their pods request what the catalog (``footprints.toml``) or the values in the graph say, and run nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from eks_inference.accelerators.neuron.plan import neuron_instance_types
from eks_inference.accelerators.nvidia.plan import nvidia_instance_types
from eks_inference.catalog import charts as catalog
from eks_inference.catalog import versions
from eks_inference.catalog.charts import ContainerFootprint, WorkloadFootprint
from eks_inference.kubernetes.merge import merged
from eks_inference.kubernetes.workloads import RESTRICTED_CONTAINER, restricted_pod
from eks_inference.place.placement import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL
from eks_inference_tools.placing.placeholders import Placeholders
from eks_inference_tools.reading.autoscalers import Autoscaler, autoscalers
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from eks_inference_tools.reading.releases import ADDON_TYPE, CHART_TYPES, Addon, chart_of
from eks_inference_tools.reading.scalars import is_true, whole
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import at, items, table, text

STANDS_IN_FOR_LABEL = "eks-inference/stands-in-for"
"""On every object made here and its pods: the name of the Helm release or add-on that it stands in for."""

IMAGE_HOST = "stand-in.invalid"
"""The registry host of images that the catalog does not name. Images are never pulled."""

Object = dict[str, Any]

_POLICIES = ("affinity", "nodeSelector", "priorityClassName", "tolerations", "topologySpreadConstraints")
_NOBODY = 65534
_SYSTEM_NAMESPACES = ("default", "kube-system")
_INSTANCE_TYPES = {"neuron": neuron_instance_types, "nvidia": nvidia_instance_types}


@dataclass(frozen=True)
class _Installed:
    """A chart or add-on of the graph. ``values`` lack what is known only after deployment. ``marks`` are annotations."""

    urn: str
    title: str
    release: str
    namespace: str
    makes_namespace: bool
    values: Mapping[str, Any]
    footprint: catalog.Footprint | None
    marks: Mapping[str, str] = field(default_factory=dict)


def footprints(graph: Graph) -> Mapping[str, tuple[Object, ...]]:
    """Returns what stands in for each chart and add-on that the catalog knows (namespaces, volume claims, workloads) by URN."""
    found: dict[str, tuple[Object, ...]] = {}
    for one in _installed(graph):
        if one.footprint:
            labels = {STANDS_IN_FOR_LABEL: one.release}
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one.namespace, "labels": labels}}
            made = (item for workload in one.footprint.workloads for item in _objects(workload, one))
            found[one.urn] = (*((namespace,) if one.makes_namespace else ()), *made)
    return found


def without_footprint(graph: Graph) -> tuple[str, ...]:
    """Returns the titles of charts and add-ons whose pods the catalog does not know."""
    return tuple(one.title for one in _installed(graph) if not one.footprint)


# -- what the graph installs -----------------------------------------------------------------------------------------------------


def _installed(graph: Graph) -> Iterator[_Installed]:
    placeholders = Placeholders(graph)
    for resource in graph.resources:
        if resource.type in CHART_TYPES and not is_read(resource):
            chart = chart_of(resource)
            yield _Installed(
                urn=resource.urn,
                title=f"chart {chart.name}",
                release=chart.release,
                namespace=chart.namespace,
                makes_namespace=is_true(resource.inputs.get("createNamespace")),
                values=placeholders.filled(chart.values, resource)[0],
                footprint=catalog.charts().get(chart.name),
                # Helm adds them to every object, and the operators of our charts pass them on.
                marks={"meta.helm.sh/release-name": chart.release, "meta.helm.sh/release-namespace": chart.namespace},
            )
        elif resource.type == ADDON_TYPE and not is_read(resource):
            addon = Addon(resource)
            footprint = catalog.addons().get(addon.name)
            namespace = footprint.namespace if footprint else ""
            yield _Installed(
                urn=resource.urn,
                title=f"add-on {addon.name}",
                release=addon.name,
                namespace=namespace,
                makes_namespace=namespace not in _SYSTEM_NAMESPACES,
                values=placeholders.filled(addon.configuration, resource)[0],
                footprint=footprint,
            )


# -- what stands in for it -------------------------------------------------------------------------------------------------------


def _objects(workload: WorkloadFootprint, one: _Installed) -> Iterator[Object]:
    """Yields the workload and the volume claim that its pods share, if any; nothing if the values disable the workload."""
    for path, default in workload.enabled_at:
        switch = _value(one.values, path)
        if not (default if switch is None else is_true(switch)):
            return
    name = workload.name.format(release=one.release)
    metadata = {
        "name": name,
        "namespace": text(_option(one.values, workload.namespace_at)) or one.namespace,
        "labels": {STANDS_IN_FOR_LABEL: one.release},
        **({"annotations": dict(one.marks)} if one.marks else {}),
    }
    selected = {"app.kubernetes.io/instance": one.release, "app.kubernetes.io/name": name}
    pod = _pod(workload, one, selected)
    spec: Object = {"selector": {"matchLabels": selected}}
    claim, claimed = workload.claim.format(release=one.release), _claim(one.values, workload)
    if workload.kind != "DaemonSet":
        given = whole(_option(one.values, workload.replicas_at))
        spec["replicas"] = workload.replicas if given is None else given
    if workload.kind == "StatefulSet":
        spec["serviceName"] = name
        if claimed:
            template = {"metadata": {"name": claim, "labels": {STANDS_IN_FOR_LABEL: one.release}}, "spec": claimed}
            spec["volumeClaimTemplates"] = [template]
        if kept := table(_option(one.values, workload.claim_kept_at)):
            spec["persistentVolumeClaimRetentionPolicy"] = kept
    elif claimed:
        pod["volumes"] = [{"name": "storage", "persistentVolumeClaim": {"claimName": claim}}]
        yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**metadata, "name": claim}, "spec": claimed}
    spec["template"] = {"metadata": {"labels": {**selected, STANDS_IN_FOR_LABEL: one.release}}, "spec": pod}
    yield {"apiVersion": "apps/v1", "kind": workload.kind, "metadata": metadata, "spec": spec}


def _pod(workload: WorkloadFootprint, one: _Installed, selected: Mapping[str, str]) -> Object:
    containers = [_container(container, workload, one) for container in workload.containers]
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE_LABEL,
        "whenUnsatisfiable": "DoNotSchedule" if workload.spread == "required" else "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(selected)},
    }
    choices: Object = {
        "hostNetwork": workload.host_network,
        "priorityClassName": workload.priority,
        "tolerations": list(workload.tolerations),
        "affinity": _affinity(workload, selected),
        "topologySpreadConstraints": [spread] if workload.spread else [],
    }
    own = {"containers": containers, "automountServiceAccountToken": False} | {
        key: value for key, value in choices.items() if value
    }
    if not workload.host_network:
        # So that namespaces of the strictest Pod Security level accept them.
        own["securityContext"] = restricted_pod(_NOBODY)
        for container in containers:
            container["securityContext"] = RESTRICTED_CONTAINER
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
    without = workload.without_label
    expressions: list[Object] = [{"key": without, "operator": "DoesNotExist"}] if without else []
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
    """Returns the placement that the values give, each setting from the first path that has it."""
    found: Object = {}
    for key in _POLICIES:
        given = (at(_value(values, path), key) for path in workload.place_at)
        if (value := next((one for one in given if one is not None), None)) is not None:
            found[key] = value
    return {key: value for key, value in found.items() if value or key == "tolerations"}


def _claim(values: Mapping[str, Any], workload: WorkloadFootprint) -> Object:
    """Returns the spec of the volume claim: as in the values, or of the size that they enable; empty for none."""
    given = table(_option(values, workload.claim_at))
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
    """Returns the value at a dotted path; an empty path is the top."""
    return at(values, *path.split(".")) if path else values


def _option(values: Any, path: str) -> Any:
    """Returns the value at a dotted path; an empty path has none."""
    return _value(values, path) if path else None


Scale = Literal["least", "initial", "most"]
"""How many pods run: the fewest that autoscalers keep, those that `pulumi up` starts, the most that autoscalers start.

Autoscalers correct a number outside of their bounds at once.
"""

_ENDING = ("CronJob", "Job", "RayJob")
"""Kinds whose pods end by themselves."""


@dataclass(frozen=True, eq=False)
class Workloads:
    """The pod templates of one cluster, with those that stand in for the pods of its charts and add-ons."""

    graph: Graph

    @cached_property
    def stood_in(self) -> tuple[Resource, ...]:
        """What stands in for charts and add-ons, as if the program had made it."""
        return tuple(_resource(urn, item) for urn, made in footprints(self.graph).items() for item in made)

    @cached_property
    def templates(self) -> tuple[PodTemplate, ...]:
        return (*pod_templates(self.graph), *pod_templates(replace(self.graph, resources=self.stood_in)))

    @cached_property
    def daemons(self) -> tuple[PodTemplate, ...]:
        return tuple(template for template in self.templates if template.kind == "DaemonSet")

    @cached_property
    def ending(self) -> tuple[PodTemplate, ...]:
        """The templates whose pods end by themselves."""
        return tuple(template for template in self.templates if template.kind in _ENDING)

    @cached_property
    def by_scale(self) -> Mapping[PodTemplate, tuple[int, int, int]]:
        """The pods of each template whose pods do not end, at the least, as deployed and at the most; 0 for an unknown number."""
        least, initial, most = (dict(self.counted(scale)) for scale in ("least", "initial", "most"))
        return {one: (_some(least[one]), _some(initial[one]), _some(most[one])) for one in initial}

    def counted(self, scale: Scale, *, ending: bool = False) -> Iterator[tuple[PodTemplate, int | None]]:
        """Yields each template with its pods, None if only a cluster knows it. Leaves out DaemonSets.

        With ``ending``, the pods of Jobs count as well. Those of CronJobs never count.
        """
        for template in self.templates:
            if template.kind == "CronJob" or template.kind == "DaemonSet" or (template.kind in _ENDING and not ending):
                continue
            yield template, self._pods(template, scale)

    def _pods(self, template: PodTemplate, scale: Scale) -> int | None:
        least, most = self._bounds(template)
        if scale != "initial":
            return most if scale == "most" else least
        if template.pods is None or least is None or most is None:
            return template.pods
        return min(max(template.pods, least), most)

    def _bounds(self, template: PodTemplate) -> tuple[int | None, int | None]:
        scaler = self._scalers.get((template.given_namespace, template.kind, template.name))
        if template.between or scaler is None:
            return template.between or (template.pods, template.pods)
        least, most = (None if bound is None else bound * template.per_replica for bound in (scaler.least, scaler.most))
        return least, most

    @cached_property
    def _scalers(self) -> Mapping[tuple[str, str, str], Autoscaler]:
        return {autoscaler.target: autoscaler for autoscaler in autoscalers(self.graph)}


def _resource(urn: str, manifest: Mapping[str, object]) -> Resource:
    kind, name = text(manifest["kind"]), text(at(manifest, "metadata", "name"))
    return Resource(urn=urn, type=f"kubernetes:{text(manifest['apiVersion'])}:{kind}", name=name, inputs=manifest)


def _some(number: int | None) -> int:
    """The number; 0 for none, and for one that an API server refuses."""
    return max(number or 0, 0)
