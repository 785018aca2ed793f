"""Stores a secret value in a Kubernetes Secret for the pods of one namespace."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.kubernetes.secrets import SecretRef


def secret_object(
    resource_name: str,
    given: SecretRef | pulumi.Input[str] | None,
    ours: SecretRef,
    *,
    namespace: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> tuple[SecretRef | None, list[pulumi.Resource]]:
    """Returns where pods of ``namespace`` read a secret, and the resources that must exist before those pods.

    A value is stored in the Secret ``ours``; a reference and None are returned unchanged.
    """
    if given is None or isinstance(given, SecretRef):
        return given, []
    secret = k8s.core.v1.Secret(
        resource_name,
        metadata={"name": ours.name, "namespace": namespace},
        string_data={ours.key: pulumi.Output.secret(given)},
        opts=opts,
    )
    return ours, [secret]
