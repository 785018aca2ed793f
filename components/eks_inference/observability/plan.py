"""Plans the CloudWatch add-on: version, configuration, log groups. Pure functions; no pulumi.

Sources: CloudWatch user guide, "Install the CloudWatch agent with the Amazon CloudWatch Observability EKS add-on or the Helm
chart"; values and release notes of the chart behind the add-on (aws-observability/helm-charts, 6.4.0).
"""

from eks_inference.catalog import versions
from eks_inference.cluster.plan import Addon
from eks_inference.merge import beside
from eks_inference.observability.spec import CloudWatchSpec

CLOUDWATCH_ADDON = "amazon-cloudwatch-observability"

CLOUDWATCH_NAMESPACE = "amazon-cloudwatch"
"""The add-on's namespace; EKS creates it."""

CLOUDWATCH_SERVICE_ACCOUNT = "cloudwatch-agent"
"""The CloudWatch agent and Fluent Bit both use this account, so one role serves metrics and logs."""

_CONFIGURATION = {
    # Accelerator nodes are tainted: agent, log collector and the exporters of Neuron and NVIDIA devices tolerate everything. This
    # is the default since 1.7.0; it is explicit because device metrics depend on it. The add-on's controller has its own
    # tolerations (none) and so stays off accelerator nodes.
    "tolerations": [{"operator": "Exists"}],
    # By default, since 5.0.0, the add-on injects tracing agents for Python and three more languages into the pods of every
    # Deployment, StatefulSet and DaemonSet behind a Service. A model server would then start with packages that its image was not
    # tested with and that no preview shows.
    "manager": {"applicationSignals": {"autoMonitor": {"monitorAllServices": False}}},
}

_FREE = ("manager.applicationSignals.autoMonitor.monitorAllServices",)
"""What a user may replace."""


def cloudwatch_addon(spec: CloudWatchSpec, kubernetes_version: str) -> Addon:
    """Returns the add-on at the user's version or the pinned one. Raises ``KeyError`` if the minor version has no pin."""
    return Addon(
        name=CLOUDWATCH_ADDON,
        version=spec.addon_version or versions.addon(CLOUDWATCH_ADDON, kubernetes_version),
        configuration=beside(_CONFIGURATION, spec.configuration, key=("configuration",), free=_FREE),
    )


def cloudwatch_log_group_prefix(cluster: str) -> str:
    """Prefix of the add-on's log groups; one of ``CLOUDWATCH_LOGS`` follows."""
    return f"/aws/containerinsights/{cluster}/"


CLOUDWATCH_LOGS = ("application", "dataplane", "host", "performance")
"""What the add-on writes to a log group each (CloudWatch user guide, "Set up Fluent Bit as a DaemonSet")."""
