"""Plans the CloudWatch add-on (version, configuration, log groups) and Fluent Bit (configuration, policy, DaemonSet). Pure
functions; no pulumi.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.catalog import versions
from eks_inference.cluster.plan import Addon
from eks_inference.kubernetes import workloads
from eks_inference.kubernetes.merge import beside
from eks_inference.observability.spec import CloudWatchSpec, FluentBitSpec

# Sources: CloudWatch user guide, "Install the CloudWatch agent with the Amazon CloudWatch Observability EKS add-on or the Helm
# chart"; values and release notes of the chart behind the add-on (aws-observability/helm-charts, 6.4.0).

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
"""Values that a user may replace."""


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


# Sources: Fluent Bit 5.0.9 (documentation and code of tail, record_modifier, cloudwatch_logs; the configuration was tested
# against a stand-in for CloudWatch); public repositories that run aws-for-fluent-bit 3.4.15 (location of the program in the
# image); Kubernetes documentation, "Logging Architecture"; the source system's values of the chart aws-for-fluent-bit.

FLUENT_BIT = "fluent-bit"
"""Name of DaemonSet, ConfigMap and service account."""

FLUENT_BIT_CONFIG = "fluent-bit.conf"
PORT = 2020
"""Port of Fluent Bit's own HTTP server, for probes."""

LOGS = "/var/log"
STATE = "/var/lib/fluent-bit"
"""Node folder with the read position of each file, which survives restarts of Fluent Bit."""

_PROGRAM = "/fluent-bit/bin/fluent-bit"
_CONFIG_FOLDER = "/etc/eks-inference"

# The kubelet's file name of a container log.
_FILE = r"^/var/log/containers/(?<pod>[^_]+)_(?<namespace>[^_]+)_(?<container>.+)-[0-9a-f]{64}\.log$"


def fluent_bit_log_group(spec: FluentBitSpec, cluster: str) -> str:
    """Name of the log group. The default is that of the source system."""
    return spec.log_group or f"/aws/eks/{cluster}/workload"


def fluent_bit_configuration(spec: FluentBitSpec, *, cluster: str, region: str) -> str:
    """Returns the configuration file.

    The name of the log file determines the stream, so Fluent Bit needs no access to the API server.
    """
    sections: list[tuple[str, dict[str, str | tuple[str, ...]]]] = [
        (
            "SERVICE",
            {
                "Flush": "5",
                "Grace": "30",
                "Log_Level": "warn",
                "HTTP_Server": "On",
                "HTTP_Port": str(PORT),
            },
        ),
        (
            "INPUT",
            {
                "Name": "tail",
                "Path": f"{LOGS}/containers/*.log",
                # An error line about a failed line would cause another error line.
                "Exclude_Path": f"{LOGS}/containers/*_{spec.namespace}_*.log",
                "Tag": "<namespace>.<pod>.<container>",
                "Tag_Regex": _FILE,
                "multiline.parser": "cri",
                "DB": f"{STATE}/positions.db",
                # Keeps the first lines of pods that start on a new node together with Fluent Bit.
                "Read_from_Head": "On",
                # Seconds until Fluent Bit finds the log of a new container.
                "Refresh_Interval": "10",
                "Skip_Long_Lines": "On",
                # At this limit Fluent Bit pauses reading; it resumes at the same position.
                "Mem_Buf_Limit": "32MB",
            },
        ),
        (
            "FILTER",
            {
                "Name": "record_modifier",
                "Match": "*",
                # CloudWatch stores the time separately; _p marks partial lines, which are complete at this point.
                "Remove_key": ("time", "_p"),
                "Record": "node ${NODE_NAME}",
            },
        ),
        (
            "OUTPUT",
            {
                "Name": "cloudwatch_logs",
                "Match": "*",
                "region": region,
                "log_group_name": fluent_bit_log_group(spec, cluster),
                "log_stream_template": "$TAG",
                # The plugin requires it and falls back to it if the template fails.
                "log_stream_name": "unnamed",
                # By default the plugin drops lines after two failed attempts.
                "Retry_Limit": "no_limits",
            },
        ),
    ]
    return "\n".join(f"[{name}]\n" + "".join(_lines(keys)) for name, keys in sections)


def _lines(keys: Mapping[str, str | tuple[str, ...]]) -> Iterator[str]:
    for key, values in keys.items():
        for value in (values,) if isinstance(values, str) else values:
            yield f"    {key:<20} {value}\n"


def fluent_bit_daemon_set(spec: FluentBitSpec, config: str, image: str) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the DaemonSet, which runs on all nodes and tolerates all taints."""
    container = {
        "name": FLUENT_BIT,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [_PROGRAM, "--config", f"{_CONFIG_FOLDER}/{FLUENT_BIT_CONFIG}"],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "ports": [{"name": "http", "containerPort": PORT}],
        # Fluent Bit's own health check counts dropped lines, and this configuration drops none.
        "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 15},
        "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "initialDelaySeconds": 10, "periodSeconds": 30},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        # Container logs belong to root. Fluent Bit needs no other privilege of root.
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": _CONFIG_FOLDER, "readOnly": True},
            {"name": "logs", "mountPath": LOGS, "readOnly": True},
            {"name": "state", "mountPath": STATE},
        ],
    }
    pod = {
        "serviceAccountName": FLUENT_BIT,
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 45,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": FLUENT_BIT}},
            {"name": "logs", "hostPath": {"path": LOGS, "type": "Directory"}},
            {"name": "state", "hostPath": {"path": STATE, "type": "DirectoryOrCreate"}},
        ],
    }
    # Fluent Bit reads the file only at start, so a changed file must change the pod.
    annotations = workloads.config_annotation(config)
    return workloads.daemon_set(FLUENT_BIT, spec.namespace, pod, annotations=annotations, max_unavailable="20%")
