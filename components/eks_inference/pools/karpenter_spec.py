"""The spec of the Karpenter controller."""

from typing import Any

from pydantic import Field

from eks_inference.pools.spec import BucketName
from eks_inference.specs.base import Spec


class KarpenterSpec(Spec):
    """The Karpenter controller. One controller per cluster serves all Karpenter pools."""

    replicas: int = Field(default=2, ge=1, le=2, description="Controller pods, each on its own node of the core pool.")
    s3_read_buckets: tuple[BucketName, ...] = Field(default=(), description="S3 buckets that Karpenter's nodes may read.")
    node_repair: bool = Field(
        default=False,
        description="Let Karpenter replace unhealthy nodes of all its pools (feature gate NodeRepair, alpha): 10 minutes after "
        "an accelerator has failed, 30 minutes after anything else has, without regard to disruption budgets. Off by default for "
        "the reasons given at node_repair of managed pools.",
    )
    static_capacity: bool = Field(
        default=False,
        description="Keep pools of a fixed number of nodes: those with replicas (feature gate StaticCapacity, alpha).",
    )
    values: dict[str, Any] = Field(
        default_factory=dict,
        description="Values of the karpenter chart, beside ours; only what is below image or resources replaces ours.",
    )
