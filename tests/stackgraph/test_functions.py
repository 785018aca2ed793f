"""Provider functions: data sources, stack references and methods, answered without a provider."""

import json
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from stackgraph.graph.document import STACK_REFERENCE, Graph, read_graph
from stackgraph.problems import ProgramError
from stackgraph.recorder.answers import Answers
from stackgraph.recorder.aws_functions import letters, policy_document
from stackgraph.recorder.recording import record

CONFIG = {"aws:region": "us-west-2"}
CALLER = "aws:index/getCallerIdentity:getCallerIdentity"


def outputs(build: Any, rows: Any = (), **arguments: Any) -> Any:
    return recorded(build, rows, **arguments).outputs


def recorded(build: Any, rows: Any = (), config: Any = CONFIG, **arguments: Any) -> Graph:
    return record(build, config=config, answers=Answers(rows), **arguments)


# -- computed --------------------------------------------------------------------------------------------------------------------


def test_region_and_partition_are_those_of_the_call_its_provider_and_the_configuration_in_this_order():
    def build():
        east = aws.Provider("east", region="cn-north-1")
        with_east = pulumi.InvokeOptions(provider=east)
        pulumi.export("config", aws.get_region().region)
        pulumi.export("provider", aws.get_region(opts=with_east).region)
        pulumi.export("output form", aws.get_region_output(opts=pulumi.InvokeOutputOptions(provider=east)).endpoint)
        pulumi.export("argument", aws.get_region(region="eu-west-1", opts=with_east).endpoint)
        pulumi.export("partition", aws.get_partition(opts=with_east).partition)
        pulumi.export("suffix", aws.get_partition(opts=with_east).dns_suffix)
        pulumi.export("reverse", aws.get_partition().reverse_dns_prefix)

    assert outputs(build) == {
        "config": "us-west-2",
        "provider": "cn-north-1",
        "output form": "ec2.cn-north-1.amazonaws.com.cn",
        "argument": "ec2.eu-west-1.amazonaws.com",
        "partition": "aws-cn",
        "suffix": "amazonaws.com.cn",
        "reverse": "com.amazonaws",
    }


def test_the_zones_of_a_region_are_facts_and_exclusions_are_honoured():
    def build():
        pulumi.export("plain", aws.get_availability_zones(state="available").names)
        pulumi.export("output", aws.get_availability_zones_output(region="ap-northeast-1").names[1])
        pulumi.export("fewer", aws.get_availability_zones(exclude_names=["us-west-2b"]).names)

    found = outputs(build)
    assert found["plain"] == ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"]
    assert found["output"] == "ap-northeast-1c"
    assert found["fewer"] == ["us-west-2a", "us-west-2c", "us-west-2d"]


@pytest.mark.thorough
def test_the_letters_of_zones_are_those_that_moto_carries():
    # Takes longer than all tests here. At the top of the file, each process of the suite would import it.
    from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

    zones = RegionsAndZonesBackend.zones
    assert zones
    assert {region: letters(region) for region in zones} == {
        region: "".join(zone.name.removeprefix(region) for zone in found) for region, found in zones.items()
    }


def test_the_only_allowed_account_is_the_account():
    def build():
        only = aws.Provider("only", region="us-west-2", allowed_account_ids=["123456789012"])
        pulumi.export("known", aws.get_caller_identity(opts=pulumi.InvokeOptions(provider=only)).account_id)
        pulumi.export("unknown", aws.get_caller_identity().account_id)

    assert outputs(build) == {"known": "123456789012", "unknown": "<getCallerIdentity.accountId>"}


def test_a_policy_document_is_computed_with_the_names_of_what_does_not_exist_yet():
    def build():
        bucket = aws.s3.Bucket("b")
        statement: Any = {"actions": ["s3:GetObject", "s3:PutObject"], "resources": [bucket.arn], "sid": "Read"}
        document = aws.iam.get_policy_document_output(statements=[statement])
        aws.iam.Policy("p", policy=document.json)

    graph = recorded(build)
    policy = graph.named("p")
    assert json.loads(policy.inputs["policy"]) == {
        "Version": "2012-10-17",
        "Statement": [{"Sid": "Read", "Effect": "Allow", "Action": ["s3:PutObject", "s3:GetObject"], "Resource": "<b.arn>"}],
    }
    assert policy.dependencies == (graph.named("b").urn,)
    assert recorded(build, strict=True).named("p").inputs["policy"] == "<unknown>", "as the engine, which does not call"


def test_a_policy_document_reads_like_the_providers():
    """The example of the provider's documents: principals, conditions, variables, merged documents."""
    first = {"sid": "One", "actions": ["s3:ListBucket"], "resources": ["arn:aws:s3:::a/&{aws:username}"]}
    second = {
        "effect": "Deny",
        "notActions": ["b", "c", "a"],
        "principals": [{"type": "AWS", "identifiers": ["x", "y"]}, {"type": "Service", "identifiers": ["s"]}],
        "conditions": [
            {"test": "StringLike", "variable": "s3:prefix", "values": ["", "home/"]},
            {"test": "Bool", "variable": "aws:SecureTransport", "values": ["true"]},
        ],
    }
    source = json.dumps({"Version": "2008-10-17", "Statement": [{"Sid": "One", "Effect": "Deny"}, {"Effect": "Allow"}]})
    made = policy_document({"statements": [first, second], "sourcePolicyDocuments": [source], "policyId": "p"})
    assert made is not None
    assert json.loads(made["json"]) == {
        "Version": "2012-10-17",
        "Id": "p",
        "Statement": [
            {"Sid": "One", "Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::a/${aws:username}"},
            {"Effect": "Allow"},
            {
                "Effect": "Deny",
                "NotAction": ["c", "b", "a"],
                "Principal": {"AWS": ["y", "x"], "Service": "s"},
                "Condition": {"Bool": {"aws:SecureTransport": "true"}, "StringLike": {"s3:prefix": ["", "home/"]}},
            },
        ],
    }
    assert json.loads(made["minifiedJson"]) == json.loads(made["json"])
    anyone = policy_document({"statements": [{"principals": [{"type": "*", "identifiers": ["*"]}]}]})
    assert anyone is not None
    assert json.loads(anyone["json"])["Statement"] == [{"Effect": "Allow", "Principal": "*"}]
    assert policy_document({"sourcePolicyDocuments": ["<b.policy>"]}) is None


# -- placeholders ----------------------------------------------------------------------------------------------------------------


def test_what_only_a_provider_knows_is_a_placeholder_of_the_right_type():
    def build():
        image = aws.ec2.get_ami(owners=["amazon"], most_recent=True, filters=[{"name": "name", "values": ["al2023*"]}])
        assert isinstance(image.owners, list), "what was asked is answered as it was asked"
        assert image.most_recent is True
        assert [device.device_name for device in image.block_device_mappings]
        pulumi.export("image", image.id)
        subnets = aws.ec2.get_subnets_output()
        pulumi.export("subnets", subnets.ids.apply(lambda ids: [f"{id_}!" for id_ in ids[:2]]))

    assert outputs(build) == {"image": "<getAmi.id>", "subnets": ["<getSubnets.ids[0]>!", "<getSubnets.ids[1]>!"]}


def test_numbers_are_unknown_where_they_can_be():
    def build():
        found = aws.ec2.get_instance_type_output(instance_type="m5.large")
        plain = aws.ec2.get_instance_type(instance_type="m5.large")
        numbers = {"output": found.default_vcpus, "plain": plain.default_vcpus, "truth": plain.bare_metal}
        pulumi.export("numbers", numbers | {"truth output": found.apply(lambda known: known.bare_metal)})
        pulumi.export("text", found.instance_type)

    assert outputs(build) == {
        "numbers": {"output": "<unknown>", "plain": 1, "truth": False, "truth output": "<unknown>"},
        "text": "m5.large",
    }


def test_strict_leaves_unknown_what_may_be_unknown():
    def build():
        pulumi.export("output", aws.ec2.get_ami_output(owners=["amazon"]).id)
        pulumi.export("plain", aws.ec2.get_ami(owners=["amazon"]).id)

    graph = recorded(build, strict=True)
    assert graph.outputs == {"output": "<unknown>", "plain": "<getAmi.id>"}
    assert sorted(called.answer for called in graph.functions) == ["placeholder", "unknown"]


def test_a_result_without_a_type_is_an_error_at_the_programs_line():
    def build():
        aws.ec2.get_vpc(default=True)
        pulumi.runtime.invoke("acme:index:getThing", {"name": "x"})

    with pytest.raises(ProgramError, match=r"acme:index:getThing gives its result at once.*--answers") as failure:
        recorded(build)
    assert failure.value.problems[0].file.endswith("test_functions.py")
    assert failure.value.problems[0].hint == "", "a placeholder that stands for another result is not to blame"
    row = {"function": "acme:index:getThing", "result": {"size": 3}}
    assert outputs(lambda: pulumi.export("size", pulumi.runtime.invoke("acme:index:getThing", {}).value["size"]), [row]) == {
        "size": 3
    }


# -- answers ---------------------------------------------------------------------------------------------------------------------


def test_the_first_row_that_fits_answers():
    def build():
        east = pulumi.InvokeOptions(provider=aws.Provider("east", region="us-east-1"))
        pulumi.export("a", aws.ec2.get_ami(owners=["amazon"], name_regex="x").id)
        pulumi.export("b", aws.ec2.get_ami(owners=["self"]).id)
        pulumi.export("c", aws.ec2.get_ami(owners=["self"], opts=east).id)
        pulumi.export("d", aws.ec2.get_ami(owners=["self"], region="eu-west-1").id)
        pulumi.export("architecture", aws.ec2.get_ami(owners=["amazon"], name_regex="x").architecture)

    token = "aws:ec2/getAmi:getAmi"
    rows = [
        {"function": token, "args": {"owners": ["amazon"]}, "result": {"id": "ami-amazon"}},
        {"function": token, "provider": "east", "result": {"id": "ami-east"}},
        {"function": token, "region": "eu-west-1", "result": {"id": "ami-eu"}},
        {"function": token, "region": "us-west-2", "result": {"id": "ami-west"}},
    ]
    expected = {"a": "ami-amazon", "b": "ami-west", "c": "ami-east", "d": "ami-eu", "architecture": "<getAmi.architecture>"}
    assert outputs(build, rows) == expected


def test_a_stack_reference_gives_what_the_file_says():
    def build():
        network = pulumi.StackReference("acme/network/prod")
        aws.ec2.Subnet("s", vpc_id=network.require_output("vpcId"))
        pulumi.export("other", network.get_output("none"))

    row = {"stack": "acme/network/prod", "outputs": {"vpcId": "vpc-1"}}
    graph = recorded(build, [row])
    assert graph.named("s").inputs["vpcId"] == "vpc-1"
    assert [(called.token, called.answer) for called in graph.functions] == [(STACK_REFERENCE, "file")]
    assert recorded(build).named("s").inputs["vpcId"] == "<unknown>"


# -- what the graph tells --------------------------------------------------------------------------------------------------------


def test_the_graph_lists_each_call_once_with_its_place_and_keeps_secrets():
    def build():
        for _ in range(3):
            aws.get_caller_identity()
        aws.ssm.get_parameter_output(name=pulumi.Output.secret("planted"))

    graph = recorded(build)
    told = {called.token: called for called in graph.functions}
    assert told[CALLER].answer == "placeholder"
    assert told[CALLER].source.startswith("tests/stackgraph/test_functions.py:")
    assert dict(told["aws:ssm/getParameter:getParameter"].args) == {"name": "[secret]"}
    assert len(graph.functions) == 2
    assert "planted" not in graph.to_json()
    assert read_graph(json.loads(graph.to_json()), "saved").functions == graph.functions


def test_a_function_uses_the_default_provider_as_in_the_engine():
    graph = recorded(lambda: pulumi.export("account", aws.get_caller_identity().account_id))
    assert [resource.type for resource in graph.resources if resource.is_provider] == ["pulumi:providers:aws"]


def test_texts_that_an_sdk_has_read_are_no_question():
    """A manifest may hold the data of a Secret."""
    from pulumi_kubernetes.yaml import ConfigGroup

    text = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: planted}\n"
    graph = recorded(lambda: ConfigGroup("g", yaml=[text]))
    assert graph.of_type("kubernetes:core/v1:Secret")
    assert graph.functions == ()


# -- transforms of functions, and providers whose settings are unknown -----------------------------------------------------------


@pytest.mark.parametrize("ask", [aws.ec2.get_security_group, aws.ec2.get_security_group_output])
def test_a_function_is_asked_what_the_transforms_of_the_stack_make_of_it(ask):
    def other(asked):
        return pulumi.InvokeTransformResult({**asked.args, "name": f"{asked.args['name']}-other"}, asked.opts)

    def build():
        pulumi.runtime.register_invoke_transform(other)
        pulumi.runtime.register_invoke_transform(other)
        pulumi.export("id", ask(name="mine").id)

    token = "aws:ec2/getSecurityGroup:getSecurityGroup"
    rows = [{"function": token, "args": {"name": "mine-other-other"}, "result": {"id": "sg-1"}}]
    graph = recorded(build, rows)
    assert graph.outputs == {"id": "sg-1"}
    assert [called.args["name"] for called in graph.functions] == ["mine-other-other"]


def test_secrets_that_no_transform_changes_stay_hidden():
    def build():
        pulumi.runtime.register_invoke_transform(
            lambda asked: pulumi.InvokeTransformResult({**asked.args, "vpcId": "v"}, asked.opts)
        )
        pulumi.export("id", aws.ec2.get_security_group_output(name=pulumi.Output.secret("very-secret")).id)

    (called,) = recorded(build).functions
    assert called.args == {"name": "[secret]", "vpcId": "v"}


@pytest.mark.parametrize(("strict", "children"), [(True, []), (False, ["a"])])
def test_a_provider_whose_settings_are_unknown_is_asked_nothing_in_the_engine(strict, children, tmp_path):
    (tmp_path / "m.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")

    def build():
        from pulumi_kubernetes import Provider
        from pulumi_kubernetes.yaml import ConfigFile

        provider = Provider("p", kubeconfig=aws.iam.Role("r", assume_role_policy="{}").arn)
        ConfigFile("c", file=str(tmp_path / "m.yaml"), opts=pulumi.ResourceOptions(provider=provider))

    graph = recorded(build, strict=strict)
    assert [resource.name for resource in graph.resources if resource.type == "kubernetes:core/v1:ConfigMap"] == children
    assert {resource.source for resource in graph.resources if resource.name in ("c", "a")} == {graph.named("c").source}
    assert graph.named("c").source.startswith("tests/stackgraph/test_functions.py:")
