"""Autoscalers as data: queries, rules of prometheus-adapter, HorizontalPodAutoscalers, ScaledObjects. Pure functions; no pulumi.

Sources: KEDA 2.20 (prometheus scaler, ScaledObject); prometheus-adapter 0.12 (docs/config.md, its provider); Kubernetes
documentation, "Horizontal Pod Autoscaling"; vLLM documentation, "Metrics"; Triton documentation, "Metrics"; the source system's
values of prometheus-adapter and of the HorizontalPodAutoscaler.
"""

from importlib.resources import files
from typing import Any

import yaml

from eks_inference.scaling.spec import AutoscalerSpec, HpaSpec, KedaSpec, Step

WAITING = ("vllm:num_requests_waiting",)
RUNNING = ("vllm:num_requests_running",)
KV_CACHE_USE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
"""Gauges of vLLM that KEDA goes by. Of several names the first that a pod has counts: the second is of older releases (pull
requests 18354 and 29330 of vllm-project/vllm)."""

QUEUE_COUNTER = "nv_inference_queue_duration_us"
"""Triton's: microseconds that all requests have waited so far."""

RATE_WINDOW_SECONDS = 60
"""Over which everything an HPA goes by is averaged; the source system's."""

SCRAPES_IN_A_WINDOW = 4
"""So many samples ought to be in it: a rate needs two, and now and then a scrape fails (Prometheus documentation, "rate")."""

RELIST_SECONDS = 30
"""How often prometheus-adapter looks for series; the source system's."""

_RECORDED = r"^pod:(.+):mean1m$"
_DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}


# -- queries --------------------------------------------------------------------------------------------------------------------


def keda_queries(spec: KedaSpec, *, namespace: str, deployment: str) -> dict[str, tuple[str, float]]:
    """What KEDA asks Prometheus, by the name of the trigger, each with the value one pod may have.

    Every answer is a sum over the Deployment's pods: one element, as KEDA wants it, which divided by that value is the number of
    pods. No element, when nothing is scraped or no pod has loaded its model yet, is an error to KEDA: then nothing changes.
    """
    pods = pods_of(namespace, deployment)
    waiting, running = _sum(WAITING, pods), _sum(RUNNING, pods)
    queries = {
        "waiting": (waiting, spec.waiting_requests),
        # Of several engines in a pod, the fullest.
        "kv-cache": (f"sum(max by (pod) ({_first_of(KV_CACHE_USE, pods)}))", spec.kv_cache_use),
    }
    if spec.concurrent_requests is not None:
        queries["concurrent"] = (f"{waiting} + {running}", spec.concurrent_requests)
    return queries


def pods_of(namespace: str, deployment: str) -> str:
    """Label matchers of the pods of a Deployment, as a PodMonitor or ServiceMonitor labels them: no other label is needed."""
    return f'namespace="{namespace}",pod=~"{deployment}-[^-]+-[^-]+"'


def _sum(names: tuple[str, ...], pods: str) -> str:
    return f"sum({_first_of(names, pods)})"


def _first_of(names: tuple[str, ...], pods: str) -> str:
    return " or ".join(f"{name}{{{pods}}}" for name in names)


def adapter_rules() -> list[dict[str, Any]]:
    """Rules of prometheus-adapter: the source system's, and one for what ``recording_rules`` recorded.

    The source system's metric, to the letter: its name says milliseconds, its value is milliseconds of waiting a second.
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
    """How often prometheus-adapter is to look for series. It sees those that had a sample since it last looked."""
    return max(RELIST_SECONDS, scrape_interval_seconds)


def recording_rules() -> dict[str, Any]:
    """What HorizontalPodAutoscalers go by beside the source's metric: a rule file of Prometheus, ``spec`` of a PrometheusRule."""
    return yaml.safe_load(files("eks_inference.scaling").joinpath("assets", "rules.yaml").read_text("utf-8"))


# -- objects --------------------------------------------------------------------------------------------------------------------


def horizontal_pod_autoscaler(spec: HpaSpec, *, namespace: str, deployment: str) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the HorizontalPodAutoscaler of a Deployment."""
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
    """``metadata`` and ``spec`` of KEDA's ScaledObject of a Deployment."""
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
                        # Otherwise no answer reads 0, and a Prometheus that lost its data takes the pods away.
                        "ignoreNullValues": "false",
                    },
                }
                for name, (query, threshold) in keda_queries(spec, namespace=namespace, deployment=deployment).items()
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
    """A Kubernetes quantity, exact to a thousandth."""
    return str(int(value)) if value == int(value) else f"{round(value * 1000)}m"
