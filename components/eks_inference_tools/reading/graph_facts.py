"""What the rules judge in a recorded graph: views that are worked out once, of any Pulumi program's graph.

Values that are secret, unknown or of an unexpected kind are left out of every view: they are never a fault.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.placement import INSTANCE_TYPE_LABEL
from eks_inference_tools.reading.autoscalers import Autoscaler, autoscalers
from eks_inference_tools.reading.charts import V4_CHART_TYPE, Chart, charts
from eks_inference_tools.reading.clusters import CLUSTER_TYPE, REMOTE_CLUSTER_TYPE, cluster_resources
from eks_inference_tools.reading.node_groups import LaunchTemplate, NodeGroup, launch_templates, node_groups
from eks_inference_tools.reading.node_pools import NodeClass, node_classes
from eks_inference_tools.reading.node_shapes import NodeShape, node_shapes
from eks_inference_tools.reading.pod_templates import PodTemplate, group_kind, pod_templates
from eks_inference_tools.reading.scalars import is_true
from eks_inference_tools.reading.scheduling import obstacles
from eks_inference_tools.reading.security_groups import SecurityGroups
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, joined, table, text

# What makes nodes in ways the graph does not show. Other remote components may, too.
_OTHER_NODES = frozenset(("aws:autoscaling/group:Group", "aws:ec2/instance:Instance", "aws:eks/fargateProfile:FargateProfile"))
_REMOTE_WITHOUT_NODES = frozenset((REMOTE_CLUSTER_TYPE, "eks:index:Addon", V4_CHART_TYPE))

# Custom resources by which no controller makes pods where the object is; any other may.
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

_SCHEDULER_NAME = re.compile(r"""["']?schedulerName["']?\s*:\s*["']?([\w.-]+)""")


class GraphFacts:
    """Lazily worked out views of a recorded graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    # -- objects of the cluster

    @cached_property
    def pods(self) -> tuple[PodTemplate, ...]:
        """Every pod template of the graph."""
        return tuple(pod_templates(self.graph))

    @cached_property
    def autoscalers(self) -> tuple[Autoscaler, ...]:
        return tuple(autoscalers(self.graph))

    @cached_property
    def objects(self) -> Mapping[str, tuple[Resource, ...]]:
        """Kubernetes objects by kind."""
        found: dict[str, list[Resource]] = {}
        for resource in self.graph.resources:
            if is_kubernetes_object(resource):
                found.setdefault(group_kind(resource)[1], []).append(resource)
        return {kind: tuple(resources) for kind, resources in found.items()}

    @cached_property
    def charts(self) -> tuple[Chart, ...]:
        return charts(self.graph)

    @cached_property
    def schedulers(self) -> tuple[str, ...]:
        """Names that second schedulers of the graph answer to, by their configuration."""
        found: set[str] = set()
        for resource in self.objects.get("ConfigMap", ()):
            for value in table(resource.inputs.get("data")).values():
                if isinstance(value, str) and "KubeSchedulerConfiguration" in value:
                    found |= set(_SCHEDULER_NAME.findall(value))
        return tuple(sorted(found))

    @cached_property
    def schedulers_unseen(self) -> bool:
        """Whether a chart may bring schedulers."""
        return any("scheduler" in chart.name or any("scheduler" in key.lower() for key in chart.values) for chart in self.charts)

    @cached_property
    def namespace_labels(self) -> Mapping[str, Mapping[str, Any]]:
        """Labels of the namespaces that the graph makes."""
        return {name_of(one): table(at(one.inputs, "metadata", "labels")) for one in self.objects.get("Namespace", ())}

    def pods_known(self, namespace: str) -> bool:
        """Whether every pod of a namespace is in the graph: none comes from a chart, an operator, EKS or another program."""
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
    def clusters(self) -> tuple[Resource, ...]:
        """The EKS clusters that the graph makes."""
        return cluster_resources(self.graph)

    @cached_property
    def kubernetes_version(self) -> str:
        """The version of the graph's cluster; empty when there is not just one known."""
        versions = {text(cluster.inputs.get("version")) for cluster in self.clusters}
        found = versions.pop() if len(versions) == 1 else ""
        return "" if is_token(found) else found

    @cached_property
    def shapes(self) -> tuple[NodeShape, ...]:
        """The nodes that the graph's pools start."""
        return node_shapes(self.graph)

    @cached_property
    def nodes_known(self) -> bool:
        """Whether pods can only land on nodes of the graph's own pools."""
        return bool(self.shapes) and bool(self.clusters) and not any(_makes_other_nodes(r) for r in self.graph.resources)

    def shapes_for(self, pod: PodTemplate) -> tuple[NodeShape, ...]:
        """The shapes of the graph that a pod can land on, however much it asks for."""
        if pod not in self._shapes_for:
            self._shapes_for[pod] = tuple(shape for shape in self.shapes if not obstacles(pod.spec, shape))
        return self._shapes_for[pod]

    @cached_property
    def _shapes_for(self) -> dict[PodTemplate, tuple[NodeShape, ...]]:
        return {}

    def instance_types(self, pod: PodTemplate) -> tuple[InstanceType, ...]:
        """Instance types of the catalog that a pod can land on: by the graph's pools, else by what it selects."""
        known = instance_types()
        found = [shape.instance for shape in self.shapes_for(pod) if shape.instance]
        if not found:
            chosen = [value for key, value in pod.spec.chosen_labels() if key == INSTANCE_TYPE_LABEL]
            found = [known[name] for name in chosen if name in known]
        return tuple(dict.fromkeys(found))

    @cached_property
    def daemons(self) -> tuple[PodTemplate, ...]:
        """Pods that run on each node."""
        return tuple(pod for pod in self.pods if pod.kind == "DaemonSet")

    @cached_property
    def node_groups(self) -> tuple[NodeGroup, ...]:
        return node_groups(self.graph)

    @cached_property
    def node_classes(self) -> tuple[NodeClass, ...]:
        return node_classes(self.graph)

    @cached_property
    def launch_templates(self) -> Mapping[str, LaunchTemplate]:
        """Launch templates that the graph makes, by URN."""
        return launch_templates(self.graph)

    @cached_property
    def security_groups(self) -> SecurityGroups:
        return SecurityGroups(self.graph)


def name_of(resource: Resource) -> str:
    """The name of a Kubernetes object."""
    return text(at(resource.inputs, "metadata", "name")) or text(resource.name)


def namespace_of(resource: Resource) -> str:
    """The namespace of a Kubernetes object."""
    return text(at(resource.inputs, "metadata", "namespace")) or "default"


def title_of(resource: Resource) -> str:
    """``Service demo/server``."""
    return joined(group_kind(resource)[1], joined(at(resource.inputs, "metadata", "namespace"), name_of(resource), by="/"))


def walk(value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value inside a document that is no table or list, with the keys that lead to it."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while waiting:
        path, here = waiting.pop()
        if isinstance(here, Mapping):
            waiting += [((*path, str(key)), inside) for key, inside in here.items()]
        elif isinstance(here, Sequence) and not isinstance(here, str | bytes):
            waiting += [((*path, str(number)), inside) for number, inside in enumerate(here)]
        else:
            yield path, here


def _makes_other_nodes(resource: Resource) -> bool:
    inputs = resource.inputs
    if resource.type == REMOTE_CLUSTER_TYPE:
        only_ours = is_true(inputs.get("skipDefaultNodeGroup")) and not inputs.get("fargate")
        return not only_ours or is_true(at(inputs, "autoMode", "enabled"))
    if resource.type == CLUSTER_TYPE:
        return is_true(at(inputs, "computeConfig", "enabled"))
    if resource.remote:
        return resource.type not in _REMOTE_WITHOUT_NODES and resource.package != "awsx"
    return resource.type in _OTHER_NODES
