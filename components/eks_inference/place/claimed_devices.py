"""Plans how pods claim devices (dynamic resource allocation): claim templates, and the parts of a pod that name them. Pure.

Sources: Kubernetes documentation, "Dynamic Resource Allocation" and "Resource Quotas"; EKS user guide, "Manage Neuron devices",
"Manage EFA devices"; the drivers' own documents, which ``catalog/claims.toml`` names.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.claim_drivers import Driver, driver, most_devices_per_claim, published
from eks_inference.catalog.instances import InstanceType
from eks_inference.faults import Fault, SpecError
from eks_inference.place.placement import Placement

API_VERSION = "resource.k8s.io/v1"

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
"""The attribute of devices below one PCIe root, which drivers of GPUs and interfaces publish alike."""


def claimed_resource(device_class: str) -> str:
    """Returns the name by which Kubernetes counts claimed devices of a class, in quotas."""
    return f"{device_class}.deviceclass.resource.k8s.io/devices"


def group_attribute(devices: int) -> str:
    """Returns the attribute that connected Neuron devices, and the EFA interfaces nearest to them, have in common."""
    return f"resource.aws.com/devicegroup{devices}_id"


@dataclass(frozen=True)
class DeviceClaims:
    """The claims of one pod.

    ``templates`` has the specs of ResourceClaimTemplates by the name of the claim in the pod. Their objects have the names
    ``template_name(server, claim)``, which change with the content: the API server refuses changes of a template.
    """

    templates: Mapping[str, Mapping[str, Any]]

    def template_name(self, owner: str, claim: str) -> str:
        """Returns the name of the object of a template. ``owner`` is a DNS label of at most 40 characters."""
        digest = hashlib.sha256(json.dumps(self.templates[claim], sort_keys=True).encode()).hexdigest()
        return f"{owner}-{claim}-{digest[:8]}"

    def manifests(self, owner: str, namespace: str) -> dict[str, dict[str, Any]]:
        """Returns ``metadata`` and ``spec`` of the ResourceClaimTemplates, by the name of the claim in the pod."""
        return {
            claim: {"metadata": {"name": self.template_name(owner, claim), "namespace": namespace}, "spec": {"spec": dict(spec)}}
            for claim, spec in self.templates.items()
        }

    def of_pod(self, owner: str) -> dict[str, Any]:
        """Returns what the spec of a pod needs beside its containers."""
        names = {claim: self.template_name(owner, claim) for claim in self.templates}
        return {"resourceClaims": [{"name": claim, "resourceClaimTemplateName": name} for claim, name in names.items()]}

    def of_container(self) -> dict[str, Any]:
        """Returns what the ``resources`` of the container that uses the devices need beside requests and limits."""
        return {"claims": [{"name": claim} for claim in self.templates]}

    @property
    def devices(self) -> Mapping[str, int]:
        """The number of devices that all claims ask for, by class."""
        found: dict[str, int] = {}
        for spec in self.templates.values():
            for device_class, count in asked_by(spec):
                found[device_class] = found.get(device_class, 0) + count
        return found


def asked_by(spec: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yields class and number of each request of a claim's spec that asks for an exact number."""
    for request in spec["devices"]["requests"]:
        yield request["exactly"]["deviceClassName"], request["exactly"]["count"]


def device_claims(placement: Placement, devices: int | None = None, *, efa_interfaces: int = 0) -> DeviceClaims:
    """Returns the claims of a pod for ``devices`` (default: all of the node) and so many EFA interfaces nearest to them.

    Neuron devices are a connected set where the driver publishes groups, and each interface is in the group of the devices. If
    a pod takes only some of a node's GPUs, each comes with interfaces below its PCIe root. Each claim asks for at most as many
    devices as a scheduler may allocate to one. ``logical_cores`` of the pool becomes the driver's setting of the claimed
    devices.

    Raises ``SpecError`` for more devices or interfaces than a node has, for a number of devices that is no connected set, and
    for interfaces that cannot be divided among the devices.
    """
    shape = placement.instance_type
    count = shape.devices if devices is None else devices
    if faults := list(_impossible(placement, count, efa_interfaces)):
        raise SpecError(faults)
    if shape.neuron:
        return DeviceClaims({"devices": _neuron_claim(placement, count, efa_interfaces)})
    return DeviceClaims(dict(_gpu_claims(shape, count, efa_interfaces)))


def groups_of(instance: InstanceType) -> Sequence[int]:
    """Returns the numbers of devices for which the driver publishes connected sets; empty: none, or unknown."""
    found = published(instance)
    return [number for number in found.groups if number <= instance.devices] if found and instance.efa_interfaces else ()


def _impossible(placement: Placement, devices: int, interfaces: int) -> Iterator[Fault]:
    shape = placement.instance_type
    if not 1 <= devices <= shape.devices:
        yield Fault(("devices",), f"{shape.name} cannot give a pod this many", str(devices), f"1 to {shape.devices}")
    elif shape.neuron and (groups := groups_of(shape)) and devices not in groups:
        allowed = ", ".join(map(str, groups))
        yield Fault(("devices",), f"the driver publishes no sets of this many devices of {shape.name}", str(devices), allowed)
    there = placement.efa_interfaces
    if not 0 <= interfaces <= there:
        yield Fault(("efa_interfaces",), f"a node of pool {placement.pool} has {there}", str(interfaces), f"0 to {there}")
    elif interfaces and shape.neuron and not groups_of(shape):
        hint = "leave them out: the nearest interfaces are unknown"
        yield Fault(("efa_interfaces",), f"the driver publishes no groups on {shape.name}", str(interfaces), hint=hint)
    elif 1 <= devices <= shape.devices and interfaces > (near := _near(shape, devices, there)):
        what = f"that many are not near {devices} of the {shape.devices} devices of {shape.name}"
        yield Fault(("efa_interfaces",), what, str(interfaces), f"0 to {near}")
    elif not shape.neuron and interfaces > devices < shape.devices and interfaces % devices:
        yield Fault(("efa_interfaces",), f"{devices} GPUs cannot have equally many interfaces each", str(interfaces))


def _near(shape: InstanceType, devices: int, there: int) -> int:
    """Returns how many interfaces of a node a claim finds near so many of its devices.

    Connected Neuron devices share theirs; each GPU of a part of a node needs its own.
    """
    if devices == shape.devices:
        return there
    sets, size = (1, devices) if shape.neuron else (devices, 1)
    return min(there, sets * math.ceil(there * size / shape.devices))


def _request(name: str, of: Driver, count: int) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": of.device_class, "allocationMode": "ExactCount", "count": count}}


def _neuron_claim(placement: Placement, devices: int, interfaces: int) -> dict[str, Any]:
    shape, neuron = placement.instance_type, driver("neuron")
    requests = [_request("devices", neuron, devices)]
    if interfaces:
        requests.append(_request("interfaces", driver("efa"), interfaces))
    claim: dict[str, Any] = {"requests": requests}
    if groups_of(shape) and (devices > 1 or interfaces):
        names = [request["name"] for request in requests]
        claim["constraints"] = [{"requests": names, "matchAttribute": group_attribute(devices)}]
    if placement.logical_cores:
        settings = {
            "apiVersion": "neuron.aws.com/v1",
            "kind": "NeuronConfig",
            "logicalNeuronCore": placement.logical_cores,
        }
        claim["config"] = [{"requests": ["devices"], "opaque": {"driver": neuron.driver, "parameters": settings}}]
    return {"devices": claim}


def _gpu_claims(shape: InstanceType, devices: int, interfaces: int) -> Iterator[tuple[str, dict[str, Any]]]:
    gpus, efa, most = driver("nvidia"), driver("efa"), most_devices_per_claim()
    each = interfaces // devices
    if devices == shape.devices or not each:
        # All GPUs of a node, or fewer interfaces than GPUs: there is nothing to align.
        if devices + interfaces <= most:
            requests = [_request("devices", gpus, devices)]
            yield (
                "devices",
                {"devices": {"requests": requests + ([_request("interfaces", efa, interfaces)] if interfaces else [])}},
            )
        else:
            yield "devices", {"devices": {"requests": [_request("devices", gpus, devices)]}}
            yield "interfaces", {"devices": {"requests": [_request("interfaces", efa, interfaces)]}}
        return
    together = most // (1 + each)
    for number, first in enumerate(range(0, devices, together), start=1):
        pairs = range(first, min(first + together, devices))
        claim = {
            "requests": [
                request
                for pair in pairs
                for request in (_request(f"device-{pair}", gpus, 1), _request(f"interfaces-{pair}", efa, each))
            ],
            "constraints": [{"requests": [f"device-{one}", f"interfaces-{one}"], "matchAttribute": PCIE_ROOT} for one in pairs],
        }
        yield "devices" if number == 1 else f"devices-{number}", {"devices": claim}
