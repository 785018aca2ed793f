"""Creates log groups of CloudWatch that a service would otherwise create by itself: without retention, tags and an end."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from eks_inference.aws.iam import RetentionDays
from eks_inference.specs.settings import StackSettings


def log_group(
    resource_name: str, group: str, retention_days: RetentionDays, *, settings: StackSettings, parent: pulumi.Resource
) -> aws.cloudwatch.LogGroup:
    """Creates the log group of that name. With ``settings.protect`` it cannot be deleted.

    Whoever writes to it depends on it: then the group exists first, and goes last.
    """
    return aws.cloudwatch.LogGroup(
        resource_name,
        name=group,
        retention_in_days=retention_days,
        tags={**settings.tags, "Name": group},
        opts=pulumi.ResourceOptions(parent=parent, protect=settings.protect or None),
    )
