"""What the rules judge in a recorded graph: views that are worked out once, of any Pulumi program's graph.

Values that are secret, unknown or of an unexpected kind are left out of every view: they are never a fault.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.placement import INSTANCE_TYPE_LABEL
from eks_inference_tools.reading.facts import LAUNCH_TEMPLATE_TYPE, NODE_GROUP_TYPE
from eks_inference_tools.reading.node_shapes import NodeShape, launch_template, node_shapes
from eks_inference_tools.reading.pods import Pod
from eks_inference_tools.reading.scheduling import chosen_labels, obstacles
from eks_inference_tools.reading.workloads import Autoscaler, autoscalers, group_kind, pod_templates, whole
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import CHART_TYPE, Graph, Resource, is_read
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, joined, table, text, texts

CLUSTER_TYPE = "aws:eks/cluster:Cluster"
REMOTE_CLUSTER_TYPE = "eks:index:Cluster"
V4_CHART_TYPE = "kubernetes:helm.sh/v4:Chart"
NEURON_CHART = "neuron-helm-chart"

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


@dataclass(frozen=True)
class Chart:
    """A Helm chart and its values."""

    resource: Resource
    name: str
    namespace: str
    version: Any
    values: Mapping[str, Any]


@dataclass(frozen=True)
class GroupRule:
    """One rule of a security group. ``group`` is the group's URN, or its id where the graph does not make it."""

    urn: str
    group: str
    ingress: bool
    protocol: str
    ports: tuple[int | None, int | None]
    sources: tuple[str, ...]
    itself: bool

    @property
    def everything(self) -> bool:
        return self.protocol in ("-1", "all")

    def opens(self, port: int) -> bool:
        """Whether TCP traffic to a port is in it; False where its ports are not known."""
        low, high = self.ports
        if self.everything:
            return True
        return self.protocol in ("tcp", "6") and low is not None and high is not None and low <= port <= high


class GraphFacts:
    """Lazily worked out views of a recorded graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    # -- objects of the cluster

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """Every pod template of the graph."""
        return tuple(Pod(template) for template in pod_templates(self.graph))

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
        return tuple(
            Chart(
                resource=resource,
                name=text(resource.inputs.get("chart")),
                namespace=text(resource.inputs.get("namespace")) or "default",
                version=resource.inputs.get("version"),
                values=table(resource.inputs.get("values")),
            )
            for resource in self.graph.resources
            if resource.type in (CHART_TYPE, V4_CHART_TYPE) and not is_read(resource)
        )

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
        return tuple(r for r in self.graph.resources if r.type in (CLUSTER_TYPE, REMOTE_CLUSTER_TYPE) and not is_read(r))

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

    def landing(self, pod: Pod) -> tuple[NodeShape, ...]:
        """The shapes of the graph that a pod can land on, however much it asks for."""
        if pod not in self._landing:
            self._landing[pod] = tuple(shape for shape in self.shapes if not obstacles(pod.spec, shape))
        return self._landing[pod]

    @cached_property
    def _landing(self) -> dict[Pod, tuple[NodeShape, ...]]:
        return {}

    def instance_types(self, pod: Pod) -> tuple[InstanceType, ...]:
        """Instance types of the catalog that a pod can land on: by the graph's pools, else by what it selects."""
        known = instance_types()
        found = [shape.instance for shape in self.landing(pod) if shape.instance]
        if not found:
            chosen = [value for key, value in chosen_labels(pod.spec) if key == INSTANCE_TYPE_LABEL]
            found = [known[name] for name in chosen if name in known]
        return tuple(dict.fromkeys(found))

    @cached_property
    def daemons(self) -> tuple[Pod, ...]:
        """Pods that run on each node."""
        return tuple(pod for pod in self.pods if pod.kind == "DaemonSet")

    @cached_property
    def node_groups(self) -> tuple[Resource, ...]:
        return tuple(r for r in self.graph.of_type(NODE_GROUP_TYPE) if not is_read(r))

    @cached_property
    def launch_templates(self) -> Mapping[str, Resource]:
        """Launch templates that the graph makes, by URN."""
        return {r.urn: r for r in self.graph.of_type(LAUNCH_TEMPLATE_TYPE) if not is_read(r)}

    def launch_template(self, group: Resource) -> Mapping[str, Any] | None:
        """The inputs of a node group's launch template; empty when it has none, None when the graph does not make it."""
        return launch_template(group, {urn: template.inputs for urn, template in self.launch_templates.items()})

    # -- network

    @cached_property
    def security_groups(self) -> Mapping[str, Resource]:
        """Security groups that the graph makes, by URN."""
        return {r.urn: r for type_ in _GROUP_TYPES for r in self.graph.of_type(type_) if not is_read(r)}

    @cached_property
    def group_rules(self) -> tuple[GroupRule, ...]:
        """Rules of security groups, written inside the group or beside it."""
        found: list[GroupRule] = []
        for group in self.security_groups.values():
            for key in ("ingress", "egress"):
                found += (_inline_rule(group, rule, key == "ingress") for rule in items(group.inputs.get(key)))
        for resource in self.graph.resources:
            if resource.type in _RULE_TYPES and not is_read(resource):
                found.append(self._separate_rule(resource))
        return tuple(found)

    def groups_of(self, resource: Resource, key: str, value: Any) -> tuple[str, ...]:
        """Security groups a property names: URNs of those the graph makes, else their ids as the program gives them."""
        urns = [urn for urn in resource.property_dependencies.get(key, ()) if urn in self.security_groups]
        by_token = {f"<{self.security_groups[urn].name}.id>": urn for urn in urns}
        return tuple(by_token.get(one, one) for one in texts(value))

    def _separate_rule(self, resource: Resource) -> GroupRule:
        inputs = resource.inputs
        group = next(iter(self.groups_of(resource, "securityGroupId", inputs.get("securityGroupId"))), "")
        peer = "referencedSecurityGroupId" if "referencedSecurityGroupId" in inputs else "sourceSecurityGroupId"
        peers = self.groups_of(resource, peer, inputs.get(peer))
        return GroupRule(
            urn=resource.urn,
            group=group,
            ingress=inputs.get("type") == "ingress" or resource.type == _INGRESS_TYPE,
            protocol=text(inputs.get("ipProtocol") or inputs.get("protocol")).lower(),
            ports=(whole(inputs.get("fromPort")), whole(inputs.get("toPort"))),
            sources=_sources(inputs),
            itself=is_true(inputs.get("self")) or (group in peers and group not in ("", "<unknown>", "[secret]")),
        )


_GROUP_TYPES = ("aws:ec2/securityGroup:SecurityGroup", "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup")
_INGRESS_TYPE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
_RULE_TYPES = frozenset(
    ("aws:ec2/securityGroupRule:SecurityGroupRule", _INGRESS_TYPE, "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule")
)


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


def is_true(value: Any) -> bool:
    """Whether a switch is on: providers take texts, too."""
    return value is True or value == "true"


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


def _inline_rule(group: Resource, rule: Any, ingress: bool) -> GroupRule:
    inputs = table(rule)
    return GroupRule(
        urn=group.urn,
        group=group.urn,
        ingress=ingress,
        protocol=text(inputs.get("protocol")).lower(),
        ports=(whole(inputs.get("fromPort")), whole(inputs.get("toPort"))),
        sources=_sources(inputs),
        itself=is_true(inputs.get("self")),
    )


def _sources(inputs: Mapping[str, Any]) -> tuple[str, ...]:
    keys = ("cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6")
    return tuple(value for key in keys for value in texts(inputs.get(key)))
