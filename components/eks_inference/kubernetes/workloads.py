"""Renders the parts that workloads of several domains share, such as what Pod Security Standards ask for. Pure; no pulumi."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from eks_inference.place.placement import Placement

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
READ_ONLY_CONTAINER = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}
"""That of one which writes to volumes alone."""


APP_LABEL = "app.kubernetes.io/name"
"""The name of a workload, one of the recommended labels of Kubernetes."""


UNAWAITED = {"pulumi.com/skipAwait": "true"}
"""Annotation of a Service that comes before its pods: Pulumi would wait for one of them."""


def service(
    name: str,
    namespace: str,
    selector: Mapping[str, str],
    ports: Iterable[tuple[str, int, int | str]],
    *,
    labels: Mapping[str, str] | None = None,
    awaited: bool = False,
    headless: bool = False,
) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of a Service. ``ports`` are names, ports of the Service and ports of its pods.

    The name of a ``headless`` one resolves to the pods that are ready; its ports are theirs.
    """
    metadata = {"name": name, "namespace": namespace} | ({"labels": dict(labels)} if labels else {})
    listed = [{"name": port, "port": number} | ({} if headless else {"targetPort": target}) for port, number, target in ports]
    return {
        "metadata": metadata if awaited else {**metadata, "annotations": dict(UNAWAITED)},
        "spec": {
            "type": "ClusterIP",
            **({"clusterIP": "None"} if headless else {}),
            "selector": dict(selector),
            "ports": listed,
        },
    }


def rolling_deployment(
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    pod: Mapping[str, Any],
    *,
    replicas: int,
    progress_seconds: int,
    template: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of a Deployment that replaces one pod after the other: the new one comes first.

    ``labels`` are those of the Deployment and of its selector, ``template`` other metadata of its pods.
    """
    own = dict(labels)
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": own},
        "spec": {
            "replicas": replicas,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "progressDeadlineSeconds": progress_seconds,
            "selector": {"matchLabels": own},
            "template": {"metadata": {"labels": own, **(template or {})}, "spec": pod},
        },
    }


def permission(
    name: str, namespace: str, resource: str, verbs: Sequence[str], *, account: str, of: str, names: Sequence[Any] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arguments of a Role and its RoleBinding: ``account``, in the namespace ``of``, may do this and nothing else.

    ``names`` are those of the objects; without any, all of the namespace.
    """
    metadata = {"name": name, "namespace": namespace}
    only = {"resourceNames": list(names)} if names else {}
    return (
        {"metadata": metadata, "rules": [{"apiGroups": [""], "resources": [resource], **only, "verbs": list(verbs)}]},
        {
            "metadata": metadata,
            "role_ref": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": of}],
        },
    )


def daemon_set(
    name: str,
    namespace: str,
    pod: Mapping[str, Any],
    *,
    annotations: Mapping[str, str] | None = None,
    max_unavailable: str | None = None,
) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of a DaemonSet. The DaemonSet and its pods carry the name as label ``APP_LABEL``.

    ``pod`` is the pod spec and ``annotations`` are those of the pods. An update replaces ``max_unavailable`` pods at a time,
    by default one.
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


def config_annotation(config: str) -> dict[str, str]:
    """Returns the annotation by which a change of their configuration replaces pods that read it only when they start."""
    return {"eks-inference/config": hashlib.sha256(config.encode()).hexdigest()[:16]}


def job_pod(placement: Placement, user: int) -> dict[str, Any]:
    """Returns fields of a pod that runs once, without access to the API server, and meets Pod Security "restricted"."""
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **placement.scheduling(),
        "securityContext": restricted_pod(user),
    }
