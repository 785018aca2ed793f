"""Creates the IAM role of nodes, for both kinds of pool."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from eks_inference.aws import iam, naming
from eks_inference.component import rendered
from eks_inference.pools import plan
from eks_inference.specs.settings import StackSettings


def node_role(
    name: str, *, description: str, settings: StackSettings, s3_read_buckets: Sequence[pulumi.Input[str]], parent: pulumi.Resource
) -> tuple[aws.iam.Role, list[pulumi.Resource]]:
    """Creates a node role; returns it and the policies that must be attached while any node exists."""
    trust = iam.trust("Nodes", iam.ec2_service(settings.partition), "sts:AssumeRole")
    role = aws.iam.Role(
        naming.within(naming.IAM_ROLE, name),
        description=description,
        assume_role_policy=iam.policy_json(iam.document(trust)),
        permissions_boundary=settings.permissions_boundary_arn,
        tags={**settings.tags, "Name": name},
        opts=pulumi.ResourceOptions(parent=parent),
    )
    permissions: list[pulumi.Resource] = [
        aws.iam.RolePolicyAttachment(
            f"{name}-{policy}",
            role=role.name,
            policy_arn=iam.managed_policy_arn(policy, settings.partition),
            opts=pulumi.ResourceOptions(parent=parent),
        )
        for policy in plan.NODE_POLICIES
    ]
    if s3_read_buckets:
        permissions.append(
            aws.iam.RolePolicy(
                f"{name}-s3-read",
                role=role.name,
                policy=rendered(lambda known: iam.policy_json(iam.s3_read(known, settings.partition)), s3_read_buckets),
                opts=pulumi.ResourceOptions(parent=parent),
            )
        )
    return role, permissions
