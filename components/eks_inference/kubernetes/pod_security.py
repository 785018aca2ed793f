"""Pod Security Standards: namespace labels, and the security contexts that the level "restricted" requires."""

from typing import Any, Literal

Level = Literal["privileged", "baseline", "restricted"]
"""A level of the Pod Security Standards."""


def enforce(level: Level) -> dict[str, str]:
    """Returns the label with which a namespace refuses pods below a level. Callers justify any level but "restricted"."""
    return {"pod-security.kubernetes.io/enforce": level}


def restricted_pod(user: int) -> dict[str, Any]:
    """Returns the security context of a pod that runs as ``user``, who also owns its volumes."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


RESTRICTED_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""The security context of a container in such a pod."""
