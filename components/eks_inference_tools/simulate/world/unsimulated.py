"""Lists what a simulation leaves out or assumes about nodes and about the pods of charts, in words. Pure."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.claim_drivers import Driver, driver, drivers, published
from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.place.claimed_devices import API_VERSION, PCIE_ROOT, group_attribute, groups_of
from eks_inference_tools.placing.footprint import without_footprint
from eks_inference_tools.placing.started_nodes import KarpenterPool, ManagedGroup, karpenter_pools, managed_groups
from eks_inference_tools.reading.devices import OF_KIND
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.node_shapes import NodeShape
from stackgraph.graph.document import Graph
from stackgraph.graph.values import unique

# Values come from the catalog (``claims.toml``). Attributes whose values nobody published (versions of drivers, network layers,
# UUIDs) are left out; the ids of groups, which are hashes on a real node, and the PCIe roots of GPUs are made up. ``assumed``
# says so.

Object = dict[str, Any]

_INTERFACE = "Elastic Fabric Adapter (EFA)"
_GPU = "gpu"


def device_class(of: Driver) -> Object:
    """Returns the DeviceClass that the driver's chart installs."""
    selectors = [{"cel": {"expression": of.selector}}]
    return {
        "apiVersion": API_VERSION,
        "kind": "DeviceClass",
        "metadata": {"name": of.device_class},
        "spec": {"selectors": selectors},
    }


def slices(node: str, instance: InstanceType, hardware: Mapping[str, int]) -> Mapping[str, Object]:
    """Returns the ResourceSlices of a node by kind of device. ``hardware`` is its devices by resource."""
    interfaces = hardware.get(OF_KIND["efa"], 0)
    found: dict[str, Object] = {}
    for kind, of in drivers().items():
        if count := hardware.get(OF_KIND[kind], 0):
            devices = _devices(kind, node, instance, count, interfaces)
            found[kind] = {
                "apiVersion": API_VERSION,
                "kind": "ResourceSlice",
                "metadata": {"name": f"{node}-{of.driver}"},
                "spec": {
                    "driver": of.driver,
                    "nodeName": node,
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                    "devices": list(devices),
                },
            }
    return found


def assumed(instance: InstanceType) -> str:
    """Returns what of the slices of an instance type is not known, in words."""
    found = published(instance)
    if instance.neuron:
        why = found.assumed if found else "the catalog does not say what the driver publishes"
        known = why or "ids of groups are made up, driver versions and network layers left out"
        return f"ResourceSlices of {instance.name}: {known}" + (f"; {found.doubt}" if found and found.doubt else "")
    return f"ResourceSlices of {instance.name}: its GPUs' and interfaces' PCIe roots are made up, other attributes left out"


def _devices(kind: str, node: str, instance: InstanceType, count: int, interfaces: int) -> Iterator[Object]:
    for number in range(count):
        attributes: Object = {}
        if kind == "efa":
            # Which of a node's devices an interface is nearest to.
            near = number * instance.devices // count
            attributes = {"pciDevice": {"string": _INTERFACE}, "rdma": {"bool": True}, **_near(node, instance, near)}
            yield {"name": f"efa-{number}", "attributes": attributes}
        elif instance.neuron:
            yield {"name": f"neuron-device-{number}", "attributes": _neuron(node, instance, number)}
        else:
            attributes = {"type": {"string": _GPU}, **(_near(node, instance, number) if interfaces else {})}
            capacity = {"memory": {"value": f"{instance.device_memory_gib}Gi"}}
            yield {"name": f"gpu-{number}", "attributes": attributes, "capacity": capacity}


def _neuron(node: str, instance: InstanceType, number: int) -> Object:
    found = published(instance)
    place: Object = {}
    if found and found.columns and instance.devices > 1:
        x, y = divmod(number, found.columns)
        place = {"topology_x": {"int": x}, "topology_y": {"int": y}}
    return {
        "deviceId": {"int": number},
        "instanceType": {"string": instance.name},
        "resourceType": {"string": "neuron_device"},
        **place,
        **_near(node, instance, number),
    }


def _near(node: str, instance: InstanceType, number: int) -> Object:
    """What the device of this number and the interfaces nearest to it have in common."""
    if not instance.neuron:
        return {PCIE_ROOT: {"string": f"pci0000:{number:02x}"}} if instance.devices else {}
    groups: Sequence[int] = groups_of(instance)
    return {group_attribute(size): {"string": _group_id(node, size, number // size)} for size in groups}


def _group_id(node: str, size: int, number: int) -> str:
    return hashlib.sha256(f"{node}/{size}/{number}".encode()).hexdigest()[:16]


def kinds_by_chart() -> Mapping[str, str]:
    """Returns the kind of device of each driver by its chart."""
    return {driver(kind).chart: kind for kind in drivers()}


# Kubelet settings that change what pods can use. Simulated nodes ignore them.
_IGNORED_SETTINGS = ("podsPerCore", "reservedMemory", "reservedSystemCPUs")

# Labels that a simulated node gets from another source if its shape leaves them open.
_FILLED_LABELS = ("eks.amazonaws.com/", "karpenter.", "kubernetes.io/", "topology.")

_OWN_IMAGE = "it has a custom image: its nodes are sized like those of EKS's AL2023 images"
_MADE_UP_ZONES = "the zones of its subnets are not in the graph: those of its nodes are made up"


@dataclass(frozen=True)
class Unsimulated:
    """What differs from a real cluster or is left out of the simulation, and why.

    ``subject`` is ``pool default`` or ``scheduler volcano``, and empty for all nodes.
    """

    subject: str
    why: str


def unsimulated(graph: Graph) -> tuple[Unsimulated, ...]:
    """Returns everything that is left out or assumed, without repetitions."""
    facts = GraphFacts(graph)
    of_graph = {
        "the graph creates no nodes": not facts.shapes,
        "the graph also creates nodes in other ways: they are not simulated": (
            facts.shapes and facts.clusters and not facts.nodes_known
        ),
    }
    of_graph |= {
        f"the catalog does not know what the {title} runs: its pods are not simulated": True for title in without_footprint(graph)
    }
    claimed = unique(shape.instance.name for shape in facts.shapes if shape.claimed and shape.instance)
    of_graph |= {assumed(instance_types()[name]): True for name in claimed}
    differences = [
        ("", of_graph),
        *((f"pool {group.node_group.pool}", _of_group(group)) for group in managed_groups(graph)),
        *((f"pool {pool.node_pool.name}", _of_karpenter_pool(pool)) for pool in karpenter_pools(graph)),
    ]
    return tuple(dict.fromkeys(Unsimulated(subject, why) for subject, whys in differences for why in whys if whys[why]))


def _of_group(group: ManagedGroup) -> Mapping[str, object]:
    """Returns what may differ for a managed node group, and whether it does."""
    types = unique(shape.type_name for shape in group.shapes if shape.instance)
    missing = unique(shape.type_name or "its instance type" for shape in group.shapes if not shape.instance)
    image, template = group.node_group.ami_type, group.node_group.template
    return {
        "its size is known only after deployment: no node is simulated": group.node_group.sizes[1] is None,
        f"the catalog does not know {', '.join(missing)}: no such node is simulated": missing,
        f"all its simulated nodes are {', '.join(types[:1])}; EC2 may start {', '.join(types[1:])} instead": types[1:],
        "its launch template is not in the graph: disk, interfaces and settings are the defaults of EKS": template is None,
        _OWN_IMAGE: template and group.node_group.own_image,
        f"its nodes have the image {image} and are sized like those of AL2023 images": (
            template and not group.node_group.own_image and image and not image.startswith("AL2023")
        ),
        "its user data is known only after deployment: its settings have no effect": not group.user_data.read,
        _MADE_UP_ZONES: not group.zones_known,
        **_of_any(group.user_data.kubelet, group.shapes),
    }


def _of_karpenter_pool(pool: KarpenterPool) -> Mapping[str, object]:
    """Returns what may differ for a NodePool, and whether it does."""
    missing = unique(shape.type_name for shape in pool.shapes if not shape.instance)
    node_class = pool.node_pool.node_class
    return {
        f"the catalog does not know {', '.join(missing)}: the simulated Karpenter starts none of those": missing,
        "it may choose instance types that the catalog does not know: the simulated Karpenter starts none of those": (
            not all(shape.type_name for shape in pool.shapes)
        ),
        "its EC2NodeClass is not in the graph: disk and settings are the defaults of Karpenter": node_class is None,
        _OWN_IMAGE: node_class and node_class.own_image,
        "settings in the user data of its EC2NodeClass have no effect": node_class and node_class.has_user_data,
        _MADE_UP_ZONES: not pool.zones_known,
        **_of_any(pool.kubelet, pool.shapes),
    }


def _of_any(kubelet: Mapping[str, Any], shapes: tuple[NodeShape, ...]) -> Mapping[str, object]:
    ignored = [key for key in _IGNORED_SETTINGS if key in kubelet]
    hidden = {key for shape in shapes for key, values in shape.labels.items() if values is None}
    lacking = sorted(key for key in hidden if not key.startswith(_FILLED_LABELS))
    return {
        f"its kubelet settings {', '.join(ignored)} change what pods can use, but have no effect here": ignored,
        f"the values of its labels {', '.join(lacking)} are not known: its simulated nodes lack them": lacking,
    }
