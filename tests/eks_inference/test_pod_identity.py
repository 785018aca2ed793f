"""Roles by EKS Pod Identity: who may take them, under which names and settings, and before what they exist."""

import dataclasses

import pulumi
import pulumi_kubernetes as k8s
import pytest

from eks_inference.cluster.pod_identity import pod_identity, pod_role
from graphs import stands_on
from handles import existing_cluster
from stackgraph.graph.document import Graph, Resource
from stackgraph.recorder.recording import record

BOUNDARY = "arn:aws:iam::111122223333:policy/boundary"
READ_ONLY = "arn:aws:iam::aws:policy/ReadOnlyAccess"
LONG = "l" * 70


def associated(name: str = "tool", role_name: str | None = None) -> Graph:
    """A ConfigMap as a pod that stands on what ``pod_identity`` gives back."""

    def build() -> None:
        cluster = existing_cluster(tags={"team": "ml"}, permissions_boundary_arn=BOUNDARY)
        agent = k8s.core.v1.ConfigMap("agent", opts=pulumi.ResourceOptions(provider=cluster.provider))
        cluster = dataclasses.replace(cluster, ready=(agent,))
        ready = pod_identity(
            name,
            cluster=cluster,
            namespace="tools",
            service_account="runner",
            description="A tool",
            parent=pulumi.ComponentResource("test:index:Parent", "parent"),
            policies={"read": "{}"},
            role_name=role_name,
        )
        k8s.core.v1.ConfigMap("pod", opts=pulumi.ResourceOptions(provider=cluster.provider, depends_on=ready))

    return record(build)


def only(graph: Graph, kind: str) -> Resource:
    (found,) = graph.of_type(kind)
    return found


def role(graph: Graph) -> Resource:
    return only(graph, "aws:iam/role:Role")


def association(graph: Graph) -> Resource:
    return only(graph, "aws:eks/podIdentityAssociation:PodIdentityAssociation")


def test_it_keeps_to_the_settings_of_the_stack() -> None:
    graph = associated()
    assert role(graph).inputs["permissionsBoundary"] == BOUNDARY
    assert role(graph).inputs["tags"] == {"team": "ml", "Name": "tool-role"}
    assert association(graph).inputs["tags"] == {"team": "ml", "Name": "tool-identity"}
    assert role(graph).parent == association(graph).parent == graph.named("parent").urn


def test_pods_start_after_policy_and_association_and_these_after_the_agent() -> None:
    graph = associated()
    pod = graph.named("pod")
    for below in (only(graph, "aws:iam/rolePolicy:RolePolicy"), association(graph), role(graph), graph.named("agent")):
        assert stands_on(graph, pod, below), below.urn
    assert stands_on(graph, association(graph), graph.named("agent"))


def test_long_names_keep_what_tells_them_apart() -> None:
    """IAM takes 64 characters, eight of which Pulumi fills."""
    names = {role(associated(name)).name for name in (f"{LONG}-a", f"{LONG}-b")}
    assert len(names) == 2
    assert all(len(name) <= 56 for name in names)
    assert role(associated(f"{LONG}-a")).inputs["tags"]["Name"] == f"{LONG}-a-role"


def test_the_role_may_have_a_name_of_its_own() -> None:
    graph = associated("runner", role_name="runner")
    assert role(graph).name == "runner"
    assert only(graph, "aws:iam/rolePolicy:RolePolicy").name == "runner-read"
    assert association(graph).name == "runner-identity"


def test_for_an_add_on_there_is_a_role_and_no_association() -> None:
    def build() -> None:
        made, permissions = pod_role(
            "driver",
            cluster=existing_cluster(),
            namespace="kube-system",
            service_account="driver",
            description="A driver",
            parent=pulumi.ComponentResource("test:index:Parent", "parent"),
            managed_policies={"policy": READ_ONLY},
            policies={"key": "{}"},
        )
        pulumi.export("role", made.name)
        pulumi.export("permissions", len(permissions))

    graph = record(build)
    assert not graph.of_type("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    assert guard(graph).inputs["metadata"]["name"] == "pod-identity.kube-system.driver"
    attachment = only(graph, "aws:iam/rolePolicyAttachment:RolePolicyAttachment")
    assert (attachment.name, attachment.inputs["policyArn"]) == ("driver-policy", READ_ONLY)
    assert only(graph, "aws:iam/rolePolicy:RolePolicy").name == "driver-key"
    assert graph.outputs["permissions"] == 3, "both policies and the guard"


GUARD = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"


def guard(graph: Graph) -> Resource:
    return only(graph, GUARD)


@pytest.mark.thorough
def test_every_role_of_pods_of_a_shipped_stack_has_its_guard(shipped: Graph) -> None:
    accounts = {
        (resource.inputs["namespace"], resource.inputs["serviceAccount"])
        for resource in shipped.of_type("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    }
    guarded = {tuple(resource.inputs["metadata"]["name"].split(".", 2)[1:]) for resource in shipped.of_type(GUARD)}
    of_addons = {("kube-system", "ebs-csi-controller-sa"), ("amazon-cloudwatch", "cloudwatch-agent")}
    assert accounts < guarded <= accounts | of_addons
    assert len(shipped.of_type(f"{GUARD}Binding")) == len(guarded)
