"""What opens an engine: refused where a gateway leads to the server, warned of elsewhere; what opens nothing is left alone."""

import json
from dataclasses import replace
from typing import Any

import pytest

from conftest import PROJECT
from eks_inference.catalog.features import Opening, openings
from eks_inference.catalog.vllm_arguments import vllm_releases
from eks_inference.serving.rules.engine_flags import PROTECTED_FLAGS, PROTECTED_VARIABLES
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from variants import merge
from vectors.serving import gpu

ROWS = openings("engine")
GATEWAY = {"gateway": {"host": "models.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ"}}
GATEWAY_API = {"gateway_api": {"gateway": "g", "namespace": "g", "host": "models.example.com", "from_namespaces": ["g"]}}
ROUTE = {"endpoints": {"all": {}}, "gateway": {**GATEWAY["gateway"], "routes": {"all": {}}}}


def given(name: str) -> dict[str, Any]:
    row = ROWS[name]
    value: Any = row.values[0] if row.values else "1"
    flags = {flag: argument for release in vllm_releases().values() for flag, argument in release.flags.items()}
    if name not in flags:
        return {"extra_env": {name: value}}
    switch = flags[name].takes in ("switch", "on")
    return {"extra_args": {name: True if switch else {"profiler": "cuda"} if "object" in flags[name].takes else value}}


def severities(section: dict[str, Any], server: dict[str, Any]) -> list[str]:
    spec = json.loads(dict(PROJECT.config(PROJECT.stack_file("smoke-gpu")).values)["eks-inference:stack"])
    merge(spec, {**section, "servers": {"qwen3": server}})
    verdict = check_spec(parse_stack(json.dumps(spec)), "us-west-2")
    return [finding.severity for finding in verdict.findings if finding.rule.id == "OPN001"] + [
        "error" for fault in verdict.faults if "OPN001" in str(fault)
    ]


@pytest.mark.parametrize("name", ROWS)
def test_each_opens_the_engine_and_is_refused_where_it_is_led_out(name):
    from eks_inference.serving.rules.openings import engines_stay_closed

    for led_out, severity in ((True, None), (False, "warning")):
        (judged,) = engines_stay_closed.judge(replace(gpu(**given(name)), led_out=led_out))
        assert not judged.holds
        assert judged.severity == (None if ROWS[name].pinned else severity)
        assert ROWS[name].opens in judged.message


@pytest.mark.parametrize(("door", "severity"), [({}, "warning"), (GATEWAY, "error"), (GATEWAY_API, "error"), (ROUTE, "error")])
def test_a_server_is_led_out_by_any_route_to_it_or_to_its_endpoint(door, severity):
    assert {*severities(door, {"extra_env": {"VLLM_SERVER_DEV_MODE": "1"}})} == {severity}
    assert not severities(door, {"extra_env": {"VLLM_SERVER_DEV_MODE": "0", "HF_HUB_DOWNLOAD_TIMEOUT": "60"}})


def test_code_of_a_repository_is_safe_at_a_revision():
    trusting = {"extra_args": {"trust-remote-code": True}}
    assert severities(GATEWAY, trusting)
    assert {*severities({}, trusting)} == {"error"}, "whoever may call it, the code is somebody else's"
    assert {*severities({}, {**trusting, "model": {"revision": "main"}})} == {"error"}, "a branch moves"
    assert not severities(GATEWAY, {**trusting, "model": {"revision": "0123456789abcdef0123456789abcdef01234567"}})
    assert not severities(GATEWAY, {"extra_args": {"trust-remote-code": True, "code-revision": "0123456789abcdef"}})


@pytest.mark.parametrize(
    ("row", "value", "opens"),
    [
        (ROWS["VLLM_SERVER_DEV_MODE"], "0", False),
        (ROWS["VLLM_SERVER_DEV_MODE"], "True", True),
        (ROWS["trust-remote-code"], None, True),
        (ROWS["trust-remote-code"], False, False),
        (ROWS["tool-server"], "10.0.0.1:8000", False),
        (openings("interface")["WEBUI_AUTH"], "False", True),
        (openings("interface")["DEFAULT_USER_ROLE"], "pending", False),
    ],
)
def test_only_some_values_open(row: Opening, value, opens):
    assert row.by(value) is opens


def test_rows_are_flags_of_a_release_or_variables_and_no_other_rule_has_them():
    flags = {flag for release in vllm_releases().values() for flag in release.flags}
    assert all(name in flags or name.isupper() for name in ROWS)
    assert not ROWS.keys() & {*PROTECTED_FLAGS, *PROTECTED_VARIABLES}


def test_an_engine_with_eyes_follows_no_redirects():
    from eks_inference.serving.pod_parts import engine_environment

    facts = gpu()
    seeing = gpu(model=replace(facts.model, uncounted=("vision tower",))) if facts.model else facts
    made = [engine_environment(one.engine, one.instance, one.model, 60) for one in (facts, seeing)]
    assert ["VLLM_MEDIA_URL_ALLOW_REDIRECTS" in one for one in made] == [False, True]
    assert made[1]["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] == "0"


@pytest.mark.parametrize(("mirror", "found"), [({}, ["NET008"]), ({"HF_ENDPOINT": "http://mirror.models.svc"}, [])])
def test_a_mirror_is_asked_past_nat(mirror: dict[str, str], found: list[str]) -> None:
    spec = json.loads(dict(PROJECT.config(PROJECT.stack_file("smoke-gpu")).values)["eks-inference:stack"])
    more = {"model": {"id": "Qwen/Qwen3-32B"}, "devices": 2, "tensor_parallel": 2, "replicas": 20, "extra_env": mirror}
    pool = {"instance_types": ["p5.48xlarge"], "size": 5, "root_volume_gib": 500}
    merge(spec, {"pools": {"gpu": pool}, "servers": {"qwen3": {**more, "disk_gib": 90}}})
    verdict = check_spec(parse_stack(json.dumps(spec)), "us-west-2")
    assert [finding.rule.id for finding in verdict.findings if finding.rule.id == "NET008"] == found
    assert not verdict.faults
