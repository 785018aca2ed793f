"""Plans Neuron support: device arithmetic, names, manifests. Pure functions; no pulumi.

Sources: aws-neuron-sdk (device plugin, scheduler flow, hardware pages), the chart neuron-helm-chart 1.9.0, whose images the
catalog pins, and the EKS user guide, "Manage Neuron devices". ``catalog/instances.toml`` has the device counts.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import Field

from eks_inference.accelerators.device_plugins import KUBELET_PLUGINS, NAMESPACE, device_plugin
from eks_inference.catalog.instances import DEVICE_RESOURCES, InstanceType, instance_types
from eks_inference.kubernetes import workloads
from eks_inference.kubernetes.network_policy import allow_from, network_policy, pods
from eks_inference.place.placement import Placement
from eks_inference.specs.base import Spec


class NeuronSpec(Spec):
    """The Neuron device plugin, and the scheduler that allocates several devices of one node."""

    scheduler: bool = Field(
        default=True,
        description=(
            "Install the Neuron scheduler extension and the second scheduler my-scheduler. Pods that request more than one "
            "but not all Neuron devices of a node need it."
        ),
    )


DEVICE_RESOURCE = DEVICE_RESOURCES["neuron"]
"""One whole Neuron device (chip): the only Neuron resource that pods of this library request.

On Trn2, Karpenter and the plugin count ``aws.amazon.com/neuroncore`` differently; ``aws.amazon.com/neurondevice`` ended with
SDK 2.22.
"""

CORE_RESOURCE = "aws.amazon.com/neuroncore"
"""One NeuronCore. The plugin also advertises it, and the scheduler extension also manages it."""

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
    # Plugin and scheduler extension communicate through pod annotations.
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*_READ, *_WRITE]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": _WRITE},
]

EXTENSION_RULES: list[Any] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": _READ},
    # The extension keeps its usage map in annotations of nodes and pods.
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": [*_READ, *_WRITE]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*_READ, *_WRITE]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": [""], "resources": ["bindings", "pods/binding"], "verbs": ["create"]},
]

SCHEDULER_CLUSTER_ROLES = ("kube-scheduler", "volume-scheduler")
"""Kubernetes maintains these roles, system:<name>, for the kube-scheduler of its version."""

# system:kube-scheduler allows only the lease named kube-scheduler.
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
    """Names of all Neuron instance types in the catalog, sorted."""
    return sorted(name for name, shape in instance_types().items() if shape.neuron)


def cores_of(devices: int, shape: InstanceType) -> int:
    """Number of NeuronCores on that many devices. ``shape`` of a placement reflects the pool's logical-core setting (LNC)."""
    return devices * shape.cores_per_device


def devices_for_cores(cores: int, shape: InstanceType) -> int:
    """Returns the smallest legal number of devices with at least that many cores.

    Raises ``ValueError`` if the instance type has fewer cores, or no Neuron devices.
    """
    for devices in shape.legal_device_counts:
        if cores_of(devices, shape) >= cores:
            return devices
    available = cores_of(shape.devices, shape) if shape.neuron else 0
    raise ValueError(f"{shape.name} has {available} NeuronCores, {cores} are needed")


def is_legal(devices: int, shape: InstanceType) -> bool:
    """Whether a pod may request that many devices: the extension rejects sets that are not contiguous on the chip network."""
    return devices in shape.legal_device_counts


def needs_scheduler(devices: int, shape: InstanceType) -> bool:
    """Whether a pod with that many devices needs the scheduler extension: if it takes more than one but not all.

    One device, or all devices, are always contiguous. Otherwise the kubelet picks any ids, and on a fragmented node they are not
    contiguous (aws-neuron-sdk, "Neuron scheduler extension").
    """
    return 1 < devices < shape.devices


def extension_policy() -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the NetworkPolicy: the extension binds pods to nodes for whoever asks."""
    asks = allow_from(pods(_labels(SCHEDULER_NAME)), tcp=[EXTENSION_PORT])
    return network_policy(EXTENSION_NAME, NAMESPACE, selector=_labels(EXTENSION_NAME), ingress=[asks], egress=None)


def scheduler_configuration() -> dict[str, Any]:
    """Returns the configuration of the second kube-scheduler: one profile, with the extension as its extender.

    ``nodeCacheCapable`` is false, as in the chart of the pinned extension (older manifests say true). ``ignorable`` is false, so
    that Neuron pods wait while the extension is down instead of getting arbitrary devices.
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
    """Returns ``metadata`` of an app's cluster-scoped object. Its default name is the app's."""
    return {"metadata": {"name": name or app, "labels": _labels(app)}}


def of_namespace(app: str, name: str | None = None) -> dict[str, Any]:
    """Returns ``metadata`` of an app's object in the plugins' namespace. Its default name is the app's."""
    return {"metadata": {"name": name or app, "namespace": NAMESPACE, "labels": _labels(app)}}


def plugin_daemon_set(image: str) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the device plugin."""
    # /opt/aws holds the logical-core setting of Trn2 nodes (/opt/aws/neuron/logical_nc_config).
    folders = {"device-plugin": KUBELET_PLUGINS, "run": "/run", "aws-config": "/opt/aws"}
    container = {
        "image": image,
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
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()],
    }
    return device_plugin(PLUGIN_NAME, neuron_instance_types(), container, pod)


def extension_deployment(image: str, placement: Placement) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the scheduler extension."""
    container = {
        "name": EXTENSION_NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "PORT", "value": str(EXTENSION_PORT)}],
        "ports": [{"name": "http", "containerPort": EXTENSION_PORT}],
        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        # Keeps the image's user: AWS does not document that another user works.
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    # One pod at most, also during an update: two would allocate devices from separate usage maps.
    return _deployment(
        EXTENSION_NAME,
        placement,
        strategy={"type": "Recreate"},
        pod={"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}, "containers": [container]},
    )


def extension_service() -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Service through which the second kube-scheduler calls the extension."""
    return {
        **of_namespace(EXTENSION_NAME),
        "spec": {
            "type": "ClusterIP",
            "selector": _labels(EXTENSION_NAME),
            "ports": [{"name": "http", "port": EXTENSION_PORT, "targetPort": "http"}],
        },
    }


def scheduler_deployment(image: str, placement: Placement) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the second kube-scheduler."""
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
        # The scheduler generates its serving certificate in memory and writes no files.
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "config", "mountPath": _SCHEDULER_CONFIG_FOLDER, "readOnly": True}],
    }
    # kube-scheduler reads its file only at start, so a changed file must change the pod.
    digest = hashlib.sha256(scheduler_configuration_file().encode()).hexdigest()
    return _deployment(
        SCHEDULER_NAME,
        placement,
        # Two pods may overlap during an update: only the lease holder schedules.
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
    """Returns a Deployment of one pod on the nodes of the placement."""
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
