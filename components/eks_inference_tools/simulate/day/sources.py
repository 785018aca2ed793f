"""Finds in a graph what autoscalers see: settings of Prometheus, monitors and rules, and those of prometheus-adapter. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference.observability.prometheus_plan import RELEASE as PROMETHEUS
from eks_inference.scaling.prometheus_adapter import RELEASE as ADAPTER
from eks_inference_tools.reading.live_objects import identity_of
from eks_inference_tools.reading.releases import charts
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, table, text
from stackgraph.problems import Problem, ProblemsFound
from stackgraph.views.manifests import manifest

POD_MONITOR_TYPE = "kubernetes:monitoring.coreos.com/v1:PodMonitor"
RULE_TYPE = "kubernetes:monitoring.coreos.com/v1:PrometheusRule"
_DEFAULT_RELIST = "1m"  # of the adapter's chart (values.yaml, metricsRelistInterval)

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
