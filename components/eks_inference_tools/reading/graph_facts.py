"""The subject of rules about recorded graphs of any Pulumi program: views of the graph, each computed once.

Every view leaves out values that are secret, unknown or of an unexpected type, so that they never cause a finding.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.place.placement import INSTANCE_TYPE_LABEL
from eks_inference.specs.base import scalars
from eks_inference_tools.reading.autoscalers import autoscalers
from eks_inference_tools.reading.clusters import CLUSTER_TYPE, REMOTE_CLUSTER_TYPE, cluster_resources, is_auto
from eks_inference_tools.reading.devices import OFFERED_BY, offers, placed_by_plugin
from eks_inference_tools.reading.node_groups import launch_templates, node_groups
from eks_inference_tools.reading.node_pools import node_classes
from eks_inference_tools.reading.node_shapes import NodeShape, node_shapes
from eks_inference_tools.reading.object_kinds import group_kind, name_of
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from eks_inference_tools.reading.pods import Container, PodSpec
from eks_inference_tools.reading.releases import V4_CHART_TYPE, addons, charts
from eks_inference_tools.reading.scalars import is_true
from eks_inference_tools.reading.scheduling import obstacles
from eks_inference_tools.reading.security_groups import SecurityGroups
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at, is_token, table, text

# Resources that create nodes which the graph does not show. Remote components may do so as well, except these.
_OTHER_NODES = frozenset(("aws:autoscaling/group:Group", "aws:ec2/instance:Instance", "aws:eks/fargateProfile:FargateProfile"))
_REMOTE_WITHOUT_NODES = frozenset((REMOTE_CLUSTER_TYPE, "eks:index:Addon", V4_CHART_TYPE))

# Custom resources for which no controller creates pods in their namespace. Other kinds may have such a controller.
_NO_PODS = frozenset(
    (
        "ClusterPolicy",
        "ExternalSecret",
        "HTTPRoute",
        "PodMonitor",
        "PrometheusRule",
        "ScaledObject",
        "SecretStore",
        "ServiceMonitor",
        "TriggerAuthentication",
    )
)

T = TypeVar("T")

_SCHEDULER_NAME = re.compile(r"""["']?schedulerName["']?\s*:\s*["']?([\w.-]+)""")


def _view(read: Callable[[Graph], T]) -> "cached_property[T]":
    """A view that a function reads from the graph."""
    return cached_property(lambda facts: read(facts.graph))


class GraphFacts:
    """Views of a recorded graph, computed on first use."""

    about: ClassVar[str] = "resources of a program"

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    # -- objects of the cluster

    autoscalers = _view(lambda graph: tuple(autoscalers(graph)))
    addons = _view(addons)
    charts = _view(charts)
    clusters = _view(cluster_resources)
    launch_templates = _view(launch_templates)
    node_classes = _view(node_classes)
    node_groups = _view(node_groups)
    pods = _view(lambda graph: tuple(pod_templates(graph)))
    security_groups = _view(SecurityGroups)
    shapes = _view(node_shapes)

    @cached_property
    def containers(self) -> tuple[tuple[PodTemplate, Container, str], ...]:
        """Every container with its pod template and a title that names both."""
        return tuple((pod, container, f"{pod.title}, {container.title}") for pod in self.pods for container in pod.containers)

    @cached_property
    def objects(self) -> Mapping[str, tuple[Resource, ...]]:
        """Kubernetes objects by kind."""
        found: dict[str, list[Resource]] = {}
        for resource in self.graph.resources:
            if is_kubernetes_object(resource):
                found.setdefault(group_kind(resource)[1], []).append(resource)
        return {kind: tuple(resources) for kind, resources in found.items()}

    @cached_property
    def schedulers(self) -> tuple[str, ...]:
        """Names of second schedulers, from the configurations in ConfigMaps."""
        maps = self.objects.get("ConfigMap", ())
        values = [value for resource in maps for value in table(resource.inputs.get("data")).values() if isinstance(value, str)]
        configurations = (value for value in values if "KubeSchedulerConfiguration" in value)
        return tuple(sorted({name for value in configurations for name in _SCHEDULER_NAME.findall(value)}))

    @cached_property
    def schedulers_unseen(self) -> bool:
        """Whether a chart may install schedulers."""
        return any("scheduler" in chart.name or any("scheduler" in key.lower() for key in chart.values) for chart in self.charts)

    @cached_property
    def namespace_labels(self) -> Mapping[str, Mapping[str, Any]]:
        """The labels of the namespaces of the graph, by name."""
        return {name_of(item): table(at(item.inputs, "metadata", "labels")) for item in self.objects.get("Namespace", ())}

    def pods_known(self, namespace: str) -> bool:
        """Whether the graph has every pod of a namespace: none comes from a chart, an operator, EKS or another program."""
        return namespace not in self._shared_namespaces and (bool(self.clusters) or namespace in self.namespace_labels)

    @cached_property
    def _shared_namespaces(self) -> frozenset[str]:
        known = {"kube-system", *(chart.namespace for chart in self.charts)}
        makers = {pod.kind for pod in self.pods} | _NO_PODS
        for kind, resources in self.objects.items():
            group = group_kind(resources[0])[0]
            if "." in group and not group.endswith(".k8s.io") and kind not in makers:
                known |= {namespace for one in resources if (namespace := text(at(one.inputs, "metadata", "namespace")))}
        if any(resource.remote and resource.package == "kubernetes" for resource in self.graph.resources):
            known |= {*self.namespace_labels, *(pod.namespace for pod in self.pods), "default"}
        return frozenset(known)

    # -- nodes

    @cached_property
    def kubernetes_version(self) -> str:
        """The Kubernetes version of the graph's clusters. Empty when it is unknown or they differ."""
        versions = {text(cluster.inputs.get("version")) for cluster in self.clusters}
        found = versions.pop() if len(versions) == 1 else ""
        return "" if is_token(found) else found

    @cached_property
    def nodes_known(self) -> bool:
        """Whether the pools of the graph provide all nodes of the cluster."""
        return bool(self.shapes) and bool(self.clusters) and not any(makes_other_nodes(r) for r in self.graph.resources)

    @property
    def placed_pods(self) -> tuple[PodTemplate, ...]:
        """The pods whose placement the graph decides: all when ``nodes_known``, else none."""
        return self.pods if self.nodes_known else ()

    def shapes_for(self, pod: PodTemplate) -> tuple[NodeShape, ...]:
        """The node shapes that a pod of the graph matches, whatever it requests."""
        return self._shapes_by_pod[pod]

    @cached_property
    def _shapes_by_pod(self) -> Mapping[PodTemplate, tuple[NodeShape, ...]]:
        return {pod: tuple(shape for shape in self.shapes if not obstacles(pod.spec, shape)) for pod in self.pods}

    def instance_types(self, pod: PodTemplate) -> tuple[InstanceType, ...]:
        """The instance types in the catalog that a pod can run on: those of matching pools, else those it selects."""
        known = instance_types()
        found = [shape.instance for shape in self.shapes_for(pod) if shape.instance]
        if not found:
            chosen = [value for key, value in pod.spec.chosen_labels() if key == INSTANCE_TYPE_LABEL]
            found = [known[name] for name in chosen if name in known]
        return tuple(dict.fromkeys(found))

    @cached_property
    def daemons(self) -> tuple[PodTemplate, ...]:
        """Pod templates of DaemonSets."""
        return tuple(pod for pod in self.pods if pod.kind == "DaemonSet")

    def offering(self, resource: str) -> Iterator[tuple[Resource, str, tuple[NodeShape, ...]]]:
        """DaemonSets and charts that offer a resource of devices, their titles, and the node shapes that they run on."""
        for pod in self.daemons:
            if any(name in container.image for name in OFFERED_BY[resource] for container in pod.containers):
                yield pod.owner, pod.title, self.shapes_for(pod)
        for chart in self.charts:
            if offers(chart, resource):
                given = PodSpec(placed_by_plugin(chart, resource))
                there = tuple(shape for shape in self.shapes if not obstacles(given, shape))
                yield chart.resource, f"chart {chart.resource.name}", there


def walk(value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields every scalar inside a document, with the path of keys that leads to it."""
    return ((tuple(map(str, path)), one) for path, one in scalars(value))


def makes_other_nodes(resource: Resource) -> bool:
    """Whether the resource may start nodes that the graph's pools do not tell."""
    inputs = resource.inputs
    if resource.type == REMOTE_CLUSTER_TYPE:
        only_ours = is_true(inputs.get("skipDefaultNodeGroup")) and not inputs.get("fargate")
        return not only_ours or is_auto(resource)
    if resource.type == CLUSTER_TYPE:
        return is_auto(resource)
    if resource.remote:
        return resource.type not in _REMOTE_WITHOUT_NODES and resource.package != "awsx"
    return resource.type in _OTHER_NODES
