"""Plans autoscalers: queries, prometheus-adapter rules, HorizontalPodAutoscalers, ScaledObjects. Pure functions; no pulumi.

Sources: KEDA 2.20 (prometheus scaler, ScaledObject); prometheus-adapter 0.12 (docs/config.md, its provider); Kubernetes
documentation, "Horizontal Pod Autoscaling"; vLLM documentation, "Metrics"; Triton documentation, "Metrics"; the source system's
values of prometheus-adapter and of the HorizontalPodAutoscaler.
"""

from importlib.resources import files
from typing import Any

import yaml

from eks_inference.scaling.spec import AutoscalerSpec, HpaSpec, KedaSpec, Step

QUEUE_COUNTER = "nv_inference_queue_duration_us"
"""Triton's counter of the total waiting time of all requests, in microseconds."""

RATE_WINDOW_SECONDS = 60
"""Averaging window of all metrics that are means, as in the source system."""

SCRAPES_IN_A_WINDOW = 4
"""Samples wanted in that window: a rate needs two, and some scrapes fail (Prometheus documentation, "rate")."""

_RECORDED = r"^pod:(.+):mean1m$"
_DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}


# -- queries --------------------------------------------------------------------------------------------------------------------


def keda_queries(spec: KedaSpec, *, namespace: str, deployment: str) -> dict[str, tuple[str, float]]:
    """Returns KEDA's Prometheus queries by trigger name, each with its threshold per pod.

    Every query sums over the Deployment's pods. KEDA expects one element; divided by the threshold, it is the pod count. If
    Prometheus has no data, or no pod has loaded its model yet, the result is empty: an error to KEDA, which then changes nothing.
    """
    pods = pods_of(namespace, deployment)
    waiting = f"sum(vllm:num_requests_waiting{{{pods}}})"
    # The second name is from older releases (pull requests 18354 and 29330 of vllm-project/vllm).
    cache_use = f"vllm:kv_cache_usage_perc{{{pods}}} or vllm:gpu_cache_usage_perc{{{pods}}}"
    running = f"vllm:num_requests_running{{{pods}}}"
    queries = {
        "waiting": (waiting, spec.waiting_requests),
        # With several engines in a pod, the fullest one counts.
        "kv-cache": (f"sum(max by (pod) ({cache_use}))", spec.kv_cache_use),
        "concurrent": (f"{waiting} + sum({running})", spec.concurrent_requests),
        "first-token": (_mean_of_pods("vllm:time_to_first_token_seconds", pods, running), spec.first_token_seconds),
        "token": (_mean_of_pods("vllm:inter_token_latency_seconds", pods, running), spec.token_seconds),
    }
    return {name: (query, threshold) for name, (query, threshold) in queries.items() if threshold is not None}


def _mean_of_pods(histogram: str, pods: str, running: str) -> str:
    """Returns a query for the mean of a histogram times the number of pods: twice the target asks for twice the pods.

    Without requests it is 0. Division by the target per pod makes a count of pods of it.
    """
    total, count = (f"sum(rate({histogram}_{part}{{{pods}}}[{RATE_WINDOW_SECONDS}s]))" for part in ("sum", "count"))
    return f"{total} / clamp_min({count}, 0.001) * count(max by (pod) ({running}))"


def pods_of(namespace: str, deployment: str) -> str:
    """Returns label matchers for a Deployment's pods. A PodMonitor or ServiceMonitor sets these labels by default."""
    return f'namespace="{namespace}",pod=~"{deployment}-[^-]+-[^-]+"'


def adapter_rules() -> list[dict[str, Any]]:
    """Returns the rules of prometheus-adapter: the source system's, and one for the results of ``recording_rules``.

    The first metric is exactly that of the source system. Despite its name, its unit is milliseconds of waiting per second.
    """
    labels = {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}}
    return [
        {
            "seriesQuery": f'{QUEUE_COUNTER}{{namespace!="",pod!=""}}',
            "resources": labels,
            "name": {"matches": "^(.+)_us$", "as": "${1}_ms"},
            "metricsQuery": f"avg by (<<.GroupBy>>) (rate(<<.Series>>{{<<.LabelMatchers>>}}[{RATE_WINDOW_SECONDS}s]) / 1000)",
        },
        {
            "seriesQuery": f'{{__name__=~"{_RECORDED}",namespace!="",pod!=""}}',
            "resources": labels,
            "name": {"matches": _RECORDED, "as": "${1}"},
            "metricsQuery": "sum by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})",
        },
    ]


def relist_seconds(scrape_interval_seconds: int) -> int:
    """Returns how often prometheus-adapter lists series: it sees only series with a sample since its last listing.

    The minimum of 30 seconds is the source system's interval.
    """
    return max(30, scrape_interval_seconds)


def recording_rules() -> dict[str, Any]:
    """Returns the metrics for HorizontalPodAutoscalers beyond the source's: a rule file, and ``spec`` of a PrometheusRule."""
    return yaml.safe_load(files("eks_inference.scaling").joinpath("assets", "rules.yaml").read_text("utf-8"))


# -- objects --------------------------------------------------------------------------------------------------------------------


def horizontal_pod_autoscaler(spec: HpaSpec, *, namespace: str, deployment: str) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of a Deployment's HorizontalPodAutoscaler."""
    return {
        "metadata": {"name": deployment, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {**_DEPLOYMENT, "name": deployment},
            "minReplicas": spec.min,
            "maxReplicas": spec.max,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": spec.metric},
                        "target": {"type": "AverageValue", "averageValue": _quantity(spec.target)},
                    },
                }
            ],
            "behavior": _behavior(spec),
        },
    }


def scaled_object(spec: KedaSpec, *, namespace: str, deployment: str, prometheus_url: str) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of a Deployment's ScaledObject."""
    return {
        "metadata": {"name": deployment, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {**_DEPLOYMENT, "name": deployment},
            "minReplicaCount": spec.min,
            "maxReplicaCount": spec.max,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(spec)}},
            "triggers": [
                {
                    "type": "prometheus",
                    "name": name,
                    "metricType": "AverageValue",
                    "metadata": {
                        "serverAddress": prometheus_url,
                        "query": query,
                        "threshold": f"{threshold:g}",
                        # By default an empty result counts as 0, so a Prometheus that lost its data would remove pods.
                        "ignoreNullValues": "false",
                    },
                }
                for name, (query, threshold) in keda_queries(spec, namespace=namespace, deployment=deployment).items()
            ]
            + [
                {
                    "type": "cron",
                    "name": f"schedule-{number}",
                    "metadata": {**hours.model_dump(include={"timezone", "start", "end"}), "desiredReplicas": str(hours.pods)},
                }
                for number, hours in enumerate(spec.schedule)
            ],
        },
    }


def _behavior(spec: AutoscalerSpec) -> dict[str, Any]:
    return {
        "scaleUp": _direction(spec.scale_out_seconds, spec.scale_out_step),
        "scaleDown": _direction(spec.scale_in_seconds, spec.scale_in_step),
    }


def _direction(window_seconds: int, step: Step) -> dict[str, Any]:
    kind, value = ("Pods", step.pods) if step.pods is not None else ("Percent", step.percent)
    return {
        "stabilizationWindowSeconds": window_seconds,
        "policies": [{"type": kind, "value": value, "periodSeconds": step.every_seconds}],
    }


def _quantity(value: float) -> str:
    """Returns a Kubernetes quantity, rounded to a thousandth."""
    return str(int(value)) if value == int(value) else f"{round(value * 1000)}m"
