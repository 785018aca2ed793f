"""What the recorder does with registrations, one behaviour at a time.

tests/eks_inference_tools/test_engine_parity.py compares it with the engine.
"""

import gc
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s
import pytest
from pulumi.runtime.proto.resource_pb2 import RegisterResourceRequest

from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError
from stackgraph.recorder import wire
from stackgraph.recorder.monitor import inherit
from stackgraph.recorder.recording import record

CONFIG = {"aws:region": "us-west-2"}
STACK = "urn:pulumi:stack::project::"


class Net(pulumi.ComponentResource):
    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("test:index:Net", name, {"cidr": "10.0.0.0/16"}, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.vpc = aws.ec2.Vpc(f"{name}-vpc", cidr_block="10.0.0.0/16", opts=child)
        self.subnet = aws.ec2.Subnet(f"{name}-subnet", vpc_id=self.vpc.id, cidr_block="10.0.0.0/24", opts=child)
        self.register_outputs({})


class Outer(pulumi.ComponentResource):
    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("test:index:Outer", name, None, opts)
        self.net = Net(f"{name}-net", pulumi.ResourceOptions(parent=self))
        self.register_outputs({})


def recorded(build: Any, **arguments: Any) -> Graph:
    return record(build, config=CONFIG, **arguments)


def test_urns_have_the_whole_chain_of_parent_types():
    graph = recorded(lambda: Outer("o"))
    assert graph.named("o-net-subnet").urn == (STACK + "test:index:Outer$test:index:Net$aws:ec2/subnet:Subnet::o-net-subnet")
    assert graph.named("o").urn == STACK + "test:index:Outer::o"


def test_dependencies_say_which_property_needs_what():
    graph = recorded(lambda: Net("n"))
    vpc, subnet = graph.named("n-vpc"), graph.named("n-subnet")
    assert subnet.dependencies == (vpc.urn,)
    assert subnet.property_dependencies == {"vpcId": (vpc.urn,)}


def test_unknown_texts_have_names_and_strict_leaves_them_unknown():
    assert recorded(lambda: Net("n")).named("n-subnet").inputs["vpcId"] == "<n-vpc.id>"
    assert recorded(lambda: Net("n"), strict=True).named("n-subnet").inputs["vpcId"] == "<unknown>"


def test_names_survive_being_put_together():
    def build():
        vpc = aws.ec2.Vpc("v", cidr_block="10.0.0.0/16")
        pulumi.export("both", pulumi.Output.concat(vpc.arn, "/", vpc.id))
        pulumi.export("all", pulumi.Output.all(vpc.id, vpc.arn))

    assert recorded(build).outputs == {"both": "<v.arn>/<v.id>", "all": ["<v.id>", "<v.arn>"]}


def test_numbers_a_deployment_decides_stay_unknown():
    def build():
        pulumi.export("version", aws.ec2.LaunchTemplate("t").latest_version)

    assert recorded(build).outputs == {"version": "<unknown>"}


def test_secrets_are_gone_once_recorded():
    def build():
        token = pulumi.Output.secret("planted")
        provider = k8s.Provider("p", kubeconfig=token)
        k8s.core.v1.ConfigMap("c", data={"open": "yes", "token": token}, opts=pulumi.ResourceOptions(provider=provider))
        pulumi.export("token", pulumi.Output.concat("is ", token))

    graph = recorded(build)
    assert graph.named("p").inputs["kubeconfig"] == "[secret]"
    assert graph.named("c").inputs["data"] == {"open": "yes", "token": "[secret]"}
    assert graph.outputs == {"token": "[secret]"}
    assert "planted" not in graph.to_json()


def test_configuration_secrets_are_secret_in_the_graph():
    def build():
        pulumi.export("token", pulumi.Config("app").require_secret("token"))

    graph = record(build, config={"app:token": "planted"}, secret_keys=["app:token"])
    assert graph.outputs == {"token": "[secret]"}


def test_two_resources_of_one_urn_are_refused_with_both_places():
    def build():
        aws.ec2.Vpc("same")
        aws.ec2.Vpc("same")

    with pytest.raises(
        ProgramError, match=r"same URN .*Vpc::same: one from .*test_recording.py:\d+, one from .*test_recording.py:\d+"
    ):
        recorded(build)


NET = "urn:pulumi:dev::demo::demo:Net::n"


def test_options_are_kept_when_they_differ_from_the_default():
    def build():
        aws.ec2.Vpc(
            "v",
            opts=pulumi.ResourceOptions(
                protect=True,
                retain_on_delete=True,
                ignore_changes=["tags"],
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create="5m"),
                aliases=[pulumi.Alias(name="old"), pulumi.Alias(parent=NET), pulumi.Alias(parent=None), pulumi.Alias(stack="s")],
                import_="vpc-1",
            ),
        )
        aws.ec2.Eip("plain")

    graph = recorded(build)
    assert graph.named("v").options == {
        "aliases": [{"name": "old"}, {"parent": NET}, {"noParent": True}, {"stack": "s"}],
        "protect": True,
        "retainOnDelete": True,
        "ignoreChanges": ["tags"],
        "deleteBeforeReplace": True,
        "customTimeouts": {"create": "5m"},
        "import": "vpc-1",
    }
    assert graph.named("plain").options == {}


def test_protection_is_inherited():
    graph = recorded(lambda: Net("n", pulumi.ResourceOptions(protect=True)))
    assert graph.named("n-vpc").options == {"protect": True}


def test_resources_without_a_provider_get_the_default_one_of_their_sdks_version():
    graph = recorded(lambda: Net("n"))
    provider = graph.by_urn[graph.named("n-vpc").provider]
    assert provider.type == "pulumi:providers:aws"
    assert provider.name.startswith("default_7_")
    assert provider.inputs["region"] == "us-west-2"


@pytest.mark.parametrize(("type_", "reached"), [("aws:ec2/vpc:Vpc", True), ("kubernetes:core/v1:Pod", False)])
def test_a_resource_inherits_a_provider_of_its_package(type_: str, reached: bool):
    """As the engine does for languages whose SDK leaves it to that."""
    provider = "urn:pulumi:dev::demo::pulumi:providers:aws::mine::id"
    parent, child = RegisterResourceRequest(provider=provider, protect=True), RegisterResourceRequest(type=type_, custom=True)
    inherit(child, parent)
    assert (bool(child.provider), child.protect, child.HasField("retainOnDelete")) == (reached, True, False)


def test_providers_reach_children_through_components():
    def build():
        mine = aws.Provider("mine", region="eu-west-1")
        Outer("o", pulumi.ResourceOptions(providers=[mine]))

    graph = recorded(build)
    assert graph.by_urn[graph.named("o-net-vpc").provider].name == "mine"


def test_transforms_of_a_resource_its_parents_and_the_stack_all_run():
    def tag(name: str):
        def transform(args: pulumi.ResourceTransformArgs):
            if args.type_ != "aws:ec2/vpc:Vpc":
                return None
            tags: Any = args.props.get("tags", {})
            return pulumi.ResourceTransformResult({**args.props, "tags": {**tags, name: "yes"}}, args.opts)

        return transform

    def build():
        pulumi.runtime.register_resource_transform(tag("stack"))
        Net("n", pulumi.ResourceOptions(transforms=[tag("component")]))

    graph = recorded(build)
    assert graph.named("n-vpc").inputs["tags"] == {"component": "yes", "stack": "yes"}
    assert graph.named("n-subnet").dependencies == (graph.named("n-vpc").urn,)


def test_transforms_see_resources_that_are_passed_on_whole():
    """pulumi-eks takes roles as resources; a transform gets them back with their outputs."""

    def keep(args: pulumi.ResourceTransformArgs):
        return pulumi.ResourceTransformResult(args.props, args.opts)

    def build():
        role = aws.iam.Role("r", assume_role_policy="{}")
        eks.Cluster("c", service_role=role, opts=pulumi.ResourceOptions(transforms=[keep]))

    graph = recorded(build)
    assert graph.named("c").inputs["serviceRole"] == {"resource": graph.named("r").urn}


def test_transforms_can_change_options():
    def protect(args: pulumi.ResourceTransformArgs):
        return pulumi.ResourceTransformResult(
            args.props, pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(protect=True))
        )

    graph = recorded(lambda: aws.ec2.Vpc("v", opts=pulumi.ResourceOptions(transforms=[protect])))
    assert graph.named("v").options == {"protect": True}


def test_a_remote_component_is_one_node_and_its_outputs_have_names():
    def build():
        cluster = eks.Cluster("c", name="c")
        pulumi.export("endpoint", cluster.eks_cluster.endpoint)
        pulumi.export("group", cluster.eks_cluster.vpc_config.cluster_security_group_id)
        pulumi.export("config", cluster.kubeconfig_json)

    graph = recorded(build)
    cluster = graph.named("c")
    assert cluster.remote
    assert graph.opaque == (cluster,)
    assert graph.outputs["endpoint"] == "<c.eksCluster.endpoint>"
    assert graph.outputs["group"] == "<c.eksCluster.vpcConfig.clusterSecurityGroupId>"


def test_what_uses_the_inside_of_a_remote_component_depends_on_the_component():
    def build():
        cluster = eks.Cluster("c", name="c")
        k8s.Provider("p", kubeconfig=cluster.eks_cluster.endpoint)

    graph = recorded(build)
    assert graph.named("p").dependencies == (graph.named("c").urn,)


def test_resources_that_are_only_read_are_marked():
    graph = recorded(lambda: aws.ec2.Vpc.get("v", "vpc-1"))
    assert graph.named("v").options == {"read": "vpc-1"}


def test_a_failing_program_leaves_the_next_run_clean():
    def build():
        aws.ec2.Vpc("v")
        raise ValueError("stop")

    with pytest.raises(ProgramError, match="ValueError: stop"):
        recorded(build)
    assert len(recorded(lambda: aws.ec2.Vpc("v")).of_type("aws:ec2/vpc:Vpc")) == 1


@pytest.mark.parametrize("collecting", [True, False])
def test_the_garbage_collector_rests_meanwhile_and_is_then_as_it_was(collecting):
    seen = []

    def build(*, fails):
        seen.append(gc.isenabled())
        if fails:
            raise RuntimeError

    before = gc.isenabled()
    gc.freeze()  # what other tests left would be searched whenever a collection is due
    (gc.enable if collecting else gc.disable)()
    try:
        record(lambda: build(fails=False))
        with pytest.raises(ProgramError):
            record(lambda: build(fails=True))
        assert gc.isenabled() is collecting
    finally:
        (gc.enable if before else gc.disable)()
        gc.unfreeze()
    assert seen == [False, False]


def test_equal_programs_give_equal_bytes():
    assert recorded(lambda: Outer("o")).to_json() == recorded(lambda: Outer("o")).to_json()


def test_the_place_of_a_resource_is_where_the_program_made_it():
    graph = recorded(lambda: k8s.Provider("p", kubeconfig="{}"))
    assert graph.named("p").source.startswith("tests/stackgraph/test_recording.py:")


def test_values_carry_what_they_depend_on_and_come_back():
    output, secret = {wire.SIGNATURE: wire.OUTPUT}, {wire.SIGNATURE: wire.SECRET}
    given = {"list": [wire.UNKNOWN, 1], "token": {**secret, "value": wire.UNKNOWN}, "key": {**secret, "value": "x"}, "plain": 1}
    carrying = wire.upgrade_to_outputs(given, {"plain": ["u2", "u1"], "token": ["u1"]})
    assert carrying == {
        "list": [output, 1],
        "token": {**output, "secret": True, "dependencies": ["u1"]},
        "key": {**output, "secret": True, "value": "x"},
        "plain": {**output, "value": 1, "dependencies": ["u1", "u2"]},
    }
    assert wire.downgrade_outputs(carrying) == given
