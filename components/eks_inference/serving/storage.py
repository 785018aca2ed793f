"""The resources behind a server's compile cache and its model: bucket or claim, and leave to use them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from eks_inference.aws import iam, naming
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.pod_identity import pod_identity
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER
from eks_inference.serving import storage_plan
from eks_inference.serving.spec import CompileCache, ModelSource, S3CompileCache, VolumeCompileCache
from eks_inference.serving.storage_plan import PodStorage

_BUCKET_NAME = 63


@dataclass(frozen=True)
class Account:
    """The service account whose pods read the model and use the cache. The role is named as the account, in ``namespace``."""

    namespace: str
    name: str
    description: str
    """Of its role."""


@dataclass(frozen=True)
class Storage:
    """What each pod gets; ``ready`` must exist before the pods."""

    pods: PodStorage
    ready: Sequence[pulumi.Resource]


def server_storage(
    name: str,
    model: ModelSource,
    cache: CompileCache,
    *,
    several_pods: bool,
    account: Account,
    cluster: Cluster,
    parent: pulumi.Resource,
    namespace: pulumi.Resource,
) -> Storage:
    """What model and cache ask for; nothing where they ask for nothing. ``name`` is the server's."""
    ready: list[pulumi.Resource] = []
    url = bucket = None
    if isinstance(cache, VolumeCompileCache):
        ready.append(
            k8s.core.v1.PersistentVolumeClaim(
                f"{name}-compile-cache",
                **storage_plan.cache_claim(name, account.namespace, cache, several_pods=several_pods),
                opts=pulumi.ResourceOptions(parent=parent, provider=cluster.provider, depends_on=[namespace]),
            )
        )
    if isinstance(cache, S3CompileCache):
        bucket = cache.bucket or private_bucket(f"{name}-compile-cache", cluster, parent)
        url = pulumi.Output.concat("s3://", bucket, "/", cache.prefix)
    if storage_plan.needs_role(model, cache):
        policy = pulumi.Output.from_input(bucket).apply(
            lambda known: iam.policy_json(storage_plan.role_policy(model, cache, cluster.settings, known))
        )
        ready += account_role(account, policy, cluster, parent)
    return Storage(pod_storage(name, model, cache, cluster=cluster, cache_url=url), ready)


def pod_storage(
    name: str, model: ModelSource, cache: CompileCache, *, cluster: Cluster, cache_url: pulumi.Input[str] | None = None
) -> PodStorage:
    """What each pod gets for its model and its compiled graphs, from images by their mirrors."""
    return storage_plan.pod_storage(
        name,
        model,
        cache,
        cache_url=cache_url,
        downloader_image=cluster.settings.image(versions.image("aws-cli")),
        security=RESTRICTED_CONTAINER,
    )


def private_bucket(name: str, cluster: Cluster, parent: pulumi.Resource) -> pulumi.Output[str]:
    """A bucket of the stack for what can be made again. A stack that protects what it holds keeps it."""
    settings = cluster.settings
    bucket = aws.s3.Bucket(
        naming.within(_BUCKET_NAME, name),
        force_destroy=not settings.protect,
        tags={**settings.tags, "Name": name},
        opts=pulumi.ResourceOptions(parent=parent, protect=settings.protect or None),
    )
    aws.s3.BucketPublicAccessBlock(
        f"{name}-private",
        bucket=bucket.bucket,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=pulumi.ResourceOptions(parent=parent),
    )
    if settings.kms_key_arn:
        aws.s3.BucketServerSideEncryptionConfiguration(
            f"{name}-encryption",
            bucket=bucket.bucket,
            rules=[
                aws.s3.BucketServerSideEncryptionConfigurationRuleArgs(
                    apply_server_side_encryption_by_default=(
                        aws.s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
                            sse_algorithm="aws:kms", kms_master_key_id=settings.kms_key_arn
                        )
                    ),
                    bucket_key_enabled=True,
                )
            ],
            opts=pulumi.ResourceOptions(parent=parent),
        )
    return bucket.bucket


def account_role(account: Account, policy: pulumi.Input[str], cluster: Cluster, parent: pulumi.Resource) -> list[pulumi.Resource]:
    """Role with that policy and association of the service account."""
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
