"""Prometheus as data: values of its chart, PodMonitors, our dashboards and rules. Pure functions; no pulumi.

Sources: prometheus-community/helm-charts, kube-prometheus-stack 88.5.3 and its subcharts kube-state-metrics 8.4.0,
prometheus-node-exporter 4.56.1 and grafana 12.11.1 (values and templates); prometheus-operator 0.93 (PodMonitor).
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import yaml

from eks_inference.cluster.plan import STORAGE_CLASS
from eks_inference.merge import merged
from eks_inference.observability.spec import PrometheusSpec
from eks_inference.placement import Placement
from eks_inference.settings import StackSettings

RELEASE = "kube-prometheus-stack"
GRAFANA_SERVICE = f"{RELEASE}-grafana"
GRAFANA_USER = "admin"
GRAFANA_SECRET = "grafana-admin"
GRAFANA_PASSWORD_KEY = "admin-password"
PROMETHEUS_PORT = 9090
WEBHOOK_PORT = 10250
"""The operator's: the API server asks it whether a rule is one."""

POD_MONITOR = {"api_version": "monitoring.coreos.com/v1", "kind": "PodMonitor"}
PROMETHEUS_RULE = {"api_version": "monitoring.coreos.com/v1", "kind": "PrometheusRule"}
"""The operator's kinds, as arguments of a custom resource."""

DASHBOARDS = ("ray-vllm", "vllm", "triton", "neuron", "gpu")
"""Files of ``assets``: <name>.json. ``ray-vllm`` is for servers on Ray, ``vllm`` for those that run vLLM by itself or as a pair,
``triton`` for those that run it inside Triton; ``neuron`` and ``gpu`` are about devices."""

DASHBOARD_LABELS = {"grafana_dashboard": "1"}
"""What Grafana's sidecar looks for on ConfigMaps of its namespace."""

RAY_AUTOSCALER_PORT = 44217
"""Metrics of the autoscaler beside the Ray head (ray 2.52.1, AUTOSCALER_METRIC_PORT). The pod has no name for it."""

RAY_PORTS = (8080, RAY_AUTOSCALER_PORT)
"""Where Ray pods answer Prometheus; KubeRay's names for them: metrics, and none."""

# Where each image of the chart stands in its values, and what it is without a mirror.
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

# Control-plane parts that EKS runs where the chart's Services do not lead (EKS user guide, "Monitor your cluster metrics with
# Prometheus"), and kube-proxy, which answers on the node's loopback: their alerts would fire from the first minute.
_OUT_OF_REACH = ("kubeControllerManager", "kubeEtcd", "kubeProxy", "kubeScheduler")
_RULES_OUT_OF_REACH = ("etcd", "kubeControllerManager", "kubeProxy", "kubeSchedulerAlerting", "kubeSchedulerRecording")


def nodes_namespace(spec: PrometheusSpec) -> str:
    """Where the exporter that reads nodes runs."""
    return f"{spec.namespace}-nodes"


def prometheus_url(spec: PrometheusSpec) -> str:
    """The address of Prometheus inside the cluster."""
    return f"http://{RELEASE}-prometheus.{spec.namespace}.svc.cluster.local:{PROMETHEUS_PORT}"


def chart_values(
    spec: PrometheusSpec,
    placement: Placement,
    settings: StackSettings,
    *,
    cluster: str,
    grafana_password: tuple[Any, str] | None,
) -> dict[str, Any]:
    """Values of the chart, the user's over ours. ``grafana_password`` is name (an output perhaps) and key of a Secret."""
    return merged(_ours(spec, placement, settings, cluster, grafana_password), spec.values)


def _ours(
    spec: PrometheusSpec, placement: Placement, settings: StackSettings, cluster: str, grafana_password: tuple[Any, str] | None
) -> dict[str, Any]:
    here = placement.scheduling()
    interval = f"{spec.scrape_interval_seconds}s"
    values: dict[str, Any] = {
        # The chart's definitions come in its crds folder, which Helm installs once and never updates or deletes.
        "crds": {"enabled": True},
        "defaultRules": {
            "rules": {**dict.fromkeys(_RULES_OUT_OF_REACH, False), "alertmanager": spec.alertmanager},
        },
        **{part: {"enabled": False} for part in _OUT_OF_REACH},
        "prometheus": {
            "prometheusSpec": {
                **here,
                # Otherwise only objects labelled with this release are read: everybody else's would be ignored silently.
                "podMonitorSelectorNilUsesHelmValues": False,
                "serviceMonitorSelectorNilUsesHelmValues": False,
                "probeSelectorNilUsesHelmValues": False,
                "scrapeConfigSelectorNilUsesHelmValues": False,
                "ruleSelectorNilUsesHelmValues": False,
                # One, because Ray hands out each value once: two that scrape would see half of them each.
                "replicas": 1,
                "scrapeInterval": interval,
                "evaluationInterval": interval,
                "externalLabels": {"cluster": cluster},
                "retention": f"{spec.retention_days}d",
                "retentionSize": f"{spec.volume_gib * 85 // 100}GiB",
                "storageSpec": {"volumeClaimTemplate": {"spec": _claim(spec.volume_gib)}},
                # Gone with the stack, also when somebody else keeps the namespace.
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
            "enabled": spec.alertmanager,
            "alertmanagerSpec": {
                **here,
                "storage": {"volumeClaimTemplate": {"spec": _claim(1)}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
                "resources": _resources("10m", "64Mi", "128Mi"),
            },
        },
        "grafana": {**here, **_grafana(spec, grafana_password)},
        "kube-state-metrics": {**here, "resources": _resources("50m", "128Mi", "256Mi")},
        # On every node, tainted or not, as the chart has it.
        "prometheus-node-exporter": {
            "namespaceOverride": nodes_namespace(spec),
            "resources": _resources("50m", "32Mi", "128Mi"),
        },
    }
    for path, image in _IMAGES.items():
        values = merged(values, _mirrored(path, image, settings))
    return values


def _grafana(spec: PrometheusSpec, password: tuple[Any, str] | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "grafana.ini": {"analytics": {"check_for_updates": False, "reporting_enabled": False}, "users": {"allow_sign_up": False}},
        "resources": _resources("100m", "256Mi", "512Mi"),
        # Its sidecar may read ConfigMaps and Secrets of its own namespace; the chart would let it read those of all namespaces.
        "rbac": {"namespaced": True},
        "sidecar": {
            "resources": _resources("50m", "128Mi", "256Mi"),
            "dashboards": {"searchNamespace": spec.namespace, "resource": "configmap"},
            "datasources": {"searchNamespace": spec.namespace, "alertmanager": {"enabled": spec.alertmanager}},
        },
        # It would run as root, which "restricted" forbids; fsGroup does for a volume of EBS what it is for.
        "initChownData": {"enabled": False},
        "testFramework": {"enabled": False},
    }
    if password is not None:
        name, key = password
        values["admin"] = {"existingSecret": name, "passwordKey": key}
        # The administrator's name is no secret, so the Secret holds the password only. Given the name this way, the chart does
        # not tell it the sidecars, which ask Grafana to read what they brought.
        values["env"] = {"GF_SECURITY_ADMIN_USER": GRAFANA_USER}
        for sidecar in ("dashboards", "datasources"):
            values["sidecar"][sidecar]["env"] = {"REQ_USERNAME": GRAFANA_USER}
    if spec.grafana_volume_gib:
        size = f"{spec.grafana_volume_gib}Gi"
        values["persistence"] = {"enabled": True, "size": size, "storageClassName": STORAGE_CLASS}
        # The volume is of one node at a time.
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


def _mirrored(path: tuple[str, ...], image: str, settings: StackSettings) -> dict[str, Any]:
    """The image's values when it has a mirror, else nothing. The chart's ``global.imageRegistry`` knows only one for all."""
    mirror = settings.image(image)
    if mirror == image:
        return {}
    registry, _, repository = mirror.partition("/")
    values: dict[str, Any] = {"registry": registry, "repository": repository}
    for key in reversed(path):
        values = {key: values}
    return values


# -- what Prometheus reads ------------------------------------------------------------------------------------------------------


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
    """``metadata`` and ``spec`` of a PodMonitor; it reads pods of its own namespace unless told otherwise.

    ``with_nodes``: relabelings may use labels of the pods' nodes.
    """
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {
            **({"namespaceSelector": {"any": True}} if any_namespace else {}),
            **({"attachMetadata": {"node": True}} if with_nodes else {}),
            "selector": {"matchLabels": dict(selector)},
            "podMetricsEndpoints": [dict(endpoint) for endpoint in endpoints],
        },
    }


def ray_head_endpoints() -> list[dict[str, Any]]:
    """The head's Ray metrics, and those of its autoscaler, whose port the pod does not name."""
    address = {
        "sourceLabels": ["__meta_kubernetes_pod_ip"],
        "targetLabel": "__address__",
        "replacement": f"$1:{RAY_AUTOSCALER_PORT}",
    }
    return [_ray_endpoint(), {"port": "metrics", "relabelings": [*_ray_labels(), address]}]


def ray_worker_endpoints() -> list[dict[str, Any]]:
    """Ray metrics of a worker, those of its replicas and their engines among them."""
    return [_ray_endpoint()]


def _ray_endpoint() -> dict[str, Any]:
    # Half of what Ray exports is about its own remote calls; the otel_ labels say which code counted.
    return {
        "port": "metrics",
        "relabelings": _ray_labels(),
        "metricRelabelings": [
            {"action": "drop", "sourceLabels": ["__name__"], "regex": "(ray_grpc|ray_operation|ray_gcs_storage|python)_.*"},
            {"action": "labeldrop", "regex": "otel_scope_.*"},
        ],
    }


def _ray_labels() -> list[dict[str, Any]]:
    return [
        _target_label("__meta_kubernetes_pod_label_eks_inference_server", "server"),
        _target_label("__meta_kubernetes_pod_label_ray_io_cluster", "ray_io_cluster"),
        _target_label("__meta_kubernetes_pod_label_ray_io_node_type", "ray_io_node_type"),
    ]


def vllm_endpoints(ports: Sequence[str], metric_names: Mapping[str, str]) -> list[dict[str, Any]]:
    """vLLM's own metrics, of the ports of these names, which are the API's too. What Python says of itself is left out.

    With several ports each is a server of its own: the port's name is added to the label ``server``. ``metric_names`` are those
    to be called otherwise: the name in the answer → the one in Prometheus.
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


def kuberay_endpoints() -> list[dict[str, Any]]:
    """The KubeRay operator's, which say what state each RayService is in. Name and namespace are the RayService's."""
    return [{"port": "http", "honorLabels": True}]


def node_labels() -> list[dict[str, Any]]:
    """Relabelings that tell the node of a pod and its instance type, for a ``pod_monitor`` ``with_nodes``."""
    return [
        _target_label("__meta_kubernetes_pod_node_name", "node"),
        _target_label("__meta_kubernetes_node_label_node_kubernetes_io_instance_type", "instance_type"),
    ]


def _target_label(source: str, target: str) -> dict[str, Any]:
    return {"sourceLabels": [source], "targetLabel": target}


# -- what people see ------------------------------------------------------------------------------------------------------------


def rules() -> dict[str, Any]:
    """Recording and alerting rules: a Prometheus rule file, and ``spec`` of a PrometheusRule."""
    return yaml.load(_asset("rules.yaml"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def dashboard(name: str) -> str:
    """A Grafana dashboard as JSON text."""
    return _asset(f"{name}.json")


def _asset(name: str) -> str:
    return files("eks_inference.observability").joinpath("assets", name).read_text("utf-8")
