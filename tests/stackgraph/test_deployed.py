"""What ``pulumi up`` does to a deployed stack: against the steps of the real engine, and the unedited export of every stack.

``deployed/`` has a program, its export and the engine's steps for each edit, written by hand with pulumi v3.272 and a provider
that says what it was asked and replaces what the tables say (``pulumi preview --json --show-sames --show-replacement-steps``).
"""

import json
import random
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

from cases import thorough_but
from conftest import STACKS, recorded
from diff_edits import edited
from exported_state import export_of
from mutations import cases
from stackgraph.diff.comparison_domain import NO_DOMAIN
from stackgraph.diff.graphs import compare
from stackgraph.diff.report import Recorded
from stackgraph.graph.document import STACK_TYPE, Graph
from stackgraph.graph.values import SECRET, UNKNOWN, grouped, leaves
from stackgraph.problems import ProblemsFound
from stackgraph.recorder import wire
from stackgraph.recorder.recording import record
from stackgraph.state import exported
from stackgraph.state.engine_steps import stack_report, steps
from stackgraph.state.exported import Deployed, read_export
from stackgraph.state.inputs import given, without_computed
from stackgraph.state.planning import plan
from stackgraph.views.preview_json import render_engine_json

FOLDER = Path(__file__).parent / "deployed"
ONE = {"urn": "urn:pulumi:a::b::c::d", "type": "c"}


def deep(levels: int) -> dict[str, Any]:
    return {"a": deep(levels - 1)} if levels else {}


STEPS: dict[str, list[list[str]]] = json.loads((FOLDER / "steps.json").read_text(encoding="utf-8"))


def program(edit: str) -> Graph:
    config = {"aws:region": "eu-west-1", **({"shop:edit": edit} if edit else {})}
    return record(FOLDER, project="shop", stack="prod", config=config)


def written(folder: Path, document: Any) -> Path:
    file = folder / "export.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def small() -> Any:
    return json.loads((FOLDER / "export.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("edit", STEPS)
def test_the_engine_takes_the_same_steps(edit: str) -> None:
    deployed, head = read_export(FOLDER / "export.json"), program(edit)
    ours = [(step.op, step.urn) for step in steps(plan(deployed, head), deployed)]
    theirs = [(op, urn) for op, urn in STEPS[edit]]
    assert Counter(ours) == Counter(theirs)
    for graph, deleting in ((head, False), (deployed.graph, True)):
        for resource in graph.resources:
            needs = {resource.parent, *resource.dependencies}
            assert _order(ours, resource.urn, needs, deleting=deleting) == _order(theirs, resource.urn, needs, deleting=deleting)


def _order(taken: list[tuple[str, str]], urn: str, needs: set[str], *, deleting: bool) -> dict[tuple[str, str, str], bool]:
    """For each step of a resource and of what it stands on, whether the resource's comes first."""
    at = {step: number for number, step in enumerate(taken) if step[0].startswith("delete") is deleting}
    return {
        (op, other_op, other): at[op, one] < at[other_op, other]
        for op, one in at
        for other_op, other in at
        if one == urn and other in needs
    }


@pytest.mark.parametrize("stack", thorough_but(("smoke-gpu",), STACKS))
def test_an_unedited_export_of_a_shipped_stack_changes_nothing(stack: str, tmp_path: Path) -> None:
    graph = recorded(stack)
    deployed = read_export(written(tmp_path, export_of(graph)))
    found = plan(deployed, graph)
    assert [change.urn for change in found.diff.changes if change.kind not in ("same", "dependencies")] == []
    assert not found.diff.outputs
    assert {step.op for step in steps(found, deployed)} == {"same"}


@pytest.mark.parametrize("seed", thorough_but((0, 3), range(cases(12))))
def test_any_edit_has_steps_in_an_order_that_keeps_what_others_stand_on(seed: int, tmp_path: Path) -> None:
    graph = recorded("gpu-opt350m")
    chance = random.Random(seed)
    head = edited(graph, chance, chance.randrange(1, 9))
    deployed = read_export(written(tmp_path, export_of(graph)))
    found = plan(deployed, head)
    taken = [(step.op, step.urn) for step in steps(found, deployed)]
    assert len(taken) == len(set(taken))
    by_urn = grouped((urn, op) for op, urn in taken)
    for change in found.diff.changes:
        ops = sorted(by_urn.get(change.urn, ()))
        if change.resource.is_default_provider:
            assert not ops
        elif change.kind == "replace" and change.resource.custom:
            assert ops == ["create-replacement", "delete-replaced", "replace"]
        else:
            assert len(ops) == 1 or ops == ["create-replacement", "delete-replaced", "replace"]
            assert (ops == ["create"]) is (change.kind == "create")
            assert (ops == ["delete"]) is (change.kind == "delete")
    at = {step: number for number, step in enumerate(taken)}
    for resource in () if _cyclic(head) else head.resources:
        for needed in {resource.parent, *resource.dependencies} - {resource.urn}:
            made = [at[op, urn] for urn in (needed, resource.urn) for op in ("create", "create-replacement") if (op, urn) in at]
            assert made == sorted(made) or needed not in head.by_urn
    for resource in deployed.graph.resources:
        for needed in resource.dependencies:
            if ("delete", resource.urn) in at and ("delete", needed) in at:
                assert at["delete", resource.urn] < at["delete", needed]


def _cyclic(graph: Graph) -> bool:
    """Whether random edits made resources wait for each other, which no program can do."""
    sorter = TopologicalSorter({one.urn: {one.parent, one.provider, *one.dependencies} - {one.urn} for one in graph.resources})
    try:
        sorter.prepare()
    except CycleError:
        return True
    return False


def test_a_new_stack_reads_as_the_engine_previews_it() -> None:
    """Equal but for ids of providers, the order of sets, and ``__internal``, where the engine keeps a plugin's version."""
    config = {"aws:region": "eu-west-1"}
    graph = record(FOLDER, project="shop", stack="prod", config=config, strict=True)
    ours = json.loads(render_engine_json(graph, config, ()))
    theirs = json.loads((FOLDER / "preview.json").read_text(encoding="utf-8"))
    assert list(ours) == list(theirs)
    assert (ours["config"], ours["changeSummary"]) == (theirs["config"], theirs["changeSummary"])
    mine, engines = ({step["urn"]: _comparable(step) for step in document["steps"]} for document in (ours, theirs))
    assert mine == engines


def _comparable(step: dict[str, Any]) -> dict[str, Any]:
    state = step["newState"]
    state["inputs"] = {key: value for key, value in state.get("inputs", {}).items() if key not in ("__internal", "version")}
    state["dependencies"] = sorted(state.get("dependencies", ()))
    by_property = state.get("propertyDependencies", {})
    state["propertyDependencies"] = {key: sorted(urns) for key, urns in by_property.items() if urns}
    for place in (step, state):
        place["provider"] = place.get("provider", "").rpartition("::")[0]
    return step


def test_secrets_are_not_read() -> None:
    deployed = read_export(FOLDER / "export.json")
    database = next(held for held in deployed.held if held.resource.name == "orders")
    assert database.resource.inputs["password"] == SECRET
    plaintext = small()
    for resource in plaintext["deployment"]["resources"]:
        if resource["urn"].endswith("::orders"):
            resource["inputs"]["password"] = {exported.SIGNATURE: exported.SECRET_MARK, "plaintext": '"hunter2"'}
    values = [exported.canonical(resource["inputs"]) for resource in plaintext["deployment"]["resources"] if "inputs" in resource]
    assert not any("hunter2" in str(leaf) for leaf in leaves(values))
    assert plan(deployed, program("")).uncompared == 2


def test_the_marks_of_special_values_are_those_of_the_sdk() -> None:
    ours = (exported.SIGNATURE, exported.SECRET_MARK, exported.ASSET_MARK, exported.ARCHIVE_MARK, exported.RESOURCE_MARK)
    assert ours == (wire.SIGNATURE, wire.SECRET, wire.ASSET, wire.ARCHIVE, wire.RESOURCE)
    assert exported.OUTPUT_MARK == wire.OUTPUT


@pytest.mark.parametrize(
    ("mark", "more", "read"),
    [
        (wire.RESOURCE, {"urn": "u", "id": "i"}, {"resource": "u"}),
        (wire.ASSET, {"text": "t", "hash": "h"}, {"asset": {"text": "t"}}),
        (wire.ARCHIVE, {"assets": {"a": [1]}, "hash": "h"}, {"archive": {"assets": {"a": [1]}}}),
        (wire.OUTPUT, {"value": [1]}, [1]),
        (wire.OUTPUT, {"value": 1, "secret": True}, SECRET),
        (wire.OUTPUT, {}, UNKNOWN),
        ("of a later engine", {"value": 1}, UNKNOWN),
    ],
)
def test_special_values_are_read_as_graphs_have_them(mark: str, more: Any, read: Any) -> None:
    assert exported.canonical([{exported.SIGNATURE: mark, **more}]) == [read]


def test_what_an_earlier_update_deleted_is_made_anew(tmp_path: Path) -> None:
    document = small()
    (one,) = (one for one in document["deployment"]["resources"] if one["urn"].endswith("::orders"))
    one["pendingReplacement"] = True
    found = {change.urn: change for change in plan(read_export(written(tmp_path, document)), program("")).diff.changes}
    assert (found[one["urn"]].kind, found[one["urn"]].because) == ("replace", ("an earlier update deleted it",))


def report_of(deployed: Deployed, edit: str) -> Any:
    report, _ = stack_report(deployed, Recorded(program(edit)), NO_DOMAIN)
    return report


def test_a_protected_resource_is_said_to_hold_up_its_deletion_and_replacement(tmp_path: Path) -> None:
    document = small()
    for resource in document["deployment"]["resources"]:
        if resource["type"] in ("aws:dynamodb/table:Table", "aws:rds/instance:Instance"):
            resource["protect"] = True
    deployed = read_export(written(tmp_path, document))
    told = [danger.what for danger in report_of(deployed, "gone").dangers]
    assert "dynamodb.Table carts is protected: pulumi refuses to delete it" in told
    assert "dynamodb.Table carts is deleted with its items" in told
    assert "rds.Instance orders loses its protection from deletion" in told


def test_an_interrupted_update_is_told(tmp_path: Path) -> None:
    document = small()
    resources = document["deployment"]["resources"]
    table = next(resource for resource in resources if resource["type"] == "aws:dynamodb/table:Table")
    resources.append({**table, "delete": True, "id": "the-old-one"})
    document["deployment"]["pending_operations"] = [{"type": "creating", "resource": table}]
    report = report_of(read_export(written(tmp_path, document)), "")
    assert [danger.kind for danger in report.dangers] == ["pending-delete", "pending-operation"]
    assert report.dangers[0].what == "left to delete from an earlier update: dynamodb.Table carts"
    assert report.steps == ("delete-replaced dynamodb.Table carts",)
    assert report.changed


AUTONAMED, MANAGED = {"pulumi.com/autonamed": "true"}, {"app.kubernetes.io/managed-by": "pulumi"}


@pytest.mark.parametrize(
    ("deployed", "program", "kept"),
    [
        ({"name": "a-1f2e", "annotations": AUTONAMED}, {}, {}),
        ({"name": "a-1f2e", "annotations": AUTONAMED}, {"name": "b"}, {"name": "a-1f2e"}),
        ({"name": "a"}, {}, {"name": "a"}),
        ({"name": "a", "annotations": {"pulumi.com/autonamed": "false"}}, {}, {"name": "a"}),
        ({"namespace": "default"}, {}, {}),
        ({"namespace": "default"}, {"namespace": "b"}, {"namespace": "default"}),
        ({"namespace": "a"}, {}, {"namespace": "a"}),
        ({"labels": {**MANAGED, "a": "b"}}, {}, {"labels": {"a": "b"}}),
        ({"labels": MANAGED}, {}, {}),
        ({"labels": MANAGED}, {"labels": {}}, {"labels": {}}),
        ({"labels": MANAGED}, {"labels": MANAGED}, {"labels": MANAGED}),
    ],
)
def test_of_the_metadata_of_an_object_only_what_the_program_gave_is_compared(deployed: Any, program: Any, kept: Any) -> None:
    found = given("kubernetes:core/v1:Secret", {"metadata": deployed}, {"metadata": program})
    assert found == {"metadata": kept}


def test_of_an_object_without_metadata_none_is_compared() -> None:
    assert given("kubernetes:core/v1:Secret", {"metadata": {"labels": MANAGED}}, {}) == {}


def test_what_a_provider_wrote_into_the_inputs_is_no_change(tmp_path: Path) -> None:
    document = small()
    for resource in document["deployment"]["resources"]:
        if resource["type"] == "aws:s3/bucket:Bucket":
            resource["inputs"] |= {"bucket": "store-files-1234567", "__defaults": ["bucket"]}
        if resource["type"] == "kubernetes:core/v1:Secret":
            resource["inputs"]["metadata"] |= {"namespace": "default", "annotations": {"pulumi.com/autonamed": "true"}}
    deployed = read_export(written(tmp_path, document))
    assert not plan(deployed, program("")).diff.changed


def tagged(tmp_path: Path, **provider: Any) -> Any:
    """What an update does to a bucket as version 7 of the AWS provider left it, with other settings of its provider."""
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    (folder / "__main__.py").write_text(
        "import pulumi, pulumi_aws as aws\n"
        f"there = aws.Provider('there', **{provider!r})\n"
        "aws.s3.Bucket('files', tags={'team': 'a'}, opts=pulumi.ResourceOptions(provider=there))\n"
    )
    graph = record(folder, project="shop", stack="prod")
    document = export_of(graph)
    bucket = next(one for one in document["deployment"]["resources"] if one["type"] == "aws:s3/bucket:Bucket")
    bucket["inputs"] |= {"region": "eu-west-1", "tagsAll": {"__defaults": [], "team": "a", "cost": "1"}}
    deployed = read_export(written(tmp_path, document))
    return plan(deployed, graph).diff.by_urn[bucket["urn"]]


def test_secrets_made_from_an_output_change_with_what_gives_it(tmp_path: Path) -> None:
    program = (
        "import pulumi, pulumi_aws as aws, pulumi_kubernetes as k8s\n"
        "database = aws.rds.Instance('orders', instance_class='db.t4g.micro', storage_encrypted={})\n"
        "aws.ssm.Parameter('address', type='SecureString', value=pulumi.Output.secret(database.endpoint))\n"
        "aws.ssm.Parameter('constant', type='SecureString', value=pulumi.Output.secret('a'))\n"
        "k8s.core.v1.Secret('access', metadata={{'name': 'access'}}, string_data={{'host': database.endpoint}})\n"
    )
    graphs = []
    for encrypted in (False, True):
        folder = tmp_path / str(encrypted)
        folder.mkdir()
        (folder / "__main__.py").write_text(program.format(encrypted))
        graphs.append(record(folder, project="shop", stack="prod"))
    deployed = read_export(written(tmp_path, export_of(graphs[0])))
    assert not plan(deployed, graphs[0]).diff.changed
    kinds = {change.resource.name: change.kind for change in plan(deployed, graphs[1]).diff.changes if change.counts}
    assert kinds == {"orders": "replace", "address": "update", "constant": "same", "access": "replace"}
    replaced = {change.resource.name for change in compare(*graphs).of_kind("replace")}
    assert replaced == {"orders", "access"}


def test_what_is_computed_from_an_output_may_replace_its_user(tmp_path: Path) -> None:
    graphs = []
    for lock in (False, True):
        folder = tmp_path / str(lock)
        folder.mkdir()
        (folder / "__main__.py").write_text(
            "import hashlib, pulumi_aws as aws\n"
            f"files = aws.s3.Bucket('files', bucket='shop-files', object_lock_enabled={lock})\n"
            "aws.sqs.Queue('computed', name=files.arn.apply(lambda arn: hashlib.sha256(arn.encode()).hexdigest()))\n"
            "aws.sqs.Queue('given', name=files.bucket)\n"
        )
        graphs.append(record(folder, project="shop", stack="prod"))
    diff = compare(*graphs)
    assert {change.resource.name: change.unsure for change in diff.unsure} == {"computed": ("name of files",)}
    assert [change.resource.name for change in diff.of_kind("replace")] == ["files"]


def against(tmp_path: Path, before: str, after: str) -> dict[str, tuple[Any, ...]]:
    """By name, what an update does to each resource, why, and its steps."""
    graphs = []
    for number, text in enumerate((before, after)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "__main__.py").write_text(
            f"import pulumi, pulumi_aws as aws, pulumi_kubernetes as k8s\nfrom pulumi import ResourceOptions as Opts\n{text}"
        )
        graphs.append(record(folder, project="shop", stack="prod"))
    deployed = read_export(written(tmp_path, export_of(graphs[0])))
    found = plan(deployed, graphs[1])
    taken = grouped((step.urn, step.op) for step in steps(found, deployed))
    return {change.resource.name: (change.kind, change.because, taken.get(change.urn)) for change in found.diff.changes}


def test_a_provider_of_another_region_that_takes_over_replaces(tmp_path: Path) -> None:
    text = "there = aws.Provider({!r}, region={!r})\naws.s3.Bucket('files', opts=Opts(provider=there))\n"
    found = against(tmp_path, text.format("west", "eu-west-1"), text.format("east", "us-east-1"))
    assert found["files"][:2] == ("replace", ("region",))


def test_what_a_provider_makes_that_cannot_be_asked_yet_is_an_update_or_more(tmp_path: Path) -> None:
    text = "key = aws.kms.Key('key', multi_region={0})\nthere = aws.Provider('there', region='eu-west-1', profile=key.id)\n"
    text += "aws.s3.Bucket('files', opts=Opts(provider=there))\naws.sqs.Queue('jobs', name='{0}', opts=Opts(provider=there))\n"
    found = against(tmp_path, text.format(False), text.format(True))
    assert found["files"] == ("update", (), ["update"])
    assert found["jobs"][:2] == ("replace", ("name",))


def test_what_goes_with_others_is_replaced_with_them(tmp_path: Path) -> None:
    text = "there = k8s.Provider({0!r}, cluster_identifier={0!r}, kubeconfig='')\nfiles = aws.s3.Bucket('files', bucket={0!r})\n"
    text += "aws.sqs.Queue('with', opts=Opts(deleted_with=files))\naws.sqs.Queue('as', opts=Opts(replace_with=[files]))\n"
    text += "k8s.core.v1.Namespace('inside', metadata={{'name': 'inside'}}, opts=Opts(provider=there))\n"
    text += "aws.sqs.Queue('calm', opts=Opts(replacement_trigger=pulumi.Output.secret('a')))\n"
    found = against(tmp_path, text.format("one"), text.format("two"))
    causes = {"with": ("deletedWith files",), "as": ("replaceWith files",), "inside": ("provider two",), "calm": ()}
    assert {name: found[name][:2] for name in causes} == {one: ("replace" if why else "same", why) for one, why in causes.items()}


COMPUTING = """
import hashlib, pulumi, pulumi_aws as aws
files = aws.s3.Bucket("files", force_destroy={})
digest = files.arn.apply(lambda arn: hashlib.sha256(arn.encode()).hexdigest()[:20])
tags = {{"given": files.arn.apply(lambda arn: f"of {{arn}}"), "upper": files.arn.apply(str.upper)}}
aws.sqs.Queue("computed", name=digest, tags=tags)
pulumi.export("kind", files.arn.apply(lambda arn: "aws" if arn.startswith("arn:") else "other"))
"""


def test_what_a_program_computes_from_outputs_is_unknown(tmp_path: Path) -> None:
    def graphs(text: str) -> list[Graph]:
        (tmp_path / "__main__.py").write_text(text)
        return [record(tmp_path, project="shop", stack="prod", strict=strict) for strict in (False, True)]

    unedited = without_computed(*graphs(COMPUTING.format(False)))
    document = export_of(unedited)
    (queue,) = (one for one in document["deployment"]["resources"] if one["urn"].endswith("::computed"))
    assert queue["inputs"]["tags"]["given"] == "of known-files.arn"
    queue["inputs"] |= {"name": "0123456789abcdef0123", "tags": {"given": "of known-files.arn", "upper": "KNOWN"}}
    deployed = read_export(written(tmp_path, document))
    assert not plan(deployed, unedited).diff.changed
    edited = plan(deployed, without_computed(*graphs(COMPUTING.format(True).replace("of {arn}", "from {arn}"))))
    (change,) = (change for change in edited.diff.changes if change.resource.name == "computed")
    assert [property_change.name for property_change in change.properties] == ["tags.given"]
    assert plan(deployed, graphs(COMPUTING.format(False))[0]).diff.changed, "the other recording tells"


SOMETIMES = """
import pulumi, pulumi_aws as aws
key = aws.kms.Key("key"{})
aws.rds.Instance(
    "db",
    instance_class="db.t4g.micro",
    kms_key_id=key.arn.apply(lambda arn: None if "known" in arn else arn.upper()),
    availability_zone=key.arn.apply(lambda arn: None if arn.startswith("<") else "eu-west-1a"),
    tags={{"owner": key.arn.apply(lambda arn: None if "known" in arn else arn.upper())}},
)
pulumi.export("zone", key.arn.apply(lambda arn: None if "known" in arn else arn.upper()))
"""


def test_what_is_computed_and_came_out_as_none_is_no_change(tmp_path: Path) -> None:
    """The state has no trace of it, nor a recording of what comes out as none of a placeholder."""

    def computed(text: str) -> Graph:
        (tmp_path / "__main__.py").write_text(text)
        return without_computed(*(record(tmp_path, project="shop", stack="prod", strict=strict) for strict in (False, True)))

    unedited = computed(SOMETIMES.format(""))
    document = export_of(unedited)
    inputs = next(one["inputs"] for one in document["deployment"]["resources"] if one["urn"].endswith("::db"))
    del inputs["kmsKeyId"], inputs["tags"]["owner"]
    inputs["availabilityZone"] = "eu-west-1a"
    stack = next(one for one in document["deployment"]["resources"] if one["type"] == STACK_TYPE)
    stack.setdefault("outputs", {}).pop("zone", None)
    deployed = read_export(written(tmp_path, document))
    report, notes = stack_report(deployed, Recorded(unedited), NO_DOMAIN)
    assert report.planned
    assert not report.planned.changed
    assert notes[1].startswith(
        "computed from outputs, and not in the state: rds.Instance db kmsKeyId, rds.Instance db tags.owner, outputs.zone."
    )

    anew = plan(deployed, computed(SOMETIMES.format(", customer_master_key_spec='RSA_2048'"))).diff
    (change,) = (change for change in anew.changes if change.resource.name == "db")
    assert change.kind == "replace"
    assert {property_change.name for property_change in change.properties} == {"kmsKeyId", "availabilityZone", "tags.owner"}


def test_imports_are_told(tmp_path: Path) -> None:
    text = "aws.s3.Bucket('new', opts=Opts(import_='a'))\naws.s3.Bucket('same', opts=Opts(import_='known-same'))\n"
    text += "aws.s3.Bucket('other', opts=Opts(import_='b'))\n"
    found = against(tmp_path, "aws.s3.Bucket('same')\naws.s3.Bucket('other')\n", text)
    assert found["new"] == ("create", (), ["import"])
    assert found["same"] == ("same", (), ["same"])
    assert found["other"][:2] == ("replace", ("import",))


def test_resources_of_one_name_are_told_apart_by_what_an_input_depends_on(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text(
        "import pulumi, pulumi_aws as aws\n"
        "aws.s3.Bucket('web')\n"
        "group = aws.ec2.SecurityGroup('web')\n"
        "aws.ec2.SecurityGroupRule('rule', type='ingress', protocol='tcp', from_port=1, to_port=1, security_group_id=group.id)\n"
        "pulumi.export('group', group.id)\n"
    )
    graph = record(tmp_path, project="shop", stack="prod")
    document = export_of(graph)
    for resource in document["deployment"]["resources"]:
        resource["id"] = resource["urn"]
        if resource["urn"].endswith("::rule"):
            resource["inputs"]["securityGroupId"] = "urn:pulumi:prod::shop::aws:ec2/securityGroup:SecurityGroup::web"
        if resource["type"] == STACK_TYPE:
            resource["outputs"]["group"] = "urn:pulumi:prod::shop::aws:ec2/securityGroup:SecurityGroup::web"
    assert not plan(read_export(written(tmp_path, document)), graph).diff.changed


COST = {"tags": {"cost": "1"}}


def test_what_aws_writes_from_its_own_settings_is_no_change(tmp_path: Path) -> None:
    assert tagged(tmp_path, region="eu-west-1", default_tags=COST).kind == "same"
    assert tagged(tmp_path, region="eu-west-1", default_tags=COST | {"tags": {"cost": "1", "x": "2"}}).kind == "update"
    ignored = {"keyPrefixes": ["x"], "keys": ["y"]}
    more = {"tags": {"cost": "1", "xa": "2", "y": "3"}}
    assert tagged(tmp_path, region="eu-west-1", default_tags=more, ignore_tags=ignored).kind == "same"
    assert tagged(tmp_path, default_tags=COST).kind == "same"


def test_another_default_tag_updates_and_another_region_replaces(tmp_path: Path) -> None:
    change = tagged(tmp_path, region="eu-west-1", default_tags={"tags": {"cost": "2"}})
    assert (change.kind, [one.name for one in change.properties]) == ("update", ["tagsAll.cost"])
    change = tagged(tmp_path, region="us-east-1", default_tags=COST)
    assert (change.kind, change.because) == ("replace", ("region",))


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ([], "not an export of a stack"),
        ({"version": 3}, "not an export of a stack"),
        ({"version": 1, "deployment": {"resources": []}}, "unsupported version"),
        ({"version": 3, "deployment": {"resources": []}}, "has no resource"),
        ({"version": 3, "deployment": {"resources": [{"urn": "x", "type": "y"}]}}, r"resources\[0\].urn"),
        ({"version": 3, "deployment": {"resources": [1]}}, "not a list of mappings"),
        ({"version": 3, "deployment": {"resources": [ONE | {"inputs": 1}]}}, "inputs"),
        ({"version": 3, "deployment": {"resources": [ONE | {"delete": True}]}}, "has no resource"),
        ({"version": 3, "deployment": {"resources": [ONE | {"inputs": {exported.SIGNATURE: "x"}}]}}, "mapping of properties"),
        ({"version": 3, "deployment": {"resources": [ONE | {"outputs": {exported.SIGNATURE: [1]}}]}}, "mapping of properties"),
        ({"version": 3, "deployment": {"resources": [ONE | {"type": 1}]}}, r"resources\[0\].type: not a type"),
        ({"version": 3, "deployment": {"resources": [ONE | {"dependencies": [1, "a"]}]}}, "not a list of URNs"),
        ({"version": 3, "deployment": {"resources": [ONE | {"propertyDependencies": {"a": 3}}]}}, "not a list of URNs"),
        ({"version": 3, "deployment": {"resources": [ONE | {"protect": "no"}]}}, "protect"),
        ({"version": 3, "deployment": {"resources": [ONE | {"inputs": deep(900)}]}}, "too deep"),
        (
            {
                "version": 3,
                "deployment": {"resources": [ONE], "pending_operations": [{}]},
            },
            "not an operation",
        ),
    ],
)
def test_what_is_no_export_is_refused(document: Any, what: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemsFound, match=what):
        read_export(written(tmp_path, document))


def test_defaults_of_any_form_are_read(tmp_path: Path) -> None:
    document = small()
    for resource in document["deployment"]["resources"]:
        resource.setdefault("inputs", {})["__defaults"] = [{"a": 1}]
    assert not plan(read_export(written(tmp_path, document)), program("")).diff.changed


def test_a_file_that_is_no_json_or_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for name, what in (("text", "not JSON"), ("nothing", "cannot be read")):
        with pytest.raises(ProblemsFound, match=what):
            read_export(tmp_path / name)


def test_a_byte_order_mark_of_a_shell_is_read(tmp_path: Path) -> None:
    file = tmp_path / "export.json"
    file.write_text("\ufeff" + (FOLDER / "export.json").read_text(encoding="utf-8"), encoding="utf-8")
    assert read_export(file) == read_export(FOLDER / "export.json")


def test_a_stack_that_turns_to_another_region_is_made_anew() -> None:
    """The resources of AWS without a region of their own; those of a global service stay."""
    deployed = read_export(FOLDER / "export.json")
    head = record(FOLDER, project="shop", stack="prod", config={"aws:region": "us-west-2"})
    regional = {resource.urn for resource in head.resources if resource.type.startswith("aws:") and ":iam/" not in resource.type}
    assert {one.urn for one in plan(deployed, head).diff.of_kind("replace") if "region" in one.because} == regional
