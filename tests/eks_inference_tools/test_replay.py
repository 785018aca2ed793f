"""The replay of an autoscaler but for running one: model, simulated servers, configuration, rules, judgements, picture, text."""

import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from conftest import ROOT, recorded
from eks_inference.scaling.plan import QUEUE_COUNTER, RATE_WINDOW_SECONDS
from eks_inference_tools.cli import main
from eks_inference_tools.program import StackProgram
from eks_inference_tools.simulate.control_plane import tool_build
from eks_inference_tools.simulate.control_plane.processes import Request
from eks_inference_tools.simulate.control_plane.toolchain import installed
from eks_inference_tools.simulate.replay import run
from eks_inference_tools.simulate.replay.custom_metrics import CustomMetrics, registration
from eks_inference_tools.simulate.replay.prometheus import configuration
from eks_inference_tools.simulate.replay.report import Report, judge, reported
from eks_inference_tools.simulate.replay.subject import (
    HPA_TYPE,
    POD_MONITOR_TYPE,
    TIMELINE,
    Sample,
    Subject,
    adapter_rule,
    seconds,
    steps,
    subject_of,
)
from eks_inference_tools.simulate.replay.text import render_plot, render_text
from eks_inference_tools.simulate.replay.triton import SUCCESS, Fleet, Replica, fitted, predictions, rows, settled, wanted
from json_schemas import unlike
from stackgraph.graph.document import Graph
from stackgraph.presentation.terminal import WIDTH
from stackgraph.problems import ProblemsFound

STACK = "gpu-opt350m"


@cache
def subject() -> Subject:
    return subject_of(recorded(STACK))


@cache
def model() -> Replica:
    return fitted(rows(), subject().limits.target)


# -- what is replayed ------------------------------------------------------------------------------------------------------------


def test_the_subject_is_the_stacks_own() -> None:
    assert (subject().namespace, subject().name, subject().deployment) == ("triton-server",) * 3
    assert subject().metric == "nv_inference_queue_duration_ms"
    limits = subject().limits
    assert (limits.least, limits.most, limits.target, limits.scale_in_seconds) == (1, 4, 10, 120)
    assert (limits.scrape_seconds, limits.relist_seconds) == (15, 30)
    (hpa,) = recorded(STACK).of_type(HPA_TYPE)
    assert subject().autoscaler == hpa.inputs


def test_its_rules_are_verbatim() -> None:
    files = {name: file["groups"] for name, file in subject().rule_files.items()}
    objects = recorded(STACK).of_type("kubernetes:monitoring.coreos.com/v1:PrometheusRule")
    assert sorted(map(json.dumps, files.values())) == sorted(json.dumps(r.inputs["spec"]["groups"]) for r in objects)
    assert len(files) == 3


@pytest.mark.thorough
@pytest.mark.parametrize("stack", ["inf2-llama2", "inf2-llama3", "trn2-di", "trn2-di-pair"])
def test_other_stacks_are_refused_with_a_word(stack: str) -> None:
    with pytest.raises(ProblemsFound, match="kind hpa"):
        subject_of(recorded(stack))


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


def test_keda_is_refused_and_the_reason_said() -> None:
    graph = recorded(STACK)
    keda = [replace(r, type="kubernetes:keda.sh/v1alpha1:ScaledObject") if r.type == HPA_TYPE else r for r in graph.resources]
    with pytest.raises(ProblemsFound, match=r"KEDA scales here \(triton-server/triton-server\)"):
        subject_of(replace(graph, resources=tuple(keda)))


def metric(name: str):
    def change(inputs) -> None:
        inputs["spec"]["metrics"][0]["pods"]["metric"]["name"] = name

    return change


def test_a_metric_that_the_simulated_servers_do_not_have_is_refused() -> None:
    with pytest.raises(ProblemsFound, match="does not export a series for vllm_time_to_first_token_ms"):
        subject_of(changed(HPA_TYPE, metric("vllm_time_to_first_token_ms")))


def test_a_metric_recorded_from_what_they_have_is_taken() -> None:
    assert subject_of(changed(HPA_TYPE, metric("triton_queue_ms_per_request"))).metric == "triton_queue_ms_per_request"


def test_defaults_are_those_of_kubernetes_and_the_charts() -> None:
    def change(inputs) -> None:
        del inputs["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"]
        del inputs["spec"]["minReplicas"]

    limits = subject_of(changed(HPA_TYPE, change)).limits
    assert (limits.least, limits.scale_in_seconds) == (1, 300)

    def at_once(inputs) -> None:
        inputs["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0

    assert subject_of(changed(HPA_TYPE, at_once)).limits.scale_in_seconds == 0


def test_durations() -> None:
    assert [seconds(text) for text in ("30s", "1m30s", "2h")] == [30, 90, 7200]


# -- the model -------------------------------------------------------------------------------------------------------------------


def test_the_model_meets_the_rows_it_is_fitted_to_and_only_those() -> None:
    found = {row.users: row for row in predictions(model(), rows(), target=10, least=1, most=4)}
    assert [users for users, row in found.items() if row.fitted] == [8, 16]
    for users in (8, 16):
        assert found[users].latency_ms == pytest.approx(found[users].measured_ms)
        assert found[users].completed_per_s == pytest.approx(found[users].measured_per_s, rel=0.02)  # not fitted to
    changed_rows = [replace(run, metrics={"e2e_ms": {"mean": 1.0}}) if (run.users or 0) > 16 else run for run in rows()]
    assert fitted(changed_rows, 10) == model()


def test_what_the_model_makes_of_the_other_rows() -> None:
    """As it is shown: it is off by a quarter to two fifths with the source's last pods, by less with its first ones."""
    found = [row for row in predictions(model(), rows(), target=10, least=1, most=4) if not row.fitted]
    assert [round(row.latency_ms / row.measured_ms - 1, 2) for row in found] == [-0.27, -0.26, -0.42]
    assert [round(row.latency_before_ms / row.measured_ms - 1, 2) for row in found] == [-0.01, -0.10, -0.31]
    assert [(row.pods, row.pods_wanted) for row in found] == [(2, 2), (3, 4), (4, 4)]


def test_sixteen_users_on_a_pod_are_at_the_target() -> None:
    assert model().queueing(16) == pytest.approx(subject().limits.target)
    assert settled(model(), 16, pods=1, target=10, most=4) == 1


@pytest.mark.parametrize(
    ("pods", "average", "expected"),
    [(1, 10, 1), (1, 11, 1), (1, 11.1, 2), (2, 9, 2), (2, 14.9, 3), (4, 2.5, 1), (4, 0, 0), (3, 100, 30)],
)
def test_pods_by_the_average(pods: int, average: float, expected: int) -> None:
    """Kubernetes, "Horizontal Pod Autoscaling", algorithm details: the ceiling of pods x average / target, with a tolerance."""
    assert wanted(pods, average, 10) == expected


# -- simulated servers -----------------------------------------------------------------------------------------------------------


def serve(fleet: Fleet, pods: list[str]) -> None:
    """Pods of a name each, which is their address, too."""
    fleet.serve(dict(zip(pods, pods, strict=True)))


def counter(fleet: Fleet, pod: str, name: str) -> float:
    text = fleet.answer(Request("GET", f"http://{pod}:8002/metrics")).body.decode()
    return float(next(line for line in text.splitlines() if line.startswith(f"{name}{{")).rpartition(" ")[2])


def test_a_pod_under_users_completes_what_the_model_says() -> None:
    fleet = Fleet(model(), "m")
    serve(fleet, ["a"])
    fleet.load(16)
    fleet.advance(120)
    assert counter(fleet, "a", SUCCESS) / 120 == pytest.approx(model().completed_per_s(16), rel=0.03)
    assert counter(fleet, "a", QUEUE_COUNTER) / 1000 / 120 == pytest.approx(10, rel=0.03)
    assert fleet.completed == counter(fleet, "a", SUCCESS)


def test_users_are_shared_out_evenly_and_a_new_pod_gets_its_share() -> None:
    fleet = Fleet(model(), "m")
    serve(fleet, ["a"])
    fleet.load(32)
    fleet.advance(30)
    serve(fleet, ["a", "b"])
    assert counter(fleet, "b", SUCCESS) == 0
    before = counter(fleet, "a", SUCCESS)
    fleet.advance(120)
    assert counter(fleet, "b", SUCCESS) / 120 == pytest.approx(model().completed_per_s(16), rel=0.05)
    assert (counter(fleet, "a", SUCCESS) - before) / 120 == pytest.approx(model().completed_per_s(16), rel=0.05)


def test_counters_of_idle_pods_stand_still_at_a_number() -> None:
    fleet = Fleet(model(), "m")
    serve(fleet, ["a", "b", "c"])
    fleet.load(1)
    fleet.advance(60)
    assert fleet.idle() == {"b", "c"}
    assert [counter(fleet, pod, QUEUE_COUNTER) for pod in ("b", "c")] == [0, 0]


def test_requests_of_a_pod_that_goes_begin_anew_elsewhere() -> None:
    fleet = Fleet(model(), "m")
    serve(fleet, ["a", "b"])
    fleet.load(8)
    fleet.advance(20)
    serve(fleet, ["b"])
    assert fleet.answer(Request("GET", "http://a:8002/metrics")).status == 502
    before = counter(fleet, "b", SUCCESS)
    fleet.advance(60)
    assert (counter(fleet, "b", SUCCESS) - before) / 60 == pytest.approx(model().completed_per_s(8), rel=0.1)


def test_without_a_ready_pod_users_wait() -> None:
    fleet = Fleet(model(), "m")
    fleet.load(4)
    fleet.advance(30)
    assert fleet.completed == 0
    serve(fleet, ["a"])
    fleet.advance(30)
    assert fleet.completed > 0


def test_users_leave() -> None:
    fleet = Fleet(model(), "m")
    serve(fleet, ["a"])
    fleet.load(8)
    fleet.load(0)
    fleet.advance(60)
    assert fleet.completed == 0
    assert fleet.idle() == {"a"}


def test_exporters_answer_for_each_pod_at_its_own_address() -> None:
    fleet = Fleet(model(), "opt")
    fleet.serve({"10.0.0.3": "gone"})
    fleet.serve({"10.0.0.1": "a", "10.0.0.2": "b"}, silent=["b"])
    answered = fleet.answer(Request("GET", "http://10.0.0.1:8002/metrics"))
    assert answered.status == 200
    assert f'{QUEUE_COUNTER}{{model="opt",version="1"}} 0' in answered.body.decode()
    refused = (
        "10.0.0.2:8002/metrics",
        "10.0.0.4:8002/metrics",
        "10.0.0.1:8000/metrics",
        "10.0.0.1:8002/",
        "10.0.0.3:8002/metrics",
    )
    assert all(fleet.answer(Request("GET", f"http://{target}")).status in (404, 502) for target in refused)
    assert fleet.answer(Request("POST", "http://10.0.0.1:8002/metrics")).status == 404


# -- configuration of Prometheus -------------------------------------------------------------------------------------------------


def jobs() -> dict[str, dict]:
    found = configuration(subject(), kubeconfig=Path("/k"), proxy="http://127.0.0.1:1", rule_files=[Path("/r")])
    return {job["job_name"]: job for job in found["scrape_configs"]}


def test_prometheus_is_configured_as_the_chart_would_have_it() -> None:
    found = configuration(subject(), kubeconfig=Path("/k"), proxy="http://127.0.0.1:1", rule_files=[Path("/r")])
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

    subject = subject_of(changed(POD_MONITOR_TYPE, change))
    found = configuration(subject, kubeconfig=Path("/k"), proxy="p", rule_files=[])
    job = next(job for job in found["scrape_configs"] if job["job_name"] == "podMonitor/triton-server/triton/0")
    assert job["scrape_interval"] == "7s"
    assert "namespaces" not in job["kubernetes_sd_configs"][0]


# -- rules of the adapter --------------------------------------------------------------------------------------------------------


def test_the_stacks_rules_name_its_metrics() -> None:
    raw, recorded_one = subject().rules
    assert raw.metric_of(QUEUE_COUNTER) == "nv_inference_queue_duration_ms"
    assert raw.metric_of(SUCCESS) is None
    assert recorded_one.metric_of("pod:triton_queue_ms_per_request:mean1m") == "triton_queue_ms_per_request"


def test_a_rule_is_filled_in_as_the_adapter_does() -> None:
    rule = subject().rules[0]
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
    made = CustomMetrics(subject().rules, OnePrometheus(values), OneApi())  # type: ignore[arg-type]
    made.list_series(30)
    return made


METRICS_API = "/apis/custom.metrics.k8s.io/v1beta1"


def values_address() -> str:
    return f"{METRICS_API}/namespaces/t/pods/%2A/{subject().metric}?labelSelector=app%3Dt"


def test_values_as_the_controller_gets_them() -> None:
    """A pod without a value is left out, one of another name is not let in, and NaN is 0, as in the adapter."""
    answered = custom_metrics({"a": 1.2345, "b": math.nan, "other": 7}).answer(Request("GET", values_address()))
    found = json.loads(answered.body)
    assert (answered.status, found["kind"]) == (200, "MetricValueList")
    assert {item["describedObject"]["name"]: item["value"] for item in found["items"]} == {"a": "1234m", "b": "0m"}
    assert {item["metricName"] for item in found["items"]} == {subject().metric}


def test_discovery_has_the_metrics_that_have_series() -> None:
    found = json.loads(custom_metrics({}).answer(Request("GET", METRICS_API)).body)
    assert [resource["name"] for resource in found["resources"]] == [f"pods/{subject().metric}"]


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


# -- judgements ------------------------------------------------------------------------------------------------------------------


def course() -> list[Sample]:
    """A replay as it should be: 1 pod, 2 with 32 users, 4 with 128 (more are wanted), 1 again 150 s after 2 users are left."""
    samples = []
    for at in range(420):
        users = 0 if at < 45 else 16 if at < 90 else 32 if at < 150 else 128 if at < 210 else 2
        pods = 1 if at < 120 else 2 if at < 160 else 4 if at < 360 else 1
        ready = tuple("abcd"[:pods])
        silent = frozenset("d") & set(ready) if at >= 170 else frozenset[str]()
        idle = frozenset(ready[users:])
        queueing = 0.0 if at < 45 else 9.0 if at < 115 else 12.0 if at < 210 else max(12 - (at - 210) / 5, 0.5)
        resting = {pod for pod in idle if at >= 280}
        values = {pod: 0.0 if pod in resting else queueing for pod in ready if not (pod == "d" and at >= 230)}
        samples.append(
            Sample(
                at=float(at),
                users=users,
                replicas=pods,
                desired=pods,
                ready=ready,
                silent=silent,
                idle=idle,
                values=values if at >= 30 else None,
                average=queueing,
                active=at >= 45,
                limited="TooManyReplicas" if 170 <= at < 215 else "",
            )
        )
    return samples


def failing(samples: list[Sample]) -> set[str]:
    return {finding.name for finding in judge(samples, subject().limits) if not finding.holds}


def edited(change, first: int = 0, last: int = 10_000) -> list[Sample]:
    """The course with ``change``, which gives new fields, made to the samples of some seconds."""
    return [replace(s, **change(s)) if first <= s.at < last else s for s in course()]


def test_a_good_course_is_found_good() -> None:
    assert failing(course()) == set()
    assert len(judge(course(), subject().limits)) == 8


def pods(count: int):
    return lambda sample: {"replicas": count, "ready": tuple("abcdef"[:count]), "desired": count}


NAMES = {
    "out": "scales out under queueing",
    "bounds": "never more than 4 pods, nor fewer than 1",
    "in": "scales in after the load",
    "waits": "waits 120 s before it scales in",
    "nan": "every value is a number",
    "flap": "does not flap",
    "missing": "missing pods do not freeze it",
    "idle": "idle pods do not freeze it",
}


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("out", edited(pods(1))),
        ("out", edited(pods(1), last=200)),
        ("out", edited(lambda sample: {"values": {"a": 9.0}})),
        ("bounds", edited(lambda sample: {"replicas": 5}, 180, 181)),
        ("bounds", edited(lambda sample: {"ready": tuple("abcde")}, 180, 181)),
        ("bounds", edited(lambda sample: {"desired": 6}, 180, 181)),
        ("bounds", edited(pods(0), 400)),
        ("bounds", edited(lambda sample: {"limited": ""})),
        ("in", edited(pods(4), 160)),
        ("in", edited(pods(2), 360)),
        ("in", [replace(s, users=128) if s.at >= 150 else s for s in course()]),
        ("waits", edited(pods(1), 300)),
        ("waits", edited(pods(2), 200, 360)),
        ("nan", edited(lambda sample: {"values": {"a": math.nan}}, 300, 301)),
        ("nan", edited(lambda sample: {"values": {"a": math.inf}}, 300, 301)),
        ("nan", edited(lambda sample: {"values": None})),
        ("flap", edited(pods(2), 400, 405)),
        ("flap", edited(pods(1), 130, 135)),
        ("flap", edited(pods(4), 200, 210)[:200] + edited(pods(2), 200, 205)[200:]),
        ("missing", edited(lambda sample: {"active": False, "message": "blind"}, 300, 330)),
        ("missing", edited(lambda sample: {"values": dict.fromkeys(sample.ready, 0.5)}, 280)),
        ("idle", edited(lambda sample: {"values": {"a": 0.5, "b": 0.5}}, 300, 350)),
        ("idle", edited(lambda sample: {"values": dict.fromkeys(sample.ready, 3.0)}, 340, 350)),
        ("idle", edited(lambda sample: {"idle": frozenset()})),
    ],
)
def test_each_fault_is_found(name: str, samples: list[Sample]) -> None:
    assert NAMES[name] in failing(samples)


def test_a_replay_that_brings_nothing_about_proves_nothing() -> None:
    resting = [
        replace(s, users=0, replicas=1, ready=("a",), idle=frozenset("a"), values={"a": 0.0}, limited="") for s in course()
    ]
    assert failing(resting) == set(NAMES.values()) - {NAMES["nan"]}


def test_a_machine_that_stalls_is_given_its_stall() -> None:
    """What comes late by as long as the samples were kept waiting, too, is in time."""

    def sees_after(seconds: int, *, stall: int) -> set[str]:
        blind = edited(lambda sample: {"active": False}, last=subject().limits.blind_seconds + seconds)
        return failing([sample for sample in blind if not 50 < sample.at < 50 + stall])

    assert NAMES["missing"] not in sees_after(12, stall=1)
    assert NAMES["missing"] in sees_after(13, stall=1)
    assert NAMES["missing"] not in sees_after(31, stall=20)
    assert NAMES["missing"] in sees_after(32, stall=20)


def test_while_no_pod_answers_nobody_expects_the_autoscaler_to_see() -> None:
    assert NAMES["missing"] not in failing(edited(lambda s: {"silent": frozenset(s.ready), "active": False}, 380))


def test_the_timeline_is_at_most_nine_minutes_and_ends_with_less_load() -> None:
    assert sum(phase.seconds for phase in TIMELINE) <= 540
    assert TIMELINE[-1].until_least
    assert TIMELINE[-1].users < TIMELINE[-2].users
    # As long as the controller takes to be back at the minimum when the pod that was missing is one of those that stay.
    limits = subject().limits
    assert TIMELINE[-1].seconds >= 2 * limits.scale_in_seconds + limits.window_seconds + 2 * limits.scrape_seconds


# -- what is shown ---------------------------------------------------------------------------------------------------------------


def report() -> Report:
    return reported(subject(), tuple(course()), model())


def test_the_text_has_every_step_every_judgement_and_the_table() -> None:
    text = render_text(report())
    assert max(map(len, text.splitlines())) <= WIDTH
    for change in (
        "\n  1:30     32         9.0       1      1  more users",
        "\n  6:00      2         0.5       1      1  scaled in",
    ):
        assert change in text
    assert text.count("  ok      ") == 8
    assert "a pod stops answering Prometheus" in text
    assert "wants more than its maximum" in text
    assert "stand-ins: Triton" in text
    assert "-26 %" in text or "-27 %" in text
    failed = replace(report(), findings=judge(edited(pods(5), 180, 181), subject().limits))
    assert not failed.holds
    assert "FAILED  never more than 4 pods" in render_text(failed)


def test_the_document_is_json_even_with_values_that_are_no_numbers() -> None:
    made = replace(report(), samples=tuple(edited(lambda sample: {"values": {"a": math.nan}}, 300, 301)))
    found = json.loads(json.dumps(made.document(), allow_nan=False))
    assert not unlike("simulate --load", found)
    assert found["samples"][300]["values"] == {"a": "nan"}
    assert [row["users"] for row in found["model"]["rows"]] == [8, 16, 32, 64, 128]
    assert found["holds"] is True


def test_the_picture_is_an_svg_with_all_three_curves() -> None:
    root = ET.fromstring(render_plot(course(), subject()))
    kinds = {element.get("class") for element in root.iter() if element.tag.endswith("path")}
    assert kinds == {"line users", "line queueing", "line pods", "line ready"}
    words = {element.text for element in root.iter() if element.tag.endswith("text")}
    assert {"target 10", "maximum 4", "answer Prometheus"} <= words
    description = next(element.text for element in root.iter() if element.tag.endswith("desc"))
    assert description
    assert "at 360 s 1 pod" in description
    width, height = (float(root.attrib[key]) for key in ("width", "height"))
    for path in (element for element in root.iter() if element.tag.endswith("path")):
        for point in path.attrib["d"].replace("M", " ").replace("L", " ").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_a_curve_breaks_where_there_is_no_value() -> None:
    gap = edited(lambda sample: {"values": None}, 200, 210)
    root = ET.fromstring(render_plot(gap, subject()))
    queueing = next(element for element in root.iter() if element.get("class") == "line queueing")
    assert queueing.attrib["d"].count("M") == 2


def test_steps_are_changes() -> None:
    assert [(step.at, step.before, step.after, step.up) for step in steps(course(), "replicas")] == [
        (120, 1, 2, True),
        (160, 2, 4, True),
        (360, 4, 1, False),
    ]


def test_the_model_is_of_one_replica() -> None:
    one = Replica(alone_ms=1000, per_user_ms=100, queue_ms=2)
    assert one.latency_ms(10) == 2000
    assert one.completed_per_s(10) == 5
    assert one.queueing(10) == 10


# -- the command -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(StackProgram, "record", lambda program: recorded(program.stack))


@pytest.mark.usefixtures("in_the_clone")
@pytest.mark.parametrize(("samples", "code"), [(course(), 0), (edited(pods(5), 180, 181), 1)])
def test_the_command_shows_writes_and_judges(
    samples: list[Sample], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool_build, "provided", installed)
    monkeypatch.setattr(run, "replay", lambda *given, **more: tuple(samples))
    picture = tmp_path / "replicas.svg"
    assert main(["simulate", STACK, "--load", "--plot", str(picture)]) == code
    assert ("FAILED" in capsys.readouterr().out) == bool(code)
    assert picture.read_text().startswith("<svg ")
    assert main(["simulate", STACK, "--load", "--format", "json", "-o", str(tmp_path / "replay.json")]) == code
    assert json.loads((tmp_path / "replay.json").read_text())["holds"] == (code == 0)


@pytest.mark.usefixtures("in_the_clone")
def test_what_cannot_be_replayed_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def started(*given: object, **more: object) -> None:
        raise AssertionError("nothing may be started")

    monkeypatch.setattr(tool_build, "provided", started)
    monkeypatch.setattr(run, "replay", started)
    assert main(["simulate", "inf2-llama3", "--load"]) == 2
    assert "kind hpa" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["simulate", STACK, "--load", "--plot", "/no/such/x.svg"])
    assert "there is no folder" in capsys.readouterr().err
    assert main(["simulate", STACK, "--load", "--keep"]) == 2
    assert "--keep: belongs to a simulation without --load" in capsys.readouterr().err
    assert main(["simulate", STACK, "--plot", "x.svg"]) == 2
    assert "--plot: belongs to a simulation with --load" in capsys.readouterr().err
