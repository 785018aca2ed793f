"""Checks nodes, their devices, and Karpenter's NodePools and EC2NodeClasses."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE, NAMESPACE, PLUGIN_NAME, cores_of
from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.place.placement import CLAIMS, DEVICES_LABEL, INSTANCE_TYPE_LABEL
from eks_inference_tools.reading.expected import ExpectedPool
from eks_inference_tools.reading.live_objects import (
    Object,
    condition_of,
    conditions_of,
    count_of,
    is_leaving,
    is_stale,
    labels_of,
    name_of,
)
from eks_inference_tools.reading.object_kinds import NODE_CLASSES, NODES
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.verify.observed import Finding, Observed, failed, ok, wait, worst
from eks_inference_tools.verify.workload_checks import holds
from stackgraph.graph.values import at, table, text
from stackgraph.graph.wording import counted

# The library's device plugins do not run there: Auto Mode has its own, the others have no devices.
_COMPUTE_TYPE_LABEL = "eks.amazonaws.com/compute-type"
_FOREIGN_COMPUTE = ("auto", "fargate", "hybrid")
_PLUGIN_LOGS = f"kubectl -n {NAMESPACE} logs daemonset/{PLUGIN_NAME}"


def members(pool: ExpectedPool, observed: Observed) -> list[Object]:
    """Returns the nodes of a pool, without those being deleted."""
    return [node for node in observed.all(NODES) if pool.selector.items() <= labels_of(node).items() and not is_leaving(node)]


def pool_nodes(pool: ExpectedPool, observed: Observed) -> Finding:
    """Whether the pool has its minimum of nodes, and all nodes are healthy and of an allowed instance type."""
    nodes = members(pool, observed)
    listing = f"kubectl get nodes -l {','.join(f'{key}={value}' for key, value in pool.selector.items())} -o wide"
    findings = [finding for node in nodes if (finding := _node(node, pool)) is not None]
    usable = [node for node in nodes if holds(node, "Ready") and at(node, "spec", "unschedulable") is not True]
    if pool.least is not None and len(usable) < pool.least:
        count = f"{len(usable)} of {pool.least} nodes ready" + (f", {len(nodes)} have joined" if nodes else ", none has joined")
        findings.append(wait(count, f"{pool.least} nodes ready", listing))
    if findings:
        return worst(findings)
    if not nodes:
        return ok("none needed now")
    return ok(f"{len(usable)} ready: {_tally(text(labels_of(node).get(INSTANCE_TYPE_LABEL)) for node in nodes)}")


def _node(node: Object, pool: ExpectedPool) -> Finding | None:
    """Returns the problem of one node; None if it has none."""
    name = name_of(node)
    describe = f"kubectl describe node {name}"
    type_ = text(labels_of(node).get(INSTANCE_TYPE_LABEL))
    allowed = pool.instance_types or pool.families
    if allowed and type_ not in pool.instance_types and type_.partition(".")[0] not in pool.families:
        return failed(f"node {name} has type {type_ or 'unknown'}", f"one of {', '.join(allowed)}", describe)
    ready = condition_of(node, "Ready") or {}
    if ready.get("status") == "Unknown":
        return failed(f"node {name} is lost: {text(ready.get('message'))}", "Ready", describe)
    if ready.get("status") != "True":
        return wait(f"node {name} is not ready: {text(ready.get('message')) or 'it has just joined'}", "Ready", describe)
    problems = [condition for condition in conditions_of(node) if _is_problem(condition)]
    if problems:
        words = "; ".join(f"{text(item.get('type'))}: {text(item.get('message'))}" for item in problems)
        return failed(f"node {name}: {words}", "a healthy node", describe)
    if at(node, "spec", "unschedulable") is True:
        return wait(f"node {name} is cordoned", "a node that takes pods", f"kubectl uncordon {name}, unless it is being replaced")
    return None


def _is_problem(condition: Mapping[str, object]) -> bool:
    """Whether a condition is a problem. The kubelet sets ``…Pressure``, the EKS node monitoring agent further ``…Ready`` ones."""
    type_, status = text(condition.get("type")), condition.get("status")
    return (type_.endswith("Pressure") and status == "True") or (
        type_.endswith("Ready") and type_ != "Ready" and status == "False"
    )


# -- Neuron devices --------------------------------------------------------------------------------------------------------------


def is_neuron_plugin(namespace: str, name: str) -> bool:
    """Whether a DaemonSet is the Neuron device plugin."""
    return (namespace, name) == (NAMESPACE, PLUGIN_NAME)


def neuron_nodes(nodes: Iterable[Object]) -> list[tuple[Object, InstanceType]]:
    """Returns the nodes on which a plugin offers Neuron devices, by instance type in the catalog, with that type."""
    types = instance_types()
    ours = [node for node in nodes if labels_of(node).get(_COMPUTE_TYPE_LABEL) not in _FOREIGN_COMPUTE]
    # A driver offers these for claims, and no plugin does.
    ours = [node for node in ours if labels_of(node).get(DEVICES_LABEL) != CLAIMS]
    shapes = [(node, types.get(text(labels_of(node).get(INSTANCE_TYPE_LABEL)))) for node in ours]
    return [(node, shape) for node, shape in shapes if shape and shape.neuron]


def plugin_coverage(plugin: Object, observed: Observed) -> Finding:
    """Whether the plugin is scheduled to every node with Neuron devices."""
    nodes = [node for node, _ in neuron_nodes(observed.all(NODES)) if not is_leaving(node)]
    placed = count_of(plugin, "status", "desiredNumberScheduled")
    if placed >= len(nodes):
        return ok(f"on {len(nodes)} of {len(nodes)} with Neuron devices" if nodes else "no node has Neuron devices now")
    describe = f"kubectl -n {NAMESPACE} describe daemonset {PLUGIN_NAME}"
    return failed(f"placed on {placed} of {len(nodes)} nodes with Neuron devices", "on each of them", describe)


def devices(nodes: Sequence[Object], plugin_ready: bool) -> Finding | None:
    """Compares each node's allocatable Neuron devices and cores with the catalog; None if no node has any.

    The plugin announces devices to the kubelet, so a node may lack them until the plugin is ready.
    """
    found = neuron_nodes(nodes)
    if not found:
        return None
    faults = [finding for node, shape in found if (finding := _node_devices(node, shape, plugin_ready)) is not None]
    if faults:
        return worst(faults)
    total = sum(shape.devices for _, shape in found)
    cores = sum(cores_of(shape.devices, shape) for _, shape in found)
    device, core = (resource.rpartition("/")[2] for resource in (DEVICE_RESOURCE, CORE_RESOURCE))
    return ok(f"{total} {device}, {cores} {core} on {_tally(shape.name for _, shape in found)}")


def _node_devices(node: Object, shape: InstanceType, plugin_ready: bool) -> Finding | None:
    name = name_of(node)
    offered = table(at(node, "status", "allocatable"))
    have = {resource: whole(offered.get(resource)) or 0 for resource in (DEVICE_RESOURCE, CORE_RESOURCE)}
    want = {DEVICE_RESOURCE: shape.devices, CORE_RESOURCE: cores_of(shape.devices, shape)}
    if have == want:
        return None
    expected = " and ".join(f"{count} {resource}" for resource, count in want.items()) + f" on {shape.name}"
    shown = " and ".join(f"{count} {resource}" for resource, count in have.items())
    if not have[DEVICE_RESOURCE] and not plugin_ready:
        return wait(f"node {name} offers none yet: its device plugin is not ready", expected, _PLUGIN_LOGS)
    next_ = f"kubectl describe node {name}" if have[DEVICE_RESOURCE] else _PLUGIN_LOGS
    return failed(f"node {name} offers {shown}", expected, next_)


# -- Karpenter -------------------------------------------------------------------------------------------------------------------


def karpenter_object(resource: str, item: Object) -> Finding:
    """Checks the condition Ready of a NodePool or EC2NodeClass; its other conditions explain why it is not ready."""
    kind = "ec2nodeclass" if resource == NODE_CLASSES else "nodepool"
    describe = f"kubectl describe {kind} {name_of(item)}"
    if is_stale(item):
        return wait("Karpenter has not observed its latest change", "Ready", describe)
    ready = condition_of(item, "Ready") or {}
    if ready.get("status") == "True":
        count = whole(at(item, "status", "nodes"))
        return ok("Ready" if resource == NODE_CLASSES or count is None else f"Ready, {counted(count, 'node')}")
    reasons = [item for item in conditions_of(item) if item.get("type") != "Ready" and item.get("status") == "False"]
    words = "; ".join(
        f"{text(reason.get('type'))}: {text(reason.get('message')) or text(reason.get('reason'))}" for reason in reasons
    )
    if ready.get("status") == "False":
        return failed(f"not ready: {words or text(ready.get('message'))}", "Ready", describe)
    return wait("Karpenter has not reported a status yet" + (f": {words}" if words else ""), "Ready", describe)


def _tally(names: Iterable[str]) -> str:
    """``2 × inf2.8xlarge, 1 × inf2.48xlarge``"""
    return ", ".join(f"{count} × {name}" for name, count in sorted(Counter(names).items()))
