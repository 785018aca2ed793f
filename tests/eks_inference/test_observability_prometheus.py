"""Prometheus and Grafana, and what makes Prometheus read a model server: specs, values of the chart, resources."""

from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
import yaml

from eks_inference.faults import SpecError
from eks_inference.observability import prometheus_plan as plan
from eks_inference.observability.handle import ExistingPrometheus, Expected, Metrics
from eks_inference.observability.prometheus import PrometheusStack, ServerMetrics
from eks_inference.observability.prometheus_plan import expectations
from eks_inference.observability.spec import Objectives, PrometheusSpec
from eks_inference.place.placement import Taint
from golden import assert_golden
from handles import existing_cluster, placement, stack_settings
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record


@dataclass(frozen=True)
class Server:
    """A model server as its clients see it."""

    namespace: str = "vllm"
    endpoint: str = "http://llama3-serve-svc.vllm.svc.cluster.local:8000/v1"
    model_id: str = "m"
    startup_seconds: int = 60
    expected: Expected = field(default_factory=lambda: Expected("llama3", 1))
    ready: tuple[pulumi.Resource, ...] = ()


def the_stack(spec: dict[str, Any] | None = None, *, password: Any = None, **settings: Any) -> Graph:
    """Prometheus alone, on a cluster that is already there."""

    def build() -> None:
        PrometheusStack(
            "p",
            PrometheusSpec.model_validate(spec or {}),
            cluster=existing_cluster(**settings),
            placement=placement("m5.2xlarge", pool="core"),
            grafana_admin_password=password,
        )

    return record(build)


def the_server_metrics(*, existing: bool = False) -> Graph:
    """A server's monitors, on our Prometheus or on one that is already there."""

    def build() -> None:
        cluster = existing_cluster()
        metrics: Metrics = (
            ExistingPrometheus(cluster, "prom", {"release": "prometheus"})
            if existing
            else PrometheusStack("p", PrometheusSpec(), cluster=cluster, placement=placement("m5.2xlarge", pool="core"))
        )
        deployed = k8s.core.v1.ConfigMap("server", opts=pulumi.ResourceOptions(provider=cluster.provider))
        ServerMetrics("llama3-metrics", server=Server(ready=(deployed,)), metrics=metrics)

    return record(build)


def values_of(graph: Graph) -> dict[str, Any]:
    return graph.named("p-release").inputs["values"]


def values(spec: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    return plan.chart_values(
        PrometheusSpec.model_validate(spec or {}),
        placement("m5.2xlarge", pool="core"),
        stack_settings(**settings),
        cluster="c",
        grafana_password=None,
    )


def names(graph: Graph, urns: Any) -> set[str]:
    return {graph.by_urn[urn].name for urn in urns}


# -- what a user may write ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scrape_interval_seconds", 10),
        ("scrape_interval_seconds", 151),
        ("retention_days", 0),
        ("volume_gib", 1),
        ("namespace", "Monitoring"),
    ],
)
def test_values_that_cannot_work_are_refused(key: str, value: Any) -> None:
    with pytest.raises(SpecError, match=key):
        PrometheusSpec.model_validate({key: value})


# -- the chart ------------------------------------------------------------------------------------------------------------------


def test_the_whole_of_the_values() -> None:
    assert_golden("observability/kube-prometheus-stack-values.yaml", yaml.safe_dump(values(), sort_keys=True, width=130))


def test_volumes_are_of_our_storage_class_and_never_fill() -> None:
    spec = values({"volume_gib": 100, "retention_days": 30})["prometheus"]["prometheusSpec"]
    claim = spec["storageSpec"]["volumeClaimTemplate"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("gp3", "100Gi")
    assert (spec["retention"], spec["retentionSize"]) == ("30d", "85GiB")
    assert spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete"


def test_the_interval_is_that_of_scrapes_and_rules() -> None:
    spec = values({"scrape_interval_seconds": 15})["prometheus"]["prometheusSpec"]
    assert (spec["scrapeInterval"], spec["evaluationInterval"]) == ("15s", "15s")


def test_every_pod_but_the_node_exporters_is_on_the_core_pool() -> None:
    taint = Taint("role", "core", "NoSchedule")
    where = placement("m5.2xlarge", pool="core", taints=(taint,))
    chart = plan.chart_values(PrometheusSpec(), where, stack_settings(), cluster="c", grafana_password=None)
    for path in (
        ("prometheus", "prometheusSpec"),
        ("alertmanager", "alertmanagerSpec"),
        ("grafana",),
        ("kube-state-metrics",),
        ("prometheusOperator",),
        ("prometheusOperator", "admissionWebhooks", "patch"),
    ):
        part = chart
        for key in path:
            part = part[key]
        assert part["nodeSelector"] == {"eks-inference/pool": "core"}, path
        assert part["tolerations"] == [taint.toleration()], path
    assert "nodeSelector" not in chart["prometheus-node-exporter"]


def test_alertmanager_is_off_unless_asked_for() -> None:
    assert values()["alertmanager"]["enabled"] is False
    chart = values({"alertmanager": True})
    assert chart["alertmanager"]["enabled"] is True
    assert chart["defaultRules"]["rules"]["alertmanager"] is True
    assert chart["grafana"]["sidecar"]["datasources"]["alertmanager"] == {"enabled": True}


def test_grafana_keeps_nothing_unless_it_gets_a_volume() -> None:
    assert "persistence" not in values()["grafana"]
    grafana = values({"grafana_volume_gib": 5})["grafana"]
    assert grafana["persistence"] == {"enabled": True, "size": "5Gi", "storageClassName": "gp3"}
    assert grafana["deploymentStrategy"] == {"type": "Recreate"}, "two pods cannot share the volume"


def test_grafanas_sidecar_reads_its_own_namespace_only() -> None:
    grafana = values({"namespace": "metrics"})["grafana"]
    assert grafana["rbac"] == {"namespaced": True}
    assert grafana["sidecar"]["dashboards"]["searchNamespace"] == "metrics"


def test_the_users_values_are_merged_over_what_the_stack_does_not_rely_on() -> None:
    chart = values(
        {"values": {"prometheus": {"prometheusSpec": {"resources": {"limits": None}}}, "nodeExporter": {"enabled": False}}}
    )
    assert chart["prometheus"]["prometheusSpec"]["resources"]["limits"] is None
    assert chart["prometheus"]["prometheusSpec"]["replicas"] == 1, "what they leave out stays ours"
    assert chart["nodeExporter"] == {"enabled": False}


# -- mirrors --------------------------------------------------------------------------------------------------------------------


def test_each_image_goes_to_the_mirror_of_its_registry() -> None:
    mirrors = {"quay.io": "reg.example/quay", "docker.io": "hub.example", "registry.k8s.io": "reg.example/k8s"}
    chart = values(mirrors=mirrors)
    assert chart["prometheus"]["prometheusSpec"]["image"] == {
        "registry": "reg.example",
        "repository": "quay/prometheus/prometheus",
    }
    assert chart["grafana"]["image"] == {"registry": "hub.example", "repository": "grafana/grafana"}
    assert chart["kube-state-metrics"]["image"] == {
        "registry": "reg.example",
        "repository": "k8s/kube-state-metrics/kube-state-metrics",
    }
    unmirrored = chart["prometheusOperator"]["admissionWebhooks"]["patch"]["image"]
    assert unmirrored == {"registry": "ghcr.io", "repository": "jkroepke/kube-webhook-certgen"}
    assert chart["prometheusOperator"]["prometheusConfigReloader"]["resources"], "what stood beside the image stays"


# -- Grafana's password ---------------------------------------------------------------------------------------------------------


def test_a_password_goes_into_a_secret_and_nowhere_else() -> None:
    graph = the_stack(password="geheim")
    secret = graph.named("p-grafana-secret")
    assert secret.inputs["metadata"]["name"] == "grafana-admin"
    assert secret.inputs["metadata"]["namespace"] == "monitoring"
    assert "geheim" not in str([resource.inputs for resource in graph.resources])
    grafana = values_of(graph)["grafana"]
    assert grafana["admin"] == {"existingSecret": "grafana-admin", "passwordKey": "admin-password"}


def test_the_sidecars_know_the_administrators_name() -> None:
    """Without it they cannot make Grafana read the data source they bring."""
    grafana = values_of(the_stack(password="geheim"))["grafana"]
    assert grafana["env"] == {"GF_SECURITY_ADMIN_USER": "admin"}
    for sidecar in ("dashboards", "datasources"):
        assert grafana["sidecar"][sidecar]["env"] == {"REQ_USERNAME": "admin"}


# -- around the chart -----------------------------------------------------------------------------------------------------------


def test_only_node_exporters_are_in_a_privileged_namespace() -> None:
    graph = the_stack({"namespace": "metrics"})
    levels = {
        namespace.inputs["metadata"]["name"]: namespace.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for namespace in graph.of_type("kubernetes:core/v1:Namespace")
    }
    assert levels == {"metrics": "restricted", "metrics-nodes": "privileged"}
    assert values_of(graph)["prometheus-node-exporter"]["namespaceOverride"] == "metrics-nodes"


def test_whoever_stands_on_it_finds_it() -> None:
    def build() -> None:
        stack = PrometheusStack(
            "p", PrometheusSpec(namespace="m"), cluster=existing_cluster(), placement=placement("m5.2xlarge", pool="core")
        )
        assert stack.url == "http://kube-prometheus-stack-prometheus.m.svc.cluster.local:9090"
        assert (stack.namespace, stack.monitor_labels) == ("m", {})
        pulumi.ComponentResource("t:t:T", "later", None, pulumi.ResourceOptions(depends_on=[*stack.ready]))

    graph = record(build)
    assert "p-release" in names(graph, graph.named("later").dependencies)


# -- a model server -------------------------------------------------------------------------------------------------------------


def test_a_teams_own_prometheus_finds_its_labels() -> None:
    graph = the_server_metrics(existing=True)
    assert graph.named("llama3-metrics-head").inputs["metadata"]["labels"] == {"release": "prometheus"}
    peers = graph.named("llama3-metrics-policy").inputs["spec"]["ingress"][0]["from"]
    assert peers == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "prom"}}}]


def test_what_alerts_expect_of_a_server_is_recorded_under_its_name() -> None:
    rule = the_server_metrics(existing=True).named("llama3-metrics-expectations").inputs
    assert rule["kind"] == "PrometheusRule"
    assert rule["metadata"] == {"name": "expectations", "namespace": "vllm", "labels": {"release": "prometheus"}}
    (group,) = rule["spec"]["groups"]
    assert group["rules"] == [
        {"record": "server:pods:min", "expr": "vector(1)", "labels": {"namespace": "vllm", "server": "llama3"}}
    ]
    assert "labels" not in the_server_metrics().named("llama3-metrics-expectations").inputs["metadata"]


def test_each_port_of_a_pair_is_a_server_of_its_own() -> None:
    """As ``vllm_endpoints`` names them."""
    expected = Expected("pair", 1, Objectives(time_to_first_token_seconds=2.5))
    (group,) = expectations(expected, "di", ["pair-prefill", "pair-decode"])["groups"]
    assert [(rule["record"], rule["expr"], rule["labels"]["server"]) for rule in group["rules"]] == [
        ("server:pods:min", "vector(1)", "pair-prefill"),
        ("server:pods:min", "vector(1)", "pair-decode"),
        ("server:time_to_first_token_seconds:objective", "vector(2.5)", "pair-prefill"),
        ("server:time_to_first_token_seconds:objective", "vector(2.5)", "pair-decode"),
    ]
