"""Whatever is wrong in a stack file, a person learns where, what and how to mend it; never a traceback, nothing half-written."""

import copy
import json
import random
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import STACKS
from eks_inference.faults import SpecError, format_path
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.references import missing_secrets
from eks_inference_tools.cli import main
from mutations import BROKEN, BrokenText, Mutation, broken, cases, change_value, mutate
from variants import merge
from vectors.gateway import LOGIN

ROOT = Path(__file__).parents[2]
STACK = "inf2-llama3"
STACK_FILE = f"stacks/Pulumi.{STACK}.yaml"
BASE = yaml.safe_load((ROOT / STACK_FILE).read_text())["config"]["eks-inference:stack"]
PLANTED = "hf_PlantedSecretThatMustNotAppear"
YAML_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def edit(clone: Path, before: str, after: str) -> int:
    """Replace a text of the stack file; gives the line it stands on."""
    file = clone / STACK_FILE
    text = file.read_text()
    assert text.count(before) == 1, f"{before!r} stands {text.count(before)} times in {STACK_FILE}"
    file.write_text(text.replace(before, after))
    return text[: text.index(before)].count("\n") + 1


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must be refused; gives its report."""
    assert main([*(arguments or ("preview", STACK))]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    return said.err


def test_a_misspelt_key_is_reported_with_its_line_and_the_nearest_key(clone, capsys):
    line = edit(clone, "zones: 2", "zonez: 2")
    report = refused(capsys)
    assert f"{STACK_FILE}:{line}: eks-inference:stack.network.zonez: unknown key" in report
    assert "did you mean 'zones'?" in report


def test_a_wrong_type_says_what_was_given_and_what_is_allowed(clone, capsys):
    line = edit(clone, "size: 3", "size: three")
    report = refused(capsys)
    assert f"{STACK_FILE}:{line}: eks-inference:stack.pools.core.size" in report
    assert "given: 'three'" in report
    assert "allowed: integer, at least 0, at most 450" in report


def test_two_servers_in_one_namespace_are_refused():
    stack = copy.deepcopy(BASE)
    stack["servers"]["second"] = stack["servers"]["vllm-llama3-inf2"]
    with pytest.raises(SpecError, match=r"servers\.second\.namespace: this namespace is taken"):
        parse_stack(json.dumps(stack))


@pytest.mark.thorough
def test_what_a_pool_finds_wrong_while_it_is_recorded_has_its_line(clone, capsys):
    line = edit(clone, "root_volume_gib: 150", "root_volume_gib: 150\n        zone_ids: [use1-az1]")
    report = refused(capsys)
    assert f"{STACK_FILE}:{line + 1}: eks-inference:stack.pools.core.zone_ids" in report


@pytest.mark.thorough
def test_all_faults_come_at_once(clone, capsys):
    edit(clone, "zones: 2", "zonez: 2")
    edit(clone, "size: 3", "size: three")
    edit(clone, "[m5.2xlarge]", "[m5.2xlrage]")
    edit(clone, "nat: single", "nat: sometimes")
    report = refused(capsys)
    for key in ("network.zonez", "network.nat", "pools.core.size", "pools.core.instance_types[0]"):
        assert key in report
    assert "4 errors" in report


def test_a_missing_program_is_refused(clone, capsys):
    (clone / "infra" / "__main__.py").unlink()
    assert "infra: the program folder has no __main__.py" in refused(capsys)


def test_a_missing_region_is_reported_at_the_configuration(clone, capsys):
    line = edit(clone, "  aws:region: us-west-2\n", "") - 1
    assert f"{STACK_FILE}:{line}: aws:region: this key is required and missing" in refused(capsys)


def test_a_region_without_the_chip_is_refused(clone, capsys):
    edit(clone, "aws:region: us-west-2", "aws:region: eu-south-1")
    assert "eks-inference:stack.network" in refused(capsys)


@pytest.mark.thorough
def test_a_secret_that_a_model_needs_is_asked_for(clone, capsys):
    edit(clone, "NousResearch/Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-8B-Instruct")
    assert main(["preview", STACK]) == 0, "a view needs no value of it"
    report = capsys.readouterr().err
    assert "before `pulumi up`: eks-inference:huggingFaceToken: this secret is required and missing" in report
    assert "pulumi config set --secret eks-inference:huggingFaceToken" in report
    edit(clone, "config:\n  aws", "config:\n  eks-inference:huggingFaceToken: {secure: v1:abc}\n  aws")
    assert main(["preview", STACK]) == 0
    told = capsys.readouterr()
    assert "v1:abc" not in told.out
    assert "huggingFaceToken: this secret" not in told.err


ASKS = {"login": LOGIN, "routes": {"vllm-llama3-inf2": {"login": True}}}
GATEWAY = {"host": "models.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ", **ASKS}


@pytest.mark.parametrize(
    ("section", "secret", "why"),
    [
        ({"observability": {"prometheus": {"receiver": {"kind": "slack"}}}}, "alertReceiverUrl", "receiver posts to a URL"),
        ({"gateway": GATEWAY}, "gatewayClientSecret", "a route of the gateway has a login"),
    ],
)
def test_a_secret_that_a_section_needs_is_asked_for(section: dict[str, Any], secret: str, why: str):
    stack = copy.deepcopy(BASE)
    merge(stack, section)
    (fault,) = missing_secrets(parse_stack(json.dumps(stack)), ())
    assert (fault.config_key, why in fault.message) == (f"eks-inference:{secret}", True)
    assert fault.hint == f"run: pulumi config set --secret eks-inference:{secret}"
    assert not list(missing_secrets(parse_stack(json.dumps(stack)), [secret]))


def test_a_misspelt_secret_key_is_reported(clone, capsys):
    edit(clone, "config:\n  aws", "config:\n  eks-inference:huggingFaceTokn: {secure: abc}\n  aws")
    report = refused(capsys)
    assert "eks-inference:huggingFaceTokn: unknown key" in report
    assert "did you mean 'eks-inference:huggingFaceToken'?" in report


def test_a_secret_in_plain_sight_is_refused_without_repeating_it(clone, capsys):
    edit(clone, "config:\n  aws", f"config:\n  eks-inference:huggingFaceToken: {PLANTED}\n  aws")
    report = refused(capsys)
    assert "a secret must be encrypted" in report
    assert "pulumi config set --secret eks-inference:huggingFaceToken" in report
    assert PLANTED not in report


def test_a_file_that_is_not_yaml_says_where(clone, capsys):
    line = edit(clone, "endpoints: [s3]", "endpoints: [s3")
    report = refused(capsys)
    assert f"{STACK_FILE}:{line + 1}: not valid YAML" in report or f"{STACK_FILE}:{line}: not valid YAML" in report


def test_an_exception_in_the_program_names_its_line(clone, capsys):
    program = clone / "infra" / "__main__.py"
    program.write_text(program.read_text() + "\n{}['absent']\n")
    report = refused(capsys)
    line = len(program.read_text().splitlines())
    assert f"infra/__main__.py:{line}: KeyError: 'absent'" in report


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("known", "code", "told"), [("'x'", 2, "cannot use [secret]"), ("parameter.arn", 0, "__main__.py:5: an apply failed")]
)
def test_a_program_that_reveals_a_secret_in_its_error_is_scrubbed(known, code, told, tmp_path, monkeypatch, capsys):
    (tmp_path / "Pulumi.yaml").write_text("name: leaky\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    (tmp_path / "__main__.py").write_text(
        "import pulumi, pulumi_aws as aws\n"
        f"token = pulumi.Output.secret({PLANTED!r})\n"
        "parameter = aws.ssm.Parameter('p', type='SecureString', value=token)\n"
        "def fail(values):\n"
        "    raise ValueError('cannot use ' + values[1])\n"
        "pulumi.Output.all(KNOWN, token).apply(fail)\n".replace("KNOWN", known)
    )
    monkeypatch.chdir(tmp_path)
    assert main(["preview", "dev"]) == code
    said = "".join(capsys.readouterr())
    assert told in said
    assert PLANTED not in said


def test_nothing_is_half_written(clone, capsys):
    edit(clone, "zones: 2", "zonez: 2")
    before = sorted(path.name for path in clone.iterdir())
    assert main(["preview", STACK, "--format", "json", "-o", "graph.json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["message"] == "unknown key"
    assert sorted(path.name for path in clone.iterdir()) == before


def test_an_argument_too_many_is_named_and_nothing_is_guessed(capsys):
    with pytest.raises(SystemExit) as left:
        main(["plan", "--model", "OPT-350M", "--instance", "g4dn.xlarge", "surplus"])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "unrecognized arguments: surplus" in said
    assert "did you mean" not in said


# The shape is judged before any resource exists: hundreds of mistakes cost seconds, and none needs a program run. The commands
# share the reading of a stack file, so two of three need only a sample.
COMMANDS = ("check", "preview", "verify")
REPORTED = re.compile(r"^(?:error: )?stacks/Pulumi\.[\w-]+\.yaml:\d+: eks-inference:stack\.?([^:\s]*): \S", re.MULTILINE)


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_each_mistake_is_reported_by_every_command_at_the_key_that_has_it(stack, clone, capsys):
    chance = random.Random(stack)
    for case in range(cases(200) // len(STACKS)):
        mutation = mutate(shipped_object(stack), chance)
        write(clone, stack, mutation.stack)
        for command in COMMANDS if case % 10 == 0 else COMMANDS[:1]:
            assert main([command, stack]) == 2, f"{command}: {mutation.kind} at {mutation.path}"
            said = capsys.readouterr()
            assert "Traceback" not in said.err
            keys = REPORTED.findall(said.out if command == "check" else said.err)
            assert any(concerns(key, mutation) for key in keys), f"{command}: {mutation.kind} at {mutation.path}: {said}"


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_another_value_is_harmless_or_reported_with_its_place(stack, clone, capsys):
    chance = random.Random(stack)
    for _ in range(cases(15) // len(STACKS)):
        mutation = change_value(shipped_object(stack), chance)
        write(clone, stack, mutation.stack)
        command = chance.choice(COMMANDS[:2])
        outcome = main([command, stack])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert outcome in (0, 2), f"{command}: {mutation.kind} at {mutation.path}"
        if outcome == 2:
            report = said.out if command == "check" else said.err
            assert REPORTED.search(report), f"{command}: {mutation.kind} at {mutation.path}: {said}"


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_a_text_that_no_file_may_have_is_reported_at_its_key(stack, clone, capsys):
    chance = random.Random(stack)
    kinds = [*BROKEN] * (cases(len(BROKEN) * len(STACKS)) // len(BROKEN) // len(STACKS) or 1)
    for number, kind in enumerate(kinds):
        case = broken(shipped_config(stack), "eks-inference:stack", chance, kind)
        (clone / "stacks" / f"Pulumi.{stack}.yaml").write_text(case.text)
        command = COMMANDS[number % len(COMMANDS)]
        assert main([command, stack]) == 2, f"{command}: {kind} at {case.path}"
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        if kind == "million digits":  # the file is too long: no key has it
            assert f"stacks/Pulumi.{stack}.yaml" in said.err
            continue
        assert any(concerns(key, case) for key in REPORTED.findall(said.err)), f"{command}: {kind} at {case.path}: {said}"


@pytest.mark.thorough
def test_the_worst_files_take_little_memory_and_time(clone):
    """Each in one process of all, with limits far below what they took: over 3 GB, minutes, or a crash."""
    worst = ("100,000 lists in each other", "billion laughs", "long text by aliases", "many values")
    for number, kind in enumerate(worst):
        case = broken(shipped_config(STACK), "eks-inference:stack", random.Random(number), kind)
        (clone / "stacks" / f"Pulumi.worst{number}.yaml").write_text(case.text)
    pools = {f"p{number}": {"kind": "managed", "instance_types": ["m6i.large"], "size": 1} for number in range(2000)}
    base = shipped_object(STACK)
    write(clone, "inf2-llama2", {**base, "pools": base["pools"] | pools})
    (clone / "stacks/Pulumi.long.yaml").write_text("config:\n  a: " + "x" * 10_000_000)
    stacks = [*(f"worst{number}" for number in range(len(worst))), "long", "inf2-llama2"]
    program = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)), resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"
        "from eks_inference_tools.cli import main\n"
        "sys.exit([stack for stack in sys.argv[1:] if main(['check', stack]) != 2] or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *stacks], cwd=clone, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("region", ["nowhere", "[us-west-2]", "true", "''"])
def test_a_wrong_region_is_reported_at_its_key(region, clone, capsys):
    line = edit(clone, "aws:region: us-west-2", f"aws:region: {region}")
    for command in ("check", "preview"):
        assert main([command, STACK]) == 2
        said = capsys.readouterr()
        assert f"{STACK_FILE}:{line}: aws:region: " in said.out + said.err


@pytest.mark.parametrize("key", ["eks-inference:stack", "stack"])
def test_a_secret_stack_object_is_refused(key, clone, capsys):
    (clone / STACK_FILE).write_text(f"config:\n  aws:region: us-west-2\n  {key}: {{secure: v1:abc}}\n")
    report = refused(capsys)
    assert f"{STACK_FILE}:3: {key}: a stack object holds no secrets" in report
    assert "v1:abc" not in report


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["endless", "itself", "deep"])
@pytest.mark.parametrize(
    "command",
    [
        f"preview {STACK} --answers FILE",
        f"check {STACK} --prices FILE",
        "plan --model Llama-3-8B --catalog FILE",
        "plan --instance p5.48xlarge --config FILE",
        "diff --state FILE",
        "diff FILE FILE",
        "loadtest report FILE",
        "first-flight report FILE",
    ],
)
def test_a_file_that_never_ends_or_leads_to_itself_is_refused(command, kind, clone, capsys):
    file = clone / f"{kind}.json"
    if kind == "deep":
        file.write_text("[" * 200_000)
    else:
        file.symlink_to("/dev/zero" if kind == "endless" else file)
    assert file.name in refused(capsys, *command.replace("FILE", file.name).split())


@pytest.mark.parametrize("file", [STACK_FILE, "Pulumi.yaml"])
def test_a_link_out_of_the_project_is_refused_and_nothing_of_its_target_shown(file, clone, tmp_path_factory, capsys):
    outside = tmp_path_factory.mktemp("outside") / "private"
    outside.write_text(f"name: {PLANTED}\n")
    (clone / file).unlink()
    (clone / file).symlink_to(outside)
    report = refused(capsys)
    assert f"error: {file}: this link leads out of the project" in report
    assert PLANTED not in report


@cache
def shipped_config(stack: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text())["config"]


def shipped_object(stack: str) -> dict[str, Any]:
    return shipped_config(stack)["eks-inference:stack"]


def write(clone: Path, stack: str, changed: dict[str, Any]) -> None:
    """Put a changed stack object into the stack file."""
    document = {"config": {**shipped_config(stack), "eks-inference:stack": changed}}
    (clone / "stacks" / f"Pulumi.{stack}.yaml").write_text(yaml.dump(document, Dumper=YAML_DUMPER, sort_keys=False))


def concerns(reported: str, mutation: Mutation | BrokenText) -> bool:
    """The report names the key that is wrong, or something inside it."""
    wrong = format_path(mutation.path)
    return reported == wrong or reported.startswith((f"{wrong}.", f"{wrong}["))
