"""Plans the drivers that offer devices for claims: where they run, and the values of their charts. Pure; no pulumi.

Every driver runs only on nodes with the label of pools whose devices are claimed, where no device plugin runs: both would
allocate the same devices (neuron-helm-chart README; Kubernetes KEP-5004).

Sources: neuron-helm-chart (README, templates/dra-driver), aws-dranet 1.0.0 (values, templates), dra-driver-nvidia-gpu (values,
templates); ``catalog/claims.toml`` names what was read.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from eks_inference.accelerators.device_plugins import NODES_OF_OURS, on_every_node
from eks_inference.accelerators.efa.plan import efa_instance_types
from eks_inference.accelerators.neuron.plan import neuron_instance_types
from eks_inference.accelerators.nvidia.plan import nvidia_instance_types
from eks_inference.place.placement import CLAIMS, DEVICES_LABEL

DeviceKind = Literal["neuron", "nvidia", "efa"]

NAMESPACES: Mapping[DeviceKind, str] = {"neuron": "kube-system", "nvidia": "dra-driver-nvidia-gpu", "efa": "kube-system"}
"""Namespace of each release. The chart of the Neuron driver makes one of its own, ``neuron-dra-driver``, for the pods."""

# Repositories of the charts' images; the charts say the tags.
_IMAGES: Mapping[DeviceKind, str] = {
    "neuron": "public.ecr.aws/neuron/neuron-dra-driver",
    "nvidia": "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu",
    "efa": "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/dranet",
}
_INSTANCE_TYPES: Mapping[DeviceKind, Callable[[], list[str]]] = {
    "neuron": neuron_instance_types,
    "nvidia": nvidia_instance_types,
    "efa": efa_instance_types,
}


def chart_values(kind: DeviceKind, mirrored: Callable[[str], str]) -> dict[str, Any]:
    """Returns our values of a driver's chart. ``mirrored`` returns the mirror of an image's repository."""
    image = {"repository": mirrored(_IMAGES[kind])}
    selector = {DEVICES_LABEL: CLAIMS}
    anywhere = on_every_node(_INSTANCE_TYPES[kind](), NODES_OF_OURS)
    # Without tolerations for the taints of its nodes, a driver publishes no device.
    place = {**anywhere, "nodeSelector": selector}
    if kind == "neuron":
        return {
            # One chart for plugin and driver. Its node problem detector needs a role of its own.
            "devicePlugin": {"enabled": False},
            "npd": {"enabled": False},
            "draDriver": {"enabled": True, "image": image, **place},
        }
    if kind == "nvidia":
        return {
            # The chart wants a word that no device plugin offers the same GPUs.
            "gpuResourcesEnabledOverride": True,
            "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}},
            "image": image,
            "kubeletPlugin": place,
        }
    # The chart selects the instance types with EFA itself.
    return {"image": image, "nodeSelector": selector, "tolerations": anywhere["tolerations"]}
