"""Observability: its spec, its plans, and the resources CloudWatch's component registers."""

import json
from collections.abc import Mapping
from typing import Any

import pulumi
import pytest

from catalog_rows import VERSIONS
from eks_inference.catalog import versions
from eks_inference.cluster.component import ClusterAddons
from eks_inference.cluster.spec import ClusterAddonsSpec
from eks_inference.faults import SpecError
from eks_inference.observability import cloudwatch_plan
from eks_inference.observability.cloudwatch import CloudWatchObservability
from eks_inference.observability.spec import CloudWatchSpec, ObservabilitySpec
from eks_inference.pools.plan import pool_taints
from eks_inference.pools.spec import ManagedPoolSpec
from handles import existing_cluster, placement
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record

BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"


def cloudwatch_spec(**given: Any) -> CloudWatchSpec:
    return CloudWatchSpec.model_validate(given)


def the_observability(spec: CloudWatchSpec | None = None, *, name: str = "c-cloudwatch", **cluster: Any) -> Graph:
    """CloudWatch alone, on a cluster that is already there."""
    return record(lambda: CloudWatchObservability(name, spec or cloudwatch_spec(), cluster=existing_cluster(**cluster)) and None)


def the_observability_on_addons() -> Graph:
    """CloudWatch on top of the add-ons that pods need."""

    def build() -> None:
        cluster = ClusterAddons(
            "c-addons", ClusterAddonsSpec(), cluster=existing_cluster(), core=placement("m6i.large", pool="core")
        )
        CloudWatchObservability("c-cloudwatch", cloudwatch_spec(), cluster=cluster)

    return record(build)


def configuration_of(graph: Graph) -> dict[str, Any]:
    return json.loads(graph.named("c-cloudwatch-addon").inputs["configurationValues"])


def tolerated(taint: Mapping[str, str], tolerations: list[dict[str, str]]) -> bool:
    """As Kubernetes decides it: a field that a toleration leaves out matches everything."""

    def matches(toleration: Mapping[str, str]) -> bool:
        if toleration.get("effect", taint["effect"]) != taint["effect"] or toleration.get("key", taint["key"]) != taint["key"]:
            return False
        return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint["value"]

    return any(matches(toleration) for toleration in tolerations)


# -- what a user may write ------------------------------------------------------------------------------------------------------


def test_nothing_is_collected_unless_asked_for() -> None:
    assert ObservabilitySpec().cloudwatch is None


def test_an_empty_section_is_enough_to_ask() -> None:
    assert ObservabilitySpec.model_validate({"cloudwatch": {}}).cloudwatch == CloudWatchSpec()


@pytest.mark.parametrize("version", ["latest", "6.6.0", "v6.6.0", "v6.6-eksbuild.1"])
def test_what_is_not_an_exact_addon_version_is_refused(version: str) -> None:
    with pytest.raises(SpecError, match="addon_version"):
        cloudwatch_spec(addon_version=version)


def test_a_misspelt_key_is_refused() -> None:
    with pytest.raises(SpecError, match="cloud_watch"):
        ObservabilitySpec.model_validate({"cloud_watch": {}})


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


def test_the_addon_gets_exactly_these_arguments() -> None:
    arguments = dict(the_observability(tags={"team": "ml"}).named("c-cloudwatch-addon").inputs)
    del arguments["configurationValues"]
    assert arguments == {
        "clusterName": "c",
        "addonName": "amazon-cloudwatch-observability",
        "addonVersion": versions.addon("amazon-cloudwatch-observability", "1.35"),
        "podIdentityAssociations": [{"roleArn": "<c-cloudwatch-role.arn>", "serviceAccount": "cloudwatch-agent"}],
        "resolveConflictsOnCreate": "OVERWRITE",
        "resolveConflictsOnUpdate": "OVERWRITE",
        "preserve": False,
        "tags": {"team": "ml", "Name": "c-amazon-cloudwatch-observability"},
    }


@pytest.mark.parametrize("instance_type", ["inf2.8xlarge", "trn2.48xlarge", "g4dn.xlarge"])
def test_agents_land_on_accelerator_nodes(instance_type: str) -> None:
    taints = pool_taints(ManagedPoolSpec.model_validate({"kind": "managed", "instance_types": [instance_type], "size": 1}))
    assert taints
    for taint in taints:
        assert tolerated(taint.manifest(), configuration_of(the_observability())["tolerations"]), taint


def test_the_addon_leaves_the_pods_of_model_servers_alone() -> None:
    monitoring = configuration_of(the_observability())["manager"]["applicationSignals"]["autoMonitor"]
    assert monitoring == {"monitorAllServices": False}, "the add-on's own default injects tracing into Python pods"


def test_the_addons_controller_stays_off_accelerator_nodes() -> None:
    assert "tolerations" not in configuration_of(the_observability())["manager"]


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


def test_only_the_agents_of_this_cluster_may_assume_the_role() -> None:
    role = the_observability().named("c-cloudwatch-role")
    (statement,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
    assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert statement["Action"] == ["sts:AssumeRole", "sts:TagSession"]
    assert statement["Condition"]["StringEquals"] == {
        "aws:RequestTag/eks-cluster-name": "c",
        "aws:RequestTag/kubernetes-namespace": "amazon-cloudwatch",
        "aws:RequestTag/kubernetes-service-account": "cloudwatch-agent",
    }


@pytest.mark.parametrize(
    ("region", "partition"), [("us-west-2", "aws"), ("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")]
)
def test_the_role_has_one_policy_of_its_partition(region: str, partition: str) -> None:
    (attachment,) = the_observability(region=region).of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment")
    assert attachment.inputs["policyArn"] == f"arn:{partition}:iam::aws:policy/CloudWatchAgentServerPolicy"
    assert attachment.inputs["role"] == "<c-cloudwatch-role.name>"


def test_boundary_and_tags_reach_the_role() -> None:
    inputs = the_observability(permissions_boundary_arn=BOUNDARY, tags={"team": "ml"}).named("c-cloudwatch-role").inputs
    assert inputs["permissionsBoundary"] == BOUNDARY
    assert inputs["tags"] == {"team": "ml", "Name": "c-cloudwatch-role"}


def test_without_a_boundary_the_role_mentions_none() -> None:
    assert "permissionsBoundary" not in the_observability().named("c-cloudwatch-role").inputs


def test_the_longest_stack_name_still_makes_a_legal_role_name() -> None:
    (role,) = the_observability(name="c" * 40 + "-cloudwatch").of_type("aws:iam/role:Role")
    assert len(role.name) + len("-1234567") <= 64, "the AWS provider adds eight characters and does not shorten"


# -- order and place ------------------------------------------------------------------------------------------------------------


def test_the_addon_comes_after_dns_and_goes_before_it() -> None:
    graph = the_observability_on_addons()
    waits_for = {graph.by_urn[urn].name for urn in graph.named("c-cloudwatch-addon").dependencies}
    assert "c-addons-coredns" in waits_for


def test_the_agents_have_their_permissions_before_they_start_and_until_they_end() -> None:
    graph = the_observability()
    addon = graph.named("c-cloudwatch-addon")
    assert graph.named("c-cloudwatch-policy").urn in addon.dependencies
    assert graph.named("c-cloudwatch-role").urn in addon.property_dependencies["podIdentityAssociations"]


def test_everything_is_a_child_of_the_component() -> None:
    graph = the_observability()
    component = graph.named("c-cloudwatch")
    assert component.type == "eks-inference:index:CloudWatchObservability"
    children = {resource.name for resource in graph.resources if resource.parent == component.urn}
    logs = {f"c-cloudwatch-{kind}-logs" for kind in ("application", "dataplane", "host", "performance")}
    guard = {"c-cloudwatch-credentials", "c-cloudwatch-credentials-binding"}
    assert children == {"c-cloudwatch-role", "c-cloudwatch-policy", "c-cloudwatch-addon"} | logs | guard
    addon = graph.named("c-cloudwatch-addon")
    assert all(graph.named(name).urn in addon.dependencies for name in logs), "the agents would make groups without retention"


def test_the_component_shows_what_the_user_wrote() -> None:
    spec = cloudwatch_spec(configuration={"containerLogs": {"enabled": False}})
    assert the_observability(spec).named("c-cloudwatch").inputs == spec.model_dump(mode="json", exclude_none=True)


def test_whoever_stands_on_it_waits_for_the_addon() -> None:
    def build() -> None:
        observability = CloudWatchObservability("c-cloudwatch", cloudwatch_spec(), cluster=existing_cluster())
        pulumi.ComponentResource("t:t:T", "later", None, pulumi.ResourceOptions(depends_on=[*observability.ready]))

    graph = record(build)
    assert graph.named("c-cloudwatch-addon").urn in graph.named("later").dependencies


def test_the_log_groups_are_named_after_the_cluster() -> None:
    assert cloudwatch_plan.cloudwatch_log_group_prefix("c") + "application" == "/aws/containerinsights/c/application"
