"""Creates the bucket of a load balancer's access logs."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from eks_inference.aws import iam, naming
from eks_inference.gateway.controller_plan import log_bucket_policy
from eks_inference.gateway.spec import AccessLogsSpec
from eks_inference.specs.settings import StackSettings

_BUCKET_NAME = 63
"""Longest name of a bucket."""


def log_bucket(
    name: str, spec: AccessLogsSpec, *, account: pulumi.Output[str], settings: StackSettings, parent: pulumi.Resource
) -> tuple[pulumi.Output[str], list[pulumi.Resource]]:
    """Creates a private bucket for access logs. Returns its name, and what must exist before the first log.

    S3's own keys encrypt it: Elastic Load Balancing can write to no bucket with a KMS key.
    """
    kept = settings.retain or None
    bucket = aws.s3.Bucket(
        naming.within(_BUCKET_NAME, name),
        force_destroy=not (settings.protect or settings.retain),
        tags={**settings.tags, "Name": name},
        opts=pulumi.ResourceOptions(parent=parent, protect=settings.protect or None, retain_on_delete=kept),
    )
    options = pulumi.ResourceOptions(parent=parent, retain_on_delete=kept)
    private = aws.s3.BucketPublicAccessBlock(
        f"{name}-private",
        bucket=bucket.bucket,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=options,
    )
    policy = aws.s3.BucketPolicy(
        f"{name}-delivery",
        bucket=bucket.bucket,
        policy=pulumi.Output.all(bucket.arn, account).apply(lambda known: iam.policy_json(log_bucket_policy(*known))),
        # S3 refuses two changes of one bucket's access at the same time (OperationAborted).
        opts=pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=[private])),
    )
    aws.s3.BucketLifecycleConfiguration(
        f"{name}-retention",
        bucket=bucket.bucket,
        rules=[{"id": "retention", "status": "Enabled", "filter": {}, "expiration": {"days": spec.retention_days}}],
        opts=options,
    )
    return bucket.bucket, [policy]
