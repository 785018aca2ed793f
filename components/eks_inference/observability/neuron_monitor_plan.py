"""Plans the Neuron monitor. Pure functions; no pulumi.

Sources: aws-neuron-sdk 81ce03ae, src/k8/k8s-neuron-monitor-daemonset.yml and "Neuron Monitor" of its Kubernetes guide.
"""

from typing import Any

from eks_inference.accelerators.neuron.plan import neuron_instance_types
from eks_inference.accelerators.nodes import on_every_node
from eks_inference.kubernetes import workloads
from eks_inference.observability.prometheus_plan import node_labels

NAME = "neuron-monitor"
PORT = 8000

ENDPOINTS = [
    {
        "port": "metrics",
        "relabelings": node_labels(),
        "metricRelabelings": [
            {"action": "drop", "sourceLabels": ["__name__"], "regex": "python_.*"},
            {"action": "labeldrop", "regex": "exported_instance_type|instance_name|region|subnet_id"},
        ],
    }
]
"""Endpoints of the PodMonitor, with labels of the node. They drop the monitor's own instance labels, which come from the metadata
service: nodes of this library block pods from it."""


def daemon_set(namespace: str, image: str) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the monitor's DaemonSet, which tolerates all taints."""
    container = {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/opt/bin/entrypoint.sh"],
        "args": ["--port", str(PORT), "--neuron-monitor-config", "/opt/aws/neuron/bin/neuron-monitor.conf"],
        # AWS's value: the Go runtime collects garbage before the container reaches its limit.
        "env": [{"name": "GOMEMLIMIT", "value": "160MiB"}],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": "metrics"}, "periodSeconds": 15},
        # AWS requests 256m. A lower request leaves more of a small node to its worker; the limit still allows more.
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}},
        "securityContext": {"privileged": True},
    }
    pod = {
        "automountServiceAccountToken": False,
        **on_every_node(neuron_instance_types()),
        "containers": [container],
    }
    return workloads.daemon_set(NAME, namespace, pod)
