"""Observability: its spec, its plans, and the resources CloudWatch's component registers."""

import json
from typing import Any

import pulumi
import pytest

from catalog_rows import VERSIONS
from eks_inference.catalog import versions
from eks_inference.faults import SpecError
from eks_inference.observability.cloudwatch import CloudWatchObservability
from eks_inference.observability.spec import CloudWatchSpec, ObservabilitySpec
from handles import existing_cluster
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record


def cloudwatch_spec(**given: Any) -> CloudWatchSpec:
    return CloudWatchSpec.model_validate(given)


def the_observability(spec: CloudWatchSpec | None = None, *, name: str = "c-cloudwatch", **cluster: Any) -> Graph:
    """CloudWatch alone, on a cluster that is already there."""
    return record(lambda: CloudWatchObservability(name, spec or cloudwatch_spec(), cluster=existing_cluster(**cluster)) and None)


def configuration_of(graph: Graph) -> dict[str, Any]:
    return json.loads(graph.named("c-cloudwatch-addon").inputs["configurationValues"])


# -- what a user may write ------------------------------------------------------------------------------------------------------


def test_nothing_is_collected_unless_asked_for() -> None:
    assert ObservabilitySpec().cloudwatch is None


@pytest.mark.parametrize("version", ["latest", "6.6.0", "v6.6.0", "v6.6-eksbuild.1"])
def test_what_is_not_an_exact_addon_version_is_refused(version: str) -> None:
    with pytest.raises(SpecError, match="addon_version"):
        cloudwatch_spec(addon_version=version)


# -- the add-on -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_every_kubernetes_version_has_a_pin_that_knows_pod_identity(version: str) -> None:
    pinned = the_observability(version=version).named("c-cloudwatch-addon").inputs["addonVersion"]
    assert pinned == versions.addon("amazon-cloudwatch-observability", version)
    assert cloudwatch_spec(addon_version=pinned).addon_version == pinned, "the spec must take what the catalog pins"
    major, minor, _ = pinned.removeprefix("v").split(".", 2)
    assert (int(major), int(minor)) >= (3, 1)


def test_the_users_addon_version_wins() -> None:
    graph = the_observability(cloudwatch_spec(addon_version="v6.2.0-eksbuild.3"))
    assert graph.named("c-cloudwatch-addon").inputs["addonVersion"] == "v6.2.0-eksbuild.3"


def test_the_users_configuration_is_merged_last() -> None:
    theirs = {
        "containerLogs": {"enabled": False},
        "manager": {"applicationSignals": {"autoMonitor": {"monitorAllServices": True}}, "resources": {"requests": {"cpu": "1"}}},
    }
    assert configuration_of(the_observability(cloudwatch_spec(configuration=theirs))) == {
        "tolerations": [{"operator": "Exists"}],
        **theirs,
    }


# -- its role -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "partition"), [("us-west-2", "aws"), ("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")]
)
def test_the_role_has_one_policy_of_its_partition(region: str, partition: str) -> None:
    (attachment,) = the_observability(region=region).of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment")
    assert attachment.inputs["policyArn"] == f"arn:{partition}:iam::aws:policy/CloudWatchAgentServerPolicy"
    assert attachment.inputs["role"] == "<c-cloudwatch-role.name>"


def test_the_longest_stack_name_still_makes_a_legal_role_name() -> None:
    (role,) = the_observability(name="c" * 40 + "-cloudwatch").of_type("aws:iam/role:Role")
    assert len(role.name) + len("-1234567") <= 64, "the AWS provider adds eight characters and does not shorten"


# -- order and place ------------------------------------------------------------------------------------------------------------


def test_whoever_stands_on_it_waits_for_the_addon() -> None:
    def build() -> None:
        observability = CloudWatchObservability("c-cloudwatch", cloudwatch_spec(), cluster=existing_cluster())
        pulumi.ComponentResource("t:t:T", "later", None, pulumi.ResourceOptions(depends_on=[*observability.ready]))

    graph = record(build)
    assert graph.named("c-cloudwatch-addon").urn in graph.named("later").dependencies
