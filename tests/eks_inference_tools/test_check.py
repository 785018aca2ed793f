"""``eks-inference check``, and where else the rules stop a stack."""

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from cases import thorough_but
from conftest import ROOT, STACKS, recorded
from eks_inference.catalog.engines import engines
from eks_inference.catalog.instances import instance_types
from eks_inference.faults import SpecError
from eks_inference.platform import InferencePlatform
from eks_inference.rules import Finding, Judgement
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from eks_inference.stack.spec import StackSpec
from eks_inference_tools.check import text as check_text
from eks_inference_tools.check.registry import all_rules, graph_rules
from eks_inference_tools.check.report import judge, problem, stack_key
from eks_inference_tools.cli import main
from eks_inference_tools.program import program as programs_of_stack
from mutations import cases
from open_stacks import minimal
from stackgraph.recorder.recording import record

STACK = "inf2-llama3"
SERVER = "vllm-llama3-inf2"
FILE = f"stacks/Pulumi.{STACK}.yaml"


@pytest.fixture
def clone(clone: Path, recorded_once: None) -> Path:
    return clone


def change(clone: Path, **section: Any) -> None:
    """Lay a section over the stack object of the clone's file."""
    file = clone / FILE
    document = yaml.safe_load(file.read_text())
    _lay(document["config"]["eks-inference:stack"], section)
    file.write_text(yaml.safe_dump(document, sort_keys=False))


def _lay(onto: dict[str, Any], section: dict[str, Any]) -> None:
    for key, value in section.items():
        if isinstance(value, dict) and isinstance(onto.get(key), dict):
            _lay(onto[key], value)
        else:
            onto[key] = value


def stack_object(stack: str = STACK) -> dict[str, Any]:
    return yaml.safe_load((ROOT / f"stacks/Pulumi.{stack}.yaml").read_text())["config"]["eks-inference:stack"]


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["check", *arguments])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return code, said.out + said.err


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_every_shipped_stack_can_run(stack: str, monkeypatch, recorded_once, capsys):
    monkeypatch.chdir(ROOT)
    code, said = check(capsys, stack)
    assert code == 0, said
    assert f"{stack}: can run: 0 errors" in said
    assert said.endswith(f"next: eks-inference preview {stack}\n")


def test_a_broken_rule_names_file_line_key_numbers_and_fix(clone, capsys):
    change(clone, servers={SERVER: {"max_num_seqs": 40}})
    code, said = check(capsys, STACK)
    assert code == 2
    line = next(n for n, text in enumerate((clone / FILE).read_text().splitlines(), 1) if "max_num_seqs" in text)
    assert f"error: {FILE}:{line}: eks-inference:stack.servers.{SERVER}.max_num_seqs: NEU008: " in said
    assert "max_num_seqs 40" in said
    assert re.search(r"because: .*GiB", said)
    assert "hint: " in said
    assert f"{STACK}: refused: 1 error" in said
    coloured = check_text.verdict(judge(programs_of_stack(STACK)), colour=True)
    assert [word for word in ("error", "refused") if f"\x1b[31m{word}\x1b[0m: " not in coloured] == []


def test_preview_refuses_it_with_the_same_words_and_writes_nothing(clone, capsys):
    change(clone, servers={SERVER: {"max_num_seqs": 40}})
    _, checked = check(capsys, STACK)
    assert main(["preview", STACK, "-o", "graph.txt"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.strip() in checked
    assert not (clone / "graph.txt").exists()


@pytest.mark.thorough
def test_a_deployment_is_refused_before_the_first_resource():
    spec = stack_object()
    spec["servers"][SERVER]["max_num_seqs"] = 40
    registered: list[int] = []
    config = {"aws:region": "us-west-2", "eks-inference:stack": json.dumps(spec)}
    with pytest.raises(Exception, match="NEU008") as refusal:
        record(InferencePlatform.from_config, project="p", stack="s", config=config, progress=registered.append)
    assert isinstance(refusal.value.__cause__, pulumi.RunError)
    assert registered in ([], [1]), "only the stack itself"


@pytest.mark.thorough
def test_a_platform_built_in_a_program_is_refused_too():
    spec = stack_object()
    spec["servers"][SERVER]["tensor_parallel"] = 24
    with pytest.raises(Exception, match="NEU003") as refusal:
        record(lambda: InferencePlatform(StackSpec.model_validate(spec), region="us-west-2"))
    assert isinstance(refusal.value.__cause__, SpecError)


@pytest.mark.thorough
def test_a_warning_shows_in_the_preview_and_stops_nothing(clone, capsys):
    change(clone, pools={"inferentia-inf2": {"consolidation_policy": "WhenEmptyOrUnderutilized"}})
    assert main(["preview", STACK]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "KAR002: Karpenter may move" in shown
    code, said = check(capsys, STACK)
    assert code == 0
    assert f"warning: {FILE}:" in said
    assert "1 warning" in said


@pytest.mark.thorough
def test_a_rule_is_silenced_by_id_with_a_reason_that_shows(clone, capsys):
    reason = "measured on hardware, see ticket 12"
    change(clone, servers={SERVER: {"max_num_seqs": 40}}, silenced={"NEU008": reason})
    code, said = check(capsys, STACK)
    assert code == 0
    assert f"reason: {reason}" in said
    assert "3 silenced" in said, "the shipped file silences two"
    assert main(["preview", STACK]) == 0


def test_silencing_needs_a_reason(clone, capsys):
    change(clone, silenced={"NEU008": ""})
    code, said = check(capsys, STACK)
    assert code == 2
    assert "eks-inference:stack.silenced.NEU008" in said


def test_silencing_an_unknown_rule_names_the_nearest(clone, capsys):
    change(clone, silenced={"NEX008": "a reason in words"})
    code, said = check(capsys, STACK)
    assert code == 2
    assert "there is no rule with this id" in said
    assert "did you mean 'NEU008'" in said


@pytest.mark.thorough
def test_a_silence_that_silences_nothing_is_noted(clone, capsys):
    change(clone, silenced={"NEU008": "a reason in words"})
    code, said = check(capsys, STACK)
    assert code == 0
    assert "NEU008 is silenced but has no finding in this stack" in said


def test_how_few_sequences_a_pod_holds_is_noted(clone, capsys):
    few = minimal("g5.48xlarge", "meta-llama/Llama-3.3-70B-Instruct", tensor_parallel=8, max_model_len=8192)
    many = minimal("g6e.xlarge", "Qwen/Qwen3-0.6B", max_model_len=8192)
    for name, stack in (("few", few), ("many", many)):
        config = {"aws:region": "us-west-2", "eks-inference:huggingFaceToken": {"secure": "v1:a:b"}, "eks-inference:stack": stack}
        (clone / f"stacks/Pulumi.{name}.yaml").write_text(yaml.safe_dump({"config": config}))
    assert main(["check", "few"]) == 0
    assert "a pod of m holds 2 of the longest sequences (8192 tokens) at once: others wait" in capsys.readouterr().out
    assert main(["check", "many"]) == 0
    assert "others wait" not in capsys.readouterr().out


def test_a_mirror_that_replaces_nothing_is_noted(clone, capsys):
    charts, images = "aws.github.io/eks-charts", "public.ecr.aws"
    change(clone, mirrors={charts: "registry.corp.example/charts", images: "registry.corp.example/ecr"})
    _, said = check(capsys, STACK)
    assert f"the mirror of {charts} replaces nothing" in said
    assert f"the mirror of {images} replaces" not in said


def test_all_faults_of_rules_come_at_once(clone, capsys):
    change(clone, servers={SERVER: {"tensor_parallel": 24}}, cluster={"service_cidr": "10.1.0.0/16"})
    code, said = check(capsys, STACK)
    assert code == 2
    assert {"NEU003", "NEU006", "NET001"} <= set(re.findall(r": ([A-Z]{2,4}\d{3}): ", said))


def few_stacks(clone: Path) -> None:
    """Leaves two stacks of the clone: a command takes half a second for each."""
    for file in (clone / "stacks").glob("Pulumi.*.yaml"):
        if file.name not in (f"Pulumi.{STACK}.yaml", "Pulumi.trn2-di.yaml"):
            file.unlink()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("config: {aws:region: us-west-2, eks-inference:stack: {nam: x}}\n", "broken: refused"),
        ("config:\n  eks-inference:stack: {name: broken, size: .inf}\n", "Pulumi.broken.yaml:2"),
    ],
)
def test_one_bad_stack_does_not_hide_the_others(text, told, clone, capsys):
    few_stacks(clone)
    (clone / "stacks" / "Pulumi.broken.yaml").write_text(text)
    code, said = check(capsys)
    assert code == 2
    assert told in said
    assert f"{STACK}: can run" in said
    assert "trn2-di: can run" in said


def test_a_faulty_answers_file_is_told_once(clone, capsys):
    (clone / "answers.yaml").write_text("- {function: x}\n")
    (clone / "stacks" / "Pulumi.other.yaml").write_text("config: {}\n")
    assert main(["check", "--answers", "answers.yaml"]) == 2
    assert capsys.readouterr().err.count("`result` is missing") == 1


@pytest.mark.thorough
def test_a_server_on_nodes_without_accelerators_is_refused(clone, capsys):
    change(clone, servers={"extra": {**stack_object("inf2-llama2")["servers"]["llama2-a"], "pool": "core"}})
    code, said = check(capsys, STACK)
    assert code == 2
    assert "eks-inference:stack.servers.extra.pool: its nodes have no accelerator for this server" in said
    assert "given: core (m5.2xlarge)" in said
    assert "inferentia-inf2" in said


@pytest.mark.thorough
def test_any_server_on_any_nodes_is_judged_or_refused_with_a_reason():
    """Combinations nobody would write: whatever is wrong with them, the answer is faults and findings."""
    chance = random.Random(5)
    objects = {stack: stack_object(stack) for stack in STACKS}
    servers = [server for each in objects.values() for server in each["servers"].values()]
    # Of those without accelerators one family is enough.
    types = [name for name, one in instance_types().items() if one.accelerator or one.family == "m5"]
    judged, refused = 0, []
    count = cases(60)
    for _ in range(count):
        spec = copy.deepcopy(chance.choice(list(objects.values())))
        server, type_ = copy.deepcopy(chance.choice(servers)), chance.choice(types)
        spec["pools"]["any"] = {"kind": chance.choice(["managed", "karpenter"]), "instance_types": [type_]}
        if spec["pools"]["any"]["kind"] == "managed":
            spec["pools"]["any"]["size"] = chance.choice([0, 1, 3])
        place = server["worker"] if server["kind"] == "ray_serve_vllm" else server
        place |= {"pool": "any", "instance_type": type_}
        if server["kind"] == "ray_serve_vllm":
            server["head"]["pool"] = spec.get("core_pool", "core")
        server["engine"] = chance.choice(list(engines()))
        for key in ("tensor_parallel", "max_num_seqs", "max_model_len"):
            server[key] = chance.choice([1, 3, 8, 64, 4096, 10**6])
        spec["servers"] = {"any": server}
        for section in ("load_test", "clients"):
            spec.pop(section, None)
        try:
            verdict = check_spec(parse_stack(json.dumps(spec)), "us-west-2")
        except SpecError as refusal:
            refused += refusal.faults
            continue
        judged += 1
        assert all(finding.summary for finding in verdict.findings)
    assert judged > count // 12, "most of them were not even read"
    assert all(fault.message for fault in refused)


def test_explain_shows_the_arithmetic_of_a_rule_that_holds(monkeypatch, capsys, recorded_once):
    monkeypatch.chdir(ROOT)
    code, said = check(capsys, STACK, "--explain", "neu008")
    assert code == 0
    assert said.startswith("NEU008  ")
    assert f"{FILE}:" in said
    assert f"servers.{SERVER}" in said
    # Llama-3-8B over two cores: 14.96 / 2 of weights, 128 KiB x 10 x 4096 / 2 of cache.
    for number in ("7.48", "2.50", "0.09", "10.07", "16"):
        assert number in said, said


def test_explain_says_when_a_rule_does_not_apply(monkeypatch, capsys, recorded_once):
    monkeypatch.chdir(ROOT)
    code, said = check(capsys, STACK, "--explain", "EFA001")
    assert code == 0
    assert "does not apply: it judges pools, and this stack has none with what it looks at" in said


@pytest.mark.parametrize(
    ("given", "says"),
    [("NEU8", "did you mean 'NEU008'?"), ("NEU999", "allowed: NEU001, "), ("ABC1", "allowed: a number of ARN, ")],
)
def test_explaining_an_unknown_rule_names_what_is_meant_and_no_other_number(monkeypatch, capsys, given, says):
    monkeypatch.chdir(ROOT)
    code, said = check(capsys, STACK, "--explain", given)
    assert code == 2
    assert says in said
    assert ("did you mean" in said) == ("did you mean" in says)


def test_json_has_what_a_program_needs(clone, capsys):
    change(clone, servers={SERVER: {"max_num_seqs": 40}})
    assert main(["check", STACK, "--format", "json"]) == 2
    document = json.loads(capsys.readouterr().out)
    (stack,) = document["stacks"]
    assert stack["canRun"] is False
    (finding,) = [each for each in stack["findings"] if each["severity"] == "error"]
    assert finding["rule"] == "NEU008"
    assert finding["file"] == FILE
    assert finding["line"] > 1
    assert "max_num_seqs 40" in finding["given"]
    assert finding["working"]
    assert "NEU008" in stack["rulesApplied"]


def test_another_program_is_judged_by_its_graph(tmp_path, monkeypatch, capsys):
    (tmp_path / "Pulumi.yaml").write_text("name: theirs\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    (tmp_path / "__main__.py").write_text(
        "import pulumi_kubernetes as k8s\n"
        "k8s.core.v1.Pod('p', metadata={'name': 'p', 'namespace': 'x'},\n"
        "    spec={'containers': [{'name': 'c', 'image': 'registry.example/thing:latest'}]})\n"
    )
    monkeypatch.chdir(ROOT)
    code, said = check(capsys, "--program", str(tmp_path))
    assert code == 2
    assert "K8S001" in said
    assert main(["preview", "dev", "--program", str(tmp_path)]) == 0, (
        "no rule stops `pulumi up` of a program without our components"
    )
    assert "K8S001" in capsys.readouterr().out
    silenced = "config:\n  eks-inference:silenced: {K8S001: a mirror of ours pins it, K8S101: another reason}\n"
    (tmp_path / "Pulumi.dev.yaml").write_text(silenced)
    assert main(["preview", "dev", "--program", str(tmp_path)]) == 2
    assert "eks-inference:silenced: there is no rule with this id" in capsys.readouterr().err
    (tmp_path / "Pulumi.dev.yaml").write_text(silenced.replace(", K8S101: another reason", ""))
    assert main(["preview", "dev", "--program", str(tmp_path)]) == 0
    code, said = check(capsys, "--program", str(tmp_path))
    assert code == 0
    assert "reason: a mirror of ours pins it" in said
    assert "dev: not refused; not judged: memory, architecture, disk of the program's servers" in said


@pytest.mark.thorough
def test_what_was_not_judged_is_never_said_to_run(clone, capsys):
    file = clone / "stacks" / f"Pulumi.{STACK}.yaml"
    file.write_text(file.read_text().replace("NousResearch/Meta-Llama-3-8B-Instruct", "NousResearch/Meta-Llama-3-8B-Instrukt"))
    code, said = check(capsys, STACK)
    assert code == 0
    assert "can run" not in said
    assert "nearest: NousResearch/Meta-Llama-3-8B-Instruct" in said
    left = "heads, memory, architecture, host memory, quantization, length, disk of NousResearch/Meta-Llama-3-8B-Instrukt"
    assert f"\n{STACK}: not refused; not judged: {left}: 0 errors" in said
    assert check(capsys, STACK, "--strict")[0] == 2
    code, said = check(capsys, STACK, "--format", "json")
    (document,) = json.loads(said)["stacks"]
    assert (document["verdict"], document["canRun"]) == ("not refused", False)
    (open_question,) = document["notJudged"]
    assert ", ".join(open_question["what"]) in left
    assert open_question["line"]
    assert main(["preview", STACK]) == 0
    assert "not judged: heads, memory" in capsys.readouterr().out


UNPINNED = """
import pulumi

from eks_inference import InferencePlatform


def unpin(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
    if args.type_ != "kubernetes:apps/v1:Deployment" or "open-webui" not in args.name:
        return None
    args.props["spec"]["template"]["spec"]["containers"][0]["image"] = "ghcr.io/open-webui/open-webui:main"
    return pulumi.ResourceTransformResult(args.props, args.opts)


InferencePlatform.from_config(pulumi.ResourceOptions(transforms=[unpin]))
"""


@pytest.mark.thorough
def test_what_a_transform_does_is_judged_too(clone, capsys):
    (clone / "infra" / "__main__.py").write_text(UNPINNED)
    code, said = check(capsys, STACK)
    assert code == 2
    assert re.search(
        rf"error: {FILE}:\d+: eks-inference:stack\.clients\.open_webui: "
        r"inf2-llama3-open-webui\S* \(kubernetes:apps/v1:Deployment\): K8S001: ",
        said,
    )
    assert main(["preview", STACK]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "K8S001" in shown.err
    change(clone, silenced={"K8S001": "we follow its main branch on purpose"})
    assert main(["preview", STACK]) == 0


def test_the_rules_of_a_spec_never_look_at_the_graph():
    verdict = check_spec(StackSpec.model_validate(stack_object()), "us-west-2")
    assert not {rule.id for rule in verdict.rules} & {rule.id for rule in graph_rules()}
    assert {rule.id for rule in verdict.rules} <= set(all_rules())


@pytest.mark.parametrize(
    ("section", "allowed"),
    [
        ({"pools": {"Bad Key": {}}}, "as a key: text, length at most 40: Lower-case letters, digits and hyphens"),
        ({"servers": {SERVER: {"extra_args": {"--x": 1}}}}, "as a key: text, matching ^[a-z][a-z0-9-]*$"),
        ({"silenced": {"nope": "a reason"}}, "as a key: text: Id of a rule, e.g. NEU008"),
    ],
)
def test_a_wrong_key_of_a_mapping_says_what_a_key_may_be(section: dict[str, Any], allowed: str, clone: Path, capsys):
    change(clone, **section)
    code, said = check(capsys, STACK)
    assert code == 2
    assert f"allowed: {allowed}" in said


def test_two_spellings_of_one_configuration_key_are_refused(clone: Path, capsys):
    file = clone / FILE
    file.write_text(file.read_text() + "  stack: {}\n")
    last = file.read_text().count("\n")
    first = next(number for number, line in enumerate(file.read_text().splitlines(), 1) if "eks-inference:stack" in line)
    assert main(["check", STACK]) == 2
    said = capsys.readouterr().err
    assert f"error: {FILE}:{last}: eks-inference:stack: this key stands here twice" in said
    assert f"as 'eks-inference:stack' in line {first} and as 'stack' in line {last}" in said


@pytest.mark.parametrize("stack", thorough_but(["inf2-llama3"], STACKS))
def test_every_resource_of_a_stack_file_has_the_key_that_asks_for_it(stack: str):
    spec, graph = parse_stack(json.dumps(stack_object(stack))), recorded(stack)
    keys = {resource.urn: stack_key(resource.urn, graph, spec) for resource in graph.resources}
    for urn, key in keys.items():
        part: Any = spec
        for step in key:
            part = part[step] if isinstance(part, dict) else getattr(part, str(step))
        assert part is not None, urn
    # Nothing asks for these: other parts need them.
    needed = ("EfaPlugin", "FileSystemDriver", "LeaderWorkerSetController", "InferencePlatform", "Stack", "providers")
    assert not [urn for urn, key in keys.items() if not key and not any(name in urn for name in needed)]
    assert {("servers", name) for name in spec.servers} | {("pools", name) for name in spec.pools} <= set(keys.values())


def test_a_finding_about_a_resource_is_at_the_key_of_the_stack_file_that_asks_for_it(monkeypatch):
    monkeypatch.chdir(ROOT)
    program, graph = programs_of_stack(STACK), recorded(STACK)
    urn = next(resource.urn for resource in graph.resources if resource.type.endswith(":RayService"))
    finding = Finding(next(iter(graph_rules())), Judgement(holds=False, path=(), working=(), message="why", resource=urn))
    found = problem(program, finding, graph)
    assert found.key.startswith(f"eks-inference:stack.servers.{SERVER}: ")
    assert found.file == FILE
    assert f"{SERVER}:" in (ROOT / FILE).read_text().splitlines()[found.line - 1]
