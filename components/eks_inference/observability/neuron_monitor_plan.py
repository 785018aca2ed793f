"""The Neuron monitor as data. Pure functions; no pulumi.

Sources: aws-neuron-sdk 81ce03ae, src/k8/k8s-neuron-monitor-daemonset.yml and "Neuron Monitor" of its Kubernetes guide.
"""

from typing import Any

from eks_inference.accelerators.neuron.plan import neuron_instance_types
from eks_inference.accelerators.nodes import on_every_node
from eks_inference.kubernetes import workloads
from eks_inference.observability.prometheus_plan import node_labels

NAME = "neuron-monitor"
PORT = 8000


def daemon_set(namespace: str, image: str) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the monitor, on every node with Neuron devices whatever its taints."""
    container = {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/opt/bin/entrypoint.sh"],
        "args": ["--port", str(PORT), "--neuron-monitor-config", "/opt/aws/neuron/bin/neuron-monitor.conf"],
        # What AWS gives it; the Go runtime collects garbage before the limit is reached.
        "env": [{"name": "GOMEMLIMIT", "value": "160MiB"}],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": "metrics"}, "periodSeconds": 15},
        # AWS asks for 256m; less leaves more of a small node to its worker, and it may use as much.
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}},
        "securityContext": {"privileged": True},
    }
    pod = {
        "automountServiceAccountToken": False,
        **on_every_node(neuron_instance_types()),
        "containers": [container],
    }
    return workloads.daemon_set(NAME, namespace, pod)


def endpoints() -> list[dict[str, Any]]:
    """What Prometheus reads of the monitor, with the node it runs on.

    What the monitor says of the instance itself it has from the metadata service, which nodes of this library keep from pods.
    """
    return [
        {
            "port": "metrics",
            "relabelings": node_labels(),
            "metricRelabelings": [
                {"action": "drop", "sourceLabels": ["__name__"], "regex": "python_.*"},
                {"action": "labeldrop", "regex": "exported_instance_type|instance_name|region|subnet_id"},
            ],
        }
    ]
