"""Builds what DRA drivers would publish of a node's devices: ResourceSlices with the attributes that claims can use. Pure.

Values come from the catalog (``claims.toml``). Attributes whose values nobody published (versions of drivers, network layers,
UUIDs) are left out; the ids of groups, which are hashes on a real node, and the PCIe roots of GPUs are made up. ``assumed`` says
so.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eks_inference.catalog.claims import Driver, driver, drivers, published
from eks_inference.catalog.instances import InstanceType
from eks_inference.place.claims import API_VERSION, PCIE_ROOT, group_attribute, groups_of
from eks_inference_tools.reading.devices import OF_KIND

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
