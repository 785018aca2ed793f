"""Stands in for prometheus-adapter: serves the custom metrics API of pods by the adapter's own rules.

Two details follow the adapter. A listing of series makes a metric known until the next listing if one of its series had a sample
in the interval before. A value that is not a number is served as 0. Other resources, metric selectors and external metrics are
left out.

Sources: kubernetes-sigs/prometheus-adapter, pkg/custom-provider/provider.go and cmd/adapter/adapter.go; the chart's
custom-metrics-apiservice.yaml; k8s.io/metrics, custom_metrics/v1beta1.
"""

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import requests

from eks_inference.scaling.prometheus_adapter import RELEASE
from eks_inference_tools.reading.live_objects import name_of
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal
from eks_inference_tools.simulate.control_plane.processes import Answer, Request, document, serving
from eks_inference_tools.simulate.day.real_prometheus import Prometheus
from eks_inference_tools.simulate.day.subjects import AdapterRule, Sources

GROUP = "custom.metrics.k8s.io"
VERSION = "v1beta1"
"""The version that the chart registers."""

_ROOT = ["apis", GROUP, VERSION]


class CustomMetrics:
    """Serves metrics of pods. Several threads may use it."""

    def __init__(self, rules: Sequence[AdapterRule], prometheus: Prometheus, api: Api) -> None:
        self._rules = rules
        self._prometheus = prometheus
        self._api = api
        self._known: Mapping[str, tuple[AdapterRule, str]] = {}

    def list_series(self, seconds: float) -> None:
        """Lists series with a sample in the last ``seconds``; their metrics are known until the next listing."""
        since = time.time() - seconds
        found = {}
        for rule in self._rules:
            for series in self._prometheus.series(rule.series_query, since=since):
                if metric := rule.metric_of(series):
                    found[metric] = (rule, series)
        self._known = found

    def values(self, metric: str, namespace: str, pods: Sequence[str]) -> dict[str, float] | None:
        """Returns Prometheus' values by pod; None for an unknown metric. Raises ``requests.RequestException``."""
        if metric not in self._known:
            return None
        rule, series = self._known[metric]
        found = self._prometheus.query(rule.expression(series, namespace=namespace, pods=pods))
        label = rule.labels["pod"]
        return {labels[label]: value for labels, value in found if labels.get(label) in pods}

    def answer(self, request: Request) -> Answer:
        """Answers an HTTP request of the API server."""
        if request.method != "GET":
            return _refusal(405, "MethodNotAllowed", "the stand-in is read-only")
        asked = urlsplit(request.target)
        parts = [unquote(part) for part in asked.path.strip("/").split("/")]
        if parts == _ROOT:
            return document(200, self._resources())
        if parts[:3] != _ROOT or len(parts) != 8 or parts[3] != "namespaces" or parts[5] != "pods":
            return _refusal(404, "NotFound", f"the stand-in has nothing at {asked.path}")
        namespace, name, metric = parts[4], parts[6], parts[7]
        selector = {key: values[0] for key, values in parse_qs(asked.query).items() if key == "labelSelector"}
        try:
            pods = [name_of(pod) for pod in self._api.list("pods", namespace, **selector)] if name == "*" else [name]
            values = self.values(metric, namespace, pods)
        except (requests.RequestException, ApiRefusal):
            return _refusal(500, "InternalError", "unable to fetch metrics")
        if values is None or (name != "*" and not values):
            return _refusal(404, "NotFound", f"the server could not find the metric {metric} for pods")
        kind = {"kind": "MetricValueList", "apiVersion": f"{GROUP}/{VERSION}"}
        return document(200, {**kind, "metadata": {}, "items": _items(metric, namespace, values)})

    def _resources(self) -> dict[str, Any]:
        each = {"singularName": "", "namespaced": True, "kind": "MetricValueList", "verbs": ["get"]}
        resources = [{"name": f"pods/{metric}", **each} for metric in sorted(self._known)]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}", "resources": resources}


@contextmanager
def registered(plane: ControlPlane, sources: Sources, prometheus: Prometheus) -> Iterator[CustomMetrics]:
    """Serves the metrics on loopback and registers them with the API server, as the chart would."""
    metrics = CustomMetrics(sources.rules, prometheus, plane.api)
    interval, end = sources.relist_seconds, threading.Event()

    def keep_listing() -> None:
        while not end.is_set():
            # After a failure the known metrics stay. Whoever watches the processes reports that Prometheus is gone.
            with suppress(requests.RequestException):
                metrics.list_series(interval)
            end.wait(interval)

    with serving(metrics.answer, certificate=plane.certificate) as port:
        for item in registration(sources.adapter_namespace, port):
            plane.api.apply(item)
        thread = threading.Thread(target=keep_listing, daemon=True)
        thread.start()
        try:
            yield metrics
        finally:
            end.set()
            thread.join()


def registration(namespace: str, port: int, group: str = GROUP) -> tuple[dict[str, Any], ...]:
    """Returns the objects that route the API server to the stand-in on loopback, where the chart's Service selects its pods."""
    return (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": RELEASE, "namespace": namespace},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{group}"},
            "spec": {
                "group": group,
                "version": VERSION,
                "service": {"name": RELEASE, "namespace": namespace, "port": port},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    )


def _items(metric: str, namespace: str, values: Mapping[str, float]) -> list[dict[str, Any]]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [
        {
            "describedObject": {"kind": "Pod", "apiVersion": "/v1", "namespace": namespace, "name": pod},
            "metricName": metric,
            "timestamp": now,
            "value": f"{int(value * 1000) if math.isfinite(value) else 0}m",
            "selector": None,
        }
        for pod, value in sorted(values.items())
    ]


def _refusal(code: int, reason: str, message: str) -> Answer:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}
    return document(code, status)
