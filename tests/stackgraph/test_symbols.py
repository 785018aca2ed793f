"""An ``apply`` that fails on a placeholder would not run in a preview of the engine: it is no error of the program."""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import pulumi
import pulumi_aws as aws
import pytest

from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record

PLACE = r"tests/stackgraph/test_symbols.py:\d+"


def recorded(build: Any) -> Graph:
    return record(build, config={"aws:region": "us-west-2", "app:token": "<secret app:token>"}, secret_keys=["app:token"])


async def later(arn: str) -> str:
    return arn.split(":")[4]


@pytest.mark.parametrize(
    "fails",
    [
        lambda role: role.arn.apply(lambda arn: arn.split(":")[4]),
        lambda role: role.arn.apply(later),
        lambda role: role.arn.apply(lambda arn: base64.b64decode(arn, validate=True)),
        lambda role: role.arn.apply(lambda arn: arn[1:5]).apply(json.loads),
        lambda role: pulumi.Output.all(role.arn.apply(lambda arn: arn[1:5]), "known").apply(lambda both: {}[both[0]]),
        lambda role: pulumi.Output.json_loads(role.arn),
        lambda role: aws.iam.get_role_output(name="x").apply(lambda found: found.arn.split(":")[4]),
        lambda role: pulumi.Config("app").require_secret("token").apply(json.loads),
    ],
    ids=["index", "coroutine", "library", "made from it", "gathered", "of the SDK", "data source", "secret"],
)
def test_the_result_is_unknown_and_a_warning_has_the_line(fails: Any) -> None:
    def build():
        role = aws.iam.Role("r", assume_role_policy="{}")
        aws.sqs.Queue("q", name=fails(role))

    graph = recorded(build)
    assert graph.named("q").inputs["name"] in ("<unknown>", "[secret]")
    (warning,) = graph.warnings
    assert re.match(rf"({PLACE}: )?an apply failed on a value that only a deployment knows", warning)


def test_what_depends_on_it_still_does():
    def build():
        role = aws.iam.Role("r", assume_role_policy="{}")
        aws.sqs.Queue("q", name=role.arn.apply(lambda arn: arn.split(":")[4]))

    graph = recorded(build)
    assert graph.named("q").dependencies == (graph.named("r").urn,)
    assert re.search(rf"{PLACE}.*IndexError: list index out of range", graph.warnings[0])


@pytest.mark.parametrize("known", ["known", "a <b> c", "<r.arn"])
def test_an_apply_that_fails_on_known_values_is_an_error(known: str) -> None:
    def build():
        aws.iam.Role("r", assume_role_policy="{}")
        pulumi.export("x", pulumi.Output.from_input(known).apply(lambda text: text.split(":")[4]))

    with pytest.raises(ProgramError, match="IndexError") as failure:
        recorded(build)
    assert re.search(PLACE, failure.value.problems[0].render())


def test_an_apply_that_ends_the_program_is_an_error():
    def build():
        pulumi.export("x", aws.iam.Role("r", assume_role_policy="{}").arn.apply(lambda arn: exit(3)))

    with pytest.raises(ProgramError, match="exit code 3"):
        recorded(build)


# -- outputs in the types that an SDK expects ------------------------------------------------------------------------------------


def test_an_object_for_a_text_is_json_text_as_from_the_provider():
    document: Any = {"Version": "2012-10-17", "Statement": []}

    def resource(arn: Any) -> Any:
        return {"Resource": arn}

    def build():
        role = aws.iam.Role("r", assume_role_policy=document)
        bucket = aws.s3.Bucket("b")
        policy = aws.s3.BucketPolicy("p", bucket=bucket.id, policy=resource(bucket.arn))
        pulumi.export("role", role.assume_role_policy)
        pulumi.export("policy", policy.policy.apply(json.loads))
        hidden = aws.s3.BucketPolicy("h", bucket=bucket.id, policy=resource(pulumi.Output.secret("planted")))
        pulumi.export("hidden", hidden.policy)

    graph = recorded(build)
    assert graph.named("r").inputs["assumeRolePolicy"] == document, "what the program says stays as it is"
    assert json.loads(graph.outputs["role"]) == document
    assert graph.outputs["policy"] == {"Resource": "<b.arn>"}
    assert graph.outputs["hidden"] == "[secret]"


class Thing(pulumi.CustomResource):
    """A resource of an SDK whose input is a list and whose output is a map, as identities of Azure's clusters."""

    def __init__(self, name: str, parts: list[str]) -> None:
        super().__init__("acme:index:Thing", name, {"parts": parts, "named": {"parts": parts}})

    @property
    @pulumi.getter
    def parts(self) -> pulumi.Output[Mapping[str, str]]:
        return pulumi.get(self, "parts")


class ThingModule(pulumi.runtime.ResourceModule):
    mod_info: ClassVar = {"fqn": __name__, "classes": {"acme:index:Thing": "Thing"}}

    def version(self) -> None:
        return None

    def construct(self, name: str, typ: str, urn: str) -> pulumi.Resource:
        raise NotImplementedError


def test_an_input_of_another_type_than_its_output_is_unknown():
    pulumi.runtime.register_resource_module("acme", "index", ThingModule())
    graph = recorded(lambda: pulumi.export("parts", Thing("t", ["a"]).parts))
    assert graph.named("t").inputs["parts"] == ["a"]
    assert graph.outputs == {"parts": "<unknown>"}
