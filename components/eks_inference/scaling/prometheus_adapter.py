"""Creates prometheus-adapter, which serves pod metrics from Prometheus to HorizontalPodAutoscalers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import chart_release, on_cluster
from eks_inference.component import Component
from eks_inference.kubernetes.merge import beside
from eks_inference.kubernetes.network_policy import DNS, allow_from, allow_to, api_server, network_policy, pods
from eks_inference.kubernetes.workloads import APP_LABEL
from eks_inference.observability.prometheus_plan import PROMETHEUS_RULE
from eks_inference.place.placement import Placement
from eks_inference.scaling import plan
from eks_inference.scaling.component import QueriedMetrics, query_url
from eks_inference.scaling.spec import PrometheusAdapterSpec
from eks_inference.specs.base import Given
from eks_inference.specs.settings import StackSettings

RELEASE = "prometheus-adapter"

PORT = 6443
"""Port at which the API server requests pod metrics."""

_IMAGE = "registry.k8s.io/prometheus-adapter/prometheus-adapter"


class PrometheusAdapter(Component):
    """prometheus-adapter, from its chart, in the namespace of Prometheus and on the nodes of ``placement`` (the core pool).

    It serves only custom.metrics.k8s.io, with our rules instead of the chart's: the source system's
    ``nv_inference_queue_duration_ms``, and the means per request that a PrometheusRule, also created here, records. KEDA serves
    external.metrics.k8s.io, so both can run in one cluster.

    A NetworkPolicy closes its pods except for the port of the API server; egress is open to Prometheus and the API server. The
    namespace may enforce Pod Security "restricted".

    ``scrape_interval_seconds`` is the interval of the servers' metrics: prometheus-adapter would lose series if it listed them
    more often. Raises ``SpecError`` if ``metrics`` has no URL.

    Sources: prometheus-community/helm-charts, prometheus-adapter 5.3.0, values and templates.
    """

    kind = "hpa"
    """The autoscaler kind that it supports."""

    def __init__(
        self,
        name: str,
        spec: Given[PrometheusAdapterSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
        metrics: QueriedMetrics,
        scrape_interval_seconds: int = 30,
    ) -> None:
        spec = PrometheusAdapterSpec.of(spec)
        url = query_url(metrics)
        super().__init__("eks-inference:index:PrometheusAdapter", name, spec.inputs(), opts)
        inside = on_cluster(cluster, self, *metrics.ready)
        policy = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy",
            **network_policy(
                RELEASE,
                metrics.namespace,
                selector={APP_LABEL: RELEASE},
                ingress=[allow_from(tcp=[PORT])],
                egress=[DNS, api_server(cluster.api_cidrs), allow_to(pods({}))],
            ),
            opts=inside,
        )
        rules = k8s.apiextensions.CustomResource(
            f"{name}-rules",
            **PROMETHEUS_RULE,
            metadata={
                "name": "eks-inference-scaling",
                "namespace": metrics.namespace,
                **({"labels": dict(metrics.monitor_labels)} if metrics.monitor_labels else {}),
            },
            spec=plan.recording_rules(),
            opts=inside,
        )
        release = chart_release(
            f"{name}-release",
            RELEASE,
            namespace=metrics.namespace,
            values=beside(_values(url, scrape_interval_seconds, placement, cluster.settings), spec.values, chart=RELEASE),
            cluster=cluster,
            opts=on_cluster(cluster, self, policy, rules, *metrics.ready, *cluster.pods_ready, *placement.ready),
        )
        self.ready: Sequence[pulumi.Resource] = (release,)
        self.register_outputs({"namespace": metrics.namespace})


def _values(url: str, scrape_interval_seconds: int, placement: Placement, settings: StackSettings) -> dict[str, Any]:
    return {
        "image": {"repository": settings.image(_IMAGE)},
        **placement.scheduling(),
        # The URL includes the port; 0 keeps the chart from appending another.
        "prometheus": {"url": url, "port": 0},
        "metricsRelistInterval": f"{plan.relist_seconds(scrape_interval_seconds)}s",
        "rules": {"default": False, "custom": plan.adapter_rules()},
        # Our rules match few names: a few thousand series at most.
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
    }
