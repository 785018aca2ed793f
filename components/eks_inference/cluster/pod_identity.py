"""IAM roles for pods through EKS Pod Identity: there are no static keys, and each role serves one service account.

EKS gives a pod its credentials at admission, and only then: a pod that is admitted before the association takes effect, some
seconds after its creation, never gets them, however often its containers restart. So the API server refuses such pods
(``plan.credentials_guard``), and their controllers try again until one has credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from eks_inference.aws import iam, naming
from eks_inference.cluster import plan
from eks_inference.cluster.handle import Cluster, ControlPlane
from eks_inference.cluster.objects import POD_IDENTITY_AGENT, on_cluster, require_addon

_NONE: Mapping[str, str] = MappingProxyType({})


def pod_role(
    name: str,
    *,
    cluster: ControlPlane,
    namespace: str,
    service_account: str,
    description: str,
    parent: pulumi.Resource,
    policies: Mapping[str, pulumi.Input[str]] = _NONE,
    managed_policies: Mapping[str, str] = _NONE,
    role_name: str | None = None,
) -> tuple[aws.iam.Role, list[pulumi.Resource]]:
    """Creates a role for the pods of one service account, and refuses those without its credentials.

    Returns the role, and what must exist before the first pod starts: its policies and the guard.

    ``policies`` are JSON texts and ``managed_policies`` ARNs; a key is the suffix of the resource name ``<name>-<key>``.
    ``role_name`` defaults to ``<name>-role``. For EKS add-ons, which associate service account and role themselves; our own pods
    need ``pod_identity``.
    """
    require_addon(cluster, POD_IDENTITY_AGENT, f"the role of {namespace}/{service_account}")
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
    guard = _guard(name, cluster=cluster, namespace=namespace, service_account=service_account, parent=parent)
    return role, [*attached, *own, guard]


def _guard(
    name: str, *, cluster: ControlPlane, namespace: str, service_account: str, parent: pulumi.Resource
) -> k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding:
    """Creates the policy that keeps pods without credentials out, and returns its binding, which puts it into effect."""
    policy, binding = plan.credentials_guard(namespace, service_account)
    made = k8s.admissionregistration.v1.ValidatingAdmissionPolicy(
        f"{name}-credentials", metadata=policy["metadata"], spec=policy["spec"], opts=on_cluster(cluster, parent)
    )
    return k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding(
        f"{name}-credentials-binding", metadata=binding["metadata"], spec=binding["spec"], opts=on_cluster(cluster, parent, made)
    )


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
    """Creates a ``pod_role`` and its association; returns what must exist before the first pod of the service account starts."""
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
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[*cluster.pods_ready, permissions[-1]]),
    )
    return [*permissions, association]
