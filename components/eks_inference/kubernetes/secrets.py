"""Secrets in the stack's configuration, and Secrets in the cluster: references to them, and those that hold a secret value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
import pulumi_kubernetes as k8s

if TYPE_CHECKING:
    import pulumi

CONFIG_SECRETS = (
    "huggingFaceToken",
    "grafanaAdminPassword",
    "openWebUiAdminPassword",
    "servingApiKey",
    "alertReceiverUrl",
    "gatewayClientSecret",
    "endpointKeys",
)
"""Configuration keys that may be set with ``pulumi config set --secret eks-inference:<key>``. They are separate from the stack
object, because one encrypted value would hide the whole object from reviews and offline previews."""


@dataclass(frozen=True)
class SecretRef:
    """A key of a Kubernetes Secret in the namespace of its reader. The value never passes through the program."""

    name: pulumi.Input[str]
    key: str


def secret_env(variable: str, secret: SecretRef | None) -> list[dict[str, Any]]:
    """Returns the ``env`` entry that passes a secret to a container, or an empty list when there is no secret.

    Spelled as in Kubernetes, for typed objects and custom resources alike. The Secret is not optional: without it a pod does not
    start, instead of starting and failing later.
    """
    if secret is None:
        return []
    return [{"name": variable, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}]


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
