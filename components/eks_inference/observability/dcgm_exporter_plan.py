"""NVIDIA's DCGM exporter as data. Pure functions; no pulumi.

Source: NVIDIA/dcgm-exporter 4.5.3-4.8.2 (manifest, chart).
"""

from typing import Any

from eks_inference.accelerators.nvidia.plan import ALL_GPUS, on_gpu_nodes
from eks_inference.kubernetes import workloads
from eks_inference.observability.prometheus_plan import node_labels

NAME = "dcgm-exporter"
PORT = 9400

KUBELET_PODS = "/var/lib/kubelet/pod-resources"
"""Where the kubelet tells which pod has which device."""


def daemon_set(namespace: str, image: str) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the DCGM exporter."""
    environment = {"DCGM_EXPORTER_LISTEN": f":{PORT}", "DCGM_EXPORTER_KUBERNETES": "true", **ALL_GPUS}
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
        # As root and with SYS_ADMIN, which the counters of the GPU's own profiling (DCGM_FI_PROF_...) take.
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
        },
        "volumeMounts": [{"name": "pod-resources", "mountPath": KUBELET_PODS, "readOnly": True}],
    }
    pod = {
        "automountServiceAccountToken": False,
        **on_gpu_nodes(),
        "containers": [container],
        "volumes": [{"name": "pod-resources", "hostPath": {"path": KUBELET_PODS, "type": "Directory"}}],
    }
    return workloads.daemon_set(NAME, namespace, pod)


def endpoints() -> list[dict[str, Any]]:
    """What Prometheus reads of the exporter, with the node it runs on.

    The pod that has a GPU is in ``exported_namespace``, ``exported_pod`` and ``exported_container``; without the prefix they
    name the exporter.
    """
    return [{"port": "metrics", "relabelings": node_labels()}]
