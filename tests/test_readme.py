"""Every block of the README is what happens."""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from conftest import ROOT, recorded
from eks_inference_tools.cli import main
from readme import README, Block, block, blocks
from stackgraph.recorder.project import find_project
from stackgraph.recorder.recording import record
from variants import recorded_with

STACK = "inf2-llama3"
STACK_FILE = f"stacks/Pulumi.{STACK}.yaml"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("Pulumi.yaml", "infra", "stacks"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell(heading: str) -> list[str]:
    return [line for b in blocks() if (b.language, b.heading) == ("sh", heading) for line in b.text.splitlines()]


def test_every_block_is_run_by_a_test():
    """The languages and sections that the tests of this file, of test_wheel.py and of cluster/test_simulate.py run."""
    run = {
        ("sh", "See it"),
        ("text", "See it"),
        ("sh", "Check it"),
        ("text", "Check it"),
        ("sh", "Simulate it"),
        ("text", "Simulate it"),
        ("sh", "Deploy it"),
        ("sh", "Change it"),
        ("python", "In your own Pulumi program"),
        ("yaml", "Get alerts"),
        ("yaml", "Escape hatches"),
        ("python", "Escape hatches"),
    }
    assert {(b.language, b.heading) for b in blocks()} == run


def test_the_two_commands_are_targets_that_ci_runs():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
    for line in shell("See it")[:2]:
        command, target = line.split()
        assert command == "make"
        assert target in targets
    assert "make test" in (ROOT / ".ci" / "run").read_text()


@pytest.fixture
def project_folder(monkeypatch: pytest.MonkeyPatch, recorded_once: None) -> None:
    monkeypatch.chdir(ROOT)


def test_the_preview_looks_as_shown(project_folder, capsys):
    """An excerpt: what stands between two lines of […] is the command's own output, in its order."""
    shown, _ = (b.text for b in blocks() if (b.language, b.heading) == ("text", "See it"))
    assert main(["preview", STACK]) == 0
    rest = capsys.readouterr().out
    for part in shown.split("[…]\n"):
        _, found, rest = rest.partition(part)
        assert found, f"not in the output any more, or not in this order:\n{part}"


COMMANDS = [line for heading in ("See it", "Check it", "Change it") for line in shell(heading) if line.startswith(".venv/")]


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_of_the_preview_work(project_folder, tmp_path, capsys, line):
    _, *words = line.split()
    arguments = [str(tmp_path / Path(word).name) if before == "-o" else word for before, word in pairwise(["", *words])]
    assert main(arguments) == 0
    written = [*tmp_path.iterdir()]
    assert len(written) == words.count("-o")
    assert all(file.stat().st_size for file in written)
    assert written or capsys.readouterr().out


def test_a_mistake_is_reported_as_shown(clone, capsys):
    _, shown = (b.text for b in blocks() if (b.language, b.heading) == ("text", "See it"))
    file = clone / STACK_FILE
    text = file.read_text()
    for right, wrong in (("zones: 2", "zonez: 2"), ("instance_type: inf2.8xlarge", "instance_type: inf2.8xlrage")):
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    file.write_text(text)
    assert main(["preview", STACK]) == 2
    assert capsys.readouterr().err == shown


def test_a_stack_that_cannot_run_is_refused_as_shown(clone, capsys):
    shown, _ = (b.text for b in blocks() if (b.language, b.heading) == ("text", "Check it"))
    file = clone / STACK_FILE
    text = file.read_text()
    assert text.count("max_num_seqs: 10") == 1
    file.write_text(text.replace("max_num_seqs: 10", "max_num_seqs: 40"))
    assert main(["check", STACK]) == 2
    assert capsys.readouterr().out.strip() == shown.strip()


def test_the_plan_looks_as_shown(capsys):
    _, shown = (b.text for b in blocks() if (b.language, b.heading) == ("text", "Check it"))
    (command,) = [line.split()[1:] for line in shell("Check it") if " plan " in line]
    assert main(command) == 0
    assert capsys.readouterr().out.strip() == shown.strip()


def test_the_deployment_commands_name_what_exists():
    """Run by hand against the engine; here: the stack, its file and the secret they name are real."""
    from eks_inference.kubernetes.secrets import CONFIG_SECRETS

    lines = shell("Deploy it")
    assert all(line.startswith("pulumi ") for line in lines)
    assert {word for line in lines for word in line.split() if word.startswith("inf2")} == {STACK}
    named = {word.partition(":")[2] for line in lines for word in line.split() if word.startswith("eks-inference:")}
    assert named <= set(CONFIG_SECRETS)
    assert (ROOT / "infra" / "requirements.txt").exists()


def test_alerts_go_where_the_stack_file_says():
    (block,) = (b.text for b in blocks() if (b.language, b.heading) == ("yaml", "Get alerts"))
    graph = recorded_with(yaml.safe_load(block))
    (prometheus,) = [one for one in graph.of_type("kubernetes:helm.sh/v3:Release") if one.name.endswith("-prometheus-release")]
    assert "sns_configs" in prometheus.inputs["values"]["alertmanager"]["config"]["receivers"][1]
    expected = graph.named("vllm-llama3-inf2-metrics-expectations").inputs["spec"]["groups"][0]["rules"]
    assert {rule["record"]: rule["expr"] for rule in expected}["server:time_to_first_token_seconds:objective"] == "vector(2)"


def hatch(number: int) -> Block:
    return [b for b in blocks() if (b.language, b.heading) == ("yaml", "Escape hatches")][number]


def test_helm_values_are_merged_last():
    graph = recorded_with(yaml.safe_load(hatch(0).text))
    before = {r.urn: r.inputs["values"] for r in recorded(STACK).of_type("kubernetes:helm.sh/v3:Release") if "values" in r.inputs}
    values = {r.name: r.inputs["values"] for r in graph.of_type("kubernetes:helm.sh/v3:Release") if "values" in r.inputs}
    assert values[f"{STACK}-karpenter-release"]["logLevel"] == "debug"
    assert values[f"{STACK}-kuberay-release"]["batchScheduler"] == {"enabled": True}
    for release in graph.of_type("kubernetes:helm.sh/v3:Release"):
        if release.urn in before:
            assert before[release.urn].keys() <= release.inputs["values"].keys()


def test_flags_and_variables_reach_the_server():
    (service,) = recorded_with(yaml.safe_load(hatch(1).text)).of_type("kubernetes:ray.io/v1:RayService")
    environment = yaml.safe_load(service.inputs["spec"]["serveConfigV2"])["applications"][0]["runtime_env"]["env_vars"]
    assert any("seed" in argument and "7" in argument for argument in json.loads(environment["ENGINE_ARGS"]))
    assert environment["NEURON_COMPILE_CACHE_URL"] == "/tmp/neuron-cache"


def test_labels_and_taints_reach_nodes_and_what_is_placed_there():
    graph = recorded_with(yaml.safe_load(hatch(2).text))
    pools = {p.inputs["metadata"]["name"]: p for p in graph.of_type("kubernetes:karpenter.sh/v1:NodePool")}
    pool = pools["inferentia-inf2"]
    assert pool.inputs["spec"]["template"]["metadata"]["labels"]["cost-center"] == "research"
    taint = {"key": "dedicated", "value": "llm", "effect": "NoSchedule"}
    assert taint in pool.inputs["spec"]["template"]["spec"]["taints"]
    (service,) = graph.of_type("kubernetes:ray.io/v1:RayService")
    worker = service.inputs["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["spec"]
    assert {**taint, "operator": "Equal"} in worker["tolerations"]


def test_transforms_change_everything_else(clone):
    (clone / "infra" / "__main__.py").write_text(block("python", "Escape hatches").text)
    project = find_project(clone)
    config = project.config(project.stack_file(STACK)).values
    graph = record(project.main, project=project.name, stack=STACK, config=config, root=clone)
    (group,) = graph.of_type("aws:eks/nodeGroup:NodeGroup")
    assert group.inputs["nodeRepairConfig"] == {"enabled": True}


GUIDE = ROOT / "docs" / "stacks" / f"{STACK}.md"


def test_the_settings_of_the_stacks_page_do_what_it_says():
    bigger, managed, eager, sweep, image = (yaml.safe_load(b.text) for b in blocks(GUIDE) if b.language == "yaml")
    (service,) = recorded_with(bigger).of_type("kubernetes:ray.io/v1:RayService")
    (group,) = service.inputs["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    assert "24" in group["rayStartParams"]["resources"]
    assert group["template"]["spec"]["containers"][0]["resources"]["limits"]["aws.amazon.com/neuron"] == "12"

    graph = recorded_with(managed)
    (nodes,) = [n for n in graph.of_type("aws:eks/nodeGroup:NodeGroup") if n.inputs["instanceTypes"] == ["inf2.48xlarge"]]
    (service,) = graph.of_type("kubernetes:ray.io/v1:RayService")
    assert nodes.urn in service.dependencies

    (service,) = recorded_with(eager).of_type("kubernetes:ray.io/v1:RayService")
    (deployment,) = yaml.safe_load(service.inputs["spec"]["serveConfigV2"])["applications"][0]["deployments"]
    assert deployment["autoscaling_config"]["target_ongoing_requests"] == 1

    (test,) = recorded_with(sweep).of_type("eks-inference:index:LoadTest")
    assert test.inputs["users"] == [2, 4, 8, 16]

    graph = recorded_with(image)
    assert not graph.of_type("eks-inference:index:ImageBuild")
    (service,) = graph.of_type("kubernetes:ray.io/v1:RayService")
    assert image["servers"]["vllm-llama3-inf2"]["image"] in json.dumps(service.inputs)


def test_the_commands_of_the_stacks_page_name_what_exists(capsys):
    """Run against a cluster by nobody; here: the Services, namespaces and options they name are real."""
    graph = recorded(STACK)
    services = {
        (r.inputs["metadata"]["namespace"], r.inputs["metadata"]["name"]) for r in graph.of_type("kubernetes:core/v1:Service")
    }
    made_by_others = {("vllm", "vllm-llama3-inf2-serve-svc"), ("monitoring", "kube-prometheus-stack-grafana")}
    (commands,) = (b.text.splitlines() for b in blocks(GUIDE) if b.language == "sh")
    for words in (command.split() for command in commands):
        if words[0] == "eks-inference":
            with pytest.raises(SystemExit) as left:
                main([words[1], "--help"])
            assert left.value.code == 0
            said = capsys.readouterr().out
            assert all(word in said for word in words if word.startswith("--"))
        else:
            assert (words[2], words[4].removeprefix("svc/")) in services | made_by_others


@pytest.mark.parametrize("document", [README, *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.name)
def test_links_lead_to_files(document):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target
