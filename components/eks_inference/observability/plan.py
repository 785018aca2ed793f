"""What can be worked out about observability without a cluster: the CloudWatch add-on, its role, its log groups.

Sources: CloudWatch user guide, "Install the CloudWatch agent with the Amazon CloudWatch Observability EKS add-on or the Helm
chart"; values and release notes of the chart behind the add-on (aws-observability/helm-charts, 6.4.0).
"""

from typing import Any

from eks_inference.aws import iam
from eks_inference.catalog import versions
from eks_inference.cluster.plan import Addon
from eks_inference.merge import merged
from eks_inference.observability.spec import CloudWatchSpec

CLOUDWATCH_ADDON = "amazon-cloudwatch-observability"

CLOUDWATCH_NAMESPACE = "amazon-cloudwatch"
"""The add-on's own namespace; EKS makes it."""

CLOUDWATCH_SERVICE_ACCOUNT = "cloudwatch-agent"
"""Both the CloudWatch agent and Fluent Bit run as this account, so one role serves metrics and logs."""


def cloudwatch_addon(spec: CloudWatchSpec, kubernetes_version: str) -> Addon:
    """The add-on at the user's version, or at the pinned one; ``KeyError`` when there is no pin for the minor version."""
    return Addon(
        name=CLOUDWATCH_ADDON,
        version=spec.addon_version or versions.addon(CLOUDWATCH_ADDON, kubernetes_version),
        configuration=merged(_configuration(), spec.configuration),
    )


def cloudwatch_policy_arn(partition: str) -> str:
    """The AWS policy of the agents: write metrics, logs and traces."""
    return iam.managed_policy_arn("CloudWatchAgentServerPolicy", partition)


def cloudwatch_log_group_prefix(cluster: str) -> str:
    """What the names of the add-on's log groups begin with; ``application`` and ``performance`` follow."""
    return f"/aws/containerinsights/{cluster}/"


def _configuration() -> dict[str, Any]:
    return {
        # For agent, log collector and the exporters of Neuron and NVIDIA devices; accelerator nodes are tainted. It is also what
        # the add-on does since 1.7.0; said here because without it the metrics this add-on is for would be missing. The
        # add-on's controller has tolerations of its own (none), so it stays off accelerators.
        "tolerations": [{"operator": "Exists"}],
        # Since 5.0.0 the add-on otherwise puts tracing agents for Python and three more languages into the pods of every
        # Deployment, StatefulSet and DaemonSet behind a Service: a model server would start with packages its image was not
        # tested with, which no preview shows.
        "manager": {"applicationSignals": {"autoMonitor": {"monitorAllServices": False}}},
    }
