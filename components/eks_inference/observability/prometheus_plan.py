"""Plans Prometheus: chart values, PodMonitors, dashboards and rules, where alerts go (Alertmanager), and the numbers of a
server's spec that they compare with, as series. Pure functions; no pulumi.

Sources: prometheus-community/helm-charts, kube-prometheus-stack 88.5.3 and its subcharts kube-state-metrics 8.4.0,
prometheus-node-exporter 4.56.1 and grafana 12.11.1 (values and templates); prometheus-operator 0.93 (PodMonitor); Alertmanager
0.34 (config/notifiers.go, notify/sns); SNS developer guide, "Key management" (what a publisher to an encrypted topic needs).
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import yaml

from eks_inference.aws import iam
from eks_inference.cluster.plan import STORAGE_CLASS
from eks_inference.faults import Fault
from eks_inference.kubernetes import merge
from eks_inference.kubernetes.secrets import SecretRef
from eks_inference.observability.handle import Budget, Expected
from eks_inference.observability.spec import PrometheusSpec, Receiver, SlackReceiver, SnsReceiver
from eks_inference.place.placement import Placement
from eks_inference.specs.settings import StackSettings

RELEASE = "kube-prometheus-stack"
GRAFANA_SERVICE = f"{RELEASE}-grafana"
GRAFANA_USER = "admin"
GRAFANA_SECRET = "grafana-admin"
GRAFANA_PASSWORD_KEY = "admin-password"
PROMETHEUS_PORT = 9090
WEBHOOK_PORT = 10250
"""Webhook port of the operator, at which the API server validates rules."""

PROMETHEUS_RULE = {"api_version": "monitoring.coreos.com/v1", "kind": "PrometheusRule"}
"""A kind of the operator, as arguments of a custom resource."""

DASHBOARDS = ("ray-vllm", "vllm", "triton", "endpoint", "neuron", "gpu")
"""Files ``assets/<name>.json``. ``ray-vllm`` is for servers on Ray, ``vllm`` for standalone vLLM and pairs, ``triton`` for vLLM
in Triton, ``endpoint`` for proxies and what their clients use, ``neuron`` and ``gpu`` for devices."""

DASHBOARD_LABELS = {"grafana_dashboard": "1"}
"""Labels by which Grafana's sidecar selects ConfigMaps in its namespace."""

RAY_AUTOSCALER_PORT = 44217
"""Metrics port of the autoscaler next to the Ray head (ray 2.52.1, AUTOSCALER_METRIC_PORT). The pod does not name it."""

RAY_PORTS = (8080, RAY_AUTOSCALER_PORT)
"""Metrics ports of Ray pods. KubeRay names the first one "metrics"; the second has no name."""

# The chart's images, by their path in the values.
_IMAGES: Mapping[tuple[str, ...], str] = {
    ("alertmanager", "alertmanagerSpec", "image"): "quay.io/prometheus/alertmanager",
    ("grafana", "image"): "docker.io/grafana/grafana",
    ("grafana", "sidecar", "image"): "quay.io/kiwigrid/k8s-sidecar",
    ("kube-state-metrics", "image"): "registry.k8s.io/kube-state-metrics/kube-state-metrics",
    ("prometheus", "prometheusSpec", "image"): "quay.io/prometheus/prometheus",
    ("prometheus-node-exporter", "image"): "quay.io/prometheus/node-exporter",
    ("prometheusOperator", "admissionWebhooks", "patch", "image"): "ghcr.io/jkroepke/kube-webhook-certgen",
    ("prometheusOperator", "image"): "quay.io/prometheus-operator/prometheus-operator",
    ("prometheusOperator", "prometheusConfigReloader", "image"): "quay.io/prometheus-operator/prometheus-config-reloader",
    ("prometheusOperator", "thanosImage"): "quay.io/thanos/thanos",
}

# Unreachable targets, whose alerts would fire from the first minute: control-plane parts that EKS runs outside the reach of the
# chart's Services (EKS user guide, "Monitor your cluster metrics with Prometheus"), and kube-proxy, which serves metrics only on
# the node's loopback address.
_OUT_OF_REACH = ("kubeControllerManager", "kubeEtcd", "kubeProxy", "kubeScheduler")
_RULES_OUT_OF_REACH = ("etcd", "kubeControllerManager", "kubeProxy", "kubeSchedulerAlerting", "kubeSchedulerRecording")

SERVICE_ACCOUNT = f"{RELEASE}-alertmanager"
"""Name of Alertmanager's service account, the chart's own."""

URL_SECRET = SecretRef("alert-receiver", "url")
"""Where the URL of a receiver is kept, which is a secret: whoever knows it may post."""

TYPE_LABEL = "label_node_kubernetes_io_instance_type"
"""What kube-state-metrics makes of the label of nodes, where its values allow that (README, kube_node_labels)."""

_RECEIVER = "receiver"
_NOBODY = "null"
"""The chart's receiver that drops alerts."""

# The default texts name labels only. Our alerts say what is wrong and what to do.
_SLACK_TITLE = "{{ .Status | toUpper }}: {{ .CommonLabels.cluster }}{{ with .GroupLabels.namespace }}, {{ . }}{{ end }}"
_SLACK_TEXT = """\
{{ range .Alerts }}*{{ .Labels.severity }}* {{ .Annotations.summary }}
{{ .Annotations.description }}
{{ with .Annotations.next }}`{{ . }}`{{ end }}
{{ .Annotations.runbook_url }}
{{ end }}"""


def nodes_namespace(spec: PrometheusSpec) -> str:
    """Namespace of the node exporters."""
    return f"{spec.namespace}-nodes"


def prometheus_url(spec: PrometheusSpec) -> str:
    """URL of Prometheus inside the cluster."""
    return f"http://{RELEASE}-prometheus.{spec.namespace}.svc.cluster.local:{PROMETHEUS_PORT}"


def chart_values(
    spec: PrometheusSpec,
    placement: Placement,
    settings: StackSettings,
    *,
    cluster: str,
    grafana_password: SecretRef | None,
    receiver: Mapping[str, Any] | None = None,
    has_budget: bool = False,
) -> dict[str, Any]:
    """Returns chart values; the user's stand beside ours. ``receiver`` are those of ``alertmanager_plan``."""
    here = placement.scheduling()
    interval = f"{spec.scrape_interval_seconds}s"
    values: dict[str, Any] = {
        # The definitions are in the chart's crds folder, which Helm installs once and never updates or deletes.
        "crds": {"enabled": True},
        "defaultRules": {
            "rules": {**dict.fromkeys(_RULES_OUT_OF_REACH, False), "alertmanager": spec.has_alertmanager},
        },
        **{part: {"enabled": False} for part in _OUT_OF_REACH},
        "prometheus": {
            "prometheusSpec": {
                **here,
                # By default Prometheus selects only objects labelled with this release and silently ignores all others.
                "podMonitorSelectorNilUsesHelmValues": False,
                "serviceMonitorSelectorNilUsesHelmValues": False,
                "probeSelectorNilUsesHelmValues": False,
                "scrapeConfigSelectorNilUsesHelmValues": False,
                "ruleSelectorNilUsesHelmValues": False,
                # Ray exports each value once: with two replicas, each would get only part of the values.
                "replicas": 1,
                "scrapeInterval": interval,
                "evaluationInterval": interval,
                "externalLabels": {"cluster": cluster},
                "retention": f"{spec.retention_days}d",
                "retentionSize": f"{spec.volume_gib * 85 // 100}GiB",
                "storageSpec": {"volumeClaimTemplate": {"spec": _claim(spec.volume_gib)}},
                # Deletes the volume with the stack, even if the namespace remains.
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
                "resources": _resources("500m", "2Gi", "4Gi"),
            }
        },
        "prometheusOperator": {
            **here,
            "resources": _resources("100m", "128Mi", "256Mi"),
            "prometheusConfigReloader": {"resources": _resources("10m", "32Mi", "64Mi")},
            "admissionWebhooks": {"patch": {**here, "resources": _resources("10m", "32Mi", "64Mi")}},
        },
        "alertmanager": {
            "enabled": spec.has_alertmanager,
            "alertmanagerSpec": {
                **here,
                "storage": {"volumeClaimTemplate": {"spec": _claim(1)}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
                "resources": _resources("10m", "64Mi", "128Mi"),
            },
        },
        "grafana": {**here, **_grafana(spec, grafana_password)},
        "kube-state-metrics": {**here, "resources": _resources("50m", "128Mi", "256Mi")},
        # Runs on every node and tolerates all taints, as in the chart.
        "prometheus-node-exporter": {
            "namespaceOverride": nodes_namespace(spec),
            "resources": _resources("50m", "32Mi", "128Mi"),
        },
    }
    if receiver:
        values = merge.merged(values, {"alertmanager": receiver})
    if has_budget:
        # By default kube_node_labels has no label.
        allowed = {"metricLabelsAllowlist": ["nodes=[node.kubernetes.io/instance-type]"]}
        values = merge.merged(values, {"kube-state-metrics": allowed})
    for path, image in _IMAGES.items():
        values = merge.merged(values, _image(path, image, settings))
    return merge.beside(values, spec.values, chart=RELEASE)


def _grafana(spec: PrometheusSpec, password: SecretRef | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "grafana.ini": {"analytics": {"check_for_updates": False, "reporting_enabled": False}, "users": {"allow_sign_up": False}},
        "resources": _resources("100m", "256Mi", "512Mi"),
        # Limits Grafana's sidecar to ConfigMaps and Secrets of its namespace; by default it may read those of all namespaces.
        "rbac": {"namespaced": True},
        "sidecar": {
            "resources": _resources("50m", "128Mi", "256Mi"),
            "dashboards": {"searchNamespace": spec.namespace, "resource": "configmap"},
            "datasources": {"searchNamespace": spec.namespace, "alertmanager": {"enabled": spec.has_alertmanager}},
        },
        # This init container runs as root, which "restricted" forbids; fsGroup already sets the ownership of EBS volumes.
        "initChownData": {"enabled": False},
        "testFramework": {"enabled": False},
    }
    if password is not None:
        values["admin"] = {"existingSecret": password.name, "passwordKey": password.key}
        # The user name is not secret, so the Secret holds only the password. With a name set through env, the chart does not pass
        # it to the sidecars, which need it to make Grafana reload their content.
        values["env"] = {"GF_SECURITY_ADMIN_USER": GRAFANA_USER}
        for sidecar in ("dashboards", "datasources"):
            values["sidecar"][sidecar]["env"] = {"REQ_USERNAME": GRAFANA_USER}
    if spec.grafana_volume_gib:
        size = f"{spec.grafana_volume_gib}Gi"
        values["persistence"] = {"enabled": True, "size": size, "storageClassName": STORAGE_CLASS}
        # Only one node can mount the volume at a time.
        values["deploymentStrategy"] = {"type": "Recreate"}
    return values


def _claim(gib: int) -> dict[str, Any]:
    return {
        "storageClassName": STORAGE_CLASS,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": f"{gib}Gi"}},
    }


def _resources(cpu: str, memory: str, memory_limit: str) -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory_limit}}


def _image(path: tuple[str, ...], image: str, settings: StackSettings) -> dict[str, Any]:
    """Returns the values that name an image. The chart's ``global.imageRegistry`` would apply to all images."""
    registry, _, repository = settings.image(image).partition("/")
    values: dict[str, Any] = {"registry": registry, "repository": repository}
    for key in reversed(path):
        values = {key: values}
    return values


# -- scrape targets -------------------------------------------------------------------------------------------------------------


def pod_monitor(
    name: str,
    namespace: str,
    *,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
    endpoints: Sequence[Mapping[str, Any]],
    any_namespace: bool = False,
    with_nodes: bool = False,
) -> dict[str, Any]:
    """Returns a PodMonitor as arguments of a custom resource. By default it selects pods in its own namespace.

    ``with_nodes`` makes labels of the pods' nodes available to relabelings.
    """
    return {
        "api_version": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        # The API server drops an empty map, and every later preview would show it as new.
        "metadata": {"name": name, "namespace": namespace, **({"labels": dict(labels)} if labels else {})},
        "spec": {
            **({"namespaceSelector": {"any": True}} if any_namespace else {}),
            **({"attachMetadata": {"node": True}} if with_nodes else {}),
            "selector": {"matchLabels": dict(selector)},
            "podMetricsEndpoints": [dict(endpoint) for endpoint in endpoints],
        },
    }


def ray_endpoints() -> dict[str, list[dict[str, Any]]]:
    """Returns the endpoints of Ray pods by node type. The head also exports its autoscaler, whose port the pod does not name."""
    labels = [
        _target_label("__meta_kubernetes_pod_label_eks_inference_server", "server"),
        _target_label("__meta_kubernetes_pod_label_ray_io_cluster", "ray_io_cluster"),
        _target_label("__meta_kubernetes_pod_label_ray_io_node_type", "ray_io_node_type"),
    ]
    # Half of Ray's metrics describe its internal remote calls; the otel_ labels name the code that recorded a metric.
    ray = {
        "port": "metrics",
        "relabelings": labels,
        "metricRelabelings": [
            {"action": "drop", "sourceLabels": ["__name__"], "regex": "(ray_grpc|ray_operation|ray_gcs_storage|python)_.*"},
            {"action": "labeldrop", "regex": "otel_scope_.*"},
        ],
    }
    address = {
        "sourceLabels": ["__meta_kubernetes_pod_ip"],
        "targetLabel": "__address__",
        "replacement": f"$1:{RAY_AUTOSCALER_PORT}",
    }
    return {"head": [ray, {"port": "metrics", "relabelings": [*labels, address]}], "worker": [ray]}


def vllm_endpoints(ports: Sequence[str], metric_names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns the endpoints for vLLM metrics at ports with these names. They drop metrics of the Python process.

    With several ports, each is a separate server: the label ``server`` includes the port's name. ``metric_names`` are metrics to
    rename: the exported name → the name in Prometheus.
    """
    server = _target_label("__meta_kubernetes_pod_label_eks_inference_server", "server")
    if len(ports) > 1:
        labels = [*server["sourceLabels"], "__meta_kubernetes_pod_container_port_name"]
        server = {"sourceLabels": labels, "separator": "-", "targetLabel": "server"}
    renamed = [
        {
            "sourceLabels": ["__name__"],
            "regex": f"{given}(_bucket|_sum|_count)?",
            "targetLabel": "__name__",
            "replacement": f"{wanted}$1",
        }
        for given, wanted in metric_names.items()
    ]
    return [
        {
            "port": port,
            "path": "/metrics",
            "relabelings": [server],
            "metricRelabelings": [
                {"action": "drop", "sourceLabels": ["__name__"], "regex": "(python|process)_.*|.*_created"},
                *renamed,
            ],
        }
        for port in ports
    ]


def router_endpoint(port: str = "http") -> dict[str, Any]:
    """Returns the endpoint of the router of prefill and decode servers."""
    labels = [_target_label("__meta_kubernetes_pod_label_eks_inference_server", "server")]
    return {"port": port, "path": "/metrics", "relabelings": labels}


def node_labels() -> list[dict[str, Any]]:
    """Returns relabelings that add a pod's node and its instance type, for ``pod_monitor(..., with_nodes=True)``."""
    return [
        _target_label("__meta_kubernetes_pod_node_name", "node"),
        _target_label("__meta_kubernetes_node_label_node_kubernetes_io_instance_type", "instance_type"),
    ]


def _target_label(source: str, target: str) -> dict[str, Any]:
    return {"sourceLabels": [source], "targetLabel": target}


# -- rules and dashboards -------------------------------------------------------------------------------------------------------


def rules(runbooks: str | None = None) -> dict[str, Any]:
    """Returns recording and alerting rules: the content of a Prometheus rule file, and ``spec`` of a PrometheusRule.

    ``runbooks`` is the address of the folder docs/runbook, which alerts otherwise name by its path.
    """
    text = _asset("rules.yaml")
    if runbooks:
        text = text.replace("runbook_url: docs/runbook/", f"runbook_url: {runbooks.rstrip('/')}/")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def dashboard(name: str) -> str:
    """Returns a Grafana dashboard as JSON text."""
    return _asset(f"{name}.json")


def _asset(name: str) -> str:
    return files("eks_inference.observability").joinpath("assets", name).read_text("utf-8")


def url_faults(spec: PrometheusSpec, *, given: bool) -> list[Fault]:
    """Returns a fault unless the caller passes a URL exactly when the receiver has one."""
    if spec.receiver_has_url == given:
        return []
    if given:
        hint = "leave out alert_receiver_url=, or choose a receiver of kind slack or webhook"
        return [Fault(("receiver",), "a URL is given for a receiver that has none", hint=hint)]
    return [Fault(("receiver",), "the URL is missing, which is a secret", hint="pass it as alert_receiver_url=")]


def receiver_values(receiver: Receiver, *, region: str, url: SecretRef | None) -> dict[str, Any]:
    """Returns values of ``alertmanager``: alerts of severity critical and warning go to the receiver, others to nobody.

    Among the others are the chart's Watchdog, which always fires, and what only informs.
    """
    route = {"receiver": _NOBODY, "routes": [{"receiver": _RECEIVER, "matchers": ['severity =~ "critical|warning"']}]}
    receivers = [{"name": _NOBODY}, {"name": _RECEIVER, **_notification(receiver, region, url)}]
    mounted = {"secrets": [url.name]} if url else {}
    return {
        "config": {"route": route, "receivers": receivers},
        "alertmanagerSpec": {"useExistingSecret": False, **mounted},
        # The role is for an account of this name.
        "serviceAccount": {"create": True, "name": SERVICE_ACCOUNT},
    }


def _notification(receiver: Receiver, region: str, url: SecretRef | None) -> dict[str, Any]:
    if isinstance(receiver, SnsReceiver):
        return {"sns_configs": [{"topic_arn": receiver.topic_arn, "sigv4": {"region": region}, "send_resolved": True}]}
    assert url is not None, "the component refuses a receiver without its URL"
    file = f"/etc/alertmanager/secrets/{url.name}/{url.key}"
    if isinstance(receiver, SlackReceiver):
        texts = {"title": _SLACK_TITLE, "text": _SLACK_TEXT}
        return {"slack_configs": [{"api_url_file": file, "send_resolved": True, **texts}]}
    return {"webhook_configs": [{"url_file": file, "send_resolved": True}]}


def publisher(receiver: SnsReceiver) -> iam.Document:
    """Returns the policy of Alertmanager's role: to publish to the topic, encrypted with its key if it has one."""
    statements = [iam.allow("Publish", ["sns:Publish"], receiver.topic_arn)]
    if receiver.kms_key_arn:
        statements.append(iam.allow("Encrypt", ["kms:Decrypt", "kms:GenerateDataKey"], receiver.kms_key_arn))
    return iam.document(*statements)


def budget_series(budget: Budget) -> dict[str, Any]:
    """Returns a rule file with the budget and the prices, as series: the alert OverBudget compares nodes with them."""
    rules = [{"record": "stack:budget:usd_per_month", "expr": f"vector({budget.usd_per_month:.10g})"}]
    rules += [
        {"record": "instance_type:price:usd_per_hour", "expr": f"vector({usd:g})", "labels": {TYPE_LABEL: type_}}
        for type_, usd in sorted(budget.usd_per_hour.items())
    ]
    return {"groups": [{"name": "eks-inference.budget", "rules": rules}]}


def expectations(expected: Expected, namespace: str, servers: Sequence[str]) -> dict[str, Any]:
    """Returns a rule file, and ``spec`` of a PrometheusRule. ``servers`` are the values of the label ``server``.

    The alerts themselves (assets/rules.yaml) are the same in every cluster. They join these series by ``namespace`` and
    ``server``.
    """
    numbers = {
        "server:pods:min": expected.pods,
        "server:requests_per_pod:limit": expected.requests_per_pod,
        "server:time_to_first_token_seconds:objective": expected.objectives.time_to_first_token_seconds,
    }
    rules = [
        {"record": series, "expr": f"vector({number:g})", "labels": {"namespace": namespace, "server": server}}
        for series, number in numbers.items()
        if number is not None
        for server in servers
    ]
    return {"groups": [{"name": f"eks-inference.{expected.server}", "rules": rules}]}
