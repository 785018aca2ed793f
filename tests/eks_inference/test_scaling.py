"""Autoscalers: what a user may write, what is asked of Prometheus, the objects, and what they stand on."""

import re
from typing import Any, get_args

import pulumi
import pulumi_kubernetes as k8s
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from test_observability_rules import needs_promtool, promtool

from conftest import ROOT
from eks_inference.faults import SpecError
from eks_inference.observability.handle import ExistingPrometheus
from eks_inference.observability.prometheus import PrometheusStack
from eks_inference.observability.spec import PrometheusSpec
from eks_inference.place.placement import Taint
from eks_inference.scaling import plan
from eks_inference.scaling.component import Autoscaler, ExistingKeda, ExistingPrometheusAdapter
from eks_inference.scaling.keda import Keda
from eks_inference.scaling.prometheus_adapter import PrometheusAdapter
from eks_inference.scaling.spec import (
    AutoscalerSpec,
    HpaMetric,
    HpaSpec,
    KedaOperatorSpec,
    KedaSpec,
    PrometheusAdapterSpec,
    Step,
    out_of_turn,
)
from eks_inference_tools.check.cluster_object_rules import one_owner_of_replicas
from eks_inference_tools.reading.graph_facts import GraphFacts
from golden import assert_golden
from graphs import stands_on
from handles import existing_cluster, placement
from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from stackgraph.views.manifests import manifest
from traffic import policies_of

KEDA = {"kind": "keda", "max": 4}
HPA = {"kind": "hpa", "max": 4}


def autoscaler(spec: dict[str, Any]) -> Any:
    return TypeAdapter(AutoscalerSpec).validate_python(spec)


def keda(**spec: Any) -> KedaSpec:
    return KedaSpec.model_validate({**KEDA, **spec})


def hpa(**spec: Any) -> HpaSpec:
    return HpaSpec.model_validate({**HPA, **spec})


def queries(spec: KedaSpec) -> dict[str, tuple[str, float]]:
    return plan.keda_queries(spec, namespace="ns", deployment="llama")


# -- what a user may write ------------------------------------------------------------------------------------------------------


def test_the_target_follows_the_metric_until_given() -> None:
    assert hpa(metric="vllm_time_to_first_token_ms").target == 500
    assert hpa(metric="vllm_time_to_first_token_ms", target=80).target == 80
    assert hpa(metric="triton_queue_ms_per_request").target == 10


@pytest.mark.parametrize(
    ("spec", "key"),
    [
        ({**KEDA, "min": 5}, "min 5 is more than max 4"),
        ({**KEDA, "kv_cache_use": 80}, "kv_cache_use"),
        ({**KEDA, "scale_in_seconds": 4000}, "scale_in_seconds"),
        ({**HPA, "metric": "num_requests_running"}, "metric"),
        ({**HPA, "scale_in_step": {"pods": 1, "percent": 50}}, "either pods or percent"),
        ({**HPA, "scale_in_step": {"every_seconds": 60}}, "either pods or percent"),
        ({**HPA, "scale_in_step": {"pods": 1, "every_seconds": 2000}}, "every_seconds"),
        ({**KEDA, "cooldown_seconds": 300}, "cooldown_seconds"),
    ],
)
def test_values_that_cannot_work_are_refused(spec: dict[str, Any], key: str) -> None:
    with pytest.raises(ValidationError, match=key):
        autoscaler(spec)


# -- queries of KEDA ------------------------------------------------------------------------------------------------------------


def test_the_signals_and_what_a_pod_may_have_of_them() -> None:
    assert {name: value for name, (_, value) in queries(keda()).items()} == {"waiting": 4, "kv-cache": 0.8}
    wanted = queries(keda(waiting_requests=2, kv_cache_use=0.5, concurrent_requests=20))
    assert {name: value for name, (_, value) in wanted.items()} == {"waiting": 2, "kv-cache": 0.5, "concurrent": 20}


NAME = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


@given(server=NAME, other=NAME, replica_set=st.from_regex(r"[0-9a-f]{5,10}", fullmatch=True))
def test_pods_are_told_from_those_of_servers_with_similar_names(server: str, other: str, replica_set: str) -> None:
    pattern = re.search(r'pod=~"([^"]+)"', plan.pods_of("ns", server))
    assert pattern
    assert re.fullmatch(pattern[1], f"{server}-{replica_set}-x7k2p")
    if other != server:
        assert not re.fullmatch(pattern[1], f"{server}-{other}-{replica_set}-x7k2p")
        assert not re.fullmatch(pattern[1], f"{other}-{server}-{replica_set}-x7k2p")


PODS = {
    "llama-7f9c-aaaaa": {"waiting": 3, "running": 20, "kv": 0.6},
    "llama-7f9c-bbbbb": {"waiting": 5, "running": 24, "kv": 0.9},
}
SERIES = {"waiting": "vllm:num_requests_waiting", "running": "vllm:num_requests_running", "kv": "vllm:kv_cache_usage_perc"}
STRANGERS = [
    {"series": 'vllm:num_requests_waiting{namespace="ns", pod="llama-2-7f9c-ccccc", model_name="m"}', "values": "100x20"},
    {"series": 'vllm:num_requests_waiting{namespace="other", pod="llama-7f9c-aaaaa", model_name="m"}', "values": "100x20"},
]


def gauges(pods: dict[str, dict[str, float]], labels: str = 'model_name="m", engine="0"', **names: str) -> list[dict[str, str]]:
    return [
        {"series": f'{ {**SERIES, **names}[what] }{{namespace="ns", pod="{pod}", {labels}}}', "values": f"{value}x20"}
        for pod, values in pods.items()
        for what, value in values.items()
    ]


@needs_promtool
@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (gauges(PODS) + STRANGERS, {"waiting": 8, "kv-cache": 1.5, "concurrent": 52}),
        # A pod that still loads has no series: it counts as one that holds nothing, and the sum stays one element.
        (gauges({"llama-7f9c-aaaaa": PODS["llama-7f9c-aaaaa"]}), {"waiting": 3, "kv-cache": 0.6, "concurrent": 23}),
        # Of two engines of a pod, the fuller cache; requests of both.
        (
            gauges({"llama-7f9c-aaaaa": PODS["llama-7f9c-aaaaa"]})
            + gauges({"llama-7f9c-aaaaa": {"waiting": 1, "running": 1, "kv": 0.2}}, 'model_name="m", engine="1"'),
            {"waiting": 4, "kv-cache": 0.6, "concurrent": 25},
        ),
        (gauges(PODS, kv="vllm:gpu_cache_usage_perc"), {"waiting": 8, "kv-cache": 1.5, "concurrent": 52}),
        # Releases between the two names have both: each pod counts once.
        (
            gauges(PODS) + gauges({pod: {"kv": values["kv"]} for pod, values in PODS.items()}, kv="vllm:gpu_cache_usage_perc"),
            {"waiting": 8, "kv-cache": 1.5, "concurrent": 52},
        ),
        # Nothing known is no element, which KEDA takes for an error, and not 0, which would take pods away.
        (STRANGERS, {"waiting": None, "kv-cache": None, "concurrent": None}),
    ],
    ids=["two pods", "one loads", "two engines", "old name", "both names", "nothing"],
)
def test_every_query_is_one_sum_over_the_servers_pods(tmp_path: Any, series: list[Any], expected: dict[str, Any]) -> None:
    asked = queries(keda(concurrent_requests=20))
    run_promql(
        tmp_path,
        series,
        {query: [] if expected[name] is None else [("{}", expected[name])] for name, (query, _) in asked.items()},
    )


def run_promql(where: Any, series: list[dict[str, str]], expected: dict[str, list[tuple[str, float]]]) -> None:
    """Runs expressions over series of a scrape each 15 seconds, five minutes in."""
    checks = [
        {"expr": expression, "eval_time": "5m", "exp_samples": [{"labels": labels, "value": value} for labels, value in samples]}
        for expression, samples in expected.items()
    ]
    case = {"interval": "15s", "input_series": series, "promql_expr_test": checks}
    (where / "case.yaml").write_text(yaml.safe_dump({"rule_files": [], "fuzzy_compare": True, "tests": [case]}))
    result = promtool("test", "rules", "case.yaml", where=where)
    assert result.returncode == 0, result.stdout + result.stderr


# -- rules of prometheus-adapter ------------------------------------------------------------------------------------------------


def recorded() -> list[dict[str, Any]]:
    return [rule for group in plan.recording_rules()["groups"] for rule in group["rules"]]


def served(series: str) -> tuple[str, str] | None:
    """As prometheus-adapter does: the name under which a series is served, and the query for pods a and b of namespace t."""
    for rule in plan.adapter_rules():
        found = re.search(rule["name"]["matches"], series)
        names = re.search(r'^(\w+){|__name__=~"([^"]+)"', rule["seriesQuery"])
        if found and names and (names[1] == series or (names[2] and re.fullmatch(names[2], series))):
            query = rule["metricsQuery"].replace("<<.Series>>", series)
            query = query.replace("<<.LabelMatchers>>", 'namespace="t",pod=~"a|b"').replace("<<.GroupBy>>", "pod")
            return re.sub(r"\$\{1\}", found[1], rule["name"]["as"]), query
    return None


def test_every_metric_of_an_hpa_is_served_and_nothing_else() -> None:
    names = {found[0] for series in (plan.QUEUE_COUNTER, *(rule["record"] for rule in recorded())) if (found := served(series))}
    assert names == set(get_args(HpaMetric))


def test_pods_and_namespaces_are_found_by_the_labels_of_a_pod_monitor() -> None:
    for rule in plan.adapter_rules():
        assert rule["resources"]["overrides"] == {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
        assert 'namespace!="",pod!=""' in rule["seriesQuery"]


@needs_promtool
def test_the_source_systems_metric_is_milliseconds_of_waiting_a_second(tmp_path: Any) -> None:
    """20 requests a second that wait 0.5 ms each, and 0.2 that wait 500 ms each."""
    found = served(plan.QUEUE_COUNTER)
    assert found
    name, query = found
    assert name == "nv_inference_queue_duration_ms"
    series = [
        {"series": 'nv_inference_queue_duration_us{namespace="t", pod="a", model="m"}', "values": "0+150000x40"},
        {"series": 'nv_inference_queue_duration_us{namespace="t", pod="b", model="m"}', "values": "0+1500000x40"},
        {"series": 'nv_inference_queue_duration_us{namespace="t", pod="c", model="m"}', "values": "0+1x40"},
    ]
    run_promql(tmp_path, series, {query: [('{pod="a"}', 10), ('{pod="b"}', 100)]})


@needs_promtool
@pytest.mark.parametrize("rule", recorded(), ids=lambda rule: rule["record"])
def test_what_is_recorded_is_passed_on(tmp_path: Any, rule: dict[str, Any]) -> None:
    found = served(rule["record"])
    assert found
    series = [
        {"series": f'{rule["record"]}{{namespace="t", pod="{pod}"}}', "values": f"{value}x40"}
        for pod, value in (("a", 3), ("c", 9))
    ]
    run_promql(tmp_path, series, {found[1]: [('{pod="a"}', 3)]})


@needs_promtool
def test_the_rules_are_rules() -> None:
    result = promtool("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", where=ROOT / ASSETS)
    assert result.returncode == 0, result.stdout + result.stderr


ASSETS = "components/eks_inference/scaling/assets"


def test_every_rule_has_a_case() -> None:
    """``test_observability_rules`` runs them."""
    cases = (ROOT / "tests" / "promtool" / "scaling.yaml").read_text()
    assert all(rule["record"] in cases for rule in recorded())


def test_rules_are_over_the_window_that_is_judged() -> None:
    window = f"[{plan.RATE_WINDOW_SECONDS // 60}m]"
    for rule in recorded():
        assert set(re.findall(r"\[[^]]*\]", rule["expr"])) == {window}


@given(every=st.integers(15, 3600))
def test_series_are_looked_for_no_more_often_than_they_come(every: int) -> None:
    assert plan.relist_seconds(every) >= every
    assert plan.relist_seconds(15) == 30, "the source system's"


# -- objects --------------------------------------------------------------------------------------------------------------------


def test_the_whole_of_both_objects() -> None:
    objects = [
        plan.horizontal_pod_autoscaler(hpa(), namespace="triton-server", deployment="opt350m"),
        plan.scaled_object(
            keda(concurrent_requests=20),
            namespace="llama",
            deployment="llama",
            prometheus_url="http://prometheus.monitoring.svc:9090",
        ),
    ]
    assert_golden("scaling/autoscalers.yaml", yaml.safe_dump_all(objects, sort_keys=False, width=130))


@pytest.mark.parametrize(("target", "quantity"), [(10, "10"), (0.5, "500m"), (12.25, "12250m"), (1500, "1500")])
def test_targets_are_quantities(target: float, quantity: str) -> None:
    (metric,) = plan.horizontal_pod_autoscaler(hpa(target=target), namespace="n", deployment="d")["spec"]["metrics"]
    assert metric["pods"]["target"] == {"type": "AverageValue", "averageValue": quantity}


STEPS = st.one_of(
    st.builds(Step, pods=st.integers(1, 50), every_seconds=st.integers(1, 1800)),
    st.builds(Step, percent=st.integers(1, 400), every_seconds=st.integers(1, 1800)),
)


@given(out=STEPS, in_=STEPS, windows=st.tuples(st.integers(0, 3600), st.integers(0, 3600)))
def test_both_say_the_same_of_steps_and_windows(out: Step, in_: Step, windows: tuple[int, int]) -> None:
    wish = {"scale_out_seconds": windows[0], "scale_in_seconds": windows[1], "scale_out_step": out, "scale_in_step": in_}
    by_hpa = plan.horizontal_pod_autoscaler(hpa(**wish), namespace="n", deployment="d")["spec"]["behavior"]
    by_keda = plan.scaled_object(keda(**wish), namespace="n", deployment="d", prometheus_url="http://p")
    assert by_keda["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == by_hpa
    for direction, step, window in (("scaleUp", out, windows[0]), ("scaleDown", in_, windows[1])):
        (policy,) = by_hpa[direction]["policies"]
        assert policy["value"] == (step.pods or step.percent)
        assert policy["type"] == ("Pods" if step.pods else "Percent")
        assert (policy["periodSeconds"], by_hpa[direction]["stabilizationWindowSeconds"]) == (step.every_seconds, window)


WORKDAYS = {"start": "0 7 * * 1-5", "end": "30 19 * * MON-fri", "timezone": "Europe/Berlin", "pods": 3}


def test_a_schedule_is_a_trigger_beside_the_signals() -> None:
    wish = keda(min=1, max=4, schedule=[WORKDAYS])
    triggers = plan.scaled_object(wish, namespace="n", deployment="d", prometheus_url="http://p")["spec"]["triggers"]
    hours = {"timezone": "Europe/Berlin", "start": "0 7 * * 1-5", "end": "30 19 * * MON-fri", "desiredReplicas": "3"}
    assert triggers[-1] == {"type": "cron", "name": "schedule-0", "metadata": hours}
    assert [trigger["type"] for trigger in triggers[:-1]] == ["prometheus", "prometheus"]


def test_the_number_of_pods_depends_on_something() -> None:
    nothing: dict[str, Any] = {"waiting_requests": None, "kv_cache_use": None}
    with pytest.raises(SpecError, match="depends on nothing; give at least one of waiting_requests, kv_cache_use"):
        keda(**nothing)
    assert keda(**nothing, concurrent_requests=8).concurrent_requests == 8


@pytest.mark.parametrize("start", ["*/15 8-17/2 1,15 jan-mar ?", "59 23 31 12 6", "0 0 * * sun"])
def test_a_schedule_takes_what_cron_of_keda_takes(start: str) -> None:
    assert keda(max=4, schedule=[{**WORKDAYS, "start": start}]).schedule[0].start == start


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"start": "0 24 * * *"}, "'24' is no hour"),
        ({"start": "0 9-8 * * *"}, "'9-8' is no hour"),
        ({"start": "0 8 * * mo"}, "'mo' is no day of the week"),
        ({"start": "0 8 0 * *"}, "'0' is no day of the month"),
        ({"start": "*/0 8 * * *"}, "'*/0' is no minute"),
        ({"end": "0 0 8 * * *"}, "five fields"),
        ({"start": "0 \u0668 * * *"}, "is no hour"),
        ({"end": "@daily"}, "five fields"),
        ({"end": WORKDAYS["start"]}, "are the same"),
        ({"timezone": "Berlin"}, "not a time zone"),
        ({"pods": 1}, "more than min 1"),
        ({"pods": 5}, "at most max 4"),
    ],
)
def test_a_schedule_that_keda_refuses_or_that_does_nothing_is_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecError, match=re.escape(why)):
        keda(min=1, max=4, schedule=[{**WORKDAYS, **changed}])


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [
        ("0 20 * * *", "0 8 * * *", ""),
        ("0 8 * * mon", "0 20 * * fri", ""),
        ("0 8 1 * *", "0 8 2 * ?", ""),
        ("0 8 13 * fri", "0 20 13 * fri", ""),  # Fridays, and the 13th
        ("0 8 * * 1-5", "0 20 * * 5", "start comes on Mon 08:00 and again on Tue 08:00: pods begin only then"),
        ("* 8 * * *", "0 20 * * *", "start comes on Sat 08:00 and again on Sat 08:01: pods begin only then"),
        ("0 8 * * *", "0 18/2 * * *", "end comes on Sat 18:00 and again on Sat 20:00: pods stay until then"),
        ("0 8 * * *", "00 8 * * *", "both come on Sat 08:00: pods stay until the next end"),
        ("0 8 30 2 *", "0 20 * * *", "start 0 8 30 2 * never comes"),
    ],
)
def test_start_and_end_of_a_schedule_take_turns(start: str, end: str, why: str) -> None:
    assert out_of_turn(start, end) == why


# -- the autoscaler as a resource -----------------------------------------------------------------------------------------------


class Server:
    """A model server of one Deployment that says nothing of its pods' number, unless told to."""

    namespace = "ns"
    deployment_name = "llama"

    def __init__(self, provider: pulumi.ProviderResource, replicas: int | None = None) -> None:
        labels = {"app": "llama"}
        body: dict[str, Any] = {
            "metadata": {"name": self.deployment_name, "namespace": self.namespace},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "s", "image": "i:1"}]}},
                **({} if replicas is None else {"replicas": replicas}),
            },
        }
        self.ready = (k8s.apps.v1.Deployment("server", **body, opts=pulumi.ResourceOptions(provider=provider)),)


def scaled(
    spec: dict[str, Any], *, replicas: int | None = None, existing: bool = False, url: str | None = "http://p:9090"
) -> Graph:
    """An autoscaler with all it stands on, ours or there already."""

    def build() -> None:
        cluster, where = existing_cluster(), placement("m5.2xlarge", pool="core")
        if existing:
            metrics = ExistingPrometheus(cluster, "prom", url=url)
            backend = ExistingKeda() if spec["kind"] == "keda" else ExistingPrometheusAdapter()
        else:
            metrics = PrometheusStack("p", PrometheusSpec(), cluster=cluster, placement=where)
            backend = (
                Keda("k", KedaOperatorSpec(), cluster=cluster, placement=where, prometheus=metrics)
                if spec["kind"] == "keda"
                else PrometheusAdapter("a", PrometheusAdapterSpec(), cluster=cluster, placement=where, metrics=metrics)
            )
        server = Server(cluster.provider, replicas)
        Autoscaler("llama-autoscaler", autoscaler(spec), cluster=cluster, server=server, metrics=metrics, backend=backend)

    return record(build)


@pytest.mark.parametrize(
    ("spec", "type_", "below"),
    [
        (KEDA, "kubernetes:keda.sh/v1alpha1:ScaledObject", "k-release"),
        (HPA, "kubernetes:autoscaling/v2:HorizontalPodAutoscaler", "a-release"),
    ],
    ids=["keda", "hpa"],
)
def test_one_object_scales_the_deployment_and_goes_before_what_it_needs(spec: dict[str, Any], type_: str, below: str) -> None:
    graph = scaled(spec)
    (scaler,) = graph.of_type(type_)
    assert scaler.inputs["metadata"]["namespace"] == "ns"
    assert scaler.inputs["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llama"}
    for lower in (below, "server", "p-release"):
        assert stands_on(graph, scaler, graph.named(lower)), lower


@pytest.mark.parametrize("spec", [KEDA, HPA], ids=["keda", "hpa"])
def test_it_alone_owns_the_number_of_pods(spec: dict[str, Any]) -> None:
    (judgement,) = one_owner_of_replicas.judge(GraphFacts(scaled(spec)))
    assert judgement.holds
    assert "1 to 4 pods" in judgement.working[0] or "1–4 pods" in judgement.working[0]
    (judgement,) = one_owner_of_replicas.judge(GraphFacts(scaled(spec, replicas=2)))
    assert not judgement.holds


def test_keda_asks_our_prometheus() -> None:
    (scaler,) = scaled(KEDA).of_type("kubernetes:keda.sh/v1alpha1:ScaledObject")
    addresses = {trigger["metadata"]["serverAddress"] for trigger in scaler.inputs["spec"]["triggers"]}
    assert addresses == {"http://kube-prometheus-stack-prometheus.monitoring.svc.cluster.local:9090"}


def test_what_a_team_already_runs_is_enough() -> None:
    graph = scaled(KEDA, existing=True)
    (scaler,) = graph.of_type("kubernetes:keda.sh/v1alpha1:ScaledObject")
    assert scaler.inputs["spec"]["triggers"][0]["metadata"]["serverAddress"] == "http://p:9090"
    assert not graph.of_type("kubernetes:helm.sh/v3:Release")


def test_the_address_of_prometheus_has_to_be_known() -> None:
    with pytest.raises(ProgramError, match="its address is not known"):
        scaled(KEDA, existing=True, url=None)


def test_the_backend_is_of_the_autoscalers_kind() -> None:
    def build() -> None:
        cluster = existing_cluster()
        metrics = ExistingPrometheus(cluster, "prom", url="http://p")
        Autoscaler("s", hpa(), cluster=cluster, server=Server(cluster.provider), metrics=metrics, backend=ExistingKeda())

    with pytest.raises(ProgramError, match="another kind"):
        record(build)


# -- KEDA and prometheus-adapter ------------------------------------------------------------------------------------------------


def backends(spec: dict[str, Any] | None = None, *, every_s: int = 15, **settings: Any) -> Graph:
    """Both, beside our Prometheus."""

    def build() -> None:
        cluster = existing_cluster(**settings)
        where = placement("m5.2xlarge", pool="core", taints=(Taint("role", "core", "NoSchedule"),))
        prometheus = PrometheusStack("p", PrometheusSpec(), cluster=cluster, placement=where)
        values = {"values": spec or {}}
        Keda("k", KedaOperatorSpec.model_validate(values), cluster=cluster, placement=where, prometheus=prometheus)
        PrometheusAdapter(
            "a",
            PrometheusAdapterSpec.model_validate(values),
            cluster=cluster,
            placement=where,
            metrics=prometheus,
            scrape_interval_seconds=every_s,
        )

    return record(build)


def test_the_whole_of_both_backends() -> None:
    graph = backends()
    ours = [resource for resource in graph.resources if resource.custom and resource.name.startswith(("k-", "a-"))]
    objects = [manifest(resource) for resource in ours if not resource.name.endswith("-release")]
    releases = [{"release": r.inputs["name"], "values": r.inputs["values"]} for r in ours if r.name.endswith("-release")]
    assert_golden("scaling/backends.yaml", yaml.safe_dump_all([*objects, *releases], sort_keys=False, width=130))


def test_the_users_values_are_merged_over_what_the_stack_does_not_rely_on() -> None:
    graph = backends({"logLevel": 4, "resources": {"limits": None}, "rbac": {"enabledCustomScaledRefKinds": True}})
    assert graph.named("a-release").inputs["values"]["logLevel"] == 4
    assert graph.named("a-release").inputs["values"]["resources"]["limits"] is None
    assert graph.named("k-release").inputs["values"]["rbac"] == {"enabledCustomScaledRefKinds": True}


def test_the_adapter_serves_our_rules_only_and_looks_no_more_often_than_there_are_scrapes() -> None:
    values = backends(every_s=60).named("a-release").inputs["values"]
    assert values["rules"] == {"default": False, "custom": plan.adapter_rules()}
    assert values["metricsRelistInterval"] == "60s"
    assert values["prometheus"] == {"url": "http://kube-prometheus-stack-prometheus.monitoring.svc.cluster.local:9090", "port": 0}


def test_images_go_to_their_mirrors() -> None:
    graph = backends(mirrors={"ghcr.io": "reg.example/ghcr", "registry.k8s.io": "reg.example/k8s"})
    images = graph.named("k-release").inputs["values"]["image"]
    assert images["webhooks"] == {"registry": "reg.example", "repository": "ghcr/kedacore/keda-admission-webhooks"}
    adapter = graph.named("a-release").inputs
    assert adapter["values"]["image"] == {"repository": "reg.example/k8s/prometheus-adapter/prometheus-adapter"}
    assert adapter["chart"] == "oci://reg.example/ghcr/prometheus-community/charts/prometheus-adapter"


def test_a_teams_own_prometheus_finds_the_rules() -> None:
    def build() -> None:
        cluster = existing_cluster()
        metrics = ExistingPrometheus(cluster, "prom", {"release": "prometheus"}, url="http://p:9090")
        where = placement("m5.2xlarge", pool="core")
        PrometheusAdapter("a", PrometheusAdapterSpec(), cluster=cluster, placement=where, metrics=metrics)

    metadata = record(build).named("a-rules").inputs["metadata"]
    assert (metadata["namespace"], metadata["labels"]) == ("prom", {"release": "prometheus"})


def test_without_a_prometheus_of_ours_keda_opens_nothing_there() -> None:
    def build() -> None:
        Keda("k", KedaOperatorSpec(), cluster=existing_cluster(), placement=placement("m5.2xlarge", pool="core"))

    (policy,) = policies_of(record(build))
    assert policy["metadata"]["namespace"] == "keda"
