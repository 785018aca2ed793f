"""Our rules and dashboards: expressions that are PromQL, alerts that fire when they should."""

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import ROOT
from eks_inference.observability import prometheus_plan as plan
from eks_inference.observability.prometheus_plan import TYPE_LABEL
from eks_inference_tools.simulate.control_plane.toolchain import installed
from variants import recorded_with

TOOLS = installed("promtool")
needs_promtool = pytest.mark.skipif(bool(TOOLS.missing()), reason=TOOLS.missing())

ALERTS = [rule for group in plan.rules()["groups"] for rule in group["rules"] if "alert" in rule]
RECORDED = [rule for group in plan.rules()["groups"] for rule in group["rules"] if "record" in rule]
BOARDS = {name: json.loads(plan.dashboard(name)) for name in plan.DASHBOARDS}


def rule_expressions() -> Iterator[tuple[str, str]]:
    for rule in (*RECORDED, *ALERTS):
        yield rule.get("record") or rule["alert"], rule["expr"]


def panel_expressions() -> Iterator[tuple[str, str]]:
    for name, board in BOARDS.items():
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']} {target['refId']}", target["expr"]


def promtool(*arguments: str, where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TOOLS.path("promtool"), *arguments], cwd=where, capture_output=True, text=True, timeout=60, check=False
    )


@cache
def cases() -> tuple[dict[str, Any], ...]:
    files = sorted((ROOT / "tests" / "promtool").glob("*.yaml"))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(case for path in files for case in yaml.load(path.read_text(), loader)["tests"])


# -- rules ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_says_what_is_wrong_how_bad_it_is_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert set(alert["annotations"]) == {"summary", "description", "next", "runbook_url"}


@pytest.mark.parametrize("name", [rule["record"] for rule in RECORDED])
def test_every_series_that_is_recorded_has_a_case(name: str) -> None:
    asked = [each for case in cases() for each in case.get("promql_expr_test", ())]
    assert any(name in each["expr"] and each["exp_samples"] for each in asked)


@pytest.mark.parametrize("name", [alert["alert"] for alert in ALERTS])
def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(name: str) -> None:
    silent = fires = False
    for case in cases():
        for each in case.get("alert_rule_test", ()):
            if each["alertname"] == name:
                fires, silent = fires or bool(each["exp_alerts"]), silent or not each["exp_alerts"]
        for each in case.get("promql_expr_test", ()):
            if f'ALERTS{{alertname="{name}", alertstate="firing"}}' in each["expr"]:
                # Such a case names one of several nodes or servers.
                fires = silent = True
    assert (fires, silent) == (True, True)


def test_the_rule_file_is_what_the_cluster_gets() -> None:
    """A PrometheusRule's spec and a rule file of Prometheus are the same thing."""
    assert set(plan.rules()) == {"groups"}


@needs_promtool
def test_the_rules_are_rules() -> None:
    result = promtool("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", where=assets())
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.thorough
@needs_promtool
@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "promtool").glob("*.yaml")), ids=lambda path: path.name)
def test_alerts_fire_when_they_should(path: Path) -> None:
    result = promtool("test", "rules", path.name, where=path.parent)
    assert result.returncode == 0, result.stdout + result.stderr


def assets() -> Path:
    return ROOT / "components" / "eks_inference" / "observability" / "assets"


# -- dashboards -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", plan.DASHBOARDS)
def test_a_dashboard_can_be_linked_to_and_shows_whichever_prometheus_is_chosen(name: str) -> None:
    board = BOARDS[name]
    assert board["uid"] == f"eks-inference-{name}", "links and bookmarks hold on to it"
    assert "id" not in board, "Grafana gives it one"
    first, *others = board["templating"]["list"]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert all(variable["datasource"] == source for variable in others)
    for panel in board["panels"]:
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])


@pytest.mark.parametrize("name", plan.DASHBOARDS)
def test_panels_are_told_apart_and_explained(name: str) -> None:
    panels = BOARDS[name]["panels"]
    assert len(panels) <= 12
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] and panel["description"] for panel in panels)


@pytest.mark.parametrize("name", plan.DASHBOARDS)
def test_no_panel_covers_another(name: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in BOARDS[name]["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for cell in (
            (x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])
        ):
            assert taken.setdefault(cell, panel["title"]) == panel["title"]


@pytest.mark.parametrize("name", plan.DASHBOARDS)
def test_the_files_are_written_one_way(name: str) -> None:
    """So that a changed panel is a small diff."""
    assert plan.dashboard(name) == json.dumps(BOARDS[name], indent=2, ensure_ascii=False) + "\n"


@needs_promtool
def test_every_panel_asks_in_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel{index}", "expr": expression.replace("$__rate_interval", "2m").replace("$__range", "1h")}
        for index, (_, expression) in enumerate(panel_expressions())
    ]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    result = promtool("check", "rules", "panels.yaml", where=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_budget_brings_its_prices_and_the_types_of_nodes_to_prometheus() -> None:
    prices = {"m6i.large": {"on_demand": 0.05, "source": "ours"}}
    graph = recorded_with({"budget_usd_per_month": 1234567.5, "prices": prices}, "gpu-opt350m")
    rules = graph.named("gpu-opt350m-prometheus-budget").inputs["spec"]["groups"][0]["rules"]
    budget, *types = [(rule["expr"], rule.get("labels", {}).get(TYPE_LABEL)) for rule in rules]
    assert budget == ("vector(1234567.5)", None)
    assert ("vector(0.05)", "m6i.large") in types
    assert len({name for _, name in types}) >= 2
    values = graph.named("gpu-opt350m-prometheus-release").inputs["values"]["kube-state-metrics"]
    assert values["metricLabelsAllowlist"] == ["nodes=[node.kubernetes.io/instance-type]"]
