"""Roles that pods take by EKS Pod Identity: no key is kept anywhere, and no other service account gets them."""

from collections.abc import Mapping
from types import MappingProxyType

import pulumi
import pulumi_aws as aws

from eks_inference.aws import iam, naming
from eks_inference.cluster.handle import Cluster

_NONE: Mapping[str, str] = MappingProxyType({})


def pod_role(
    name: str,
    *,
    cluster: Cluster,
    namespace: str,
    service_account: str,
    description: str,
    parent: pulumi.Resource,
    policies: Mapping[str, pulumi.Input[str]] = _NONE,
    managed_policies: Mapping[str, str] = _NONE,
    role_name: str | None = None,
) -> tuple[aws.iam.Role, list[pulumi.Resource]]:
    """A role that pods of one service account may take, and what must be on it before they do.

    ``policies`` are JSON texts, ``managed_policies`` ARNs, both by what the name of the resource ends in: ``<name>-<key>``. The
    role is ``role_name``, by default ``<name>-role``. It is for EKS add-ons, which associate account and role themselves; pods of
    ours need ``pod_identity``.
    """
    settings = cluster.settings
    role_name = role_name or f"{name}-role"
    role = aws.iam.Role(
        naming.within(naming.IAM_ROLE, role_name),
        description=description,
        assume_role_policy=iam.policy_json(
            iam.pod_identity_trust(cluster=cluster.name, namespace=namespace, service_account=service_account)
        ),
        permissions_boundary=settings.permissions_boundary_arn,
        tags={**settings.tags, "Name": role_name},
        opts=pulumi.ResourceOptions(parent=parent),
    )
    attached = [
        aws.iam.RolePolicyAttachment(
            f"{name}-{suffix}", role=role.name, policy_arn=arn, opts=pulumi.ResourceOptions(parent=parent)
        )
        for suffix, arn in managed_policies.items()
    ]
    own = [
        aws.iam.RolePolicy(f"{name}-{suffix}", role=role.name, policy=text, opts=pulumi.ResourceOptions(parent=parent))
        for suffix, text in policies.items()
    ]
    return role, [*attached, *own]


def pod_identity(
    name: str,
    *,
    cluster: Cluster,
    namespace: str,
    service_account: str,
    description: str,
    parent: pulumi.Resource,
    policies: Mapping[str, pulumi.Input[str]],
    role_name: str | None = None,
) -> list[pulumi.Resource]:
    """A ``pod_role`` and its association: what must be there before the first pod of the service account starts.

    ``cluster`` runs the Pod Identity agent, which hands out credentials to pods that start after the association.
    """
    role, permissions = pod_role(
        name,
        cluster=cluster,
        namespace=namespace,
        service_account=service_account,
        description=description,
        parent=parent,
        policies=policies,
        role_name=role_name,
    )
    association = aws.eks.PodIdentityAssociation(
        f"{name}-identity",
        cluster_name=cluster.name,
        namespace=namespace,
        service_account=service_account,
        role_arn=role.arn,
        tags={**cluster.settings.tags, "Name": f"{name}-identity"},
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[*cluster.ready]),
    )
    return [*permissions, association]
