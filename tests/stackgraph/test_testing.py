"""``stackgraph.testing``: a team's test file as docs/testing.md shows it, and what failures say."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest
from pulumi.runtime.mocks import MockCallArgs, MockResourceArgs

from conftest import ROOT
from readme import blocks
from stackgraph.problems import ProblemsFound, ProgramError
from stackgraph.testing import Mocks, RecordedStack, assert_snapshot, losses, record
from stackgraph.testing.snapshots import UPDATE

PAGE = ROOT / "docs" / "testing.md"
PROGRAM, TESTS, WITH_MOCKS = (b.text for b in blocks(PAGE) if b.language == "python")


class Thing(pulumi.CustomResource):
    """A resource of a provider that does not exist."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None, **inputs: object) -> None:
        super().__init__("acme:index:Thing", name, {"out": None, **inputs}, opts)


class Box(pulumi.ComponentResource):
    def __init__(self, name: str) -> None:
        super().__init__("acme:index:Box", name)
        self.inner = Thing(f"{name}-inner", pulumi.ResourceOptions(parent=self), size=3)


def pytest_of(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, with the plugin also where this environment does not name it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "stackgraph.pytest_plugin", "-p", "no:cacheprovider", *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "UPDATE_GOLDEN"))}
    kept |= {"PYTHONPATH": str(ROOT / "components"), **environment}
    return subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def team(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    (tmp_path / "__main__.py").write_text(PROGRAM)
    (tmp_path / "tests" / "test_shop.py").write_text(TESTS)
    (tmp_path / "tests" / "test_mocks.py").write_text(WITH_MOCKS)
    return tmp_path


def test_the_test_of_the_readme_runs(team, monkeypatch):
    (text,) = (block.text for block in blocks(ROOT / "components" / "stackgraph" / "README.md") if block.language == "python")
    (team / "Pulumi.dev.yaml").write_text("config:\n  shop:role: arn:aws:iam::111122223333:role/reader\n  shop:password: x\n")
    monkeypatch.chdir(team)
    names: dict[str, Any] = {}
    exec(text, names)
    names["test_every_bucket_is_private"](record)


@pytest.mark.thorough
def test_the_tests_of_a_team_run_as_the_page_shows_them(team):
    first = pytest_of(team)
    assert "1 failed, 6 passed" in first.stdout, first.stdout
    assert "there is no snapshot" in first.stdout
    done = pytest_of(team, "tests/test_shop.py", UPDATE_GOLDEN="1")
    assert "6 passed in" in done.stdout, f"a warning of an SDK is nothing to a team: {done.stdout}"
    # And they fail when the program breaks.
    (team / "__main__.py").write_text(PROGRAM.replace("protect=True", "protect=False").replace("shop-{name}", "{name}"))
    broken = pytest_of(team, "tests/test_shop.py")
    assert "2 failed" in broken.stdout, broken.stdout
    assert "± replace aws:s3/bucket:Bucket uploads-bucket because of bucket" in broken.stdout
    assert "no 'protect': aws:dynamodb/table:Table 'uploads-objects' has options nothing" in broken.stdout


@pytest.mark.thorough
def test_the_plugin_is_an_entry_point_of_pytest():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"stackgraph.pytest_plugin": "stackgraph.pytest_plugin"}
    loaded = "import sys, stackgraph.pytest_plugin; sys.exit('pulumi' in sys.modules)"
    assert not subprocess.run([sys.executable, "-c", loaded], check=False).returncode, "pytest would load the SDK in every run"


@pytest.fixture(scope="module")
def graph() -> RecordedStack:
    def program() -> None:
        box = Box("box")
        Thing("user", of=box.inner.id, token=pulumi.Output.secret("hush"), list=[{"key": pulumi.Output.secret("hush")}])
        Thing("apart")
        pulumi.export("size", 3)

    return record(program)


def test_relations(graph):
    user, inner, box = (graph.one(name=name) for name in ("user", "box-inner", "box"))
    assert inner.parent == box
    assert box.children == box.descendants == [inner]
    assert user.dependencies == [inner]
    assert user.depends_on(inner)
    assert not inner.depends_on(user)
    assert user.inputs["of"] == inner.output("id")
    assert user.secrets == {"token", "list.0.key"}
    assert user.provider is None
    assert (list(graph.warnings), dict(user.options), {user, inner, graph.one(name="user")}) == ([], {}, {user, inner})
    assert graph.urn(user.urn) == user
    assert {one.name for one in graph} == {"user", "box-inner", "box", "apart"}
    assert len(graph) == len(graph.all()) == 4
    assert graph.all("acme:index:Other") == []


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (lambda g: g.one("acme:index:Thin"), ["no acme:index:Thin", "did you mean 'acme:index:Thing'?", "3 × acme:index:Thing"]),
        (lambda g: g.one("acme:index:Thing"), ["3 of acme:index:Thing", "'user'", "'apart'", "test_testing.py:"]),
        (lambda g: g.one("acme:index:Thing", "usr"), ["no acme:index:Thing 'usr'", "did you mean 'user'?"]),
        (lambda g: g.one("acme:index:Box", "user"), ["no acme:index:Box 'user'", "there are:\n  acme:index:Box 'box'"]),
        (lambda g: g.one("acme:index:No", "user"), ["what has this name:\n  acme:index:Thing 'user'"]),
        (lambda g: record(lambda: None).one("acme:index:Thing"), ["it has no resources"]),
        (lambda g: g.one(name="usr"), ["did you mean 'user'?"]),
        (lambda g: g.urn(g.one(name="user").urn + "s"), ["did you mean 'urn:pulumi:test::project::acme:index:Thing::user'"]),
    ],
)
def test_what_is_not_there_is_told_with_what_is(graph, question, said):
    with pytest.raises(AssertionError) as raised:
        question(graph)
    for part in said:
        assert part in str(raised.value)


def test_a_key_that_is_not_there_is_told_with_those_that_are(graph):
    with pytest.raises(KeyError, match=r"no 'tokn': acme:index:Thing 'user' has .*'token'; did you mean 'token'"):
        graph.one(name="user").inputs["tokn"]
    with pytest.raises(KeyError, match=r"no 'kye': at 'list' acme.* has 'key'"):
        graph.one(name="user").inputs["list"][0]["kye"]
    with pytest.raises(KeyError, match="stack test exports 'size'; did you mean 'size'"):
        graph.outputs["sizes"]
    with pytest.raises(TypeError, match="Box has no type token"):
        graph.one(Box)


def test_a_project_its_stack_file_and_values_of_the_test(tmp_path):
    (tmp_path / "Pulumi.yaml").write_text(
        "name: mine\nruntime: python\nmain: src\nconfig:\n  size: {type: integer, default: 2}\n"
    )
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  mine:colour: red\n  aws:region: eu-west-1\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "here.py").write_text("import pulumi\nvalues = pulumi.Config()\n")
    (tmp_path / "src" / "__main__.py").write_text(
        "import pulumi\nfrom here import values\n"
        "for key in ('size', 'colour', 'list', 'token'):\n    pulumi.export(key, values.get(key))\n"
        "pulumi.export('region', pulumi.Config('aws').get('region'))\npulumi.export('stack', pulumi.get_stack())\n"
        "pulumi.export('secret', values.get_secret('token'))\n"
    )
    alone = record(tmp_path)
    assert (alone.outputs["size"], alone.outputs["stack"], alone.graph.project) == ("2", "test", "mine")
    assert "colour" not in alone.outputs
    dev = record(str(tmp_path), stack="dev", config={"colour": "blue", "list": [1, True]}, secrets={"token": "hush"})
    assert dict(dev.outputs) | {"secret": "", "token": ""} == {
        "size": "2",
        "colour": "blue",
        "list": "[1,true]",
        "region": "eu-west-1",
        "stack": "dev",
        "secret": "",
        "token": "",
    }
    assert dev.outputs["secret"] == "[secret]"
    assert "here" not in sys.modules
    with pytest.raises(ProblemsFound, match="mine:size: wrong type"):
        record(tmp_path, config={"size": "large"})
    with pytest.raises(ProblemsFound, match="no stack 'dve'"):
        record(tmp_path, stack="dve")


def test_two_programs_with_modules_of_one_name(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "Pulumi.yaml").write_text(f"name: {name}\nruntime: python\n")
        (tmp_path / name / "said.py").write_text(f"said = {name!r}\n")
        (tmp_path / name / "__main__.py").write_text("import pulumi, said\npulumi.export('said', said.said)\n")
    assert [record(tmp_path / name).outputs["said"] for name in ("one", "other")] == ["one", "other"]


def test_a_file_alone_and_a_program_that_fails(tmp_path):
    file = tmp_path / "program.py"
    file.write_text("import pulumi\npulumi.export('here', 1)\n")
    assert record(file).outputs["here"] == 1
    file.write_text("import pulumi\n\nraise ValueError('no way')\n")
    with pytest.raises(ProgramError, match=r"program.py:3: ValueError: no way"):
        record(file)
    (tmp_path / "Pulumi.yaml").write_text("name: 1\nruntime: go\n")
    with pytest.raises(ProblemsFound, match="only Python programs can be recorded"):
        record(file)


def test_strict_leaves_outputs_unknown():
    seen = []

    def program() -> None:
        Thing("one").id.apply(seen.append)

    record(program, strict=True)
    assert seen == []
    record(program)
    assert seen == ["<one.id>"]


def test_answers_of_a_test_go_before_placeholders(tmp_path):
    import pulumi_aws as aws

    def program() -> None:
        pulumi.export("ami", aws.ec2.get_ami_output(owners=["amazon"]).id)
        pulumi.export("vpc", pulumi.StackReference("acme/network/prod").get_output("vpc"))

    rows = [
        {"function": "aws:ec2/getAmi:getAmi", "args": {"owners": ["amazon"]}, "result": {"id": "ami-1"}},
        {"stack": "acme/network/prod", "outputs": {"vpc": "vpc-1"}},
    ]
    given = record(program, answers=rows)
    assert dict(given.outputs) == {"ami": "ami-1", "vpc": "vpc-1"}
    assert {function.answer for function in given.functions} == {"file"}
    (tmp_path / "rows.yaml").write_text(json.dumps(rows))
    assert record(program, answers=tmp_path / "rows.yaml").outputs == given.outputs
    assert record(program).outputs["ami"] != "ami-1"
    with pytest.raises(ProblemsFound, match=r"answers:1: row 1: unknown key `agrs`\n    hint: did you mean 'args'"):
        record(program, answers=[{"function": "a", "agrs": {}, "result": {}}])


def test_mocks_answer_what_the_recorder_can_and_ask_for_the_rest():
    mocks = Mocks(answers=[{"function": "acme:index:known", "result": {"value": 1}}])

    def call(token: str) -> dict:
        return mocks.call(MockCallArgs(token, {"region": "us-west-2"}, ""))[0]

    assert call("acme:index:known") == {"value": 1}
    assert call("aws:index/getPartition:getPartition")["partition"] == "aws"
    with pytest.raises(LookupError, match="no answer to acme:index:unknown; give one"):
        call("acme:index:unknown")


def test_the_file_of_a_program_finds_what_is_beside_it(tmp_path: Path):
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    (tmp_path / "beside_it.py").write_text("LEVEL = 3\n")
    (tmp_path / "__main__.py").write_text("import beside_it, pulumi\npulumi.export('level', beside_it.LEVEL)\n")
    assert record(tmp_path / "__main__.py").outputs["level"] == record(tmp_path).outputs["level"] == 3


def test_secrets_may_be_objects():
    def program() -> None:
        pulumi.export("user", pulumi.Config().require_secret_object("login")["user"])
        pulumi.export("on", pulumi.Config().require_bool("on"))

    given = record(program, secrets={"login": {"user": "hush"}, "on": True}).outputs
    assert given == {"user": "[secret]", "on": True}


def test_a_coroutine_is_told_how_to_record():
    async def inside() -> RecordedStack:
        with pytest.raises(RuntimeError, match=r"asyncio\.to_thread"):
            record(lambda: Thing("one"))
        return await asyncio.to_thread(record, lambda: Thing("one"))

    assert asyncio.run(inside()).one().name == "one"


@pulumi.runtime.test
def test_mocks_answer_references_to_other_stacks():
    pulumi.runtime.set_mocks(Mocks(answers=[{"stack": "acme/net/prod", "outputs": {"vpc": "vpc-1"}}]))
    return pulumi.StackReference("acme/net/prod").require_output("vpc").apply(lambda vpc: equal(vpc, "vpc-1"))


def equal(given: object, expected: object) -> None:
    assert given == expected


def test_mocks_ask_for_the_outputs_of_a_stack():
    args = MockResourceArgs("pulumi:pulumi:StackReference", "net", {"name": "acme/net/prod"}, "", "acme/net/prod", False)
    with pytest.raises(LookupError, match=r"no answer to stack acme/net/prod; give one: .*'stack': 'acme/net/prod'"):
        Mocks().new_resource(args)


@pytest.mark.parametrize("text", ["{", "<<<<<<< HEAD", "[]"])
def test_a_file_that_is_no_snapshot_says_so(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(UPDATE, raising=False)
    file = tmp_path / "one.json"
    file.write_text(text)
    with pytest.raises(AssertionError, match=r"one.json is no snapshot .* run with UPDATE_GOLDEN=1"):
        assert_snapshot(record(lambda: Thing("one")), str(file))


def test_a_snapshot_tells_which_questions_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def asking(owner: str) -> RecordedStack:
        return record(lambda: pulumi.export("ami", aws.ec2.get_ami_output(owners=[owner]).id))

    file = tmp_path / "one.json"
    monkeypatch.setenv(UPDATE, "1")
    assert_snapshot(asking("amazon"), file)
    monkeypatch.delenv(UPDATE)
    with pytest.raises(AssertionError) as raised:
        assert_snapshot(asking("self"), file)
    assert '- asks aws:ec2/getAmi:getAmi {"owners": ["amazon"]}: placeholder' in str(raised.value)
    assert '+ asks aws:ec2/getAmi:getAmi {"owners": ["self"]}: placeholder' in str(raised.value)


KEPT = pulumi.ResourceOptions(protect=True)


def test_a_snapshot_tells_what_a_deployment_would_do(tmp_path, monkeypatch):
    file = tmp_path / "snapshots" / "one.json"
    monkeypatch.delenv(UPDATE, raising=False)
    with pytest.raises(AssertionError, match=r"there is no snapshot .* yet; run with UPDATE_GOLDEN=1"):
        assert_snapshot(record(lambda: Thing("one")), file)
    monkeypatch.setenv(UPDATE, "1")
    assert_snapshot(record(lambda: Thing("one", size=1, gone=True)), file)
    monkeypatch.delenv(UPDATE)
    assert "test_testing" not in file.read_text(), "a place in the source would change with every edit of it"
    assert_snapshot(record(lambda: Thing("one", size=1, gone=True)), file)
    with pytest.raises(AssertionError) as raised:
        assert_snapshot(record(lambda: (Thing("one", KEPT, size=2, gone=True), Thing("new"), pulumi.export("out", 1))), file)
    assert "~ update acme:index:Thing one\n    - size: 1\n    + size: 2\n    + option.protect: true" in str(raised.value)
    assert "+ create acme:index:Thing new" in str(raised.value)
    assert "output + out: 1" in str(raised.value)
    assert json.loads(file.read_text())["resources"]


def test_losses_are_replacements_and_deletions_that_no_alias_prevents():
    import pulumi_aws as aws

    def subnet(name: str, zone: str, *aliases: str) -> RecordedStack:
        options = pulumi.ResourceOptions(aliases=[pulumi.Alias(name=alias) for alias in aliases])
        return record(
            lambda: aws.ec2.Subnet(name, vpc_id="vpc-1", cidr_block="10.0.0.0/24", availability_zone=zone, opts=options)
        )

    before = subnet("data", "a")
    assert before.one(aws.ec2.Subnet).name == "data"
    assert not losses(before, subnet("data", "a"))
    assert not losses(before, subnet("moved", "a", "data"))
    assert [str(loss) for loss in losses(before, subnet("data", "b"))] == ["replace aws:ec2/subnet:Subnet data: availabilityZone"]
    assert [str(loss) for loss in losses(before.graph, subnet("moved", "a").graph)] == ["delete aws:ec2/subnet:Subnet data"]


def test_a_change_of_a_type_that_no_table_has_may_replace_it():
    before, after = record(lambda: Thing("one", size=1)), record(lambda: Thing("one", size=2))
    assert [str(loss) for loss in losses(before, after)] == ["may replace acme:index:Thing one: size"]
