"""Flow logs of a VPC: which addresses talk to which, and what security groups refuse."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from eks_inference.aws import iam, logs, naming
from eks_inference.network.spec import FlowLogsSpec
from eks_inference.settings import StackSettings


def flow_logs(
    name: str, spec: FlowLogsSpec, *, vpc_id: pulumi.Input[str], settings: StackSettings, parent: pulumi.Resource
) -> None:
    """Creates the flow log of a VPC, its log group, and a role that may write only there.

    With ``settings.protect`` the log group cannot be deleted.
    Source: Amazon VPC user guide, "Publish flow logs to CloudWatch Logs".
    """
    group = aws.cloudwatch.LogGroup(
        f"{name}-flow-logs",
        retention_in_days=spec.retention_days,
        tags={**settings.tags, "Name": f"{name}-flow-logs"},
        opts=pulumi.ResourceOptions(parent=parent, protect=settings.protect or None),
    )
    role_name = f"{name}-flow-logs-role"
    role = aws.iam.Role(
        naming.within(naming.IAM_ROLE, role_name),
        description=f"Flow logs of the VPC {name}",
        assume_role_policy=iam.policy_json(iam.document(iam.trust("FlowLogs", "vpc-flow-logs.amazonaws.com", "sts:AssumeRole"))),
        permissions_boundary=settings.permissions_boundary_arn,
        tags={**settings.tags, "Name": role_name},
        opts=pulumi.ResourceOptions(parent=parent),
    )
    leave = aws.iam.RolePolicy(
        f"{name}-flow-logs-policy",
        role=role.name,
        policy=group.arn.apply(lambda arn: iam.policy_json(logs.writer(arn, "logs:DescribeLogStreams"))),
        opts=pulumi.ResourceOptions(parent=parent),
    )
    aws.ec2.FlowLog(
        f"{name}-flow-log",
        vpc_id=vpc_id,
        traffic_type=spec.traffic,
        log_destination=group.arn,
        iam_role_arn=role.arn,
        tags={**settings.tags, "Name": f"{name}-flow-log"},
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[leave]),
    )
