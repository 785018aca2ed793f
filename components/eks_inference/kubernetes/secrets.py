"""Secrets: those of the stack's configuration, and those that are already in the cluster."""

from dataclasses import dataclass
from typing import Any

import pulumi

CONFIG_SECRETS = ("huggingFaceToken", "grafanaAdminPassword", "openWebUiAdminPassword", "servingApiKey")
"""Configuration keys that may be set with ``pulumi config set --secret eks-inference:<key>``. Apart from the stack object: one
encrypted value in there would hide all of it from reviews and offline previews."""


@dataclass(frozen=True)
class SecretRef:
    """One key of a Kubernetes Secret in the namespace of whoever reads it. The value itself never passes through a program."""

    name: pulumi.Input[str]
    key: str


def secret_env(variable: str, secret: SecretRef | None) -> list[dict[str, Any]]:
    """The ``env`` entries that hand a secret to a container: one, or none when there is no secret.

    In Kubernetes spelling, for typed objects and custom resources alike. The Secret is not optional: a pod without it does not
    start, rather than start and fail later.
    """
    if secret is None:
        return []
    return [{"name": variable, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}]
