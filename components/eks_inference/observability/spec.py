"""What a user decides about metrics and logs."""

from typing import Annotated, Any

from pydantic import Field

from eks_inference.spec import Spec

AddonVersion = Annotated[str, Field(pattern=r"^v\d+\.\d+\.\d+-eksbuild\.\d+$")]


class CloudWatchSpec(Spec):
    """CloudWatch Container Insights and container logs, by the EKS add-on amazon-cloudwatch-observability.

    CloudWatch bills what is collected, by observation and by GB of logs; it grows with nodes and pods.
    """

    addon_version: AddonVersion | None = Field(
        default=None,
        description="Add-on version instead of the pinned one, e.g. v6.6.0-eksbuild.1; at least v3.1.0, the first whose log "
        "agent knows Pod Identity.",
    )
    configuration: dict[str, Any] = Field(
        default_factory=dict,
        description="Configuration values merged over ours; keys as `aws eks describe-addon-configuration` lists them.",
    )


class ObservabilitySpec(Spec):
    """Metrics and logs of the cluster and its workloads. Sections that are absent make nothing."""

    cloudwatch: CloudWatchSpec | None = Field(
        default=None, description="Metrics (also of Neuron and NVIDIA devices) and container logs in CloudWatch. Absent: none."
    )
