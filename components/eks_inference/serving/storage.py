"""The AWS and Kubernetes resources behind a server's compile cache and model: bucket or claim, and permissions."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from eks_inference.aws import iam, naming
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.cluster.pod_identity import pod_identity
from eks_inference.component import rendered
from eks_inference.serving import storage_plan
from eks_inference.serving.shape import CompilingServerSpec
from eks_inference.serving.spec import S3CompileCache, VolumeCompileCache, VolumeModel
from eks_inference.serving.storage_plan import PodStorage

_BUCKET_NAME = 63
"""Longest name of a bucket."""


@dataclass(frozen=True)
class Account:
    """The service account of the pods that read the model and use the cache. Its IAM role has the same name."""

    namespace: str
    name: str
    description: str
    """Description of the role."""


def server_storage(
    name: str,
    spec: CompilingServerSpec,
    *,
    account: Account,
    cluster: Cluster,
    parent: pulumi.Resource,
    namespace: pulumi.Resource,
) -> tuple[PodStorage, list[pulumi.Resource]]:
    """Creates what model and cache need. Returns what each pod gets, and the resources that must exist before the pods."""
    model, cache = spec.model, spec.cache
    ready: list[pulumi.Resource] = []
    url = bucket = None
    if isinstance(cache, VolumeCompileCache):
        ready.append(
            k8s.core.v1.PersistentVolumeClaim(
                f"{name}-compile-cache",
                **storage_plan.cache_claim(name, account.namespace, cache, several_pods=spec.compiling_pods > 1),
                opts=on_cluster(cluster, parent, namespace, *cluster.ready),
            )
        )
    if isinstance(model, VolumeModel):
        ready += cluster.ready
    if isinstance(cache, S3CompileCache):
        bucket = cache.bucket or private_bucket(f"{name}-compile-cache", cluster, parent)
        url = pulumi.Output.concat("s3://", bucket, "/", cache.prefix)
    adapters = spec.s3_adapters
    if storage_plan.needs_role(model, cache, adapters):
        policy = pulumi.Output.from_input(bucket).apply(
            lambda known: rendered(iam.policy_json, storage_plan.role_policy(model, cache, cluster.settings, known, adapters))
        )
        ready += account_role(account, policy, cluster, parent)
    downloader = cluster.settings.image(versions.image("aws-cli"))
    pod = storage_plan.pod_storage(name, model, cache, cache_url=url, downloader_image=downloader, adapters=adapters)
    return pod, ready


def private_bucket(name: str, cluster: Cluster, parent: pulumi.Resource) -> pulumi.Output[str]:
    """Creates a private bucket for data that can be recreated, and returns its name.

    Stacks with ``protect`` do not delete it; with ``retain`` it outlives the stack, with what keeps it private.
    """
    settings = cluster.settings
    kept = settings.retain or None
    bucket = aws.s3.Bucket(
        naming.within(_BUCKET_NAME, name),
        force_destroy=not (settings.protect or settings.retain),
        tags={**settings.tags, "Name": name},
        opts=pulumi.ResourceOptions(parent=parent, protect=settings.protect or None, retain_on_delete=kept),
    )
    private = aws.s3.BucketPublicAccessBlock(
        f"{name}-private",
        bucket=bucket.bucket,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=pulumi.ResourceOptions(parent=parent, retain_on_delete=kept),
    )
    aws.s3.BucketPolicy(
        f"{name}-tls-only",
        bucket=bucket.bucket,
        policy=bucket.arn.apply(lambda arn: iam.policy_json(iam.tls_only(arn))),
        # S3 refuses two changes of one bucket's access at the same time (OperationAborted).
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[private], retain_on_delete=kept),
    )
    if settings.kms_key_arn:
        aws.s3.BucketServerSideEncryptionConfiguration(
            f"{name}-encryption",
            bucket=bucket.bucket,
            rules=[
                {
                    "apply_server_side_encryption_by_default": {
                        "sse_algorithm": "aws:kms",
                        "kms_master_key_id": settings.kms_key_arn,
                    },
                    "bucket_key_enabled": True,
                }
            ],
            opts=pulumi.ResourceOptions(parent=parent, retain_on_delete=kept),
        )
    return bucket.bucket


def account_role(account: Account, policy: pulumi.Input[str], cluster: Cluster, parent: pulumi.Resource) -> list[pulumi.Resource]:
    """Creates a role with this policy and associates it with the service account."""
    return pod_identity(
        account.name,
        cluster=cluster,
        namespace=account.namespace,
        service_account=account.name,
        description=account.description,
        parent=parent,
        policies={"storage": policy},
        role_name=account.name,
    )
