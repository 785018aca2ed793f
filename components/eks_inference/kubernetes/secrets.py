"""Secrets in the stack's configuration and references to Secrets in the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
