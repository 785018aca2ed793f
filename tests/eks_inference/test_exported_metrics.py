"""Metrics that dashboards, rules and autoscalers name: the pinned engines and exporters have them, of that name and kind."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from test_observability_rules import RECORDED, cases, panel_expressions, rule_expressions

import exported_metrics
from conftest import ROOT
from eks_inference.catalog import versions
from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.observability import device_exporters_plan
from eks_inference.observability.handle import Budget, Expected
from eks_inference.observability.prometheus_plan import budget_series, expectations
from eks_inference.observability.spec import Objectives
from eks_inference.scaling import plan as scaling
from eks_inference.scaling.spec import KedaSpec
from eks_inference.serving.kinds import KINDS

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACES = re.compile(r"\{[^}]*\}")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_NAME = re.compile(r"(?<![\w.])([a-zA-Z_][\w:]*)(?![\w:])(?!\s*\()")
_WORDS = {"and", "or", "unless", "by", "on", "without", "bool", "offset", "Inf", "NaN"}
_RATED = re.compile(r"\b(?:rate|increase)\(\s*([\w:]+)")


def metric_names(expression: str) -> set[str]:
    """Returns the names of the metrics that a PromQL expression asks for."""
    text = expression
    for noise in (_STRING, _BRACES, _GROUPING, _RANGE):
        text = noise.sub(" ", text)
    return {name for name in _NAME.findall(text) if name not in _WORDS}


@dataclass(frozen=True)
class Names:
    """What one exporter exports."""

    values: frozenset[str]
    """Names of gauges."""
    totals: frozenset[str]
    """Names that only grow: counters, and the three of a histogram."""

    @property
    def all(self) -> frozenset[str]:
        return self.values | self.totals

    def renamed(self, names: Mapping[str, str]) -> "Names":
        """As relabelings of a PodMonitor leave them."""

        def of(given: str) -> str:
            base = re.sub(r"_(bucket|sum|count)$", "", given)
            return names.get(given) or (names[base] + given.removeprefix(base) if base in names else given)

        return Names(frozenset(map(of, self.values)), frozenset(map(of, self.totals)))


@cache
def exporters() -> Mapping[tuple[str, str], Names]:
    """Returns what exporters export, by exporter and version."""
    read = tomllib.loads((ROOT / "tests" / "exported_metrics.toml").read_text())
    found = {
        (exporter, version): Names(
            frozenset(row["gauges"]),
            frozenset(
                [*row["counters"], *(f"{name}_{part}" for name in row["histograms"] for part in ("bucket", "sum", "count"))]
            ),
        )
        for exporter, by_version in read.items()
        for version, row in by_version.items()
    }
    # Of the fields that DCGM has, the exporter exports those of our file.
    (dcgm,) = (key for key in found if key[0] == "dcgm")
    asked = set(counters())
    return {**found, dcgm: Names(found[dcgm].values & asked, found[dcgm].totals & asked)}


def counters() -> dict[str, str]:
    """Returns the kinds of the fields that our DCGM exporter reads."""
    lines = [line.split(",") for line in device_exporters_plan.counters().splitlines() if line.startswith("DCGM")]
    return {field.strip(): kind.strip() for field, kind, _ in lines}


@cache
def known() -> Names:
    """Returns everything that exporters, recording rules and the rules of servers export."""
    expected = Expected("s", 1, Objectives(time_to_first_token_seconds=1), requests_per_pod=1)
    files = (expectations(expected, "n", ["s"]), budget_series(Budget(1, {"t": 1})))
    made = [rule["record"] for file in files for group in file["groups"] for rule in group["rules"]]
    recorded = [rule["record"] for rule in (*RECORDED, *scaling_rules())]
    values = frozenset().union(made, recorded, *(names.values for names in exporters().values()))
    totals = frozenset[str]().union(*(names.totals for names in exporters().values()))
    return Names(_by_ray_too(values), _by_ray_too(totals))


def _by_ray_too(names: frozenset[str]) -> frozenset[str]:
    return names | {f"ray_{name.replace(':', '_')}" for name in names if name.startswith("vllm:")}


def scaling_rules() -> list[dict[str, str]]:
    return [rule for group in scaling.recording_rules()["groups"] for rule in group["rules"]]


def autoscalers() -> Iterator[tuple[str, str]]:
    keda = KedaSpec(kind="keda", max=2, concurrent_requests=20, first_token_seconds=2, token_seconds=0.05)
    for name, (query, _) in scaling.keda_queries(keda, namespace="n", deployment="d").items():
        yield f"keda {name}", query
    yield "hpa", scaling.QUEUE_COUNTER
    for rule in scaling_rules():
        yield rule["record"], rule["expr"]


EVERYTHING = [*rule_expressions(), *panel_expressions(), *autoscalers()]


# -- what is asked for exists ---------------------------------------------------------------------------------------------------


def test_names_are_found_in_expressions() -> None:
    expression = 'sum by (node, le) (rate(a:b_total{x="c_d"}[5m]) or e) / clamp_min(max_over_time(f[1h]), 0.001) >= 0'
    assert metric_names(expression) == {"a:b_total", "e", "f"}


@pytest.mark.parametrize(("where", "expression"), EVERYTHING)
def test_every_metric_is_one_that_somebody_exports(where: str, expression: str) -> None:
    assert metric_names(expression), where
    assert metric_names(expression) <= known().all, where


@pytest.mark.parametrize(("where", "expression"), EVERYTHING)
def test_only_what_grows_has_a_rate(where: str, expression: str) -> None:
    assert set(_RATED.findall(expression)) <= known().totals, where


@pytest.mark.parametrize(("where", "expression"), [*rule_expressions(), *panel_expressions()])
def test_the_engines_metrics_are_asked_for_in_both_spellings(where: str, expression: str) -> None:
    """But for the dashboards of servers that are not on Ray."""
    names = metric_names(expression)
    if where.startswith(("vllm: ", "triton: ")):
        assert not any(name.startswith("ray_") for name in names), where
        return
    # No server on Ray hands KV caches over.
    engine = {name for name in names if name.startswith("vllm:") and not name.startswith("vllm:nixl_")}
    by_itself = {f"ray_{name.replace(':', '_')}" for name in engine}
    assert by_itself == {name for name in names if name.startswith("ray_vllm_")}, where


@pytest.mark.parametrize("case", [*cases()], ids=lambda case: case["name"])
def test_cases_of_promtool_have_only_series_that_exist(case: dict[str, list[dict[str, str]]]) -> None:
    assert {series["series"].partition("{")[0] for series in case["input_series"]} <= known().all


TARGET = {"namespace", "pod", "server", "node", "instance_type", "job"}
"""Labels that Prometheus adds, by itself or by our PodMonitors."""


@pytest.mark.parametrize("case", [*cases()], ids=lambda case: case["name"])
def test_cases_of_promtool_have_only_labels_that_exist(case: dict[str, list[dict[str, str]]]) -> None:
    read = tomllib.loads((ROOT / "tests" / "exported_metrics.toml").read_text())
    for each in case["input_series"]:
        name, _, labels = each["series"].partition("{")
        of_histogram = {"le"} if name.endswith("_bucket") else set[str]()
        rows = [read[exporter][version] for (exporter, version), names in exporters().items() if name in names.all]
        if rows and all("labels" in row for row in rows):
            known_ones = TARGET.union(of_histogram, *(row["labels"] for row in rows))
            assert set(re.findall(r'(\w+)="', labels)) <= known_ones, each["series"]


VLLM = [engine for engine in engines().values() if engine.server == "vllm" and not engine.retired]


def of_dashboards(server: str) -> list[tuple[str, str]]:
    """Returns what the dashboards for servers of such a process ask for."""
    boards = {board for kind in KINDS.values() if server in kind.spec.engine_servers for board in kind.dashboards}
    return [(where, expression) for where, expression in panel_expressions() if where.partition(":")[0] in boards]


@pytest.mark.parametrize("profile", VLLM, ids=lambda profile: profile.name)
def test_each_release_of_vllm_exports_what_rules_autoscalers_and_its_dashboards_ask_of_it(profile: EngineProfile) -> None:
    exported = exporters()["vllm", profile.vllm].renamed(profile.metric_names).all | exporters()["vllm_nixl", "-"].all
    for where, expression in [*rule_expressions(), *autoscalers(), *of_dashboards("vllm")]:
        asked = {name.replace("ray_vllm_", "vllm:") for name in metric_names(expression)}
        # Autoscalers ask for the KV cache under either name.
        asked -= {"vllm:gpu_cache_usage_perc"}
        assert {name for name in asked if name.startswith("vllm:")} <= exported, where


def test_triton_exports_what_its_dashboard_and_autoscalers_ask_of_it() -> None:
    (handed_on,) = (names.all for (exporter, _), names in exporters().items() if exporter == "triton_vllm")
    exported = handed_on | exporters()["triton", "-"].all
    of_hpa = [("hpa", scaling.QUEUE_COUNTER), *((rule["record"], rule["expr"]) for rule in scaling_rules())]
    for where, expression in [*of_hpa, *of_dashboards("triton")]:
        assert {name for name in metric_names(expression) if name.startswith(("vllm:", "nv_"))} <= exported, where


def test_the_dcgm_exporter_reads_fields_that_it_knows() -> None:
    (row,) = tomllib.loads((ROOT / "tests" / "exported_metrics.toml").read_text())["dcgm"].values()
    for field, kind in counters().items():
        assert kind == "label" or field in row[f"{kind}s"], field


# -- the names are those of the pins --------------------------------------------------------------------------------------------


def test_a_new_pin_has_its_names_read_anew() -> None:
    profiles = [engine_profile for engine_profile in engines().values() if not engine_profile.retired]
    triton = {profile.image.partition(":")[2].partition("-vllm")[0] for profile in profiles if profile.server == "triton"}
    ray = {profile.ray for profile in profiles if profile.ray}
    pinned = {
        "vllm": {engine_profile.vllm for engine_profile in VLLM},
        # The release before Triton hands on what vLLM counts.
        "triton_vllm": triton - {"24.07"},
        "ray": ray,
        "ray_autoscaler": ray,
        "kuberay": {versions.chart("kuberay-operator").version},
        "envoy": {versions.image("envoy").rpartition(":")[2]},
        "karpenter": {versions.chart("karpenter").version},
        "kube_state_metrics": {versions.chart("kube-prometheus-stack").version},
        "neuron_monitor": {versions.image("neuron-monitor").partition(":")[2]},
        "dcgm": {versions.image("dcgm-exporter").partition(":")[2].removesuffix("-distroless")},
    }
    read: dict[str, set[str]] = {}
    for exporter, version in exporters():
        if version != "-":
            read.setdefault(exporter, set()).add(version)
    assert read == pinned


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        (
            "loggers.py",
            """
def __init__(self):
    self.running = self._gauge_cls(name="vllm:num_requests_running", documentation="")
    self.prompts = Counter(name="vllm:prompt_tokens", documentation="")
    if self.show_hidden_metrics:
        self.old = self._gauge_cls(name="vllm:hidden", documentation="")
    self.ttft = pb_utils.MetricFamily(name="vllm:ttft_seconds", kind=pb_utils.MetricFamily.HISTOGRAM)
""",
            (["vllm:num_requests_running"], ["vllm:prompt_tokens_total"], ["vllm:ttft_seconds"]),
        ),
        (
            "store.go",
            """
    "kube_pod_owner", "Its \\"owner\\".", metric.Gauge,
    prometheus.CounterOpts{
        Namespace: metrics.Namespace,
        Subsystem: "cloudprovider",
        Name:      "errors_total",
    prometheus.NewDesc(
        "kuberay_service_info",
""",
            (["kube_pod_owner", "kuberay_service_info"], ["karpenter_cloudprovider_errors_total"], []),
        ),
    ],
)
def test_names_are_read_from_sources(tmp_path: Path, file: str, text: str, found: tuple[list[str], ...]) -> None:
    (tmp_path / file).write_text(text)
    assert exported_metrics.exported(tmp_path / file) == dict(zip(("gauge", "counter", "histogram"), found, strict=True))
