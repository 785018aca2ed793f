"""What a stack says in the words of charts, add-ons and other programs: refused, judged, or named as not judged."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from conftest import ROOT
from eks_inference.catalog import charts, tables, versions
from eks_inference.faults import SpecError
from eks_inference.kubernetes.merge import beside
from eks_inference.rules import Judgement
from eks_inference.stack.facts import StackFacts
from eks_inference.stack.spec import StackSpec
from eks_inference.stack.values_rules import CHARTS, OTHERS, others_words
from vectors.stack import spec

PROMETHEUS = "kube-prometheus-stack"
READ_BY_OTHERS = {"extra_args", "features", "shape"}
"""Mappings of any values that rules about servers read."""


def judgements(**sections: Any) -> list[Judgement]:
    return list(others_words.judge(spec(**sections)))


def named(**sections: Any) -> set[str]:
    """What is told not to be judged."""
    return {".".join(map(str, each.path)) for each in judgements(**sections) if each.unjudged}


@pytest.mark.parametrize(
    "values",
    [
        {"prometheus": {"enabled": False}},
        {"prometheusOperator": {"enabled": False}},
        {"prometheus": {"prometheusSpec": {"podMonitorSelector": {"matchLabels": {"team": "a"}}}}},
        {"prometheus": {"prometheusSpec": {"ruleNamespaceSelector": {"any": False}}}},
        {"kubeStateMetrics": {"enabled": False}},
        {"grafana": {"sidecar": {"dashboards": {"label": "other"}}}},
    ],
    ids=str,
)
def test_what_a_stack_relies_on_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="the stack relies on its own value here"):
        beside({}, values, chart=PROMETHEUS)
    assert not named(observability={"prometheus": {"values": values}})


def test_the_same_value_is_taken() -> None:
    assert beside({}, {"prometheus": {"enabled": True}}, chart=PROMETHEUS) == {"prometheus": {"enabled": True}}


def test_a_value_that_no_rule_reads_is_named() -> None:
    values = {
        "grafana": {"replicas": 2, "plugins": ["a"]},
        "prometheus": {"prometheusSpec": {"resources": {"requests": {"cpu": 4}}}},
    }
    assert named(
        observability={"prometheus": {"values": values}},
        cluster={"addon_configuration": {"vpc-cni": {"env": {"WARM_ENI_TARGET": "1", "ENABLE_PREFIX_DELEGATION": "true"}}}},
        addons={"addon_configuration": {"coredns": {"replicaCount": 0}}},
        load_test={"sampling": {"nope": 1, "top_p": 0.9}, "guidellm": {"nope": 1}, "storage_class": "io2"},
        clients={
            "open_webui": {"image": f"mirror.example/{versions.image('open-webui').rpartition('/')[2]}", "storage_class": "gp3"},
            "smoke_test": {"image": "nginx:1.27"},
            "triton": {"tokenizer": {"id": "who/ever"}},
        },
    ) == {
        "observability.prometheus.values.grafana.replicas",
        "observability.prometheus.values.grafana.plugins",
        "observability.prometheus.values.prometheus.prometheusSpec.resources.requests.cpu",
        "cluster.addon_configuration.vpc-cni.env.WARM_ENI_TARGET",
        "addons.addon_configuration.coredns.replicaCount",
        "load_test.sampling.nope",
        "load_test.guidellm.nope",
        "load_test.storage_class",
        "clients.smoke_test.image",
        "clients.triton.tokenizer.id",
    }


def test_a_value_that_somebody_judged_is_not_named() -> None:
    less = {"prometheus": {"prometheusSpec": {"resources": {"requests": {"cpu": "250m"}}}}}
    (found,) = judgements(observability={"prometheus": {"values": less}})
    assert found.holds
    assert not found.unjudged


@pytest.mark.parametrize("cpu", ["half", "500 m", True, "1e-1", None])
def test_an_odd_quantity_is_named_and_ends_no_rule(cpu: object) -> None:
    values = {"prometheus": {"prometheusSpec": {"resources": {"requests": {"cpu": cpu}}}}}
    assert len(judgements(observability={"prometheus": {"values": values}})) == 1


def test_a_key_that_is_no_text_ends_no_rule() -> None:
    assert named(observability={"prometheus": {"values": {"prometheus": {1: "x"}}}})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"promethues": {"enabled": False}}, "no value 'promethues'"),
        ({"prometheus": {"prometheusSpec": {"podAntiAfinity": "hard"}}}, "no value 'podAntiAfinity'"),
        ({"grafana": {"replicas": [2]}}, "another type of value"),
        ({"nodeExporter": True}, "another type of value"),
        ({"grafana": {"rbac": {"create": "yes"}}}, "another type of value"),
    ],
    ids=str,
)
def test_a_misspelt_value_is_told(values: dict[str, Any], message: str) -> None:
    wrong = [each for each in judgements(observability={"prometheus": {"values": values}}) if not each.holds]
    assert [message in each.message for each in wrong] == [True]


def test_values_of_the_charts_own_are_spelt_rightly() -> None:
    """A name that the chart mentions only in a comment, one below a mapping that it leaves empty, and a number for a text."""
    values = {
        "grafana": {"ingress": {"annotations": {"anything": "1"}}, "replicas": 2},
        "prometheus": {"prometheusSpec": {"image": {"tag": 3}}},
    }
    assert all(each.holds for each in judgements(observability={"prometheus": {"values": values}}))


def test_every_chart_with_values_has_its_keys_at_the_pinned_version() -> None:
    relied = tables.table("chart_values.toml")["relied"]
    assert set(relied) == {*CHARTS.values()}
    for chart in relied:
        assert charts.version(chart) == versions.chart(chart).version
        assert not list(charts.misspelt(chart, relied[chart]))
        for path in charts.judged(chart):
            *above, last = path.split(".")
            inner: Any = last
            assert not list(charts.misspelt(chart, _nested([*above, inner])))


def _nested(path: list[str]) -> dict[str, Any]:
    first, *rest = path
    return {first: _nested(rest) if rest else None}


def test_no_mapping_of_any_values_is_forgotten() -> None:
    """Each field of a stack that takes any values is named by the rule, or is read by others."""
    places = {path[-1] for path in (*CHARTS, *OTHERS)}
    assert {name for name in _of_any_values(StackSpec, set()) if name not in places} <= READ_BY_OTHERS


def test_variables_are_named_wherever_a_stack_sets_them() -> None:
    given = {"extra_env": {"A": "b"}}
    read = {"HF_ENDPOINT": "https://hub.example", "LD_PRELOAD": "x", "WEBUI_AUTH": "true"}
    assert named(clients={"open_webui": {"extra_env": read}}, load_test={"extra_env": {**read, "A": "b"}}) == {
        "clients.open_webui.extra_env.HF_ENDPOINT",
        "clients.open_webui.extra_env.LD_PRELOAD",
        "load_test.extra_env.A",
        "load_test.extra_env.LD_PRELOAD",
    }
    stack: dict[str, Any] = yaml.safe_load((ROOT / "stacks/Pulumi.gpu-nixl.yaml").read_text())["config"]["eks-inference:stack"]
    (server,) = stack["servers"]
    stack["servers"][server]["decode"] = {**stack["servers"][server]["decode"], **given}
    facts = StackFacts(StackSpec.model_validate(stack), "us-west-2", {})
    assert {".".join(map(str, judgement.path)) for judgement in others_words.judge(facts) if judgement.unjudged} == {
        f"servers.{server}.decode.extra_env.A"
    }


def _of_any_values(model: type[BaseModel], seen: set[type]) -> Iterator[str]:
    if model in seen:
        return
    seen.add(model)
    for name, field in model.model_fields.items():
        if "typing.Any]" in str(field.annotation) or "JsonValue" in str(field.annotation):
            yield name
        for inner in _models(field.annotation):
            yield from _of_any_values(inner, seen)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


@pytest.mark.parametrize(
    ("addon", "values", "said"),
    [
        ("vpc-cni", {"env": {"WARM_ENI_TARGET": "1"}}, ""),
        ("vpc-cni", {"env": {"WARM_ENI_TARGET": 1}}, "has another type of value here"),
        ("vpc-cni", {"envs": {"WARM_ENI_TARGET": "1"}}, "has no value 'envs' here"),
        # A later version may have it, as this one had not.
        ("vpc-cni", {"env": {"NETWORK_POLICY_ENFORCING_MODE": "strict"}}, ""),
        ("coredns", {"replicaCount": 3, "podDisruptionBudget": {"maxUnavailable": "50%"}}, ""),
        ("coredns", {"replicaCount": "3"}, "has another type of value here"),
        ("metrics-server", {"replicas": "3"}, ""),
    ],
)
def test_what_an_addon_reads_is_spelt_as_it_spells_it(addon: str, values: dict[str, Any], said: str) -> None:
    section = "cluster" if addon == "vpc-cni" else "addons"
    wrong = [
        judgement.message
        for judgement in judgements(**{section: {"addon_configuration": {addon: values}}})
        if not judgement.holds and not judgement.unjudged
    ]
    assert wrong == ([f"the add-on {addon} {said}"] if said else [])
