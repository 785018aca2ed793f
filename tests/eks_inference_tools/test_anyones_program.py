"""Programs of others, through the command: what only a deployment knows stops no preview, and is told."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eks_inference_tools.cli import main

Program = Callable[..., Path]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Writes a project without a stack file; named texts are further files."""

    def write(source: str, **files: str) -> Path:
        (tmp_path / "Pulumi.yaml").write_text("name: theirs\nruntime: python\n")
        (tmp_path / "__main__.py").write_text("import json\nimport pulumi\nimport pulumi_aws as aws\n" + source)
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path

    return write


def preview(folder: Path, *more: str) -> int:
    return main(["preview", "dev", "--program", str(folder), *more])


# -- an apply on what only a deployment knows ------------------------------------------------------------------------------------

ROLE = "role = aws.iam.Role('r', assume_role_policy={'Version': '2012-10-17'})\n"


def test_an_apply_that_fails_on_a_placeholder_is_a_warning_with_its_line(program, capsys):
    folder = program(ROLE + "pulumi.export('x', role.arn.apply(lambda arn: arn.split(':')[4]))\n")
    assert preview(folder) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "__main__.py:5: an apply failed on a value that only a deployment knows; its result is unknown here" in said
    assert "x <unknown>" in said


@pytest.mark.thorough
@pytest.mark.parametrize("more", [[], ["--debug"]])
def test_an_apply_that_fails_on_a_known_value_ends_with_its_line(program, more):
    """In a process of its own, since this once took for ever."""
    folder = program("pulumi.export('x', pulumi.Output.from_input('a').apply(lambda a: 1 / 0))\n")
    command = [sys.executable, "-m", "eks_inference_tools", "preview", "dev", "--program", str(folder), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "error: __main__.py:4: ZeroDivisionError: division by zero" in done.stderr
    assert ("Traceback" in done.stderr) == bool(more)


# -- data sources ----------------------------------------------------------------------------------------------------------------

ASKING = """\
account = aws.get_caller_identity().account_id
zones = aws.get_availability_zones(state="available").names
image = aws.ec2.get_ami(owners=["amazon"], most_recent=True)
network = pulumi.StackReference("acme/network/prod")
aws.ec2.Instance("i", ami=image.id, availability_zone=zones[1], subnet_id=network.get_output("subnetId"))
pulumi.export("account", account)
"""
ANSWERS = """\
- function: aws:ec2/getAmi:getAmi
  args: {owners: [amazon]}
  result: {id: ami-1}
- stack: acme/network/prod
  outputs: {subnetId: subnet-1}
"""
DEV = {"Pulumi.dev": "config:\n  aws:region: eu-west-1\n"}


def test_the_preview_lists_what_was_asked_and_how_it_was_answered(program, capsys):
    folder = program(ASKING, **DEV)
    assert preview(folder) == 0
    said = capsys.readouterr().out.partition("Provider functions")[2]
    rows = [line.split() for line in said.splitlines() if "__main__.py" in line]
    assert rows == [
        ["aws:ec2/getAmi:getAmi", "placeholder", "__main__.py:6"],
        ["aws:index/getAvailabilityZones:getAvailabilityZones", "computed", "__main__.py:5"],
        ["aws:index/getCallerIdentity:getCallerIdentity", "placeholder", "__main__.py:4"],
        ["pulumi:pulumi:StackReference", "unknown", "__main__.py:7"],
    ]
    assert 'owners: ["amazon"]' in said


def test_answers_come_from_a_file(program, capsys):
    folder = program(ASKING, answers=ANSWERS, **DEV)
    answers = str(folder / "answers.yaml")
    assert preview(folder, "--answers", answers, "--format", "json") == 0
    graph = json.loads(capsys.readouterr().out)
    (instance,) = [item for item in graph["resources"] if item["name"] == "i"]
    assert instance["inputs"] == {"ami": "ami-1", "availabilityZone": "eu-west-1b", "subnetId": "subnet-1"}
    assert {item["token"].rpartition(":")[2]: item["answer"] for item in graph["functions"]} == {
        "getAmi": "file",
        "getAvailabilityZones": "computed",
        "getCallerIdentity": "placeholder",
        "StackReference": "file",
    }
    assert graph["outputs"] == {"account": "<getCallerIdentity.accountId>"}


def test_a_row_that_nearly_fits_a_call_is_told(program, capsys):
    rows = "- {function: 'aws:ec2/getVpcs:getVpc', result: {id: vpc-1}}\n- {stack: acme/network/prd, outputs: {}}\n"
    rows += "- {function: 'gcp:compute/getImage:getImage', result: {}}\n"
    source = "aws.ec2.get_vpc(default=True)\npulumi.StackReference('acme/network/prod')\n"
    folder = program(source, **DEV, answers=rows)
    assert preview(folder, "--answers", str(folder / "answers.yaml")) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the row of the answers file for 'aws:ec2/getVpcs:getVpc' fits no call: did you mean 'aws:ec2/getVpc:getVpc'?" in said
    assert "did you mean 'acme/network/prod'?" in said
    assert "getImage" not in said


def test_every_fault_of_an_answers_file_is_told_at_once(program, capsys):
    wrong = "- functoin: a\n- {function: a, result: 3}\n- {function: a, result: {}, regoin: b}\n- {stack: a}\n"
    folder = program(ASKING, answers=wrong)
    assert preview(folder, "--answers", str(folder / "answers.yaml")) == 2
    said = capsys.readouterr().err
    for line, message in {
        1: "row 1: a row has one of `function`, `stack` and `config`",
        2: "row 2: `result` must be a mapping, not 3",
        3: "row 3: unknown key `regoin`",
        4: "row 4: `outputs` is missing",
    }.items():
        assert f"answers.yaml:{line}: {message}" in said
    assert "did you mean 'region'?" in said
    assert preview(folder, "--answers", str(folder / "none.yaml")) == 2
    assert "none.yaml: cannot be read" in capsys.readouterr().err


def test_check_says_that_it_cannot_judge_what_nobody_answered(program, capsys):
    folder = program(ASKING, answers=ANSWERS, **DEV)
    assert main(["check", "--program", str(folder)]) == 0
    assert "not judged: what depends on the result of aws:ec2/getAmi:getAmi" in capsys.readouterr().out
    assert main(["check", "--program", str(folder), "--answers", str(folder / "answers.yaml")]) == 0
    said = capsys.readouterr().out
    assert "getAmi" not in said
    assert "getCallerIdentity" in said


@pytest.mark.thorough
def test_diff_notes_it_and_takes_answers(program, capsys, monkeypatch, tmp_path):
    folder = program(ASKING, answers=ANSWERS, **DEV)
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    (folder / "__main__.py").write_text((folder / "__main__.py").read_text().replace("zones[1]", "zones[0]"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for format_ in ("text", "markdown", "json"):
        assert main(["diff", "--base", "HEAD", "--program", str(folder), "--format", format_]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "asks what only a provider or another stack knows (aws:ec2/getAmi:getAmi, " in said, format_
    assert main(["diff", "--base", "HEAD", "--program", str(folder), "--answers", str(folder / "answers.yaml")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "eu-west-1b" in said
    assert "getAmi" not in said
    assert "getCallerIdentity" in said


def test_a_program_that_fails_on_a_placeholder_is_told_so(program, capsys):
    folder = program("tags = aws.ec2.get_vpc(default=True).tags\npulumi.export('team', tags['Team'])\n", **DEV)
    assert preview(folder) == 2
    said = capsys.readouterr().err
    assert "__main__.py:5: KeyError: 'Team'" in said
    assert "hint: placeholders stand for the results of aws:ec2/getVpc:getVpc" in said


@pytest.mark.parametrize(
    "line",
    ["aws.s3.Bucket('b', buckett='x')", "undefined", "import nothing_like_it", "open('no-such-file')", "aws.ec2.no_such_name"],
)
def test_a_misspelt_name_is_not_blamed_on_a_placeholder(program, capsys, line):
    assert preview(program(f"aws.ec2.get_vpc(default=True)\n{line}\n", **DEV)) == 2
    assert "placeholders" not in capsys.readouterr().err


# -- what the program needs at once ----------------------------------------------------------------------------------------------

SEALED = {"Pulumi.dev": "encryptionsalt: v1:x\nconfig:\n  theirs:login: {secure: v1:a:b}\n  theirs:size: 1\n"}
LOGIN = "pulumi.export('user', pulumi.Config().require_secret_object('login').apply(lambda login: login['user']))\n"


def test_an_encrypted_value_that_is_read_as_json_is_unknown_unless_told(program, capsys):
    folder = program(LOGIN + "aws.sqs.Queue('q', name=pulumi.Config().require_secret_object('login')['user'])\n", **SEALED)
    assert preview(folder, "--format", "json") == 0
    told = capsys.readouterr()
    (queue,) = [item for item in json.loads(told.out)["resources"] if item["name"] == "q"]
    assert queue["inputs"] == {"name": "[secret]"}
    assert preview(folder, "-c", 'login={"user": "hidden-user"}', "--format", "json") == 0
    assert "hidden-user" not in capsys.readouterr().out
    assert preview(folder, "-c", 'login={"name": "x"}') == 2, "what is told is no placeholder"


@pytest.mark.parametrize("read", ["require_object", "get_int", "require_bool"])
def test_an_encrypted_value_that_is_read_in_plain_has_to_be_told(program, capsys, read):
    assert preview(program(f"pulumi.Config().{read}('login')\n", **SEALED)) == 2
    assert "hint: the value is encrypted, and read in plain: -c 'theirs:login=VALUE' gives one" in capsys.readouterr().err


def test_values_of_the_command_line_go_before_the_stacks_file(program, capsys):
    source = "for key in ('size', 'name'):\n    pulumi.export(key, pulumi.Config().require(key))\n"
    folder = program(source, **SEALED)
    (folder / "Pulumi.yaml").write_text("name: theirs\nruntime: python\nconfig: {name: {type: string}}\n")
    assert preview(folder) == 2
    assert "hint: -c theirs:name=VALUE gives it" in capsys.readouterr().err
    assert preview(folder, "-c", "size=7", "-c", "theirs:name=a=b", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == {"size": "7", "name": "a=b"}
    (folder / "answers.yaml").write_text("- config: {name: from the file}\n")
    rows = ("--answers", str(folder / "answers.yaml"))
    assert main(["preview", "other", "--program", str(folder), "-c", "size=7", *rows, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == {"size": "7", "name": "from the file"}
    with pytest.raises(SystemExit):
        preview(folder, "-c", "size")
    assert "given: size\n    allowed: KEY=VALUE" in capsys.readouterr().err


AT_ONCE = """\
from pulumi.runtime import sync_await
network = pulumi.StackReference("network", stack_name="acme/network/prod")
found = sync_await._sync_await(network.get_output_details("vpc"))
"""


def test_outputs_of_other_stacks_that_are_needed_at_once_are_named(program, capsys):
    folder = program(AT_ONCE + "if found.value is None:\n    raise ValueError('no vpc')\n", answers=ANSWERED)
    assert preview(folder) == 2
    hint = "--answers FILE gives outputs of other stacks that the program takes at once, as rows: "
    assert f"hint: {hint}- {{stack: acme/network/prod, outputs: {{vpc: …}}}}" in capsys.readouterr().err
    assert preview(folder, "--answers", str(folder / "answers.yaml")) == 0


ANSWERED = "- {stack: acme/network/prod, outputs: {vpc: vpc-1}}\n"


def test_a_program_that_goes_on_without_such_an_output_is_told_so(program, capsys):
    folder = program(AT_ONCE, answers=ANSWERED)
    assert preview(folder) == 0
    assert "the program takes vpc of stack acme/network/prod at once: its value is" in " ".join(capsys.readouterr().out.split())
    assert preview(folder, "--answers", str(folder / "answers.yaml")) == 0
    assert "at once" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "code",
    [
        "pulumi.FileArchive('./built')",
        "pulumi.AssetArchive({'lib': pulumi.FileArchive('./built')})",
        "pulumi.FileAsset('./built')",
    ],
)
def test_a_file_that_does_not_exist_stops_what_the_engine_would_stop(program, capsys, code):
    arguments = "role='arn:aws:iam::123456789012:role/r', runtime='python3.12', handler='h.h'"
    folder = program(f"aws.lambda_.Function('f', {arguments}, code=pulumi.AssetArchive({{'a': {code}}}))\n")
    assert preview(folder) == 2
    assert "__main__.py:4: lambda.Function f takes the file ./built, which does not exist" in capsys.readouterr().err
    assert main(["check", "dev", "--program", str(folder)]) == 2
    capsys.readouterr()
    (folder / "built").touch() if "FileAsset" in code else (folder / "built").mkdir()
    assert preview(folder) == 0


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("pulumi.FileAsset('built')", "built, which is a folder: only an archive may be one; the engine refuses that"),
        ("pulumi.FileArchive('lib.ZIP')", "lib.ZIP, which is no archive: that is a folder or ends in .zip, .tar, .tar.gz,"),
    ],
)
def test_an_asset_that_is_a_folder_and_an_archive_of_no_known_kind_are_refused_as_by_the_engine(program, capsys, code, why):
    folder = program(f"aws.s3.BucketObject('o', bucket='b', source={code})\n")
    (folder / "built").mkdir()
    (folder / "lib.ZIP").touch()
    assert preview(folder) == 2
    assert f"__main__.py:4: s3.BucketObject o takes the file {why}" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["sys.exit(0)", "sys.exit()", "raise SystemExit(0)"])
def test_a_program_may_end_itself_without_a_failure(program, capsys, ending):
    assert preview(program(f"import sys\naws.sqs.Queue('q')\n{ending}\naws.sqs.Queue('never')\n"), "--format", "json") == 0
    assert {"q"} == {item["name"] for item in json.loads(capsys.readouterr().out)["resources"] if item["type"].startswith("aws")}


ENGINE = """\
import asyncio, json, os, runpy
from concurrent.futures import ThreadPoolExecutor
import grpc, pulumi
from pulumi.runtime.proto import engine_pb2_grpc, resource_pb2_grpc
from stackgraph.recorder.answers import Answers
from stackgraph.recorder.monitor import Recorder

rows = json.loads(os.environ["ROWS"])
engine = Recorder("theirs", "dev", {}, secret_keys=(), strict=True, locate=str, answers=Answers(rows))
server = grpc.server(ThreadPoolExecutor(4))
port = server.add_insecure_port("127.0.0.1:0")
for module, name in ((resource_pb2_grpc, "ResourceMonitor"), (engine_pb2_grpc, "Engine")):
    servicer = getattr(module, f"{name}Servicer")
    names = [each for each in vars(servicer) if each[0] != "_"]
    calls = {each: (lambda self, asked, context, each=each: getattr(engine, each)(asked)) for each in names}
    getattr(module, f"add_{name}Servicer_to_server")(type("Served", (servicer,), calls)(), server)
server.start()
address = f"127.0.0.1:{port}"
pulumi.runtime.configure(pulumi.runtime.Settings("theirs", "dev", monitor=address, engine=address, dry_run=True))
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
loop.run_until_complete(pulumi.runtime.run_in_stack(lambda: runpy.run_path("__main__.py") and None))
"""


@pytest.mark.thorough
def test_answers_are_written_by_the_engines_own_preview(program, capsys, monkeypatch, tmp_path):
    """The engine is a recorder with answers behind the SDK's own gRPC. A program of ours asks it as it would ask AWS."""
    folder = program(
        ASKING.replace("account = ", "aws.ec2.get_vpc(id=pulumi.Output.secret('vpc-secret'))\naccount = ", 1).replace(
            "aws.ec2.get_vpc(", "aws.ec2.get_vpc_output("
        )
        + "pulumi.export('password', pulumi.StackReference('acme/network/keys').require_output('password'))\n",
        engine=ENGINE,
    )
    rows = [
        {"function": "aws:ec2/getAmi:getAmi", "args": {"owners": ["amazon"]}, "result": {"id": "ami-1", "name": "image"}},
        {"function": "aws:ec2/getVpc:getVpc", "result": {"id": "vpc-secret"}},
        {"function": "aws:index/getCallerIdentity:getCallerIdentity", "result": {"accountId": "123456789012", "id": "x"}},
        {"function": "aws:index/getAvailabilityZones:getAvailabilityZones", "result": {"names": ["a", "b"]}},
        {"stack": "acme/network/prod", "outputs": {"subnetId": "subnet-1"}},
        {"stack": "acme/network/keys", "outputs": {}, "secrets": ["password"]},
    ]
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "pulumi"
    command.write_text(f"#!/bin/sh\nexec {sys.executable} {folder / 'engine.yaml'}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=":")
    monkeypatch.setenv("ROWS", json.dumps(rows))
    written = tmp_path / "written.yaml"
    assert preview(folder, "--write-answers", str(written)) == 0
    assert "vpc-secret" not in written.read_text()
    assert preview(folder, "--answers", str(written), "--format", "json") == 0
    graph = json.loads(capsys.readouterr().out)
    (instance,) = [item for item in graph["resources"] if item["name"] == "i"]
    assert instance["inputs"] == {"ami": "ami-1", "availabilityZone": "b", "subnetId": "subnet-1"}
    assert graph["outputs"]["password"].startswith("[secret")
    assert '"secrets": ["password"]' in written.read_text()
    assert {called["token"].rpartition(":")[2]: called["answer"] for called in graph["functions"]} == {
        "getAmi": "file",
        "getAvailabilityZones": "file",
        "getCallerIdentity": "file",
        "getVpc": "placeholder",
        "StackReference": "file",
    }


ZONES = """
east = aws.Provider("east", region="us-east-1")
for name, given in {"all": {}, "up": {"state": "available"}, "east": {"opts": pulumi.InvokeOptions(provider=east)}}.items():
    pulumi.export(name, aws.get_availability_zones(**given).names)
"""


def test_every_written_answer_is_found_whatever_was_asked_first(program, capsys, monkeypatch, tmp_path):
    function = "aws:index/getAvailabilityZones:getAvailabilityZones"
    given = {"all": {"args": {}}, "up": {"args": {"state": "available"}}, "east": {"args": {}, "provider": "east"}}
    rows = [json.dumps({"function": function, **row, "result": {"names": [name]}}) for name, row in given.items()]
    command = tmp_path / "pulumi"
    command.write_text("#!/bin/sh\ncat >> $STACKGRAPH_ANSWERS <<'END'\n" + "".join(f"- {row}\n" for row in rows) + "END\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    folder, written = program(ZONES), str(tmp_path / "written.yaml")
    assert preview(folder, "--write-answers", written) == 0
    assert preview(folder, "--answers", written, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == {name: [name] for name in given}


def test_an_output_that_the_answers_lack_is_named_with_its_stack(program, capsys, tmp_path):
    (tmp_path / "answers").write_text("- {stack: acme/network/prod, outputs: {subnet: a}}\n")
    folder = program("pulumi.export('x', pulumi.StackReference('acme/network/prod').require_output('password'))\n")
    assert preview(folder, "--answers", str(tmp_path / "answers")) == 2
    assert "acme/network/prod has no output 'password' in the answers" in " ".join(capsys.readouterr().err.split())


def test_answers_cannot_be_written_without_the_engine_or_with_values_that_it_does_not_get(program, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "answers").write_text("by hand")
    assert preview(program(""), "--write-answers", str(tmp_path / "answers")) == 2
    assert "there is no `pulumi` command on PATH" in capsys.readouterr().err
    assert preview(program(""), "-c", "size=3", "--write-answers", str(tmp_path / "answers")) == 2
    assert "--write-answers: the engine takes no values of -c or --answers" in capsys.readouterr().err
    assert (tmp_path / "answers").read_text() == "by hand"


def test_the_last_value_of_the_command_line_goes_before_others_and_those_of_files(program, capsys, tmp_path):
    (tmp_path / "answers").write_text("- config: {a: 1, b: 1, c: 1}\n")
    folder = program("pulumi.export('all', [pulumi.Config().require(key) for key in 'abc'])\n")
    assert preview(folder, "-c", "a=2", "--answers", str(tmp_path / "answers"), "-c", "b=2", "-c", "b=3", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == {"all": ["2", "3", "1"]}


def test_a_syntax_error_has_its_line(program, capsys):
    assert preview(program("aws.sqs.Queue('q'\n")) == 2
    assert "error: __main__.py:4: SyntaxError: '(' was never closed" in capsys.readouterr().err


# -- stacks and environments -----------------------------------------------------------------------------------------------------


def test_a_stack_needs_no_file(program, capsys):
    folder = program("pulumi.export('stack', pulumi.get_stack())\n")
    for named in ([], ["prod"]):
        assert main(["preview", *named, "--program", str(folder), "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["outputs"] == {"stack": named[0] if named else "dev"}
    (folder / "Pulumi.prod.yaml").touch()
    assert main(["preview", "other", "--program", str(folder)]) == 0
    assert "warning: there is no Pulumi.other.yaml: the stack has no configuration of its own" in capsys.readouterr().err
    assert main(["preview", "prd", "--program", str(folder)]) == 2
    assert "did you mean 'prod'?" in capsys.readouterr().err
    assert main(["preview", "a/b", "--program", str(folder)]) == 2
    assert "there is no stack 'a/b'" in capsys.readouterr().err


def test_a_missing_module_hints_at_the_programs_environment(program, capsys):
    assert preview(program("import pulumi_of_nobody\n")) == 2
    said = capsys.readouterr().err
    assert "__main__.py:4: ModuleNotFoundError: No module named 'pulumi_of_nobody'" in said
    assert "`virtualenv` in Pulumi.yaml" in said


def test_a_program_of_the_automation_api_is_told_what_to_record(program, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))  # with the command on it, the program would run that
    source = "from pulumi import automation\nautomation.create_or_select_stack('x', 'y', program=lambda: None)\n"
    assert preview(program(source)) == 2
    said = capsys.readouterr().err
    assert "__main__.py:5: FileNotFoundError" in said
    assert "record the function that it passes as `program`" in said


# -- what runs in the program itself ---------------------------------------------------------------------------------------------


def test_hooks_that_ask_for_it_run(program, capsys):
    source = """\
def hook(args):
    pulumi.log.warn(f"{args.name} {args.new_inputs['name']} {args.id or 'new'}")
    if args.new_inputs["name"] == "wrong":
        raise ValueError("not this name")

opts = pulumi.ResourceHookOptions(on_dry_run=True)
loud = pulumi.ResourceHook("loud", hook, opts)
quiet = pulumi.ResourceHook("quiet", lambda args: 1 / 0)
binding = pulumi.ResourceHookBinding(before_create=[loud, quiet], after_create=[loud])
aws.sqs.Queue("q", name=pulumi.Config().require("name"), opts=pulumi.ResourceOptions(hooks=binding))
"""
    folder = program(source, **{"Pulumi.dev": "config: {theirs:name: jobs}\n"})
    assert preview(folder) == 0
    said = capsys.readouterr().out
    assert "q jobs new" in said
    assert "q jobs <q.id>" in said
    (folder / "Pulumi.dev.yaml").write_text("config: {theirs:name: wrong}\n")
    assert preview(folder) == 2
    assert 'before hook "loud" failed: not this name' in capsys.readouterr().err


def test_a_dynamic_provider_gets_the_whole_configuration(program, capsys):
    source = """\
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

class Maker(ResourceProvider):
    def create(self, props):
        return CreateResult("made", props)

class Made(Resource):
    size: pulumi.Output[int]
    def __init__(self, name, size):
        super().__init__(Maker(), name, {"size": size, "colour": None})

pulumi.export("size", Made("m", 3).size)
"""
    folder = program(source, **{"Pulumi.dev": "config: {theirs:name: jobs, aws:region: eu-west-1}\n"})
    assert preview(folder, "--format", "json") == 0
    graph = json.loads(capsys.readouterr().out)
    provider, made = (next(item for item in graph["resources"] if item["name"] == name) for name in ("default", "m"))
    assert provider["inputs"] == {"aws:region": "eu-west-1", "theirs:name": "jobs"}
    assert made["inputs"]["size"] == 3
    assert made["inputs"]["__provider"] == "[secret]"


CHART = """\
from pulumi_kubernetes.helm.v3 import Chart, ChartOpts

chart = Chart("web", ChartOpts(chart="nginx", version="1.0.0", namespace="default"))
pulumi.export("address", chart.get_resource("v1/Service", "default/web").metadata.name)
"""


def test_a_chart_that_the_provider_renders_is_not_seen_inside_unless_answered(program, capsys):
    answers = """\
- function: kubernetes:helm:template
  args: {chart: nginx, release_name: web}
  result:
    result:
      - {apiVersion: v1, kind: Service, metadata: {name: web, namespace: default}, spec: {}}
"""
    folder = program(CHART, answers=answers)
    assert preview(folder) == 0
    said = capsys.readouterr().out
    assert "1 chart: their contents are known only after deployment" in said
    assert "kubernetes:helm:template  unknown" in said
    assert "chart: nginx" in said
    assert preview(folder, "--answers", str(folder / "answers.yaml"), "--format", "json") == 0
    graph = json.loads(capsys.readouterr().out)
    assert graph["opaque"] == []
    assert graph["outputs"] == {"address": "web"}
