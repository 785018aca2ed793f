"""Fluent Bit as data: its configuration, what its role may do, its DaemonSet. Pure functions; no pulumi.

Sources: Fluent Bit 5.0.9 (documentation and code of tail, record_modifier, cloudwatch_logs; the configuration was tried against
a stand-in for CloudWatch); public repositories that run aws-for-fluent-bit 3.4.15 (where the program is in the image); Kubernetes
documentation, "Logging Architecture"; the source system's values of the chart aws-for-fluent-bit.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.aws import iam
from eks_inference.kubernetes import workloads
from eks_inference.observability.spec import FluentBitSpec

NAME = "fluent-bit"
"""Of DaemonSet, ConfigMap and service account."""

CONFIG_FILE = "fluent-bit.conf"
PORT = 2020
"""Where Fluent Bit answers about itself."""

LOGS = "/var/log"
STATE = "/var/lib/fluent-bit"
"""Of the node: how far each file has been read, also across restarts of Fluent Bit."""

_PROGRAM = "/fluent-bit/bin/fluent-bit"
_CONFIG_FOLDER = "/etc/eks-inference"

# How the kubelet names the log of a container.
_FILE = r"^/var/log/containers/(?<pod>[^_]+)_(?<namespace>[^_]+)_(?<container>.+)-[0-9a-f]{64}\.log$"


def log_group(spec: FluentBitSpec, cluster: str) -> str:
    """Name of the log group; the source system's unless the spec says otherwise."""
    return spec.log_group or f"/aws/eks/{cluster}/workload"


def role_policy(log_group_arn: str) -> iam.Document:
    """Writing into the log group, and nothing else. Streams are made by Fluent Bit; group and retention are the stack's.

    The source system also allows DescribeLogStreams and PutRetentionPolicy, which the older plugin of Fluent Bit called.
    """
    return iam.document(iam.allow("WriteLogs", ["logs:CreateLogStream", "logs:PutLogEvents"], f"{log_group_arn}:*"))


def configuration(spec: FluentBitSpec, *, cluster: str, region: str) -> str:
    """The configuration file.

    The stream is named after the log file, so Fluent Bit asks the API server nothing and needs no account there.
    """
    sections: list[tuple[str, dict[str, str | tuple[str, ...]]]] = [
        (
            "SERVICE",
            {
                "Flush": "5",
                "Grace": "30",
                "Log_Level": "warn",
                "HTTP_Server": "On",
                "HTTP_Port": str(PORT),
            },
        ),
        (
            "INPUT",
            {
                "Name": "tail",
                "Path": f"{LOGS}/containers/*.log",
                # A line about a line that could not be sent would make another one.
                "Exclude_Path": f"{LOGS}/containers/*_{spec.namespace}_*.log",
                "Tag": "<namespace>.<pod>.<container>",
                "Tag_Regex": _FILE,
                "multiline.parser": "cri",
                "DB": f"{STATE}/positions.db",
                # A node's first pods start beside Fluent Bit: their first lines count.
                "Read_from_Head": "On",
                # Seconds until it sees that a container started.
                "Refresh_Interval": "10",
                "Skip_Long_Lines": "On",
                # Then it waits with reading, and goes on where it stopped.
                "Mem_Buf_Limit": "32MB",
            },
        ),
        (
            "FILTER",
            {
                "Name": "record_modifier",
                "Match": "*",
                # CloudWatch has the time beside the line; _p says whether a line is whole, which it is by now.
                "Remove_key": ("time", "_p"),
                "Record": "node ${NODE_NAME}",
            },
        ),
        (
            "OUTPUT",
            {
                "Name": "cloudwatch_logs",
                "Match": "*",
                "region": region,
                "log_group_name": log_group(spec, cluster),
                "log_stream_template": "$TAG",
                # Asked for by the plugin, and used if the template fails.
                "log_stream_name": "unnamed",
                # Otherwise it drops what it could not send twice.
                "Retry_Limit": "no_limits",
            },
        ),
    ]
    return "\n".join(f"[{name}]\n" + "".join(_lines(keys)) for name, keys in sections)


def _lines(keys: Mapping[str, str | tuple[str, ...]]) -> Iterator[str]:
    for key, values in keys.items():
        for value in (values,) if isinstance(values, str) else values:
            yield f"    {key:<20} {value}\n"


def daemon_set(spec: FluentBitSpec, config: str, image: str) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the DaemonSet, on all nodes whatever their taints."""
    pod = {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 45,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(image)],
        "volumes": [
            {"name": "config", "configMap": {"name": NAME}},
            {"name": "logs", "hostPath": {"path": LOGS, "type": "Directory"}},
            {"name": "state", "hostPath": {"path": STATE, "type": "DirectoryOrCreate"}},
        ],
    }
    # Fluent Bit reads the file once: another file is another pod.
    annotations = {"eks-inference/config": _digest(config)}
    return workloads.daemon_set(NAME, spec.namespace, pod, annotations=annotations, max_unavailable="20%")


def _container(image: str) -> dict[str, Any]:
    return {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [_PROGRAM, "--config", f"{_CONFIG_FOLDER}/{CONFIG_FILE}"],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "ports": [{"name": "http", "containerPort": PORT}],
        # Not its own health check: that counts lines given up, and here none is.
        "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 15},
        "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "initialDelaySeconds": 10, "periodSeconds": 30},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        # Logs of containers belong to root; of what root may, it needs nothing else.
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": _CONFIG_FOLDER, "readOnly": True},
            {"name": "logs", "mountPath": LOGS, "readOnly": True},
            {"name": "state", "mountPath": STATE},
        ],
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
