"""Pod Security Standards: the label of a namespace, and what a pod says to meet "restricted" (as Kubernetes documents it)."""

from typing import Any, Literal

Level = Literal["privileged", "baseline", "restricted"]
"""A level of the Pod Security Standards."""


def enforce(level: Level) -> dict[str, str]:
    """The label that makes a namespace refuse pods below a level. A level other than "restricted" needs a reason beside it."""
    return {"pod-security.kubernetes.io/enforce": level}


def restricted_pod(user: int) -> dict[str, Any]:
    """The security context of a pod that runs as ``user``, who also owns its volumes."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


RESTRICTED_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""The security context of a container in such a pod."""
