"""Neuron support as data: device arithmetic, names, manifests. Pure functions; no pulumi.

Sources: aws-neuron-sdk (device plugin, scheduler flow, hardware pages), the chart neuron-helm-chart 1.9.0 whose images the
catalog pins, and the EKS user guide, "Manage Neuron devices". The counts themselves are in ``catalog/instances.toml``.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import yaml

from eks_inference.accelerators.nodes import KUBELET_PLUGINS, NAMESPACE, NODES_OF_OURS, on_every_node
from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.kubernetes import workloads
from eks_inference.placement import Placement

DEVICE_RESOURCE = "aws.amazon.com/neuron"
"""One whole Neuron device (chip): the only Neuron resource a pod of this library asks for.

``aws.amazon.com/neuroncore`` counts differently in Karpenter and in the plugin on Trn2, and ``aws.amazon.com/neurondevice`` ended
with SDK 2.22.
"""

CORE_RESOURCE = "aws.amazon.com/neuroncore"
"""One NeuronCore. The plugin advertises it beside the device, and the scheduler extension manages it too."""

PLUGIN_NAME = "neuron-device-plugin"
EXTENSION_NAME = "k8s-neuron-scheduler"
EXTENSION_PORT = 12345
SCHEDULER_NAME = "my-scheduler"
SCHEDULER_CONFIG_FILE = "my-scheduler-config.yaml"
SCHEDULER_CONFIG_MAP = f"{SCHEDULER_NAME}-config"
_SCHEDULER_CONFIG_FOLDER = f"/etc/kubernetes/{SCHEDULER_NAME}"

_READ = ["get", "list", "watch"]
_WRITE = ["patch", "update"]

PLUGIN_RULES: list[Any] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": _READ},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    # Plugin and scheduler extension talk through annotations of pods.
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*_READ, *_WRITE]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": _WRITE},
]

EXTENSION_RULES: list[Any] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": _READ},
    # It keeps its usage map in annotations of nodes and pods.
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": [*_READ, *_WRITE]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*_READ, *_WRITE]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": [""], "resources": ["bindings", "pods/binding"], "verbs": ["create"]},
]

SCHEDULER_CLUSTER_ROLES = ("kube-scheduler", "volume-scheduler")
"""Kubernetes keeps these roles, system:<name>, up to date with what a kube-scheduler of its version reads."""

# system:kube-scheduler covers only the lease named kube-scheduler.
SCHEDULER_RULES: list[Any] = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [SCHEDULER_NAME],
        "verbs": ["get", "update"],
    },
]


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


def scheduler_configuration_file() -> str:
    return yaml.safe_dump(scheduler_configuration(), sort_keys=False)


# -- manifests ------------------------------------------------------------------------------------------------------------------


def of_cluster(app: str, name: str | None = None) -> dict[str, Any]:
    """``metadata`` of an object of an app that is in no namespace. It has the app's name unless it has one of its own."""
    return {"metadata": {"name": name or app, "labels": _labels(app)}}


def of_namespace(app: str, name: str | None = None) -> dict[str, Any]:
    """``metadata`` of an object of an app in the plugins' namespace. It has the app's name unless it has one of its own."""
    return {"metadata": {"name": name or app, "namespace": NAMESPACE, "labels": _labels(app)}}


def plugin_daemon_set(image: str) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the device plugin, on every node with Neuron devices whatever its taints."""
    # /opt/aws: the node's logical-core setting on Trn2 (/opt/aws/neuron/logical_nc_config).
    folders = {"device-plugin": KUBELET_PLUGINS, "run": "/run", "aws-config": "/opt/aws"}
    container = {
        "name": PLUGIN_NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "KUBECONFIG", "value": "/etc/kubernetes/kubelet.conf"},
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": name, "mountPath": path, **({"readOnly": True} if name == "aws-config" else {})}
            for name, path in folders.items()
        ],
    }
    pod = {
        "serviceAccountName": PLUGIN_NAME,
        "priorityClassName": "system-node-critical",
        **on_every_node(neuron_instance_types(), NODES_OF_OURS),
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()],
    }
    return workloads.daemon_set(PLUGIN_NAME, NAMESPACE, pod)


def extension_deployment(image: str, placement: Placement) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the scheduler extension."""
    container = {
        "name": EXTENSION_NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "PORT", "value": str(EXTENSION_PORT)}],
        "ports": [{"name": "http", "containerPort": EXTENSION_PORT}],
        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        # Its user is the image's: AWS does not say that it runs as another one.
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    # Exactly one, also while it is replaced: two would each hand out devices from their own picture.
    return _deployment(
        EXTENSION_NAME,
        placement,
        strategy={"type": "Recreate"},
        pod={"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}, "containers": [container]},
    )


def extension_service() -> dict[str, Any]:
    """``metadata`` and ``spec`` of the address at which the second kube-scheduler asks the extension."""
    return {
        **of_namespace(EXTENSION_NAME),
        "spec": {
            "type": "ClusterIP",
            "selector": _labels(EXTENSION_NAME),
            "ports": [{"name": "http", "port": EXTENSION_PORT, "targetPort": "http"}],
        },
    }


def scheduler_deployment(image: str, placement: Placement) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the second kube-scheduler."""
    healthy = {"httpGet": {"path": "/healthz", "port": "https", "scheme": "HTTPS"}}
    container = {
        "name": "kube-second-scheduler",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/local/bin/kube-scheduler"],
        "args": [f"--config={_SCHEDULER_CONFIG_FOLDER}/{SCHEDULER_CONFIG_FILE}", "--v=2"],
        "ports": [{"name": "https", "containerPort": 10259}],
        "livenessProbe": {**healthy, "initialDelaySeconds": 15},
        "readinessProbe": healthy,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        # Its serving certificate is made in memory, so nothing is written.
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "config", "mountPath": _SCHEDULER_CONFIG_FOLDER, "readOnly": True}],
    }
    # kube-scheduler reads its file once: a changed file has to change the pod.
    digest = hashlib.sha256(scheduler_configuration_file().encode()).hexdigest()
    return _deployment(
        SCHEDULER_NAME,
        placement,
        # Two may overlap during an update: only the holder of the lease schedules.
        strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        annotations={"eks-inference/config-sha256": digest},
        pod={
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "config", "configMap": {"name": SCHEDULER_CONFIG_MAP}}],
        },
    )


def _deployment(
    app: str,
    placement: Placement,
    *,
    strategy: Mapping[str, Any],
    pod: Mapping[str, Any],
    annotations: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One pod of the app on the nodes of the placement."""
    return {
        **of_namespace(app),
        "spec": {
            "replicas": 1,
            "strategy": strategy,
            "selector": {"matchLabels": _labels(app)},
            "template": {
                "metadata": {"labels": _labels(app), **({"annotations": annotations} if annotations else {})},
                "spec": {
                    "serviceAccountName": app,
                    "priorityClassName": "system-cluster-critical",
                    **placement.scheduling(),
                    **pod,
                },
            },
        },
    }


def _labels(app: str) -> dict[str, str]:
    return {workloads.APP_LABEL: app}
