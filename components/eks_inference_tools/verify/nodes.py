"""Nodes, the devices they offer, and the objects that make Karpenter start them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE, NAMESPACE, PLUGIN_NAME, cores_of
from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.placement import INSTANCE_TYPE_LABEL
from eks_inference_tools.reading.expected import ExpectedPool
from eks_inference_tools.reading.kinds import NODE_CLASSES, NODES
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
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.verify.observed import Observed
from eks_inference_tools.verify.verdicts import Finding, failed, ok, wait, worst
from stackgraph.graph.values import at, table, text

# Their nodes have no device plugin of ours: Auto Mode brings its own, the others have no device.
_COMPUTE_TYPE_LABEL = "eks.amazonaws.com/compute-type"
_FOREIGN_COMPUTE = ("auto", "fargate", "hybrid")


def members(pool: ExpectedPool, observed: Observed) -> list[Object]:
    """The nodes of a pool."""
    return [node for node in observed.all(NODES) if pool.selector.items() <= labels_of(node).items() and not is_leaving(node)]


def pool_nodes(pool: ExpectedPool, observed: Observed) -> Finding:
    """As many nodes as the pool always has, of the right instance types, all of them healthy."""
    nodes = members(pool, observed)
    listing = f"kubectl get nodes -l {','.join(f'{key}={value}' for key, value in pool.selector.items())} -o wide"
    findings = [finding for node in nodes if (finding := _node(node, pool)) is not None]
    usable = [node for node in nodes if _is_usable(node)]
    if pool.least is not None and len(usable) < pool.least:
        count = f"{len(usable)} of {pool.least} nodes ready" + (f", {len(nodes)} have joined" if nodes else ", none has joined")
        findings.append(wait(count, f"{pool.least} nodes ready", listing))
    if findings:
        return worst(findings)
    if not nodes:
        return ok("none needed now")
    return ok(f"{len(usable)} ready: {_tally(text(labels_of(node).get(INSTANCE_TYPE_LABEL)) for node in nodes)}")


def _node(node: Object, pool: ExpectedPool) -> Finding | None:
    """What is wrong with one node of a pool."""
    name = name_of(node)
    describe = f"kubectl describe node {name}"
    type_ = text(labels_of(node).get(INSTANCE_TYPE_LABEL))
    allowed = pool.instance_types or pool.families
    if allowed and type_ not in pool.instance_types and type_.partition(".")[0] not in pool.families:
        return failed(f"node {name} is of type {type_ or 'unknown'}", f"one of {', '.join(allowed)}", describe)
    ready = condition_of(node, "Ready") or {}
    if ready.get("status") == "Unknown":
        return failed(f"node {name} is lost: {text(ready.get('message'))}", "Ready", describe)
    if ready.get("status") != "True":
        return wait(f"node {name} is not ready: {text(ready.get('message')) or 'it has just joined'}", "Ready", describe)
    ailments = [condition for condition in conditions_of(node) if _is_ailment(condition)]
    if ailments:
        words = "; ".join(f"{text(item.get('type'))}: {text(item.get('message'))}" for item in ailments)
        return failed(f"node {name}: {words}", "a healthy node", describe)
    if at(node, "spec", "unschedulable") is True:
        return wait(f"node {name} is cordoned", "a node that takes pods", f"kubectl uncordon {name}, unless it is being replaced")
    return None


def _is_ailment(condition: Mapping[str, object]) -> bool:
    """Pressure of the kubelet's own conditions; further ``…Ready`` ones are of the EKS node monitoring agent."""
    type_, status = text(condition.get("type")), condition.get("status")
    return (type_.endswith("Pressure") and status == "True") or (
        type_.endswith("Ready") and type_ != "Ready" and status == "False"
    )


def _is_usable(node: Object) -> bool:
    ready = condition_of(node, "Ready") or {}
    return ready.get("status") == "True" and at(node, "spec", "unschedulable") is not True


# -- Neuron devices --------------------------------------------------------------------------------------------------------------


def is_neuron_plugin(namespace: str, name: str) -> bool:
    """Whether a DaemonSet is the Neuron device plugin."""
    return (namespace, name) == (NAMESPACE, PLUGIN_NAME)


def neuron_nodes(nodes: Iterable[Object]) -> list[tuple[Object, InstanceType]]:
    """The nodes whose instance type has Neuron devices, by the catalog."""
    types = instance_types()
    found = []
    for node in nodes:
        labels = labels_of(node)
        shape = types.get(text(labels.get(INSTANCE_TYPE_LABEL)))
        if shape and shape.neuron and labels.get(_COMPUTE_TYPE_LABEL) not in _FOREIGN_COMPUTE:
            found.append((node, shape))
    return found


def plugin_coverage(plugin: Object, observed: Observed) -> Finding:
    """Whether the plugin wants to run on every node with Neuron devices."""
    nodes = [node for node, _ in neuron_nodes(observed.all(NODES)) if not is_leaving(node)]
    placed = count_of(plugin, "status", "desiredNumberScheduled")
    if placed >= len(nodes):
        return ok(f"on {len(nodes)} of {len(nodes)} with Neuron devices" if nodes else "no node has Neuron devices now")
    describe = f"kubectl -n {NAMESPACE} describe daemonset {PLUGIN_NAME}"
    return failed(f"placed on {placed} of {len(nodes)} nodes with Neuron devices", "on each of them", describe)


def devices(nodes: Sequence[Object], plugin_ready: bool) -> Finding | None:
    """Allocatable Neuron devices and cores of each node against the catalog; None where no node has any.

    Kubelets learn of devices from the plugin, so a node may lack them while the plugin is not ready.
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
        return wait(f"node {name} offers none yet: its device plugin is not ready", expected, _plugin_logs())
    return failed(f"node {name} offers {shown}", expected, _plugin_logs() if not have[DEVICE_RESOURCE] else _describe(name))


def _plugin_logs() -> str:
    return f"kubectl -n {NAMESPACE} logs daemonset/{PLUGIN_NAME}"


def _describe(node: str) -> str:
    return f"kubectl describe node {node}"


# -- Karpenter -------------------------------------------------------------------------------------------------------------------


def karpenter_object(resource: str, item: Object) -> Finding:
    """A NodePool or EC2NodeClass by its condition Ready; the others say why it is not."""
    kind = "ec2nodeclass" if resource == NODE_CLASSES else "nodepool"
    describe = f"kubectl describe {kind} {name_of(item)}"
    if is_stale(item):
        return wait("its latest change is not taken up yet", "Ready", describe)
    ready = condition_of(item, "Ready") or {}
    if ready.get("status") == "True":
        count = whole(at(item, "status", "nodes"))
        return ok("Ready" if resource == NODE_CLASSES or count is None else f"Ready, {count} {'node' if count == 1 else 'nodes'}")
    parts = [item for item in conditions_of(item) if item.get("type") != "Ready" and item.get("status") == "False"]
    words = "; ".join(f"{text(part.get('type'))}: {text(part.get('message')) or text(part.get('reason'))}" for part in parts)
    if ready.get("status") == "False":
        return failed(f"not ready: {words or text(ready.get('message'))}", "Ready", describe)
    return wait("Karpenter has not judged it yet" + (f": {words}" if words else ""), "Ready", describe)


def _tally(names: Iterable[str]) -> str:
    """``2 × inf2.8xlarge, 1 × inf2.48xlarge``"""
    return ", ".join(f"{count} × {name}" for name, count in sorted(Counter(names).items()))
