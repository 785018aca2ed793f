"""What a user decides about metrics and logs."""

from typing import Annotated, Any, Literal

from pydantic import Field

from eks_inference.spec import ResourceName, Spec

AddonVersion = Annotated[str, Field(pattern=r"^v\d+\.\d+\.\d+-eksbuild\.\d+$")]

RetentionDays = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653]
"""What CloudWatch Logs takes (its API, PutRetentionPolicy)."""


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


class PrometheusSpec(Spec):
    """Prometheus, Grafana and what feeds them, by the chart kube-prometheus-stack; with this library's dashboards and rules."""

    namespace: ResourceName = Field(
        default="monitoring",
        description="Namespace of Prometheus and Grafana; made here, and a second one, <namespace>-nodes, for what reads nodes.",
    )
    scrape_interval_seconds: int = Field(
        default=30,
        ge=15,
        description="How often metrics are read and rules evaluated. At least 15: Ray renews its metrics every 10 seconds and "
        "hands out each value once.",
    )
    retention_days: int = Field(default=7, ge=1, description="How long metrics are kept.")
    volume_gib: int = Field(
        default=50,
        ge=10,
        description="Volume of Prometheus (gp3). When metrics fill 85 percent of it, the oldest go before their time.",
    )
    alertmanager: bool = Field(
        default=False,
        description="Install Alertmanager, which sends alerts on; where to is up to values. Without it they only show in "
        "Prometheus and Grafana, as in the source systems.",
    )
    grafana_volume_gib: int | None = Field(
        default=None,
        ge=1,
        description="Volume of Grafana (gp3), for what people make in its pages. Default: none; everything of this library comes "
        "back at each start.",
    )
    values: dict[str, Any] = Field(default_factory=dict, description="Values of the kube-prometheus-stack chart, merged last.")


class FluentBitSpec(Spec):
    """Container logs of all nodes in one CloudWatch log group, by Fluent Bit: a stream for each container.

    CloudWatch bills what is written, by GB, and what is kept. The CloudWatch add-on brings a log agent of its own with groups of
    its own: with both sections each line is written, and paid for, twice.
    """

    namespace: ResourceName = Field(default="fluent-bit", description="Namespace of Fluent Bit; made here.")
    log_group: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_./#-]+$",
        max_length=512,
        description="The log group; made here, and it goes with the stack. Default: /aws/eks/<cluster>/workload.",
    )
    retention_days: RetentionDays = Field(default=7, description="How long lines are kept. The source system's: 1.")


class NeuronMonitorSpec(Spec):
    """The Neuron monitor: use, memory and errors of Neuron devices for Prometheus, from every node that has some."""

    namespace: ResourceName = Field(default="neuron-monitor", description="Namespace of the monitor; made here.")


class DcgmExporterSpec(Spec):
    """NVIDIA's DCGM exporter: use, memory, power, temperature and errors of GPUs for Prometheus, from every node with some."""

    namespace: ResourceName = Field(default="dcgm-exporter", description="Namespace of the exporter; made here.")


class ObservabilitySpec(Spec):
    """Metrics and logs of the cluster and its workloads. Sections that are absent make nothing."""

    cloudwatch: CloudWatchSpec | None = Field(
        default=None, description="Metrics (also of Neuron and NVIDIA devices) and container logs in CloudWatch. Absent: none."
    )
    prometheus: PrometheusSpec | None = Field(
        default=None, description="Prometheus and Grafana inside the cluster, which also read the model servers. Absent: none."
    )
    fluent_bit: FluentBitSpec | None = Field(
        default=None, description="Container logs in one CloudWatch log group, by Fluent Bit. Absent: none."
    )
    neuron_monitor: NeuronMonitorSpec | None = Field(
        default=None,
        description="Neuron devices for Prometheus; needs accelerators.neuron. The CloudWatch add-on brings an exporter of its "
        "own for CloudWatch: with both sections, two run on each Neuron node.",
    )
    dcgm_exporter: DcgmExporterSpec | None = Field(
        default=None, description="NVIDIA GPUs for Prometheus; needs accelerators.nvidia. Absent: none."
    )
