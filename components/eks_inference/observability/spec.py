"""Settings of metrics and logs."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from eks_inference.aws.iam import RetentionDays
from eks_inference.catalog.instances import Accelerator
from eks_inference.cluster.spec import AddonVersion
from eks_inference.specs.base import Form, KmsKeyArn, Namespace, Spec, VolumeGib, stated
from eks_inference.specs.late import Late


class CloudWatchSpec(Spec):
    """CloudWatch Container Insights and container logs, from the EKS add-on amazon-cloudwatch-observability.

    CloudWatch bills by observation and by GB of logs, so costs grow with nodes and pods.
    """

    addon_version: AddonVersion | None = Field(
        default=None,
        description="Add-on version instead of the pinned one, e.g. v6.6.0-eksbuild.1; at least v3.1.0, the first whose log "
        "agent supports Pod Identity.",
    )
    configuration: dict[str, Any] = Field(
        default_factory=dict,
        description="Configuration values beside ours, which they cannot replace; keys as `aws eks "
        "describe-addon-configuration` lists them.",
    )
    log_retention_days: RetentionDays = Field(
        default=30, description="Retention of the add-on's log groups, /aws/containerinsights/<cluster>/...; created here."
    )


TopicArn = Annotated[
    Late,
    Form(
        r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}",
        "the ARN of a standard SNS topic (arn:aws:sns:<region>:<account>:<name>)",
    ),
]


class SnsReceiver(Spec):
    """An SNS topic, whose subscribers get each group of alerts as a text. Alertmanager has a role that may publish to it."""

    kind: Literal["sns"] = Field(default="sns", json_schema_extra=stated, description="An SNS topic.")
    topic_arn: TopicArn = Field(description="The topic, which exists already; in the region of the stack.")
    kms_key_arn: KmsKeyArn | None = Field(
        default=None,
        description="The customer-managed key that encrypts the topic, if any. Its policy must let the account use it.",
    )


class SlackReceiver(Spec):
    """A Slack channel, through an incoming webhook: its URL names the channel and is the secret alertReceiverUrl."""

    kind: Literal["slack"] = Field(default="slack", json_schema_extra=stated, description="A Slack channel.")


class WebhookReceiver(Spec):
    """An HTTP endpoint that takes Alertmanager's JSON. Its URL is the secret alertReceiverUrl."""

    kind: Literal["webhook"] = Field(default="webhook", json_schema_extra=stated, description="An HTTP endpoint.")


Receiver = Annotated[SnsReceiver | SlackReceiver | WebhookReceiver, Field(discriminator="kind")]
"""Where alerts go, selected by ``kind``."""


class PrometheusSpec(Spec):
    """Prometheus, Grafana and exporters, from the chart kube-prometheus-stack, with this library's dashboards and rules."""

    namespace: Namespace = Field(
        default="monitoring",
        description="Namespace of Prometheus and Grafana; created here with a second one, <namespace>-nodes, for node exporters.",
    )
    scrape_interval_seconds: int = Field(
        default=30,
        ge=15,
        le=150,
        description="Interval of scrapes and rule evaluations. At least 15: Ray updates its metrics every 10 seconds and exports "
        "each value once. At most 150: alerts take rates over 5 minutes, which need two scrapes.",
    )
    retention_days: int = Field(default=7, ge=1, description="Retention of metrics.")
    volume_gib: VolumeGib = Field(
        default=50,
        ge=10,
        description="Volume of Prometheus (gp3). When it is 85 percent full, Prometheus deletes the oldest metrics early.",
    )
    receiver: Receiver | None = Field(
        default=None,
        description="Who gets alerts of severity critical and warning, through Alertmanager. Default: none; alerts only show "
        "in Prometheus and Grafana, as in the source systems.",
    )
    runbooks: Annotated[str, Form(r"https?://[\w.~:/@%+-]{1,512}", "an http(s) address")] | None = Field(
        default=None,
        description="Where your team reads docs/runbook, e.g. https://github.com/ORG/REPOSITORY/blob/main/docs/runbook: each "
        "alert links its page there. Default: alerts name the page by its path in this repository.",
    )
    alertmanager: bool = Field(
        default=False, description="Install Alertmanager also without a receiver: for receivers in values.alertmanager.config."
    )
    grafana_volume_gib: VolumeGib | None = Field(
        default=None,
        ge=1,
        description="Volume of Grafana (gp3), for content that users create. Default: none; Grafana reloads this library's "
        "content at each start.",
    )
    values: dict[str, Any] = Field(
        default_factory=dict,
        description="Values of the kube-prometheus-stack chart, beside ours; only what is below image or resources replaces "
        "ours.",
    )

    @property
    def has_alertmanager(self) -> bool:
        return self.alertmanager or self.receiver is not None

    @property
    def receiver_has_url(self) -> bool:
        """Whether the receiver is one with a URL, which is a secret."""
        return isinstance(self.receiver, SlackReceiver | WebhookReceiver)


class Objectives(Spec):
    """What a server should achieve. An alert fires where it does not; no autoscaler uses it."""

    time_to_first_token_seconds: float | None = Field(
        default=None,
        gt=0,
        # The last bucket of vLLM's histogram (vllm/v1/metrics/loggers.py): the alert could not fire for more.
        lt=2560,
        description="Alert FirstTokenLate when 5 of 100 requests have waited longer for their first token, for 10 minutes. "
        "A few times the value of an idle server. Default: no alert.",
    )
    time_between_tokens_seconds: float | None = Field(
        default=None,
        gt=0,
        lt=80,
        description="Time between two tokens of an answer that 95 of 100 are to keep. TRF001 judges traffic by it; no alert.",
    )


MILLISECONDS_ABOVE = {
    **dict.fromkeys(("time_to_first_token_seconds", "first_token_seconds"), 60.0),
    **dict.fromkeys(("time_between_tokens_seconds", "token_seconds"), 1.0),
}
"""Seconds above which an objective was probably meant in milliseconds. Published measurements (``catalog/measured.csv``) have at
most 4.6 s to the first token of a lone request, and 0.93 s between tokens on the fullest server."""


LogGroupName = Annotated[
    str,
    # CloudWatch Logs takes 512 characters and # too, but the name is also the value of the tag Name.
    Field(max_length=256),
    Form(r"(?!aws/)[A-Za-z0-9_./-]+", "the name of a log group: letters, digits and _ . / -, not beginning with aws/"),
]


class FluentBitSpec(Spec):
    """Container logs of all nodes in one CloudWatch log group, sent by Fluent Bit: one stream per container.

    CloudWatch bills ingestion by GB, and storage. The CloudWatch add-on has its own log agent and log groups: with both sections,
    CloudWatch stores and bills each line twice.
    """

    namespace: Namespace = Field(default="fluent-bit", description="Namespace of Fluent Bit; created here.")
    log_group: LogGroupName | None = Field(
        default=None,
        description="The log group; created and deleted with the stack. Default: /aws/eks/<cluster>/workload.",
    )
    retention_days: RetentionDays = Field(default=7, description="Retention of log lines. The source system's: 1.")


class NeuronMonitorSpec(Spec):
    """The Neuron monitor: utilization, memory and errors of the Neuron devices of all nodes, for Prometheus."""

    namespace: Namespace = Field(default="neuron-monitor", description="Namespace of the monitor; created here.")


class DcgmExporterSpec(Spec):
    """NVIDIA's DCGM exporter: utilization, memory, power, temperature and errors of the GPUs of all nodes, for Prometheus."""

    namespace: Namespace = Field(default="dcgm-exporter", description="Namespace of the exporter; created here.")


MONITORS: Mapping[str, Accelerator] = {"neuron_monitor": "neuron", "dcgm_exporter": "nvidia"}
"""Keys of monitors of devices → whose devices they read."""


class ObservabilitySpec(Spec):
    """Metrics and logs of the cluster and its workloads. Absent sections create nothing."""

    cloudwatch: CloudWatchSpec | None = Field(
        default=None, description="Metrics (also of Neuron and NVIDIA devices) and container logs in CloudWatch. Absent: none."
    )
    prometheus: PrometheusSpec | None = Field(
        default=None, description="Prometheus and Grafana in the cluster, which also scrape the model servers. Absent: none."
    )
    fluent_bit: FluentBitSpec | None = Field(
        default=None, description="Container logs in one CloudWatch log group, sent by Fluent Bit. Absent: none."
    )
    neuron_monitor: NeuronMonitorSpec | None = Field(
        default=None,
        description="Metrics of Neuron devices for Prometheus; needs accelerators.neuron. The CloudWatch add-on has its own "
        "exporter for CloudWatch: with both sections, each Neuron node runs two.",
    )
    dcgm_exporter: DcgmExporterSpec | None = Field(
        default=None, description="Metrics of NVIDIA GPUs for Prometheus; needs accelerators.nvidia. Absent: none."
    )
