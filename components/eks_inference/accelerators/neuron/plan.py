"""Device arithmetic of Neuron chips and the names everybody uses for them. Pure functions; no pulumi.

Sources: aws-neuron-sdk (device plugin, scheduler flow, hardware pages), the chart neuron-helm-chart 1.9.0 whose images the
catalog pins, and the EKS user guide, "Manage Neuron devices". The counts themselves are in ``catalog/instances.toml``.
"""

from typing import Any

from eks_inference.catalog.instances import InstanceType, instance_types

DEVICE_RESOURCE = "aws.amazon.com/neuron"
"""One whole Neuron device (chip): the only Neuron resource a pod of this library asks for.

``aws.amazon.com/neuroncore`` counts differently in Karpenter and in the plugin on Trn2, and ``aws.amazon.com/neurondevice`` ended
with SDK 2.22.
"""

CORE_RESOURCE = "aws.amazon.com/neuroncore"
"""One NeuronCore. The plugin advertises it beside the device, and the scheduler extension manages it too."""

NAMESPACE = "kube-system"
PLUGIN_NAME = "neuron-device-plugin"
EXTENSION_NAME = "k8s-neuron-scheduler"
EXTENSION_PORT = 12345
SCHEDULER_NAME = "my-scheduler"
SCHEDULER_CONFIG_FILE = "my-scheduler-config.yaml"


def neuron_instance_types() -> list[str]:
    """The names of all Neuron instance types of the catalog, sorted."""
    return sorted(name for name, shape in instance_types().items() if shape.neuron)


def cores_of(devices: int, shape: InstanceType) -> int:
    """NeuronCores a pod sees with that many devices. The instance type of a placement counts them as its pool sets them (LNC)."""
    return devices * shape.cores_per_device


def devices_for_cores(cores: int, shape: InstanceType) -> int:
    """The smallest legal number of devices with at least that many cores.

    Raises ``ValueError`` when the instance type has no Neuron devices, or fewer cores in all.
    """
    for devices in shape.legal_device_counts:
        if cores_of(devices, shape) >= cores:
            return devices
    available = cores_of(shape.devices, shape) if shape.neuron else 0
    raise ValueError(f"{shape.name} has {available} NeuronCores, {cores} are needed")


def is_legal(devices: int, shape: InstanceType) -> bool:
    """Whether a pod may ask for that many devices: the extension rejects sets that are not neighbours on the chip network."""
    return devices in shape.legal_device_counts


def needs_scheduler(devices: int, shape: InstanceType) -> bool:
    """Whether a pod with that many devices needs the scheduler extension: exactly when it takes more than one and not all.

    One device is its own neighbour and all devices are all neighbours; in between the kubelet picks ids freely, and after some
    fragmentation they are not contiguous (aws-neuron-sdk, "Neuron scheduler extension").
    """
    return 1 < devices < shape.devices


def scheduler_configuration() -> dict[str, Any]:
    """The configuration of the second kube-scheduler: one profile, and the extension as its extender.

    ``nodeCacheCapable`` is false, as the chart that carries the pinned extension has it (older manifests say true).
    ``ignorable`` is false: a Neuron pod waits while the extension is down instead of getting devices it did not choose.
    """
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": SCHEDULER_NAME}],
        "extenders": [
            {
                "urlPrefix": f"http://{EXTENSION_NAME}.{NAMESPACE}.svc.cluster.local:{EXTENSION_PORT}",
                "filterVerb": "filter",
                "bindVerb": "bind",
                "enableHTTPS": False,
                "nodeCacheCapable": False,
                "managedResources": [
                    {"name": DEVICE_RESOURCE, "ignoredByScheduler": False},
                    {"name": CORE_RESOURCE, "ignoredByScheduler": False},
                ],
                "ignorable": False,
            }
        ],
        "leaderElection": {"leaderElect": True, "resourceNamespace": NAMESPACE, "resourceName": SCHEDULER_NAME},
    }
