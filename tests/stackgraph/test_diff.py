"""What changes between two graphs: kinds of change, what is the same however it is written, moves, replacements, dangers."""

import importlib
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pytest
from pulumi._types import input_type_types

from conftest import STACKS, recorded
from diff_edits import applied, edited, meaning
from mutations import cases
from stackgraph.diff import replacements, telling
from stackgraph.diff.comparison_domain import ComparedDomain, Danger, Weight
from stackgraph.diff.contents import by_subject
from stackgraph.diff.dangers import dangers, is_wide
from stackgraph.diff.differences import ABSENT, differences, opened
from stackgraph.diff.graphs import ResourceChange, StackDiff, compare
from stackgraph.diff.replacements import replacing, rows
from stackgraph.diff.report import StackFile
from stackgraph.diff.telling import property_lines
from stackgraph.graph.document import STACK_TYPE, Graph, Resource, read_graph
from stackgraph.recorder.recording import record
from variants import recorded_with

BUCKET = "aws:s3/bucket:Bucket"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
MSK = "aws:msk/cluster:Cluster"
OTHER = "random:index/randomId:RandomId"


def resource(name: str, type_: str = BUCKET, *, parent: str = "", **given: Any) -> Resource:
    chain = f"{parent.split('::')[2]}$" if parent else ""
    urn = f"urn:pulumi:s::p::{chain}{type_}::{name}"
    inputs = given.pop("inputs", {})
    return Resource(urn=urn, type=type_, name=name, parent=parent, inputs=inputs, **given)


def graph(*resources: Resource) -> Graph:
    return Graph("p", "s", tuple(sorted(resources, key=lambda one: one.urn)))


def change_of(before: Resource | None, after: Resource | None, *others: Resource) -> ResourceChange:
    diff = compare(graph(*filter(None, (before, *others))), graph(*filter(None, (after, *others))))
    return diff.by_urn[(after or before or others[0]).urn]


def changed(before: Any, after: Any, *path: str) -> list[str]:
    """Paths that differ below the path."""
    return [change.name for change in differences(opened(before), opened(after), path)]


# -- the same, however it is written ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": 1}, {"a": "1"}),
        ({"a": 1.0}, {"a": 1}),
        ({"a": True}, {"a": "true"}),
        ({"a": None}, {}),
        ({"requests": {"memory": "1Gi"}}, {"requests": {"memory": "1024Mi"}}),
        ({"limits": {"cpu": "500m", "a": "1e3", "b": "2E"}}, {"limits": {"cpu": 0.5, "a": "1k", "b": "2000P"}}),
        ({"limits": {"nvidia.com/gpu": 1}}, {"limits": {"nvidia.com/gpu": "1"}}),
        ({"subnetIds": ["a", "b"]}, {"subnetIds": ["b", "a"]}),
        ({"volumes": [{"name": "a"}, {"name": "b"}]}, {"volumes": [{"name": "b"}, {"name": "a"}]}),
        ({"policy": '{"a": [1, 2]}'}, {"policy": '{\n "a": [1,2]}'}),
        ({"policy": '{"Action": ["x", "y"]}'}, {"policy": '{"Action": ["y", "x"]}'}),
    ],
)
def test_what_means_the_same_is_no_change(before, after):
    assert changed(before, after) == []
    assert changed(after, before) == []


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        ({"version": "1.30"}, {"version": "1.3"}, ["version"]),
        ({"args": ["a", "b"]}, {"args": ["b", "a"]}, ["args"]),
        ({"annotations": {"x": "1024Mi"}}, {"annotations": {"x": "1Gi"}}, ["annotations.x"]),
        ({"policy": '{"a": 1}'}, {"policy": '{"a": "1"}'}, ["policy.a"]),
        ({"policy": '{"a": 1}'}, {"policy": {"a": 1}}, ["policy"]),
        ({"limits": {"a": "1kk", "b": "1..Gi"}}, {"limits": {"a": "1.0kk", "b": "1..0Gi"}}, ["limits.a", "limits.b"]),
        ({"requests": {"memory": "1G"}}, {"requests": {"memory": "1Gi"}}, ["requests.memory"]),
        ({"labels": {"a.b/c": "x"}}, {"labels": {"a.b/c": "y"}}, ['labels["a.b/c"]']),
        (
            {"initContainers": [{"name": "a"}, {"name": "b"}]},
            {"initContainers": [{"name": "b"}, {"name": "a"}]},
            ["initContainers"],
        ),
    ],
)
def test_what_means_another_thing_is_one(before, after, paths):
    assert changed(before, after) == paths


def test_a_key_without_a_line_has_that_of_its_nearest_ancestor():
    file = StackFile("one.yaml", {}, {("pools",): 3, ("pools", "core", "size"): 5})
    paths = ("pools", "core", "size"), ("pools", "core"), ("network",)
    assert [file.source(path) for path in paths] == ["one.yaml:5", "one.yaml:3", "one.yaml:1"]


def test_items_of_lists_are_found_by_their_keys():
    before = {
        "containers": [
            {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
            {"name": "b", "image": "b:1", "ports": [{"containerPort": 1, "protocol": "TCP"}]},
        ]
    }
    after = {
        "containers": [
            {"name": "b", "image": "b:2", "ports": [{"containerPort": 2, "protocol": "TCP"}]},
            {"name": "a", "image": "a:1", "env": [{"name": "W", "value": "0"}, {"name": "X", "value": "3"}]},
        ]
    }
    assert changed(before, after) == [
        "containers[a].env[W]",
        "containers[a].env[X].value",
        "containers[a].env[Y]",
        "containers[b].image",
        "containers[b].ports[1 TCP]",
        "containers[b].ports[2 TCP]",
    ]


def test_lists_without_keys_are_compared_in_place_when_they_are_as_long():
    before, after = [{"from": [{"a": 1}]}, {"from": []}], [{"from": [{"a": 2}]}, {"from": []}]
    assert changed({"ingress": before}, {"ingress": after}) == ["ingress[0].from[0].a"]
    assert changed({"ingress": before}, {"ingress": after[:1]}) == ["ingress"]


def test_long_texts_and_lists_show_what_differs_only():
    before = "\n".join(f"line {number}" for number in range(100))
    (change,) = differences({"script": before}, {"script": before.replace("line 50", "line fifty")})
    lines = list(property_lines(change))
    assert "-   line 50" in lines
    assert "+   line fifty" in lines
    assert len(lines) == 5


# -- kinds of change -------------------------------------------------------------------------------------------------------------


def test_each_kind_of_change():
    one = resource("one", inputs={"bucket": "one", "tags": {"a": "1"}})
    assert change_of(None, one, resource("else")).kind == "create"
    assert change_of(one, None, resource("else")).kind == "delete"
    assert change_of(one, one).kind == "same"
    assert change_of(one, replace(one, source="elsewhere.py:1")).kind == "same"
    assert change_of(one, replace(one, inputs={"bucket": "one", "tags": {"a": "2"}})).kind == "update"
    replaced = change_of(one, replace(one, inputs={"bucket": "two", "tags": {"a": "1"}}))
    assert (replaced.kind, replaced.because) == ("replace", ("bucket",))
    other = resource("other")
    waits = change_of(one, replace(one, dependencies=(other.urn,)), other)
    assert (waits.kind, waits.dependencies) == ("dependencies", True)


def test_options_that_matter_are_changes():
    one = resource("one", inputs={"bucket": "one"}, options={"protect": True})
    change = change_of(one, replace(one, options={}))
    assert change.kind == "update"
    assert [option.name for option in change.options] == ["protect"]


def test_what_ignore_changes_names_is_no_change():
    one = resource("one", inputs={"bucket": "one", "tags": {"a": "1"}})
    after = replace(one, inputs={"bucket": "two", "tags": {"a": "2"}}, options={"ignoreChanges": ["bucket", "tags"]})
    change = change_of(replace(one, options=after.options), after)
    assert change.kind == "same"
    assert [ignored.name for ignored in change.ignored] == ["bucket", "tags.a"]


def test_replace_on_changes_and_triggers_replace():
    one = resource("one", DEPLOYMENT, inputs={"spec": {"replicas": 1}}, options={"replaceOnChanges": ["spec.replicas"]})
    assert change_of(one, replace(one, inputs={"spec": {"replicas": 2}})).because == ("spec.replicas",)


@pytest.mark.parametrize(
    ("before", "after", "replaced"),
    [("a", "b", True), ("a", "a", False), (None, "a", False), ("a", None, False), (0, "a", True)],
)
def test_another_trigger_replaces_but_no_first_or_last_one(before: Any, after: Any, replaced: bool):
    def build(trigger: Any) -> Graph:
        return record(lambda: aws.sns.Topic("one", opts=pulumi.ResourceOptions(replacement_trigger=trigger)))

    found = {change.resource.name: change.because for change in compare(build(before), build(after)).changes}
    assert found["one"] == (("replacementTrigger",) if replaced else ())


@pytest.mark.parametrize("option", ["deletedWith", "replaceWith"])
def test_what_an_option_names_takes_a_resource_along(option: str):
    of, one = resource("of"), resource("one")
    named = replace(one, options={option: of.urn if option == "deletedWith" else [of.urn]})
    moved = replace(of, inputs={"bucket": "b"})
    diff = compare(graph(of, named), graph(moved, named))
    assert diff.by_urn[one.urn].because == (f"{option} of",)


def test_a_default_provider_of_another_version_changes_nothing_of_its_resources():
    before = resource("default_7_51_1", "pulumi:providers:aws", inputs={"version": "7.51.1"})
    after = resource("default_7_52_0", "pulumi:providers:aws", inputs={"version": "7.52.0"})
    diff = compare(graph(before, resource("one", provider=before.urn)), graph(after, resource("one", provider=after.urn)))
    assert {change.kind for change in diff.changes if change.counts} == {"same"}
    assert not diff.of_kind("create")


def test_a_type_that_is_not_in_the_table_may_be_replaced():
    one = resource("one", OTHER, inputs={"byteLength": 8})
    change = change_of(one, replace(one, inputs={"byteLength": 9}))
    assert (change.kind, change.unsure) == ("update", ("byteLength",))
    assert kinds_of_danger(one, replace(one, inputs={"byteLength": 9})) == ["may-be-replaced"]


def test_what_depends_on_values_may_be_replaced_and_says_what_it_holds():
    one = resource("search", "aws:opensearch/domain:Domain", inputs={"engineVersion": "OpenSearch_2.11"})
    diff = compare(graph(one), graph(replace(one, inputs={"engineVersion": "OpenSearch_1.0"})))
    assert [danger.what for danger in dangers(diff)] == [
        "opensearch.Domain search may be replaced, and lose its indices (engineVersion: the provider decides by the values)"
    ]
    lustre = resource("cache", "aws:fsx/lustreFileSystem:LustreFileSystem", inputs={"storageCapacity": 1200})
    assert not change_of(lustre, replace(lustre, inputs={"storageCapacity": 2400})).unsure


def test_who_uses_a_replaced_resource_may_be_replaced_where_the_tables_do_not_know_its_type():
    bucket = resource("one", inputs={"bucket": "a"})
    user = resource("user", "gcp:storage/bucketObject:BucketObject", inputs={"bucket": "<one.id>"}, dependencies=(bucket.urn,))
    user = replace(user, property_dependencies={"bucket": (bucket.urn,)})
    change = compare(graph(bucket, user), graph(replace(bucket, inputs={"bucket": "b"}), user)).by_urn[user.urn]
    assert (change.kind, change.unsure) == ("update", ("bucket of one",))


def consequences(build: Any) -> dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """By name, what becomes of resources: ``build`` makes them, once of ``"a"`` and once of ``"b"``."""
    diff = compare(*(record(lambda text=text: build(text)) for text in ("a", "b")))
    return {one.resource.name: (one.kind, one.because, one.unsure) for one in diff.changes if one.counts and one.kind != "same"}


def ingress(annotation: Any, **metadata: Any) -> None:
    of: Any = {"name": "door", "namespace": "web", "annotations": {"arn": annotation}, **metadata}
    k8s.networking.v1.Ingress("door", metadata=of, spec={"ingress_class_name": "alb"})


def test_a_constant_beside_an_output_that_is_made_anew_stays_known():
    def build(host: str):
        proof = aws.acm.CertificateValidation("proof", certificate_arn="arn", validation_record_fqdns=[host])
        ingress(proof.certificate_arn)

    assert set(consequences(build)) == {"proof"}


@pytest.mark.parametrize(
    ("name", "kind", "because", "unsure"),
    [
        (lambda arn: "door", None, (), ()),
        (lambda arn: arn.apply(lambda text: f"{text}-door"), "replace", ("metadata.name of topic",), ()),
        (lambda arn: arn.apply(lambda text: text[-2:]), "update", (), ("metadata.name of topic",)),
        (lambda arn: arn.apply(lambda text: text[-2:]).apply(str.upper), "update", (), ("metadata.name of topic",)),
        (lambda arn: pulumi.Output.all(arn, "door").apply(lambda both: both[1]), None, (), ()),
    ],
    ids=["constant", "with it inside", "computed from it", "computed from that", "picked beside it"],
)
def test_what_the_program_computes_from_an_output_may_replace_and_constants_do_not(name, kind, because, unsure):
    def build(text: str):
        topic = aws.sns.Topic("topic", name=text)
        ingress(topic.arn, name=name(topic.arn))

    found = consequences(build)
    assert found.pop("topic")[0] == "replace"
    assert found == ({"door": (kind, because, unsure)} if kind else {})


def test_what_a_resource_was_given_it_gives_on():
    def build(text: str):
        bucket = aws.s3.Bucket("files", bucket_prefix=text)
        history = aws.s3.BucketVersioning("history", bucket=bucket.id, versioning_configuration={"status": "Enabled"})
        aws.s3.BucketPolicy("policy", bucket=history.bucket, policy="{}")
        aws.s3.BucketOwnershipControls("rules", bucket="another", rule={"object_ownership": history.id})

    found = consequences(build)
    assert found["policy"] == ("replace", ("bucket of history",), ())
    assert set(found) == {"files", "history", "policy"}


@pytest.mark.parametrize(("other", "kind"), [(True, "update"), (False, "replace")])
def test_an_unknown_that_another_resource_may_have_given_is_in_doubt(other, kind):
    def build(text: str):
        topic, queue = aws.sns.Topic("topic", name=text), aws.sqs.Queue("queue", name="constant")
        given = pulumi.Output.all(topic.arn, *[queue.arn] * other).apply(lambda arns: arns[0].split(":")[5])
        ingress("x", name=given)

    assert consequences(build)["door"][0] == kind


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("text", "other", "replace"),
        ("<one.id>", "<two.id>", "replace"),
        ("<one.id>", "<one.arn>", "update"),
        ("a-<one.id>", "b-<one.id>", "replace"),
        ("a-<one.id>", "b-<one.arn>", "update"),
        ("a-<getRegion.name>", "b-<getRegion.name>", "update"),
        ({"resource": resource("one").urn}, "<one.name>", "update"),
        ("text", "<one.id>", "update"),
        ("<one.id>", "text", "update"),
        ("text", "<new.id>", "replace"),
        ("eu-west-1a", "<getRegion.name>a", "update"),
        ("<unknown>", "text", "update"),
        ("text", "<unknown>", "update"),
        (None, "<one.id>", "replace"),
    ],
)
def test_a_value_that_a_deployment_may_find_unchanged_is_in_doubt(before, after, kind):
    others = (resource("one"), resource("two"))
    user = resource("user", "aws:sqs/queue:Queue", inputs={"name": before})
    diff = compare(graph(user, *others), graph(replace(user, inputs={"name": after}), *others, resource("new")))
    change = diff.by_urn[user.urn]
    assert change.kind == kind
    assert (change.unsure, change.doubt) == ((), "") or kind == "update"
    if kind == "update":
        assert (change.unsure, change.doubt) == (("name",), "the values are known only during the update")
    sure = compare(graph(user), graph(replace(user, inputs={"name": after, "fifoQueue": True}))).by_urn[user.urn]
    assert sure.kind == "replace", "another property replaces it in any case"


@pytest.mark.parametrize(
    ("type_", "before", "after", "kind"),
    [
        ("aws:iam/role:Role", "<one.id>", "<one.name>", "same"),
        ("aws:iam/role:Role", ["<one.name>"], ["<one.id>"], "same"),
        ("aws:iam/role:Role", "<one.id>", "<one.arn>", "update"),
        ("aws:ec2/vpc:Vpc", {"resource": "one"}, "<one.id>", "same"),
        ("aws:ec2/vpc:Vpc", {"resource": "one"}, "<one.arn>", "update"),
        ("aws:ec2/vpc:Vpc", {"resource": "one"}, "<two.id>", "replace"),
        ("aws:sns/topic:Topic", {"resource": "one"}, "<one.arn>", "same"),
    ],
)
def test_an_id_by_another_name_changes_nothing(type_: str, before: Any, after: Any, kind: str):
    one, two = resource("one", type_, custom=True), resource("two", type_, custom=True)
    user = resource("user", "aws:sqs/queue:Queue", custom=True)
    given = {"resource": one.urn} if isinstance(before, dict) else before
    users = [replace(user, inputs={"name": value}) for value in (given, after)]
    assert compare(*(graph(one, two, use) for use in users)).by_urn[user.urn].kind == kind
    remote = [replace(use, custom=False, remote=True) for use in users]
    assert compare(*(graph(one, two, use) for use in remote)).by_urn[user.urn].kind != "same", "it takes resources"


def test_every_doubt_has_its_reason():
    def build(text: str):
        topic = aws.sns.Topic("topic", name=text)
        ingress("x", name=topic.arn.apply(lambda arn: arn[-2:]))
        pulumi.CustomResource(OTHER, "other", {"keepers": {"is": text}})
        aws.opensearch.Domain("search", engine_version=text)

    diff = compare(*(record(lambda text=text: build(text)) for text in ("a", "b")))
    assert [danger.what for danger in dangers(diff) if "may be" in danger.what] == [
        "opensearch.Domain search may be replaced, and lose its indices (engineVersion: the provider decides by the values)",
        "Ingress web/n> may be replaced: the values are known only during the update",
        "random.RandomId other may be replaced: no table knows the type",
    ]


def test_a_saved_graph_keeps_what_was_computed():
    def build(text: str):
        aws.sqs.Queue("queue", name=aws.sns.Topic("topic", name=text).arn.apply(lambda arn: arn[-2:]))

    (queue,) = (one for one in record(lambda: build("a")).resources if one.name == "queue")
    assert queue.computed == ("n>",)
    base, head = (read_graph(json.loads(record(lambda text=text: build(text)).to_json()), "") for text in ("a", "b"))
    assert [change.unsure for change in compare(base, head).unsure] == [("name of topic",)]


def test_a_kept_store_is_said_to_be_kept():
    keep = {"retainOnDelete": True}
    database = resource("orders", "aws:rds/instance:Instance", inputs={"storageEncrypted": False}, options=keep)
    after = replace(database, inputs={"storageEncrypted": True})
    (danger,) = dangers(compare(graph(database), graph(after)))
    assert (
        danger.what
        == "rds.Instance orders is replaced by an empty one; the old one is kept, with its databases (storageEncrypted)"
    )


def test_a_stack_on_one_side_is_created_or_deleted_whole():
    one = graph(resource("one"))
    assert compare(None, one).counts["create"] == 1
    gone = compare(one, None)
    assert gone.counts["delete"] == 1
    assert [danger.kind for danger in dangers(gone)] == ["stack-deleted"]
    assert dangers(compare(None, one)) == ()


# -- moves -----------------------------------------------------------------------------------------------------------------------


def test_a_rename_with_an_alias_is_a_move_and_those_who_refer_to_it_do_not_change():
    old, new = resource("old"), resource("new", options={"aliases": [{"name": "old"}]})
    user = resource(
        "user", OTHER, inputs={"bucket": "<old.id>"}, dependencies=(old.urn,), property_dependencies={"bucket": (old.urn,)}
    )
    after = replace(user, inputs={"bucket": "<new.id>"}, dependencies=(new.urn,), property_dependencies={"bucket": (new.urn,)})
    diff = compare(graph(old, user), graph(new, after))
    assert diff.by_urn[new.urn].kind == "move"
    assert diff.by_urn[user.urn].kind == "same"
    assert not diff.of_kind("delete")


def test_without_the_alias_it_is_a_new_one_and_one_less():
    diff = compare(graph(resource("old")), graph(resource("new")))
    assert {change.kind for change in diff.changes} == {"create", "delete"}


@pytest.mark.parametrize(
    ("name", "provider", "taken"), [("models", "p", True), ("models", "q", False), ("others", "p", False), ("", "p", False)]
)
def test_a_name_that_the_deleted_object_still_has_is_told(name: str, provider: str, taken: bool):
    providers = {one: resource(one, "pulumi:providers:kubernetes") for one in "pq"}

    def namespace(of: str, name: str, within: str) -> Resource:
        metadata = {"name": name} if name else {}
        return resource(of, "kubernetes:core/v1:Namespace", inputs={"metadata": metadata}, provider=providers[within].urn)

    before, after = (
        graph(*providers.values(), one) for one in (namespace("old", name and "models", "p"), namespace("new", name, provider))
    )
    found = [danger.what for danger in dangers(compare(before, after)) if danger.kind == "refused"]
    assert [one.partition(":")[0] for one in found] == ["Namespace models is both created and deleted"] * taken


@pytest.mark.parametrize(
    ("before", "after", "lost"), [(30, 1, True), (None, 30, True), (1, 30, False), (30, 0, False), (30, None, False)]
)
def test_logs_that_are_kept_for_fewer_days_are_lost(before: int | None, after: int | None, lost: bool):
    old, new = (
        resource("logs", "aws:cloudwatch/logGroup:LogGroup", inputs={"retentionInDays": days}) for days in (before, after)
    )
    found = dangers(compare(graph(old), graph(new)))
    assert [danger.effects for danger in found] == [("loss",)] * lost
    assert all(f"keeps logs for {after} day" in danger.what for danger in found)


def test_a_store_is_called_as_what_is_lost():
    old, new = (resource("n", "kubernetes:core/v1:Namespace", inputs={"metadata": {"name": name}}) for name in ("old", "new"))
    (found,) = dangers(compare(graph(old), graph(new)))
    assert found.what == "Namespace old is replaced and loses every object in it (metadata.name)"


def test_what_two_objects_of_one_subject_say_alike_is_said_once():
    said = [
        ("nodes of a", "nodes of a are deleted"),
        ("", "b"),
        ("nodes of a", "nodes of a are deleted"),
        ("nodes of a", "nodes of a: 1"),
    ]
    assert by_subject(said) == ("nodes of a are deleted; 1", "b")


def _program(name: str, alias: str = "") -> Any:
    class Part(pulumi.ComponentResource):
        def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
            super().__init__("team:index:Part", name, None, opts)
            bucket = aws.s3.Bucket(f"{name}-store", opts=pulumi.ResourceOptions(parent=self))
            aws.s3.BucketPublicAccessBlock(f"{name}-store-closed", bucket=bucket.id, opts=pulumi.ResourceOptions(parent=bucket))

    return lambda: Part(name, pulumi.ResourceOptions(aliases=[pulumi.Alias(name=alias)] if alias else []))


def test_children_inherit_the_alias_of_their_parent_and_its_name():
    base, head = record(_program("old")), record(_program("new", "old"))
    kinds = {change.resource.name: change.kind for change in compare(base, head).changes if change.kind != "same"}
    assert kinds == {"new": "move", "new-store": "move", "new-store-closed": "move"}
    again = compare(base, record(_program("new")))
    assert again.counts["delete"] == again.counts["create"] == 2


def test_aliases_to_other_parents_types_and_urns():
    parent = resource("outer", "team:index:Part", custom=False)
    inside = resource("one", parent=parent.urn)
    out = resource("one", options={"aliases": [{"parent": parent.urn}]})
    assert compare(graph(parent, inside), graph(out)).by_urn[out.urn].kind == "move"
    back = replace(inside, options={"aliases": [{"noParent": True}]})
    assert compare(graph(parent, resource("one")), graph(parent, back)).by_urn[inside.urn].kind == "move"
    retyped = resource("one", "aws:s3/bucketV2:BucketV2", options={"aliases": [{"type": BUCKET}]})
    assert compare(graph(resource("one")), graph(retyped)).by_urn[retyped.urn].kind == "move"
    named = resource("any", options={"aliases": [{"urn": resource("one").urn}]})
    assert compare(graph(resource("one")), graph(named)).by_urn[named.urn].kind == "move"


# -- replacements ----------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_the_table_knows_every_type_of_the_shipped_stacks(stack):
    types = {r.type for r in recorded(stack).resources if (r.custom or r.remote) and r.type != STACK_TYPE}
    assert sorted(type_ for type_ in types if not replacements.is_known(type_)) == []


@pytest.mark.parametrize(
    ("type_", "before", "after", "kind"),
    [
        ("aws:fsx/lustreFileSystem:LustreFileSystem", {"storageCapacity": 2400}, {"storageCapacity": 1200}, "replace"),
        ("aws:fsx/lustreFileSystem:LustreFileSystem", {"storageCapacity": 1200}, {"storageCapacity": 2400}, "update"),
        ("aws:eks/cluster:Cluster", {"encryptionConfig": {"a": "b"}}, {}, "replace"),
        ("aws:eks/cluster:Cluster", {}, {"encryptionConfig": {"a": "b"}}, "update"),
        ("aws:iam/role:Role", {"region": "a"}, {"region": "b"}, "replace"),
        ("kubernetes:batch/v1:Job", {"spec": {"template": {"a": 1}}}, {"spec": {"template": {"a": 2}}}, "replace"),
        ("kubernetes:helm.sh/v3:Release", {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}, "update"),
        ("kubernetes:any.example.com/v1:Kind", {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}, "replace"),
        (
            "kubernetes:core/v1:Pod",
            {"spec": {"containers": [{"name": "a", "image": "b"}]}},
            {"spec": {"containers": [{"name": "a", "image": "c"}]}},
            "replace",
        ),
        *(
            (f"kubernetes:apps/v1:{kind}", *({"spec": {"selector": {"matchLabels": {"a": b}}}} for b in "bc"), "replace")
            for kind in ("DaemonSet", "Deployment", "StatefulSet")
        ),
        ("command:local:Command", {"create": "a"}, {"create": "b"}, "update"),
        ("command:local:Command", {"triggers": ["a"]}, {"triggers": ["b"]}, "replace"),
        ("command:remote:CopyFile", {"localPath": "a"}, {"localPath": "b"}, "replace"),
        ("eks:index:Cluster", {"version": "1.34"}, {"version": "1.35"}, "update"),
        ("eks:index:ManagedNodeGroup", {"capacityType": "SPOT"}, {"capacityType": "ON_DEMAND"}, "replace"),
        ("eks:index:ManagedNodeGroup", {"launchTemplate": {"id": "a"}}, {"launchTemplate": {"id": "b"}}, "replace"),
        ("eks:index:ManagedNodeGroup", {"diskSize": 20}, {"diskSize": 40}, "update"),
        ("aws:rds/instance:Instance", {"storageEncrypted": False}, {"storageEncrypted": True}, "replace"),
        ("aws:rds/instance:Instance", {"allocatedStorage": 20}, {"allocatedStorage": 40}, "update"),
        ("aws:dynamodb/table:Table", {"hashKey": "a"}, {"hashKey": "b"}, "replace"),
        ("aws:ebs/volume:Volume", {"size": 8}, {"size": 16}, "update"),
        (
            "aws:msk/cluster:Cluster",
            {"brokerNodeGroupInfo": {"instanceType": "a"}},
            {"brokerNodeGroupInfo": {"instanceType": "b"}},
            "update",
        ),
        (
            "aws:msk/cluster:Cluster",
            {"brokerNodeGroupInfo": {"clientSubnets": ["a"]}},
            {"brokerNodeGroupInfo": {"clientSubnets": ["b"]}},
            "replace",
        ),
        (MSK, {}, {"encryptionInfo": {}}, "replace"),
        (
            "aws:dynamodb/table:Table",
            {"localSecondaryIndexes": [{"name": "a"}]},
            {"localSecondaryIndexes": [{"name": "a"}, {"name": "b"}]},
            "replace",
        ),
    ],
)
def test_what_replaces(type_, before, after, kind):
    one = resource("one", type_, inputs=before)
    assert change_of(one, replace(one, inputs=after)).kind == kind


def test_every_row_of_the_table_names_its_source():
    found = {type_: replacements.rows(type_) for type_ in replacements.known_types()}
    assert all(rows and all(row.source for row in rows) for rows in found.values())
    assert len(found) > 700


@pytest.mark.thorough
def test_the_derived_table_names_types_and_properties_that_pulumi_aws_has():
    """A sample of the types that data is lost with; the script that writes the table looks up every name in the same way."""
    stores = {"rds": "Instance", "dynamodb": "Table", "ec2": "Instance", "ebs": "Volume", "elasticache": "ReplicationGroup"}
    for module, class_ in stores.items():
        package = importlib.import_module(f"pulumi_aws.{module}")
        arguments = input_type_types(getattr(package, f"{class_}Args"))
        token = getattr(package, class_).pulumi_type
        (row, *_) = replacements.rows(token)
        assert row.replace
        assert replacements.held(token)
        assert {path[0] for path in (*row.replace, *row.may)} <= arguments.keys()


def test_a_replacement_pulls_along_what_stands_on_its_outputs():
    def program(cidr: str) -> Any:
        def build() -> None:
            vpc = aws.ec2.Vpc("net", cidr_block=cidr)
            subnet = aws.ec2.Subnet("part", vpc_id=vpc.id, cidr_block="10.0.1.0/24")
            aws.ec2.RouteTable("routes", vpc_id=vpc.id)
            aws.ec2.Eip("address", tags={"net": vpc.id})
            aws.ec2.NatGateway("nat", subnet_id=subnet.id, allocation_id="eipalloc-1")

        return build

    diff = compare(record(program("10.0.0.0/16")), record(program("10.1.0.0/16")))
    kinds = {change.resource.name: (change.kind, change.because) for change in diff.changes if change.kind != "same"}
    assert kinds == {
        "net": ("replace", ("cidrBlock",)),
        "part": ("replace", ("vpcId of net",)),
        "routes": ("replace", ("vpcId of net",)),
        "nat": ("replace", ("subnetId of part",)),
    }


def test_another_cluster_replaces_its_provider_and_all_that_is_made_through_it():
    diff = compare(recorded("inf2-llama3"), recorded_with({"name": "other-name"}))
    # Everything is called after the stack: with another name it is another stack.
    assert diff.counts["delete"] > 50

    def program(identifier: str, mutable: bool = False) -> Any:
        def build() -> None:
            provider = k8s.Provider("k8s", cluster_identifier=identifier, kubeconfig="{}", enable_config_map_mutable=mutable)
            data = {"key": f"for {mutable}"}
            k8s.core.v1.ConfigMap("settings", data=data, opts=pulumi.ResourceOptions(provider=provider))

        return build

    diff = compare(record(program("one")), record(program("two")))
    assert {change.resource.name for change in diff.of_kind("replace")} == {"k8s", "settings"}
    assert diff.by_urn[record(program("two")).named("settings").urn].because == ("provider k8s",)


@pytest.mark.parametrize(("mutable", "kind"), [("true", "update"), ("", "replace")])
def test_config_maps_are_replaced_unless_the_provider_says_otherwise(mutable, kind):
    provider = resource("k8s", "pulumi:providers:kubernetes", inputs={"enableConfigMapMutable": mutable} if mutable else {})
    one = resource("one", "kubernetes:core/v1:ConfigMap", inputs={"data": {"a": "1"}}, provider=provider.urn)
    assert change_of(one, replace(one, inputs={"data": {"a": "2"}}), provider).kind == kind


# -- dangers ---------------------------------------------------------------------------------------------------------------------


def kinds_of_danger(before: Resource | None, after: Resource | None, *others: Resource) -> list[str]:
    diff = compare(graph(*filter(None, (before, *others))), graph(*filter(None, (after, *others))))
    return [danger.kind for danger in dangers(diff)]


def test_data_stores_are_told_by_name_and_all_others_together():
    bucket = resource("one", inputs={"bucket": "one"})
    assert kinds_of_danger(bucket, replace(bucket, inputs={"bucket": "two"})) == ["data-replaced"]
    assert kinds_of_danger(bucket, None) == ["data-deleted"]
    gone = compare(graph(bucket, resource("two", "aws:ec2/vpc:Vpc")), graph())
    assert [danger.what for danger in dangers(gone)] == [
        "s3.Bucket one is deleted with its objects",
        "ec2.Vpc two is deleted",
    ]


def test_a_domain_says_what_is_lost_and_it_is_not_said_again():
    queue, vpc = resource("one", "aws:sqs/queue:Queue"), resource("two", "aws:ec2/vpc:Vpc")

    def work(diff: StackDiff) -> Iterator[Danger]:
        yield Danger("work-changed", "another worker")
        yield Danger("work-lost", "all work is lost", queue.urn, Weight.DELETED)

    found = dangers(compare(graph(queue, vpc), graph()), ComparedDomain(dangers=work))
    assert [(danger.kind, danger.what) for danger in found] == [
        ("work-lost", "all work is lost"),
        ("deleted", "ec2.Vpc two is deleted"),
        ("work-changed", "another worker"),
    ]


def test_the_worst_danger_comes_first():
    mildest_first = [Danger("some", weight.name, weight=weight) for weight in sorted(Weight, reverse=True)]
    found = dangers(compare(graph(), graph()), ComparedDomain(dangers=lambda diff: mildest_first))
    assert [danger.what for danger in found] == [
        *("REPLACED", "DELETED", "UNSURE", "REFUSED", "UNPROTECTED", "OPENED", "CHANGED"),
    ]


def test_lost_protection_is_a_danger():
    one = resource("one", inputs={"bucket": "one"}, options={"protect": True, "retainOnDelete": True})
    assert kinds_of_danger(one, replace(one, options={})) == ["protection-removed"] * 2
    cluster = resource("c", "aws:rds/cluster:Cluster", inputs={"deletionProtection": True})
    assert kinds_of_danger(cluster, replace(cluster, inputs={})) == ["protection-removed"]


def test_what_is_opened_to_everybody_is_a_danger():
    rule = resource("r", "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", inputs={"cidrIpv4": "10.0.0.0/8"})
    assert kinds_of_danger(rule, replace(rule, inputs={"cidrIpv4": "0.0.0.0/0"})) == ["opened"]
    narrow = replace(rule, inputs={"cidrIpv4": "203.0.113.0/24"})
    assert kinds_of_danger(rule, narrow) == []


CIDRS = "0.0.0.0/0 0.0.0.0/1 ::/0 10.0.0.0/8- 8.0.0.0/8 8.0.0.0/9- fc00::/7- 2a00::/32 2a00::/33- a-"


@pytest.mark.parametrize("cidr", CIDRS.split())
def test_wide_networks(cidr):
    assert is_wide(cidr.removesuffix("-")) is not cidr.endswith("-")


def test_what_the_service_refuses_is_told():
    cluster = resource("c", "eks:index:Cluster", inputs={"vpcId": "a"}, custom=False, remote=True)
    diff = compare(graph(cluster), graph(replace(cluster, inputs={"vpcId": "b"}, options={"protect": True})))
    assert [(one.kind, one.what, one.weight) for one in dangers(diff)] == [
        ("refused", "eks.Cluster c: the service refuses to change vpcId", Weight.REFUSED)
    ]
    (change,) = diff.changes
    assert "the service refuses to change vpcId" in [*telling._notes(change)]


# -- secrets ---------------------------------------------------------------------------------------------------------------------


def _secret_program(value: str) -> Any:
    return lambda: k8s.core.v1.Secret("s", metadata={"name": "s"}, type=pulumi.Output.secret(value), string_data={"plain": value})


def _lines(diff: StackDiff) -> str:
    return "\n".join(line for change in diff.changes for one in change.properties for line in property_lines(one))


def test_a_secret_that_is_another_shows_as_changed_and_not_what_it_is():
    def digest(value: Any) -> str:
        return str(hash(str(value)))

    one, again, other = (
        record(_secret_program(value), digest=digest) for value in ("first-value", "first-value", "second-value")
    )
    assert compare(one, again).counts["same"] == 1
    shown = _lines(compare(one, other))
    assert "type: [secret] (a different one)" in shown
    assert "stringData: [secret] (a different one)" in shown
    assert "value" not in shown


def test_without_a_digest_only_what_stands_in_plain_sight_is_compared():
    one, other = (record(_secret_program(value)) for value in ("first-value", "second-value"))
    assert not compare(one, other).changed
    before, after = (
        resource("one", "kubernetes:core/v1:Secret", inputs={"stringData": {"a": value, "b": "same"}}) for value in ("x1", "x2")
    )
    assert _lines(compare(graph(before), graph(after))).splitlines() == [
        "- stringData.a: [secret]",
        "+ stringData.a: [secret] (a different one)",
    ]


# -- whole ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_a_graph_does_not_differ_from_itself(stack):
    diff = compare(recorded(stack), recorded(stack))
    assert not diff.changed
    assert {change.kind for change in diff.changes} == {"same"}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(cases(30)))
def test_the_base_with_the_diff_applied_is_the_head(seed):
    chance = random.Random(seed)
    base = recorded(STACKS[seed % len(STACKS)])
    head = edited(base, chance, chance.randint(1, 12))
    diff = compare(base, head)
    expected, found = meaning(head), applied(diff)
    assert found.keys() == expected.keys()
    assert {urn: (found[urn], expected[urn]) for urn in expected if found[urn] != expected[urn]} == {}
    assert ABSENT not in found.values()


def test_a_path_leads_nowhere_through_a_list_that_it_does_not_name() -> None:
    before, after = ({"spec": [{"matchLabels": {"app": name}}]} for name in "ab")
    assert ("spec", "selector") in rows("kubernetes:apps/v1:Deployment")[0].replace
    assert not list(replacing("kubernetes:apps/v1:Deployment", before, after, {}))
