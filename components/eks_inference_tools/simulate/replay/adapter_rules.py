"""Reads rules of prometheus-adapter, which expose series of Prometheus as metrics of pods. Pure.

Supports what a rule about pods may contain: ``seriesQuery``, ``seriesFilters``, ``resources``, ``name`` and ``metricsQuery`` with
the three usual placeholders. Source: kubernetes-sigs/prometheus-adapter, docs/config.md and pkg/naming.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stackgraph.problems import Problem, ProblemsFound

_PLACEHOLDER = re.compile(r"<<\s*\.?(\w+)\s*>>")
_GO_GROUP = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True)
class AdapterRule:
    """One rule. ``labels`` maps ``pod`` and ``namespace`` to the labels of series that hold their names."""

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
