"""What autoscalers see in a day, without a cluster: pages of servers, Prometheus' configuration, the adapter's rules and API."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from conftest import recorded
from eks_inference.scaling.plan import QUEUE_COUNTER, RATE_WINDOW_SECONDS
from eks_inference.scaling.prometheus_adapter import RELEASE as ADAPTER
from eks_inference.speed.batching import Limits
from eks_inference_tools.cli import main
from eks_inference_tools.commands import rehearse_day
from eks_inference_tools.loadtest_report.record import published
from eks_inference_tools.reading.live_objects import Object
from eks_inference_tools.simulate.control_plane.processes import Request
from eks_inference_tools.simulate.day.custom_metrics import CustomMetrics, registration
from eks_inference_tools.simulate.day.metrics import HPA_TYPE, SCALED_OBJECT_TYPE, Pages, blind, metric_of, scalers_of, tools_for
from eks_inference_tools.simulate.day.real_prometheus import configuration
from eks_inference_tools.simulate.day.requests import QUEUE_MS, Load, Rates, Requests
from eks_inference_tools.simulate.day.subjects import POD_MONITOR_TYPE, Sources, Subject, adapter_rule, seconds, sources_of
from linear_steps import Linear
from stackgraph.graph.document import CHART_TYPE, Graph
from stackgraph.problems import ProblemsFound

STACK = "gpu-opt350m"
METRIC = "nv_inference_queue_duration_ms"


def sources(graph: Graph | None = None) -> Sources:
    found = sources_of(graph or recorded(STACK))
    assert found
    return found


# -- what there is to see --------------------------------------------------------------------------------------------------------


def test_its_rules_are_verbatim() -> None:
    files = {name: file["groups"] for name, file in sources().rule_files.items()}
    objects = recorded(STACK).of_type("kubernetes:monitoring.coreos.com/v1:PrometheusRule")
    assert sorted(map(json.dumps, files.values())) == sorted(json.dumps(r.inputs["spec"]["groups"]) for r in objects)
    assert len(files) == 3
    assert sources().relist_seconds == 30


def test_a_stack_without_its_own_prometheus_tells_that_autoscalers_see_nothing() -> None:
    graph = recorded(STACK)
    assert (tools_for(graph), list(blind(graph))) == (("prometheus",), [])
    bare = replace(graph, resources=tuple(resource for resource in graph.resources if resource.type != CHART_TYPE))
    assert tools_for(bare) == ()
    assert [words.partition(":")[0] for words in blind(bare)] == ["HorizontalPodAutoscalers see no metrics"]


def test_scaled_objects_need_keda_and_no_adapter() -> None:
    graph = recorded(STACK)
    keda = [replace(r, type=SCALED_OBJECT_TYPE) if r.type == HPA_TYPE else r for r in graph.resources]
    graph = replace(graph, resources=tuple(r for r in keda if r.inputs.get("name") != ADAPTER))
    assert (tools_for(graph), list(blind(graph)), scalers_of(graph)) == (("prometheus", "keda-on-loopback"), [], 1)
    bare = replace(graph, resources=tuple(r for r in graph.resources if r.type != CHART_TYPE))
    assert (tools_for(bare), scalers_of(bare)) == ((), 0)
    assert [words.partition(":")[0] for words in blind(bare)] == ["KEDA's ScaledObjects see no metrics"]


def scaler(*metrics: tuple[str, str, str], name: str = "triton-server") -> Object:
    """Metrics by kind, with the average of a pod and its target; without an average the controller saw none."""
    return {
        "metadata": {"name": "keda-hpa", "namespace": name},
        "spec": {
            "scaleTargetRef": {"name": name},
            "metrics": [{"type": kind.title(), kind: {"target": {"averageValue": target}}} for kind, _, target in metrics],
        },
        "status": {"currentMetrics": [{kind: {"current": {"averageValue": now}}} if now else {} for kind, now, _ in metrics]},
    }


@pytest.mark.parametrize(
    ("metrics", "seen"),
    [
        ([("pods", "7500m", "10")], 7.5),
        ([("external", "", "2"), ("external", "3", "2")], 3.0),
        ([("external", "300m", "200m"), ("external", "4", "8")], 0.3),  # the first asks for more pods
        ([("external", "", "2")], None),
    ],
)
def test_the_metric_shown_is_the_one_that_asks_for_most_pods(metrics: list[tuple[str, str, str]], seen: float | None) -> None:
    server = SimpleNamespace(template=SimpleNamespace(namespace="triton-server", name="triton-server"))
    assert metric_of(cast(Subject, server), [scaler(*metrics), scaler(("pods", "9", "1"), name="other")]) == seen


def changed(type_: str, change) -> Graph:
    """The stack's graph with ``change`` made to the inputs of the resources of a type."""
    graph = recorded(STACK)
    resources = []
    for resource in graph.resources:
        if resource.type == type_:
            inputs = json.loads(json.dumps(resource.inputs))
            change(inputs)
            resource = replace(resource, inputs=inputs)
        resources.append(resource)
    return replace(graph, resources=tuple(resources))


def test_durations() -> None:
    assert [seconds(text) for text in ("30s", "1m30s", "2h")] == [30, 90, 7200]


# -- requests, and what servers tell of them -------------------------------------------------------------------------------------


def flow(rates: Rates) -> Requests:
    load = Load(rates, input_tokens=100, output_tokens=20, late_seconds=5.0)
    return Requests(Linear(), Limits(max_num_seqs=8, kv_tokens=100_000), load)


def test_requests_come_at_the_rate_of_their_time() -> None:
    asked = flow(((0.0, 0.0), (60.0, 10.0), (120.0, 2.0), (180.0, 0.0)))
    came = [0]
    for second in range(1, 241):
        asked.advance(second, ["a"], {"a"})
        came.append(asked.came)
    by_minute = [later - earlier for earlier, later in pairwise(came[::60])]
    assert (by_minute[0], by_minute[3]) == (0, 0)
    assert by_minute[1] == pytest.approx(600, rel=0.15)
    assert by_minute[2] == pytest.approx(120, rel=0.3)


@pytest.mark.parametrize(
    ("given", "rates"),
    [("4", ((0, 4),)), ("4,1:10,3.5:0", ((0, 4), (60, 10), (210, 0)))],
)
def test_rates_as_they_are_given(given: str, rates: Rates) -> None:
    assert rehearse_day._rates(given) == rates


@pytest.mark.parametrize("given", ["", "x", "0", "-1", "4,10", "4,1:", "4,2:1,1:2", "4,0:1", "nan", "1e9"])
def test_what_is_no_rate_is_told_with_its_form(
    given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rehearse_day, "run", lambda options: 0)
    with pytest.raises(SystemExit):
        main(["rehearse", "day", STACK, f"--rate={given}"])
    assert f"given: {given or repr(given)}\n    allowed: a number of requests a second" in capsys.readouterr().err


def counters(asked: Requests, pod: str) -> dict[str, float]:
    return {name: float(value) for name, value in (line.split() for line in asked.page(pod).splitlines())}


def test_servers_count_what_they_answer_and_counters_never_fall() -> None:
    asked, before = flow(((0.0, 4.0),)), dict[str, float]()
    for second in range(1, 61):
        asked.advance(second, ["a"], {"a"})
        now = counters(asked, "a")
        assert all(now[name] >= value for name, value in before.items() if name.endswith(("_sum", "_count", "_us", "success")))
        before = now
    assert before["nv_inference_request_success"] == asked.counts()["served"]
    assert before[QUEUE_COUNTER] == round(1000 * QUEUE_MS * asked.counts()["served"])
    assert 0 < before["vllm:time_to_first_token_seconds_sum"] < 60
    assert before["vllm:inter_token_latency_seconds_count"] == 19 * asked.counts()["served"]
    assert counters(asked, "new")["nv_inference_request_success"] == 0


def test_what_waits_and_what_the_cache_holds_is_told() -> None:
    asked = flow(((0.0, 300.0),))
    for second in range(1, 11):
        asked.advance(second, ["a"], {"a"})
    found = counters(asked, "a")
    assert found["vllm:num_requests_running"] == 8
    assert found["vllm:num_requests_waiting"] > 100
    assert 0 < found["vllm:kv_cache_usage_perc"] < 1


def test_the_autoscaler_of_the_source_ends_at_the_pods_of_the_source() -> None:
    """The wait of a request is chosen by its row of 16 users; the pods of the four other rows follow."""
    pods = 1
    for run in sorted(published()[STACK].runs, key=lambda run: run.users or 0):
        assert run.completed_per_min
        while (ratio := run.completed_per_min / 60 * QUEUE_MS / pods / 10) > 1.1:
            pods = min(4, math.ceil(ratio * pods))
        assert pods == run.chips, run.users


def test_pages_are_at_the_addresses_of_their_pods() -> None:
    pages, asked = Pages(), flow(((0.0, 4.0),))
    asked.advance(10, ["a"], {"a"})
    pod = {"metadata": {"name": "a", "namespace": "n"}, "status": {"podIP": "10.0.0.1"}}
    pages.write([(pod, asked)])
    answered = pages.answer(Request("GET", "http://10.0.0.1:8002/metrics"))
    assert answered.status == 200
    assert QUEUE_COUNTER in answered.body.decode()
    assert pages.answer(Request("GET", "http://10.0.0.2:8002/metrics")).status == 502
    pages.write([])
    assert pages.answer(Request("GET", "http://10.0.0.1:8002/metrics")).status == 502


# -- configuration of Prometheus -------------------------------------------------------------------------------------------------


def jobs() -> dict[str, dict]:
    found = configuration(sources(), kubeconfig=Path("/k"), proxy="http://127.0.0.1:1", rule_files=[Path("/r")])
    return {job["job_name"]: job for job in found["scrape_configs"]}


def test_prometheus_is_configured_as_the_chart_would_have_it() -> None:
    found = configuration(sources(), kubeconfig=Path("/k"), proxy="http://127.0.0.1:1", rule_files=[Path("/r")])
    assert found["global"] == {
        "scrape_interval": "15s",
        "evaluation_interval": "15s",
        "external_labels": {"cluster": STACK},
    }
    assert found["rule_files"] == ["/r"]
    monitors = recorded(STACK).of_type(POD_MONITOR_TYPE)
    assert len(found["scrape_configs"]) == sum(len(r.inputs["spec"]["podMetricsEndpoints"]) for r in monitors)


def test_the_servers_monitor_as_a_scrape_job() -> None:
    job = jobs()["podMonitor/triton-server/triton/0"]
    assert job["kubernetes_sd_configs"] == [{"role": "pod", "kubeconfig_file": "/k", "namespaces": {"names": ["triton-server"]}}]
    keeps = [rule for rule in job["relabel_configs"] if rule.get("action") == "keep"]
    by_label = {rule["source_labels"][0]: rule["regex"] for rule in keeps}
    assert by_label == {
        "__meta_kubernetes_pod_label_eks_inference_server": r"(triton\-server);true",
        "__meta_kubernetes_pod_label_eks_inference_role": "(server);true",
        "__meta_kubernetes_pod_container_port_name": "metrics",
    }
    # The adapter's rules need both labels.
    assert {"namespace", "pod"} <= {rule.get("target_label") for rule in job["relabel_configs"]}
    assert {"source_labels": ["__meta_kubernetes_pod_label_eks_inference_server"], "target_label": "server"} in job[
        "relabel_configs"
    ]
    assert job["metric_relabel_configs"] == [
        {"action": "drop", "source_labels": ["__name__"], "regex": "(python|process)_.*|.*_created"}
    ]


def test_a_monitor_may_have_an_interval_of_its_own_and_any_namespace() -> None:
    def change(inputs) -> None:
        inputs["spec"]["podMetricsEndpoints"][0]["interval"] = "7s"
        inputs["spec"]["namespaceSelector"] = {"any": True}

    found = configuration(sources(changed(POD_MONITOR_TYPE, change)), kubeconfig=Path("/k"), proxy="p", rule_files=[])
    job = next(job for job in found["scrape_configs"] if job["job_name"] == "podMonitor/triton-server/triton/0")
    assert job["scrape_interval"] == "7s"
    assert "namespaces" not in job["kubernetes_sd_configs"][0]


# -- rules of the adapter --------------------------------------------------------------------------------------------------------


def test_the_stacks_rules_name_its_metrics() -> None:
    raw, recorded_one = sources().rules
    assert raw.metric_of(QUEUE_COUNTER) == "nv_inference_queue_duration_ms"
    assert raw.metric_of("nv_inference_request_success") is None
    assert recorded_one.metric_of("pod:triton_queue_ms_per_request:mean1m") == "triton_queue_ms_per_request"


def test_a_rule_is_filled_in_as_the_adapter_does() -> None:
    rule = sources().rules[0]
    both = rule.expression(QUEUE_COUNTER, namespace="t", pods=["a", "b"])
    window = f"[{RATE_WINDOW_SECONDS}s]"
    assert both == f'avg by (pod) (rate({QUEUE_COUNTER}{{namespace="t",pod=~"a|b"}}{window}) / 1000)'
    assert 'pod="a"' in rule.expression(QUEUE_COUNTER, namespace="t", pods=["a"])


RULE = {
    "seriesQuery": "x",
    "resources": {"overrides": {"ns": {"resource": "namespaces"}, "p": {"resource": "pod"}}},
    "metricsQuery": "<<.Series>>{<<.LabelMatchers>>}",
}


def test_names_and_labels_in_the_adapters_other_spellings() -> None:
    assert adapter_rule(RULE).metric_of("anything") == "anything"
    assert adapter_rule(RULE | {"name": {"matches": "^(.*)_total$"}}).metric_of("a_total") == "a"
    assert adapter_rule(RULE | {"name": {"matches": "^(.*)_total$", "as": "x_$1"}}).metric_of("a_total") == "x_a"
    assert adapter_rule(RULE | {"seriesFilters": [{"isNot": "^a"}]}).metric_of("abc") is None
    assert adapter_rule(RULE).expression("s", namespace="n", pods=["q"]) == 's{ns="n",p="q"}'
    template = adapter_rule(RULE | {"resources": {"template": "kube_<<.Resource>>"}})
    assert template.expression("s", namespace="n", pods=["q"]) == 's{kube_namespace="n",kube_pod="q"}'


@pytest.mark.parametrize("query", ["<<.LabelValuesByName>>", "<< range .GroupBySlice >>"])
def test_a_query_that_cannot_be_filled_in_is_refused(query: str) -> None:
    with pytest.raises(ProblemsFound, match="cannot fill in"):
        adapter_rule(RULE | {"metricsQuery": query})


def test_a_rule_without_a_label_for_pods_is_refused() -> None:
    with pytest.raises(ProblemsFound, match="does not map labels"):
        adapter_rule(RULE | {"resources": {"overrides": {"ns": {"resource": "namespace"}}}})


# -- the custom metrics API ------------------------------------------------------------------------------------------------------


class OnePrometheus:
    """What the stand-in asks, with answers made up."""

    def __init__(self, values: dict[str, float]) -> None:
        self.found = values

    def series(self, selector: str, *, since: float) -> frozenset[str]:
        return frozenset({QUEUE_COUNTER} if selector.startswith(QUEUE_COUNTER) else ())

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        return [({"pod": pod}, value) for pod, value in self.found.items()]


class OneApi:
    def list(self, resource: str, namespace: str, **query: str) -> list[dict]:
        assert (resource, namespace, query) == ("pods", "t", {"labelSelector": "app=t"})
        return [{"metadata": {"name": name}} for name in ("a", "b", "c")]


def custom_metrics(values: dict[str, float]) -> CustomMetrics:
    made = CustomMetrics(sources().rules, OnePrometheus(values), OneApi())  # type: ignore[arg-type]
    made.list_series(30)
    return made


METRICS_API = "/apis/custom.metrics.k8s.io/v1beta1"


def values_address() -> str:
    return f"{METRICS_API}/namespaces/t/pods/%2A/{METRIC}?labelSelector=app%3Dt"


def test_values_as_the_controller_gets_them() -> None:
    """A pod without a value is left out, one of another name is not let in, and NaN is 0, as in the adapter."""
    answered = custom_metrics({"a": 1.2345, "b": math.nan, "other": 7}).answer(Request("GET", values_address()))
    found = json.loads(answered.body)
    assert (answered.status, found["kind"]) == (200, "MetricValueList")
    assert {item["describedObject"]["name"]: item["value"] for item in found["items"]} == {"a": "1234m", "b": "0m"}
    assert {item["metricName"] for item in found["items"]} == {METRIC}


def test_discovery_has_the_metrics_that_have_series() -> None:
    found = json.loads(custom_metrics({}).answer(Request("GET", METRICS_API)).body)
    assert [resource["name"] for resource in found["resources"]] == [f"pods/{METRIC}"]


def test_unknown_metrics_and_other_paths_are_not_found() -> None:
    metrics = custom_metrics({})
    for path in (f"{METRICS_API}/namespaces/t/pods/%2A/unknown?labelSelector=app%3Dt", f"{METRICS_API}/nodes/n/x", "/openapi/v2"):
        answered = metrics.answer(Request("GET", path))
        assert answered.status == 404
        assert json.loads(answered.body)["kind"] == "Status"
    assert metrics.answer(Request("POST", values_address())).status == 405


def test_a_prometheus_that_does_not_answer_is_an_error_to_the_controller() -> None:
    import requests

    metrics = custom_metrics({})

    def query(expression: str):
        raise requests.ConnectionError

    metrics._prometheus.query = query  # type: ignore[method-assign]
    assert metrics.answer(Request("GET", values_address())).status == 500


def test_the_registration_leads_to_loopback() -> None:
    _, service, api_service = registration("monitoring", 1234)
    assert service["spec"] == {"type": "ExternalName", "externalName": "localhost"}
    assert api_service["spec"]["service"] == {"name": service["metadata"]["name"], "namespace": "monitoring", "port": 1234}
