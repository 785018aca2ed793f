"""Who gets alerts: receivers in Alertmanager's configuration, their secrets and their role."""

import json
from typing import Any

import pytest

from eks_inference.faults import SpecError
from eks_inference.kubernetes.secrets import SecretRef
from eks_inference.observability.prometheus import PrometheusStack
from eks_inference.observability.spec import PrometheusSpec
from eks_inference.stack.facts import StackFacts
from eks_inference.stack.isolated_rules import services_have_endpoints, what_is_wanted_is_in_reach
from graphs import stands_on
from handles import existing_cluster, placement
from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from vectors.stack import isolated
from vectors.stack import spec as stack_facts

TOPIC = "arn:aws:sns:us-west-2:123456789012:alerts"
KEY = "arn:aws:kms:us-west-2:123456789012:key/12345678-1234-1234-1234-123456789012"
SNS = {"kind": "sns", "topic_arn": TOPIC}
FILE = "/etc/alertmanager/secrets/alert-receiver/url"


def the_stack(receiver: dict[str, Any] | None, *, url: Any = None, **spec: Any) -> Graph:
    def build() -> None:
        PrometheusStack(
            "p",
            PrometheusSpec.model_validate({"receiver": receiver, **spec}),
            cluster=existing_cluster(),
            placement=placement("m5.2xlarge", pool="core"),
            alert_receiver_url=url,
        )

    return record(build)


def alertmanager(graph: Graph) -> dict[str, Any]:
    return graph.named("p-release").inputs["values"]["alertmanager"]


def notified(graph: Graph) -> dict[str, Any]:
    """Returns the receiver that the only route leads to."""
    config = alertmanager(graph)["config"]
    (route,) = config["route"]["routes"]
    (found,) = [each for each in config["receivers"] if each["name"] == route["receiver"]]
    return found


@pytest.mark.parametrize(
    ("kind", "given"),
    [("slack", {"api_url_file": FILE, "send_resolved": True}), ("webhook", {"url_file": FILE, "send_resolved": True})],
)
def test_a_url_goes_into_a_secret_that_alertmanager_mounts_and_nowhere_else(kind: str, given: dict[str, Any]) -> None:
    graph = the_stack({"kind": kind}, url="https://hooks.example/geheim")
    secret = graph.named("p-receiver-secret")
    assert secret.inputs["metadata"] == {"name": "alert-receiver", "namespace": "monitoring"}
    assert "geheim" not in str([resource.inputs for resource in graph.resources])
    assert alertmanager(graph)["alertmanagerSpec"]["secrets"] == ["alert-receiver"]
    (notification,) = notified(graph)[f"{kind}_configs"]
    assert given.items() <= notification.items()
    assert stands_on(graph, graph.named("p-release"), secret)


def test_a_secret_that_is_there_is_named() -> None:
    graph = the_stack({"kind": "webhook"}, url=SecretRef("ours", "address"))
    assert alertmanager(graph)["alertmanagerSpec"]["secrets"] == ["ours"]
    assert notified(graph)["webhook_configs"][0]["url_file"] == "/etc/alertmanager/secrets/ours/address"
    assert not graph.of_type("kubernetes:core/v1:Secret")


def test_slack_is_told_what_is_wrong_and_what_to_do() -> None:
    (notification,) = notified(the_stack({"kind": "slack"}, url="u"))["slack_configs"]
    for annotation in ("summary", "description", "next", "runbook_url"):
        assert f".Annotations.{annotation}" in notification["text"]


def test_what_only_informs_and_what_always_fires_goes_to_nobody() -> None:
    config = alertmanager(the_stack(SNS))["config"]
    assert config["route"] == {
        "receiver": "null",
        "routes": [{"receiver": "receiver", "matchers": ['severity =~ "critical|warning"']}],
    }
    assert {"name": "null"} in config["receivers"]


@pytest.mark.parametrize("key", [None, KEY])
def test_alertmanager_may_publish_to_the_topic_and_do_nothing_else(key: str | None) -> None:
    graph = the_stack({**SNS, **({"kms_key_arn": key} if key else {})})
    assert notified(graph)["sns_configs"] == [{"topic_arn": TOPIC, "sigv4": {"region": "us-west-2"}, "send_resolved": True}]
    statements = json.loads(graph.named("p-alerts-publish").inputs["policy"])["Statement"]
    allowed = {action: statement["Resource"] for statement in statements for action in statement["Action"]}
    of_key = {"kms:Decrypt": KEY, "kms:GenerateDataKey": KEY} if key else {}
    assert allowed == {"sns:Publish": TOPIC, **of_key}
    association = graph.named("p-alerts-identity")
    assert (association.inputs["namespace"], association.inputs["serviceAccount"]) == (
        "monitoring",
        "kube-prometheus-stack-alertmanager",
    )
    assert stands_on(graph, graph.named("p-release"), association)


def test_a_receiver_brings_alertmanager() -> None:
    graph = the_stack(SNS)
    values = graph.named("p-release").inputs["values"]
    assert values["alertmanager"]["enabled"] is True
    assert values["defaultRules"]["rules"]["alertmanager"] is True
    assert values["grafana"]["sidecar"]["datasources"]["alertmanager"] == {"enabled": True}
    assert "config" not in alertmanager(the_stack(None, alertmanager=True)), "of the user, in values"


@pytest.mark.parametrize(
    "values",
    [
        {"config": {"route": {"receiver": "other"}}},
        {"serviceAccount": {"name": "other"}},
        {"serviceAccount": {"create": False}},
        {"alertmanagerSpec": {"useExistingSecret": True, "configSecret": "other"}},
    ],
)
def test_values_cannot_turn_alerts_away_from_the_receiver(values: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match=r"values\.alertmanager\..*: the stack relies on its own value"):
        the_stack(SNS, values={"alertmanager": values})


@pytest.mark.parametrize(
    ("receiver", "url", "complaint"),
    [
        ({"kind": "slack"}, None, "the URL is missing, which is a secret"),
        ({"kind": "webhook"}, None, "the URL is missing, which is a secret"),
        (SNS, "https://hooks.example", "a URL is given for a receiver that has none"),
        (None, "https://hooks.example", "a URL is given for a receiver that has none"),
    ],
)
def test_a_url_is_there_exactly_when_the_receiver_has_one(receiver: dict[str, Any] | None, url: Any, complaint: str) -> None:
    with pytest.raises(ProgramError, match=complaint):
        the_stack(receiver, url=url)


@pytest.mark.parametrize("topic", ["alerts", "arn:aws:sns:us-west-2:123456789012:alerts.fifo", "arn:aws:sqs:us-west-2:1:a"])
def test_only_standard_topics_are_receivers(topic: str) -> None:
    with pytest.raises(SpecError, match="topic_arn"):
        PrometheusSpec.model_validate({"receiver": {"kind": "sns", "topic_arn": topic}})


# -- without internet ------------------------------------------------------------------------------------------------------------


def without_internet(receiver: dict[str, Any], *endpoints: str) -> StackFacts:
    network = {"nat": "none", "public_subnets": False, "endpoints": ["ec2", "ecr", "eks-auth", "s3", *endpoints]}
    return stack_facts(network=network, observability={"prometheus": {"receiver": receiver}})


@pytest.mark.parametrize(("endpoints", "holds"), [(("sns",), True), ((), False)])
def test_a_topic_is_reached_through_its_endpoint(endpoints: tuple[str, ...], holds: bool) -> None:
    (judgement,) = services_have_endpoints.judge(without_internet(SNS, *endpoints))
    assert judgement.holds is holds
    assert judgement.message.startswith("Alertmanager would wait in vain")


def test_slack_is_out_of_reach() -> None:
    (judgement,) = what_is_wanted_is_in_reach.judge(without_internet({"kind": "slack"}))
    assert (judgement.holds, judgement.path) == (False, ("observability", "prometheus", "receiver"))


@pytest.mark.parametrize(
    ("draft", "keys", "wanted"),
    [
        ("facebook/opt-125m", {}, [False]),
        ("facebook/opt-125m", {"extra_env": {"HF_ENDPOINT": "https://mirror.example"}}, [True]),
        ("/drafts/opt", {}, []),
    ],
)
def test_a_draft_of_the_hub_is_out_of_reach_even_beside_a_model_in_s3(draft: str, keys: dict, wanted: list[bool]) -> None:
    facts = isolated(speculation={"method": "draft_model", "draft": draft, "tokens": 3}, **keys)
    found = [judgement for judgement in what_is_wanted_is_in_reach.judge(facts) if judgement.path[-1] == "draft"]
    assert [judgement.holds for judgement in found] == wanted
    assert all("the draft facebook/opt-125m is on the Hub" in judgement.message for judgement in found)


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"egress": ["10.0.0.0/8"]}, [False]),
        ({"egress": ["10.0.0.0/8"], "model": {"id": "facebook/opt-350m"}}, [False]),
        (
            {"egress": ["10.0.0.0/8"], "model": {"id": "facebook/opt-350m"}, "extra_env": {"HF_ENDPOINT": "https://mirror"}},
            [True],
        ),
        ({"egress": ["10.0.0.0/8", "3.5.80.0/21"]}, [None]),
        ({"egress": ["10.0.0.0/8"], "model": {"kind": "volume", "claim": "models", "id": "opt"}}, []),
        ({}, []),
    ],
)
def test_a_model_comes_from_where_egress_leads(keys: dict, wanted: list[bool | None]) -> None:
    """None: nobody judged."""
    found = [judgement for judgement in what_is_wanted_is_in_reach.judge(isolated(**keys)) if judgement.path[-1] == "egress"]
    assert [None if judgement.unjudged else judgement.holds for judgement in found] == wanted
    assert all("whose addresses are public" in judgement.message for judgement in found if not judgement.unjudged)
