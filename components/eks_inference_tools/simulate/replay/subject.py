"""Finds the subject of a replay in a recorded graph: one HorizontalPodAutoscaler and the source of its metric. Pure."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from eks_inference.observability.prometheus_plan import RELEASE as PROMETHEUS
from eks_inference.place.quantity import amount
from eks_inference.scaling.plan import RATE_WINDOW_SECONDS
from eks_inference.scaling.prometheus_adapter import RELEASE as ADAPTER
from eks_inference_tools.reading.live_objects import identity_of
from eks_inference_tools.simulate.replay.triton import EXPORTED
from stackgraph.graph.document import CHART_TYPE, Graph, Resource
from stackgraph.graph.values import at, items, text
from stackgraph.problems import Problem, ProblemsFound
from stackgraph.views.manifests import manifest


@dataclass(frozen=True)
class Phase:
    """A number of users for some seconds.

    With ``silent`` the youngest pod does not answer Prometheus, though it still serves, until a pod goes. With ``until_least``
    the phase ends early, some seconds after the autoscaler has reached its minimum.
    """

    seconds: int
    users: int
    silent: bool = False
    until_least: bool = False


TIMELINE = (
    Phase(20, users=0),
    Phase(40, users=32),
    Phase(95, users=128),
    Phase(365, users=2, silent=True, until_least=True),
)
"""No load; load for two pods; more than all pods can take; so little that pods are idle. Nine minutes at most.

The last phase covers two scale-in windows: Kubernetes assumes a missing pod to be at the target, which keeps one more pod until a
window after the missing one is seen again or gone.
"""


@dataclass(frozen=True)
class Sample:
    """The state at one moment. ``at`` counts seconds since the autoscaler was created.

    ``replicas`` is from the Deployment's spec, ``desired`` from the autoscaler's status. ``values`` is the metric by pod as
    Prometheus has it, ``average`` the metric as the autoscaler has it. ``active`` is the autoscaler's condition ScalingActive,
    None while there is none; ``message`` is from the same condition. ``limited`` is the reason of ScalingLimited.
    """

    at: float
    users: int
    replicas: int
    desired: int
    ready: tuple[str, ...]
    silent: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    values: Mapping[str, float] | None = None
    average: float | None = None
    active: bool | None = None
    limited: str = ""
    message: str = ""
    completed: int = 0

    @property
    def queueing(self) -> float | None:
        """The average of the metric over the pods that have a value."""
        return sum(self.values.values()) / len(self.values) if self.values else None

    def document(self) -> dict[str, Any]:
        """Returns the sample as JSON, in which values that are not numbers are texts."""
        return vars(self) | {
            "at": round(self.at, 1),
            "silent": sorted(self.silent),
            "idle": sorted(self.idle),
            "values": None if self.values is None else {pod: _number(value) for pod, value in sorted(self.values.items())},
            "limited": self.limited or None,
            "message": self.message or None,
        }


@dataclass(frozen=True)
class Step:
    """A change of a number between two samples. ``last`` is the sample before it."""

    at: float
    before: int
    after: int
    last: Sample

    @property
    def up(self) -> bool:
        return self.after > self.before


def steps(samples: Sequence[Sample], key: str) -> tuple[Step, ...]:
    """Returns every change of ``users`` or ``replicas``, in order of time."""
    numbers = [(sample, getattr(sample, key)) for sample in samples]
    return tuple(Step(now.at, first, second, last) for (last, first), (now, second) in pairwise(numbers) if first != second)


def _number(value: float) -> float | str:
    return round(value, 3) if math.isfinite(value) else str(value)


_PLACEHOLDER = re.compile(r"<<\s*\.?(\w+)\s*>>")
_GO_GROUP = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True)
class AdapterRule:
    """One rule of prometheus-adapter, which exposes series of Prometheus as metrics of pods.

    A rule about pods may contain ``seriesQuery``, ``seriesFilters``, ``resources``, ``name`` and ``metricsQuery`` with the three
    usual placeholders. ``labels`` maps ``pod`` and ``namespace`` to the labels of series that hold their names.

    Source: kubernetes-sigs/prometheus-adapter, docs/config.md and pkg/naming.
    """

    series_query: str
    filters: tuple[tuple[re.Pattern[str], bool], ...]
    """Patterns, and whether a series must match (True) or must not (False)."""
    matches: re.Pattern[str]
    named: str
    labels: Mapping[str, str]
    query: str

    def metric_of(self, series: str) -> str | None:
        """Returns the name of a series in the metrics API; None if the rule does not cover the series."""
        if any(bool(pattern.search(series)) != wanted for pattern, wanted in self.filters):
            return None
        found = self.matches.search(series)
        return found.expand(self.named) if found else None

    def expression(self, series: str, *, namespace: str, pods: Sequence[str]) -> str:
        """Returns PromQL for the values of these pods."""
        pod = self.labels["pod"]
        matchers = [f'{self.labels["namespace"]}="{namespace}"', f'{pod}{"=~" if len(pods) > 1 else "="}"{"|".join(pods)}"']
        filled = {"Series": series, "LabelMatchers": ",".join(matchers), "GroupBy": pod}
        return _PLACEHOLDER.sub(lambda found: filled[found[1]], self.query)


def adapter_rule(document: Mapping[str, Any]) -> AdapterRule:
    """Reads one rule of ``rules.custom``. Raises ``ProblemsFound`` for a query or labels that are not supported."""
    name, query = document.get("name") or {}, document["metricsQuery"]
    unknown = sorted(set(_PLACEHOLDER.findall(query)) - {"Series", "LabelMatchers", "GroupBy"})
    if unknown or _PLACEHOLDER.sub("", query).count("<<"):
        raise ProblemsFound([Problem("the stand-in of prometheus-adapter cannot fill in this query", given=query)])
    matches = re.compile(name.get("matches") or ".*")
    default = "${1}" if matches.groups else "${0}"
    return AdapterRule(
        series_query=document["seriesQuery"],
        filters=tuple((re.compile(one.get("is") or one["isNot"]), "is" in one) for one in document.get("seriesFilters") or ()),
        matches=matches,
        named=_GO_GROUP.sub(lambda found: rf"\g<{found[1] or found[2]}>", name.get("as") or default),
        labels=_labels(document.get("resources") or {}),
        query=query,
    )


def _labels(resources: Mapping[str, Any]) -> dict[str, str]:
    template = resources.get("template") or ""
    labels = {name: _PLACEHOLDER.sub(name, template) for name in ("namespace", "pod")} if template else {}
    labels |= {one["resource"].removesuffix("s"): label for label, one in (resources.get("overrides") or {}).items()}
    if {"namespace", "pod"} <= set(labels):
        return labels
    raise ProblemsFound([Problem("a rule of prometheus-adapter does not map labels to namespace and pod", given=str(resources))])


HPA_TYPE = "kubernetes:autoscaling/v2:HorizontalPodAutoscaler"
SCALED_OBJECT_TYPE = "kubernetes:keda.sh/v1alpha1:ScaledObject"
POD_MONITOR_TYPE = "kubernetes:monitoring.coreos.com/v1:PodMonitor"
RULE_TYPE = "kubernetes:monitoring.coreos.com/v1:PrometheusRule"

SYNC_SECONDS = 15
"""The controller's sync period (--horizontal-pod-autoscaler-sync-period), which is fixed on EKS."""

_DEFAULT_SCALE_IN_SECONDS = 300  # of the controller (Kubernetes, "Horizontal Pod Autoscaling")
_DEFAULT_INTERVAL = "30s"  # of the operator's Prometheus (API reference, scrapeInterval)
_DEFAULT_RELIST = "1m"  # of the adapter's chart (values.yaml, metricsRelistInterval)
_SERIES = re.compile(r"\b(?:nv_|vllm:)\w+")


@dataclass(frozen=True)
class Limits:
    """The settings by which an autoscaler is judged."""

    least: int
    most: int
    target: float
    scale_in_seconds: int
    scrape_seconds: int
    relist_seconds: int

    @property
    def window_seconds(self) -> int:
        """How far back a value of the metric reaches: the window of its rate, and one scrape."""
        return RATE_WINDOW_SECONDS + self.scrape_seconds

    @property
    def blind_seconds(self) -> int:
        """How long a pod may answer Prometheus before the autoscaler sees it: two scrapes for a rate, a listing of series, and a
        sync of the controller.
        """
        return 2 * self.scrape_seconds + self.relist_seconds + SYNC_SECONDS


@dataclass(frozen=True)
class Subject:
    """One autoscaler. ``rules`` are those of the adapter; ``prometheus`` is ``prometheusSpec`` of the chart's values."""

    stack: str
    autoscaler: Mapping[str, Any]
    metric: str
    limits: Limits
    rules: tuple[AdapterRule, ...]
    adapter_namespace: str
    prometheus: Mapping[str, Any]
    monitors: tuple[Mapping[str, Any], ...]
    rule_files: Mapping[str, Mapping[str, Any]]
    """Rule groups of each PrometheusRule, by file name."""

    @property
    def namespace(self) -> str:
        return self.autoscaler["metadata"]["namespace"]

    @property
    def name(self) -> str:
        return self.autoscaler["metadata"]["name"]

    @property
    def deployment(self) -> str:
        return self.autoscaler["spec"]["scaleTargetRef"]["name"]


def subject_of(graph: Graph) -> Subject:
    """Returns the subject of a stack. Raises ``ProblemsFound`` unless exactly one autoscaler can be replayed."""
    autoscalers = [(found, metric) for r in graph.of_type(HPA_TYPE) if (metric := _pod_metric(found := manifest(r)))]
    if not autoscalers:
        raise ProblemsFound([_nothing(graph)])
    if len(autoscalers) > 1:
        raise ProblemsFound(
            [Problem("more than one autoscaler", given=", ".join(_title(one) for one, _ in autoscalers), allowed="one")]
        )
    ((autoscaler, metric),) = autoscalers
    adapter, prometheus = _release(graph, ADAPTER), _release(graph, PROMETHEUS)
    if adapter is None or prometheus is None:
        hint = "the replay reads their configuration from the stack; that of an existing Prometheus or adapter is elsewhere"
        raise ProblemsFound([Problem(f"{ADAPTER} and {PROMETHEUS} have to be in the stack", hint=hint)])
    name = text(at(metric, "metric", "name"))
    rules = tuple(adapter_rule(one) for one in items(at(adapter.inputs, "values", "rules", "custom")))
    rule_files = {
        f"{'-'.join(identity_of(r.inputs))}.json": {"groups": manifest(r)["spec"]["groups"]} for r in graph.of_type(RULE_TYPE)
    }
    if not any(rule.metric_of(series) == name for rule in rules for series in _series(rule_files.values())):
        problem = f"the simulated Triton does not export a series for {name}, or no rule of {ADAPTER} makes the metric from it"
        allowed = f"a metric made of {', '.join(EXPORTED)}"
        raise ProblemsFound([Problem(problem, given=name, allowed=allowed)])
    prometheus_values = at(prometheus.inputs, "values", "prometheus", "prometheusSpec") or {}
    spec = autoscaler["spec"]
    window = at(spec, "behavior", "scaleDown", "stabilizationWindowSeconds")
    return Subject(
        stack=graph.stack,
        autoscaler=autoscaler,
        metric=name,
        limits=Limits(
            least=spec.get("minReplicas", 1),
            most=spec["maxReplicas"],
            target=float(amount(text(at(metric, "target", "averageValue")))),
            scale_in_seconds=_DEFAULT_SCALE_IN_SECONDS if window is None else window,
            scrape_seconds=seconds(prometheus_values.get("scrapeInterval", _DEFAULT_INTERVAL)),
            relist_seconds=seconds(at(adapter.inputs, "values", "metricsRelistInterval") or _DEFAULT_RELIST),
        ),
        rules=rules,
        adapter_namespace=text(adapter.inputs.get("namespace")),
        prometheus=prometheus_values,
        monitors=tuple(manifest(r) for r in graph.of_type(POD_MONITOR_TYPE)),
        rule_files=rule_files,
    )


def seconds(duration: str) -> int:
    """Converts a duration: ``30s`` to 30, ``1m30s`` to 90 (Prometheus documentation, duration)."""
    return sum(int(count) * {"s": 1, "m": 60, "h": 3600}[unit] for count, unit in re.findall(r"(\d+)([smh])", duration))


def _pod_metric(autoscaler: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the one metric of pods by which it scales; None if it scales by anything else."""
    metrics = items(at(autoscaler, "spec", "metrics"))
    return metrics[0]["pods"] if len(metrics) == 1 and at(metrics[0], "type") == "Pods" else None


def _nothing(graph: Graph) -> Problem:
    scaled = graph.of_type(SCALED_OBJECT_TYPE)
    if scaled:
        return Problem(
            f"KEDA scales here ({', '.join(_title(r.inputs) for r in scaled)}), which cannot be replayed",
            allowed="a stack with an autoscaler of kind hpa",
            hint="KEDA's operator would have to be built; `promtool test rules` tests what it asks Prometheus",
        )
    return Problem("no server of this stack has an autoscaler of kind hpa", hint="gpu-opt350m has one")


def _release(graph: Graph, name: str) -> Resource | None:
    return next((r for r in graph.of_type(CHART_TYPE) if r.inputs.get("name") == name), None)


def _series(rule_files: Any) -> Iterator[str]:
    """Yields the series of the replay: those that servers export, and those recorded only from them."""
    yield from EXPORTED
    for file in rule_files:
        for rule in (rule for group in file["groups"] for rule in group["rules"]):
            if "record" in rule and (named := _SERIES.findall(rule["expr"])) and set(named) <= set(EXPORTED):
                yield rule["record"]


def _title(found: Mapping[str, Any]) -> str:
    return "/".join(identity_of(found))
