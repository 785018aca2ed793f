"""Finds in a graph the servers that a day can be played for (what they take, what comes, and how long their pods start), and what
autoscalers see: settings of Prometheus, monitors and rules, and those of prometheus-adapter. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from eks_inference.observability.prometheus_plan import RELEASE as PROMETHEUS
from eks_inference.observability.spec import Objectives
from eks_inference.scaling.prometheus_adapter import RELEASE as ADAPTER
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.traffic import TrafficSpec
from eks_inference.speed.rules import TrafficFacts
from eks_inference.speed.takes import Takes, takes
from eks_inference_tools.reading.live_objects import Object, identity_of, labels_of
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates, prefetched
from eks_inference_tools.reading.releases import charts
from eks_inference_tools.simulate.day.requests import Load, Rates
from eks_inference_tools.timeline.pod_phases import PodStart, phases
from eks_inference_tools.timeline.starts import Starts
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, table, text
from stackgraph.problems import Problem, ProblemsFound
from stackgraph.views.manifests import manifest

LATE_SECONDS = 5.0
"""Without an objective for the first token."""
_SHARE = 0.5
"""The share of the starting pods' capacity that is offered when the stack does not say its traffic."""
_WANTED = Objectives(time_to_first_token_seconds=LATE_SECONDS)
_TOKENS = (250, 100)
"""A prompt and an answer where nothing tells them: a question in a chat."""

POD_MONITOR_TYPE = "kubernetes:monitoring.coreos.com/v1:PodMonitor"
RULE_TYPE = "kubernetes:monitoring.coreos.com/v1:PrometheusRule"
_DEFAULT_RELIST = "1m"  # of the adapter's chart (values.yaml, metricsRelistInterval)

_PLACEHOLDER = re.compile(r"<<\s*\.?(\w+)\s*>>")
_GO_GROUP = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True)
class Subject:
    """A server. ``seconds`` is what a pod takes until it answers, on a node with its image; ``pull_seconds`` the image."""

    name: str
    template: PodTemplate
    takes: Takes
    load: Load
    copies: int
    seconds: float
    pull_seconds: float
    untimed: tuple[str, ...] = ()
    """Phases of the start that nobody has measured: they count nothing."""
    prefetched: bool = False
    """Whether a DaemonSet brings the image to each node."""
    least: int = 1
    """Pods without load."""
    from_hub: bool = False
    """Whether a pod downloads the model from the hub when it starts."""

    def owns(self, pod: Object) -> bool:
        wanted = self.template.labels
        return identity_of(pod)[0] == self.template.namespace and bool(wanted) and wanted.items() <= labels_of(pod).items()


def subjects(
    graph: Graph,
    facts: Mapping[str, ServingFacts],
    asked: Mapping[str, TrafficFacts],
    rate: Rates = (),
    rates: Mapping[str, Rates] = MappingProxyType({}),
) -> Iterator[Subject | str]:
    """Yields the servers of the stack; as a text why one cannot be played. ``rate`` replaces what comes to each,
    ``rates`` what comes to some.
    """
    starts = Starts(graph)
    templates = {pod_template.urn: pod_template for pod_template in pod_templates(graph)}
    there = prefetched(graph)
    for urn, name in starts.servers.items():
        template, start, server = templates[urn], starts.by_urn[urn], facts.get(name)
        if template.kind != "Deployment" or server is None:
            yield f"{name}: only Deployments that a stack file describes are played"
            continue
        found = asked[name].found if name in asked else takes(server, _traffic(server), _WANTED, "random")
        yield (
            f"{name}: {found}"
            if isinstance(found, str)
            else _subject(name, template, start, found, server, rates.get(name, rate), start.image in there)
        )


def _subject(
    name: str,
    template: PodTemplate,
    start: PodStart,
    found: Takes,
    server: ServingFacts,
    rate: Rates,
    is_there: bool,
) -> Subject:
    asked = found.traffic
    rate = rate or ((0.0, asked.rate or found.output_tokens_per_second / asked.mean_share / asked.output_tokens),)
    late = found.objectives.first_token
    load = Load(rate, asked.input_tokens, asked.output_tokens, LATE_SECONDS if late is None else late, asked.cached_share)
    parts = [phase for phase in phases(start) if phase.name != "node"]
    whole = sum(part.time.p50 for part in parts if part.time)
    pull = sum(part.time.p50 for part in parts if part.time and part.name == "pull")
    untimed = tuple(part.title for part in parts if part.time is None)
    hub = start.from_hub and not start.weights_stored
    return Subject(name, template, found, load, server.copies, whole - pull, pull, untimed, is_there, server.pods_min, hub)


def _traffic(server: ServingFacts) -> TrafficSpec:
    """Returns a load for a server whose stack file names none: half of what its fewest pods take."""
    prompt, answer = _TOKENS
    prompt, answer = min(prompt, server.max_model_len // 2), min(answer, server.max_model_len // 4)
    asked = TrafficSpec(rate=1.0, input_tokens=prompt, output_tokens=answer)
    found = takes(server, asked, _WANTED, "random")
    if isinstance(found, str):
        return asked
    return asked.model_copy(update={"rate": _SHARE * found.most / server.pods_max * max(server.pods_min, 1)})


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


@dataclass(frozen=True)
class Sources:
    """``rules`` are those of the adapter, if there is one; ``prometheus`` is ``prometheusSpec`` of the chart's values."""

    rules: tuple[AdapterRule, ...]
    adapter_namespace: str
    relist_seconds: int
    prometheus: Mapping[str, Any]
    monitors: tuple[Mapping[str, Any], ...]
    rule_files: Mapping[str, Mapping[str, Any]]
    """Rule groups of each PrometheusRule, by file name."""


def sources_of(graph: Graph) -> Sources | None:
    """Returns what autoscalers of a stack see; None where its Prometheus is elsewhere."""
    releases = {chart.release: chart for chart in charts(graph)}
    adapter, prometheus = releases.get(ADAPTER), releases.get(PROMETHEUS)
    if prometheus is None:
        return None
    values = adapter.values if adapter else {}
    rules = [manifest(resource) for resource in graph.of_type(RULE_TYPE)]
    return Sources(
        rules=tuple(adapter_rule(table(item)) for item in items(at(values, "rules", "custom"))),
        adapter_namespace=adapter.namespace if adapter else "",
        relist_seconds=seconds(text(at(values, "metricsRelistInterval")) or _DEFAULT_RELIST),
        prometheus=table(at(prometheus.values, "prometheus", "prometheusSpec")),
        monitors=tuple(manifest(resource) for resource in graph.of_type(POD_MONITOR_TYPE)),
        rule_files={f"{'-'.join(identity_of(rule))}.json": {"groups": rule["spec"]["groups"]} for rule in rules},
    )


def seconds(duration: str) -> int:
    """Converts a duration: ``30s`` to 30, ``1m30s`` to 90 (Prometheus documentation, duration)."""
    return sum(int(count) * {"s": 1, "m": 60, "h": 3600}[unit] for count, unit in re.findall(r"(\d+)([smh])", duration))
