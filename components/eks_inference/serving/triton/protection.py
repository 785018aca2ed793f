"""What guards a Triton server: who may reach its pods, how many GPUs it may hold, which pods a drain may take. Pure; no pulumi.

Sources: Kubernetes documentation ("Specifying a Disruption Budget for your Application", "Pod Security Standards").
"""

from typing import Any, Literal

from eks_inference.aws import iam
from eks_inference.catalog.instances import InstanceType
from eks_inference.kubernetes.network_policy import network_policy
from eks_inference.serving import protection, storage_plan
from eks_inference.serving.pods import device_resource
from eks_inference.serving.spec import NoCompileCache
from eks_inference.serving.triton import plan
from eks_inference.serving.triton.spec import HostPathCache, S3Repository, TritonServerSpec
from eks_inference.settings import StackSettings


def pod_security(spec: TritonServerSpec) -> Literal["privileged", "restricted"]:
    """The level of the namespace. A cache in a folder of the node is the one exception: see ``HostPathCache``."""
    return "privileged" if isinstance(spec.cache, HostPathCache) else "restricted"


def network_policies(name: str, spec: TritonServerSpec) -> dict[str, dict[str, Any]]:
    """The namespace's NetworkPolicies by role. Open: HTTP and gRPC to clients, metrics to Prometheus."""
    space = plan.namespace(name, spec)
    return {
        "closed": protection.closed(name, space),
        "server": network_policy(
            name,
            space,
            selector=plan.server_labels(name),
            ingress=[
                *(protection.from_clients(spec.client_namespaces, plan.PORTS[port]) for port in ("http", "grpc")),
                *protection.from_prometheus(spec.metrics_namespaces, plan.PORTS["metrics"]),
            ],
            egress=protection.EGRESS,
        ),
    }


def quota(name: str, spec: TritonServerSpec, shape: InstanceType) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the ResourceQuota: the GPUs of all pods, those of a roll-out among them."""
    return protection.device_quota(plan.namespace(name, spec), device_resource(shape), spec.most * plan.gpus(spec, shape))


def disruption_budget(name: str, spec: TritonServerSpec) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the PodDisruptionBudget."""
    kept = {"minAvailable": spec.fewest} if spec.evictions == "refused" and spec.fewest else {"maxUnavailable": 1}
    return {
        "metadata": {"name": name, "namespace": plan.namespace(name, spec)},
        "spec": {**kept, "selector": {"matchLabels": plan.server_labels(name)}},
    }


def role_policy(spec: TritonServerSpec, settings: StackSettings, repository_bucket: str | None) -> iam.Document:
    """What the pods may do in AWS: read the model repository, and the model's folder."""
    model = storage_plan.role_policy(spec.model, NoCompileCache(kind="none"), settings, None)["Statement"]
    repository: list[iam.Statement] = []
    if isinstance(spec.repository, S3Repository) and repository_bucket:
        bucket, prefix = f"arn:{settings.partition}:s3:::{repository_bucket}", spec.repository.prefix
        below = {"StringLike": {"s3:prefix": f"{prefix}/*"}}
        repository = [
            iam.allow("ListRepository", ["s3:ListBucket"], bucket, conditions=below),
            iam.allow("ReadRepository", ["s3:GetObject"], f"{bucket}/{prefix}/*"),
        ]
    return iam.document(*repository, *model)
