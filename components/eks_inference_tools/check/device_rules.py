"""Rules about nodes and pods with EFA (EFA…) and Neuron devices (NEU…), and about what offers and schedules these devices."""

import re
from collections.abc import Iterator

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE, PLUGIN_NAME, needs_scheduler
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.devices import CLAIMED, NEURON_CHART, OF_KIND
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.node_groups import LaunchTemplate, NodeGroup
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.releases import Chart
from eks_inference_tools.reading.scalars import number
from stackgraph.graph.document import Resource
from stackgraph.graph.values import at, is_token, table, text, texts, unique


@rule(
    "EFA004",
    "A pod requests EFA interfaces in proportion to its share of the node's devices.",
    fix="request all interfaces with all devices, half with half; the launch template sets how many a node has",
    source="aws-neuron-sdk, disaggregated inference: 16 devices with 16 interfaces, 8 with 8; Karpenter attaches all or none",
)
def interfaces_of_its_share(facts: GraphFacts) -> Iterator[Judgement]:
    for pod in facts.pods:
        efa = next((name for name in (EFA_RESOURCE, OF_KIND["efa"]) if pod.requests.get(name)), "")
        asked = pod.requests.get(efa)
        for shape in facts.shapes_for(pod) if asked else ():
            devices = next(
                (name for name in (DEVICE_RESOURCE, GPU_RESOURCE, *CLAIMED) if name != efa and pod.requests.get(name)), None
            )
            of_node = shape.offers.get(devices) if devices else None
            # K8S003 judges requests that exceed what the node has.
            if not asked or not devices or not of_node or not shape.efa or asked > shape.efa or pod.requests[devices] > of_node:
                continue
            mine = pod.requests[devices]
            due = number(shape.efa * mine / of_node)
            yield Judgement(
                # Multiply instead of dividing: a third of a node has no exact decimal.
                holds=asked * of_node == shape.efa * mine,
                path=(),
                working=(
                    f"{pod.title} on {shape.title}: {number(mine)} of {number(of_node)} {devices}",
                    f"{shape.efa} interfaces x {number(mine)} / {number(of_node)} = {due}; it requests {number(asked)}",
                ),
                message=f"{pod.title} requests {number(asked)} EFA interfaces, but its share of {shape.title} is {due}",
                given=number(asked),
                allowed=due,
                # Pods that share a node may leave interfaces to one another.
                severity="error" if mine == of_node else "warning",
                resource=pod.urn,
            )


@rule(
    "EFA005",
    "Nodes with EFA share one subnet, and their security group allows all traffic to itself in both directions.",
    fix="give the pool one subnet, and its interfaces a security group with all-protocol rules to itself, ingress and egress",
    source="EC2 user guide, EFA: EFA traffic is not IP, so 0.0.0.0/0 does not cover it; awsome-distributed-ai issue 546, "
    "gardener provider-aws issue 1832",
)
def efa_nodes_reach_each_other(facts: GraphFacts) -> Iterator[Judgement]:
    for group in facts.node_groups:
        template = group.template
        if template is None or template.resource is None or not template.efa_interfaces:
            continue
        title, subnets = group.title, group.subnet_ids
        yield Judgement(
            holds=len(subnets) <= 1,
            path=(),
            working=(f"{title}: {template.efa_interfaces} EFA interfaces a node, {len(subnets)} subnets",),
            message=f"{title} has EFA and starts nodes in {len(subnets)} subnets: EFA does not cross them",
            given=", ".join(subnets),
            allowed="one subnet",
            resource=group.urn,
        )
        yield from _groups_open_to_themselves(facts, template, template.resource, title)
        yield from _placed_together(group, template, template.resource)


def _groups_open_to_themselves(
    facts: GraphFacts, template: LaunchTemplate, resource: Resource, title: str
) -> Iterator[Judgement]:
    known = facts.security_groups
    named = [one for interface in template.interfaces for one in texts(at(interface, "securityGroups"))]
    groups = unique(known.named_by(resource, "networkInterfaces", named))
    if not groups:
        return
    to_itself = {(one.group, one.ingress) for one in known.rules if one.everything and one.itself}
    directions = (("ingress", True), ("egress", False))
    lacking = {
        group: [direction for direction, ingress in directions if (group, ingress) not in to_itself]
        for group in groups
        if group in known.made
    }
    # EKS gives the cluster's own group such rules. The rules of groups outside the graph are unknown.
    elsewhere = [group for group in groups if group not in known.made]
    names = {group: known.made[group].name for group in lacking}
    said = "; ".join(
        f"{names[group]}: {' and '.join(what) + ' to itself missing' if what else 'both ways'}" for group, what in lacking.items()
    )
    yield Judgement(
        holds=bool(elsewhere) or not all(lacking.values()),
        path=(),
        working=(f"{title}, template {resource.name}: {said or 'groups outside the graph'}",),
        message=f"{title} has EFA, but no security group of its template {resource.name} allows it: {said}",
        given=", ".join(names.values()),
        allowed="all protocols to itself, ingress and egress",
        resource=resource.urn,
    )


def _placed_together(group: NodeGroup, template: LaunchTemplate, resource: Resource) -> Iterator[Judgement]:
    most, title, placement = group.sizes[2], group.title, template.placement_group
    if most is None or most < 2 or group.is_reserved:
        return
    yield Judgement(
        holds=bool(placement) or is_token(at(template.document, "placement")),
        path=(),
        working=(f"{title}: up to {most} nodes with EFA, placement group {placement or 'none'}",),
        message=f"{title} has up to {most} nodes with EFA and no placement group: they may be far apart",
        fix="set a placement group with strategy cluster in the launch template",
        given="no placement group",
        severity="warning",
        resource=resource.urn,
    )


# An alias for devices that the plugin no longer offers.
_REMOVED_RESOURCE = "aws.amazon.com/neurondevice"
_PROBLEM_DETECTOR = ("neuron-healthcheck-system", "node-problem-detector")


@rule(
    "NEU010",
    "A node offers its Neuron devices through either the device plugin or the DRA driver.",
    fix="remove one of the two, or place them on different nodes with node selectors",
    source="aws-neuron-sdk, DRA driver; neuron-helm-chart: draDriver cannot be used with devicePlugin; Kubernetes KEP-5004",
)
def plugin_or_dra_driver(facts: GraphFacts) -> Iterator[Judgement]:
    plugins = [pod for pod in facts.daemons if _runs(pod, PLUGIN_NAME)]
    drivers = [pod for pod in facts.daemons if _runs(pod, "neuron-dra-driver")]
    charts = [chart for chart in facts.charts if NEURON_CHART in chart.name]
    by_chart = {
        part: [f"chart {chart.resource.name}" for chart in charts if _enabled(chart, part, default=default)]
        for part, default in (("devicePlugin", True), ("draDriver", False))
    }
    if not (plugins or drivers or charts):
        return
    plugin_names = [*(pod.title for pod in plugins), *by_chart["devicePlugin"]]
    driver_names = [*(pod.title for pod in drivers), *by_chart["draDriver"]]
    # Only its values tell on which nodes the parts of a chart run.
    bound = any(at(chart.values, part, key) for chart in charts for part in by_chart for key in ("nodeSelector", "affinity"))
    shared = (set(facts.shapes_for(plugin)) & set(facts.shapes_for(other)) for plugin in plugins for other in drivers)
    apart = bound or not (any(by_chart.values()) or any(found or not facts.shapes for found in shared))
    yield Judgement(
        holds=not plugin_names or not driver_names or apart,
        path=(),
        working=(
            f"device plugin: {', '.join(plugin_names) or 'none'}; DRA driver: {', '.join(driver_names) or 'none'}"
            + (", on different nodes" if plugin_names and driver_names and apart else ""),
        ),
        message=f"{', '.join(plugin_names)} and {', '.join(driver_names)} offer the same Neuron devices",
        resource=(drivers or plugins)[0].urn if drivers or plugins else charts[0].resource.urn,
    )


@rule(
    "NEU011",
    "Pods request Neuron devices by a resource name that counts the same everywhere.",
    fix=f"request whole devices: {DEVICE_RESOURCE}",
    source="aws-neuron-sdk, release notes of containers (neurondevice ended with SDK 2.22); Karpenter counts 128 neuroncores on "
    "trn2.48xlarge, the plugin 64",
)
def devices_by_name(facts: GraphFacts) -> Iterator[Judgement]:
    for pod in facts.pods:
        if pod.requests.get(_REMOVED_RESOURCE):
            yield _named(pod, _REMOVED_RESOURCE, "has not been offered since SDK 2.22", holds=False)
        if pod.requests.get(CORE_RESOURCE):
            with_cores = sorted(one.name for one in facts.instance_types(pod) if len(one.logical_core_settings) > 1)
            where = ", ".join(with_cores)
            yield _named(pod, CORE_RESOURCE, f"counts differently on {where}" if where else "counts the same", holds=not where)
        elif pod.requests.get(DEVICE_RESOURCE):
            yield _named(pod, DEVICE_RESOURCE, "counts whole devices", holds=True)


def _named(pod: PodTemplate, name: str, why: str, *, holds: bool) -> Judgement:
    return Judgement(
        holds=holds,
        path=(),
        working=(f"{pod.title} requests {name}: {why}",),
        message=f"{pod.title} requests {name}, which {why}",
        given=name,
        allowed=DEVICE_RESOURCE,
        resource=pod.urn,
    )


@rule(
    "NEU017",
    "A second kube-scheduler has the Kubernetes version of the cluster.",
    severity="warning",
    fix="use a kube-scheduler image of the cluster's minor version",
    source="Kubernetes, Version skew policy; neuron-helm-chart and my-scheduler.yml, whose defaults are 1.31 and 1.28",
)
def scheduler_of_cluster_version(facts: GraphFacts) -> Iterator[Judgement]:
    version = facts.kubernetes_version
    if not version:
        return
    for pod, container, title in facts.containers:
        name, _, tag = container.image.rpartition(":")
        if name.endswith("/kube-scheduler"):
            yield from _of_version(title, tag, version, pod.urn)
    for chart in facts.charts:
        scheduler = at(chart.values, "scheduler")
        if (
            NEURON_CHART in chart.name
            and at(scheduler, "enabled") is True
            and at(scheduler, "customScheduler", "enabled") is not False
        ):
            tag = text(at(scheduler, "customScheduler", "image", "tag")) or _CHART_DEFAULT_SCHEDULER
            yield from _of_version(f"chart {chart.resource.name}", tag, version, chart.resource.urn)


_CHART_DEFAULT_SCHEDULER = "v1.31.12-eks-1-31-30"  # in chart 1.9.0


def _of_version(where: str, tag: str, version: str, urn: str) -> Iterator[Judgement]:
    minor = re.match(r"v?(\d+\.\d+)", tag)
    if minor:
        yield Judgement(
            holds=minor[1] == version,
            path=(),
            working=(f"{where}: kube-scheduler {minor[1]}, cluster {version}",),
            message=f"{where}: the kube-scheduler has Kubernetes version {minor[1]}, the cluster {version}",
            given=tag,
            allowed=f"v{version}.x",
            resource=urn,
        )


@rule(
    "NEU018",
    "The node problem detector of the Neuron chart has an IAM role.",
    severity="warning",
    fix="give its service account a role through Pod Identity or an annotation, or set npd.enabled: false",
    source="aws-neuron-sdk, Permissions for the Neuron node problem detector; neuron-helm-chart, npd.enabled defaults to true",
)
def problem_detector_has_role(facts: GraphFacts) -> Iterator[Judgement]:
    given = {
        (text(resource.inputs.get("namespace")), text(resource.inputs.get("serviceAccount")))
        for resource in facts.graph.of_type("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    }
    for chart in facts.charts:
        if NEURON_CHART not in chart.name or not _enabled(chart, "npd", default=True):
            continue
        account = at(chart.values, "npd", "serviceAccount")
        annotated = "eks.amazonaws.com/role-arn" in table(at(account, "annotations"))
        namespace = text(at(chart.values, "npd", "namespaceOverride")) or _PROBLEM_DETECTOR[0]
        name = text(at(account, "name")) or _PROBLEM_DETECTOR[1]
        associated = (namespace, name) in given
        role = "by annotation" if annotated else "by Pod Identity" if associated else "none"
        yield Judgement(
            holds=annotated or associated,
            path=(),
            working=(f"chart {chart.resource.name}: npd is on; role of {namespace}/{name}: {role}",),
            message=f"chart {chart.resource.name} runs the node problem detector, but {namespace}/{name} has no role",
            given="npd.enabled: true",
            allowed="npd.enabled: false, or a role",
            resource=chart.resource.urn,
        )


@rule(
    "NEU026",
    "Pods with several but not all of a node's Neuron devices use the scheduler extension.",
    fix="set schedulerName to the second scheduler, or request one device or all of them",
    source="aws-neuron-sdk, Neuron scheduler extension: the kubelet may pick devices that are not neighbours",
)
def partial_sets_by_extension(facts: GraphFacts) -> Iterator[Judgement]:
    for pod in facts.pods:
        asked = pod.requests.get(DEVICE_RESOURCE)
        if not asked or asked != asked.to_integral_value():
            continue
        types = [instance_type for instance_type in facts.instance_types(pod) if instance_type.neuron]
        partial = [instance_type.name for instance_type in types if needs_scheduler(int(asked), instance_type)]
        scheduler = pod.spec.scheduler or "default-scheduler"
        if types:
            yield Judgement(
                holds=not partial or scheduler != "default-scheduler",
                path=(),
                working=tuple(
                    f"{pod.title}: {number(asked)} of {instance_type.devices} devices of {instance_type.name}"
                    + (f": some, not all: {scheduler}" if instance_type.name in partial else ": no set to choose")
                    for instance_type in types
                ),
                message=f"{pod.title} lets the kubelet choose its {number(asked)} devices of {', '.join(partial)}",
                given=scheduler,
                allowed=", ".join(facts.schedulers) or "the scheduler of the Neuron extension",
                resource=pod.urn,
            )


def _runs(pod: PodTemplate, image: str) -> bool:
    return any(image in container.image for container in pod.containers)


def _enabled(chart: Chart, part: str, *, default: bool) -> bool:
    """Whether a part of the chart is enabled. An unknown value counts as disabled."""
    value = at(chart.values, part, "enabled")
    return default if value is None else value is True
