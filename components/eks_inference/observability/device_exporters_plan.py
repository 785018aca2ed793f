"""Plans the exporters of accelerators: what each has of its own, and the DaemonSet that all have. Pure; no pulumi.

Sources: NVIDIA/dcgm-exporter 4.5.3-4.8.2 (manifest, chart); aws-neuron-sdk 81ce03ae,
src/k8/k8s-neuron-monitor-daemonset.yml and "Neuron Monitor" of its Kubernetes guide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from eks_inference.accelerators.device_plugins import on_every_node
from eks_inference.accelerators.neuron.plan import neuron_instance_types
from eks_inference.accelerators.nvidia.plan import ALL_GPUS, on_gpu_nodes
from eks_inference.kubernetes import workloads
from eks_inference.kubernetes.network_policy import Rule, addresses, allow_to
from eks_inference.observability.prometheus_plan import node_labels


@dataclass(frozen=True)
class Exporter:
    """An exporter that runs once on each node with its devices, and tells metrics at ``port``."""

    name: str
    port: int
    container: Mapping[str, Any]
    scheduling: Mapping[str, Any]
    """Fields of the pod: which nodes it runs on."""
    volumes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the pod."""
    files: Mapping[str, str] = field(default_factory=dict)
    """In a ConfigMap of its name."""
    egress: Sequence[Rule] = ()
    relabelings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the endpoint of the PodMonitor, which adds labels of the node."""

    @property
    def endpoint(self) -> dict[str, Any]:
        return {"port": "metrics", "relabelings": node_labels(), **self.relabelings}

    def daemon_set(self, namespace: str, image: str) -> dict[str, Any]:
        """Returns ``metadata`` and ``spec``."""
        container = {"name": self.name, "image": image, "imagePullPolicy": "IfNotPresent", **self.container}
        pod = {"automountServiceAccountToken": False, **self.scheduling, "containers": [container], **self.volumes}
        annotations = workloads.config_annotation("".join(self.files.values())) if self.files else None
        return workloads.daemon_set(self.name, namespace, pod, annotations=annotations)


def neuron_monitor() -> Exporter:
    """The Neuron monitor, which tolerates all taints."""
    port = 8000
    return Exporter(
        "neuron-monitor",
        port,
        container={
            "command": ["/opt/bin/entrypoint.sh"],
            "args": ["--port", str(port), "--neuron-monitor-config", "/opt/aws/neuron/bin/neuron-monitor.conf"],
            # AWS's value: the Go runtime collects garbage before the container reaches its limit.
            "env": [{"name": "GOMEMLIMIT", "value": "160MiB"}],
            "ports": [{"name": "metrics", "containerPort": port}],
            "readinessProbe": {"tcpSocket": {"port": "metrics"}, "periodSeconds": 15},
            # AWS requests 256m. A lower request leaves more of a small node to its worker; the limit still allows more.
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}},
            "securityContext": {"privileged": True},
        },
        scheduling=on_every_node(neuron_instance_types()),
        # The monitor reads instance labels from the metadata service; they stay empty if nodes block pods from it.
        egress=[allow_to(addresses("169.254.169.254/32"), tcp=[80])],
        # Without its own instance labels, which come from there: nodes of this library block pods from it.
        relabelings={
            "metricRelabelings": [
                {"action": "drop", "sourceLabels": ["__name__"], "regex": "python_.*"},
                {"action": "labeldrop", "regex": "exported_instance_type|instance_name|region|subnet_id"},
            ]
        },
    )


_COUNTERS = "counters.csv"
_COUNTERS_FOLDER = "/etc/eks-inference"

KUBELET_PODS = "/var/lib/kubelet/pod-resources"
"""Folder of the kubelet socket that reports the devices of each pod."""


def counters() -> str:
    """Returns what the DCGM exporter reads of each GPU, as it takes it."""
    return files("eks_inference.observability").joinpath("assets", "gpu-counters.csv").read_text("utf-8")


def dcgm_exporter() -> Exporter:
    """NVIDIA's DCGM exporter. ``exported_namespace``, ``exported_pod`` and ``exported_container`` identify the pod that has a
    GPU; the labels without the prefix identify the exporter.
    """
    name, port = "dcgm-exporter", 9400
    environment = {
        "DCGM_EXPORTER_LISTEN": f":{port}",
        "DCGM_EXPORTER_KUBERNETES": "true",
        "DCGM_EXPORTER_COLLECTORS": f"{_COUNTERS_FOLDER}/{_COUNTERS}",
        **ALL_GPUS,
    }
    probe = {"httpGet": {"path": "/health", "port": "metrics"}, "periodSeconds": 15, "timeoutSeconds": 5}
    return Exporter(
        name,
        port,
        container={
            "env": [
                *({"name": variable, "value": value} for variable, value in environment.items()),
                {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            "ports": [{"name": "metrics", "containerPort": port}],
            "readinessProbe": probe,
            "livenessProbe": {**probe, "initialDelaySeconds": 45},
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
        },
        scheduling=on_gpu_nodes(),
        volumes={
            "volumes": [
                {"name": "pod-resources", "hostPath": {"path": KUBELET_PODS, "type": "Directory"}},
                {"name": "counters", "configMap": {"name": name}},
            ]
        },
        files={_COUNTERS: counters()},
    )
