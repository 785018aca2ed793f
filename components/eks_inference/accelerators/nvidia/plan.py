"""Names that everybody uses for NVIDIA GPUs in Kubernetes. Pure; no pulumi.

Sources: NVIDIA/k8s-device-plugin v0.20.0 (static manifest, chart), NVIDIA/dcgm-exporter 4.5.3-4.8.2 (manifest, chart).
"""

from typing import Any

from eks_inference.catalog.instances import instance_types
from eks_inference.placement import INSTANCE_TYPE_LABEL

GPU_RESOURCE = "nvidia.com/gpu"
"""One whole GPU: what pods ask for."""

PLUGIN_NAME = "nvidia-device-plugin"
EXPORTER_NAME = "dcgm-exporter"
EXPORTER_PORT = 9400

KUBELET_PLUGINS = "/var/lib/kubelet/device-plugins"
"""Where plugins meet the kubelet."""

KUBELET_PODS = "/var/lib/kubelet/pod-resources"
"""Where the kubelet tells which pod has which device."""

ALL_GPUS = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
"""Environment that makes NVIDIA's container runtime, which AL2023 uses for all containers, show every GPU of the node."""


def nvidia_instance_types() -> list[str]:
    """The names of all instance types of the catalog with NVIDIA GPUs, sorted."""
    return sorted(name for name, shape in instance_types().items() if shape.nvidia)


def on_gpu_nodes() -> dict[str, Any]:
    """Affinity and tolerations of what runs on every node with GPUs, whatever its taints.

    Not on nodes of EKS Auto Mode, which bring a plugin of their own.
    """
    expressions = [
        {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": nvidia_instance_types()},
        {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["auto", "fargate", "hybrid"]},
    ]
    return {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
            }
        },
        "tolerations": [{"operator": "Exists"}],
    }


def plugin_daemon_set(namespace: str, image: str) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the device plugin."""
    labels = {"app.kubernetes.io/name": PLUGIN_NAME}
    container = {
        "name": PLUGIN_NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": name, "value": value} for name, value in ALL_GPUS.items()],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "device-plugins", "mountPath": KUBELET_PLUGINS}],
    }
    return {
        "metadata": {"name": PLUGIN_NAME, "namespace": namespace, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    # It talks to the kubelet, not to the API server.
                    "automountServiceAccountToken": False,
                    "priorityClassName": "system-node-critical",
                    **on_gpu_nodes(),
                    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [container],
                    "volumes": [{"name": "device-plugins", "hostPath": {"path": KUBELET_PLUGINS, "type": "Directory"}}],
                },
            },
        },
    }


def exporter_daemon_set(namespace: str, image: str) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the DCGM exporter."""
    labels = {"app.kubernetes.io/name": EXPORTER_NAME}
    environment = {"DCGM_EXPORTER_LISTEN": f":{EXPORTER_PORT}", "DCGM_EXPORTER_KUBERNETES": "true", **ALL_GPUS}
    container = {
        "name": EXPORTER_NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            *({"name": name, "value": value} for name, value in environment.items()),
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "ports": [{"name": "metrics", "containerPort": EXPORTER_PORT}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "metrics"}, "periodSeconds": 15, "timeoutSeconds": 5},
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": "metrics"},
            "initialDelaySeconds": 45,
            "periodSeconds": 15,
            "timeoutSeconds": 5,
        },
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        # As root and with SYS_ADMIN, which the counters of the GPU's own profiling (DCGM_FI_PROF_...) take.
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
        },
        "volumeMounts": [{"name": "pod-resources", "mountPath": KUBELET_PODS, "readOnly": True}],
    }
    return {
        "metadata": {"name": EXPORTER_NAME, "namespace": namespace, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "automountServiceAccountToken": False,
                    **on_gpu_nodes(),
                    "containers": [container],
                    "volumes": [{"name": "pod-resources", "hostPath": {"path": KUBELET_PODS, "type": "Directory"}}],
                },
            },
        },
    }


def exporter_endpoints() -> list[dict[str, Any]]:
    """What Prometheus reads of the exporter, with the node it runs on.

    The pod that has a GPU is in ``exported_namespace``, ``exported_pod`` and ``exported_container``; without the prefix they
    name the exporter.
    """
    return [
        {
            "port": "metrics",
            "relabelings": [
                {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
                {
                    "sourceLabels": ["__meta_kubernetes_node_label_node_kubernetes_io_instance_type"],
                    "targetLabel": "instance_type",
                },
            ],
        }
    ]
