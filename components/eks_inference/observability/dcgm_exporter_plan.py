"""Plans NVIDIA's DCGM exporter. Pure functions; no pulumi.

Source: NVIDIA/dcgm-exporter 4.5.3-4.8.2 (manifest, chart).
"""

from importlib.resources import files
from typing import Any

from eks_inference.accelerators.nvidia.plan import ALL_GPUS, on_gpu_nodes
from eks_inference.kubernetes import workloads
from eks_inference.observability.prometheus_plan import node_labels

NAME = "dcgm-exporter"
PORT = 9400

ENDPOINTS = [{"port": "metrics", "relabelings": node_labels()}]
"""Endpoints of the PodMonitor, with labels of the node. ``exported_namespace``, ``exported_pod`` and ``exported_container``
identify the pod that has a GPU; the labels without the prefix identify the exporter."""

COUNTERS_FILE = "counters.csv"
_COUNTERS_FOLDER = "/etc/eks-inference"

KUBELET_PODS = "/var/lib/kubelet/pod-resources"
"""Folder of the kubelet socket that reports the devices of each pod."""


def counters() -> str:
    """Returns what the exporter reads of each GPU, as it takes it."""
    return files("eks_inference.observability").joinpath("assets", "gpu-counters.csv").read_text("utf-8")


def daemon_set(namespace: str, image: str) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the exporter's DaemonSet."""
    environment = {
        "DCGM_EXPORTER_LISTEN": f":{PORT}",
        "DCGM_EXPORTER_KUBERNETES": "true",
        "DCGM_EXPORTER_COLLECTORS": f"{_COUNTERS_FOLDER}/{COUNTERS_FILE}",
        **ALL_GPUS,
    }
    container = {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            *({"name": name, "value": value} for name, value in environment.items()),
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "metrics"}, "periodSeconds": 15, "timeoutSeconds": 5},
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": "metrics"},
            "initialDelaySeconds": 45,
            "periodSeconds": 15,
            "timeoutSeconds": 5,
        },
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        # GPU profiling counters (DCGM_FI_PROF_...) require root and SYS_ADMIN.
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
        },
        "volumeMounts": [
            {"name": "pod-resources", "mountPath": KUBELET_PODS, "readOnly": True},
            {"name": "counters", "mountPath": _COUNTERS_FOLDER, "readOnly": True},
        ],
    }
    pod = {
        "automountServiceAccountToken": False,
        **on_gpu_nodes(),
        "containers": [container],
        "volumes": [
            {"name": "pod-resources", "hostPath": {"path": KUBELET_PODS, "type": "Directory"}},
            {"name": "counters", "configMap": {"name": NAME}},
        ],
    }
    return workloads.daemon_set(NAME, namespace, pod, annotations=workloads.config_annotation(counters()))
