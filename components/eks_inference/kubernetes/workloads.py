"""What the workloads of several domains say in the same way, as plain data. Pure; no pulumi."""

from collections.abc import Mapping
from typing import Any

from eks_inference.kubernetes.pod_security import restricted_pod
from eks_inference.placement import Placement

APP_LABEL = "app.kubernetes.io/name"
"""What a workload is, in the common labels of Kubernetes."""


def daemon_set(
    name: str,
    namespace: str,
    pod: Mapping[str, Any],
    *,
    annotations: Mapping[str, str] | None = None,
    max_unavailable: str | None = None,
) -> dict[str, Any]:
    """``metadata`` and ``spec`` of a DaemonSet. It and its pods have its name as the label ``APP_LABEL``.

    ``pod`` is the spec of its pods, ``annotations`` are theirs, and an update replaces ``max_unavailable`` of them at a time (one
    when left out).
    """
    labels = {APP_LABEL: name}
    step = {"rollingUpdate": {"maxUnavailable": max_unavailable}} if max_unavailable else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", **step},
            "template": {
                "metadata": {"labels": labels, **({"annotations": dict(annotations)} if annotations else {})},
                "spec": dict(pod),
            },
        },
    }


def job_pod(placement: Placement, user: int) -> dict[str, Any]:
    """Fields of a pod that runs once, asks the API server nothing, and meets Pod Security "restricted"."""
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **placement.scheduling(),
        "securityContext": restricted_pod(user),
    }
