"""Every block of the README is what happens, and the README is short."""

import json
import re
import shutil
import subprocess
from itertools import pairwise

import pytest
import yaml

from conftest import ROOT, recorded
from eks_inference_tools.cli import main
from readme import README, block, blocks
from stackgraph.graph.structure import Structure
from stackgraph.testing import record
from variants import recorded_with

STACK = "inf2-llama3"
STACK_FILE = f"stacks/Pulumi.{STACK}.yaml"
MOST_WORDS = 700
ONE_SCREEN = 24


def shell(heading: str) -> list[str]:
    return [line for b in blocks() if (b.language, b.heading) == ("sh", heading) for line in b.text.splitlines()]


def test_the_readme_is_read_in_a_few_minutes():
    prose = re.sub(r"```.*?```", "", README.read_text(), flags=re.S)
    words = [word for line in prose.splitlines() if not line.startswith("|") for word in line.split()]
    assert len(words) <= MOST_WORDS
    own = block("sh", "A stack of your own")
    assert own.line + 1 + own.text.count("\n") <= ONE_SCREEN, "the first commands of one's own are on the first screen"


def test_every_block_is_run_by_a_test():
    run = {
        ("mermaid", "The stacks"),
        ("sh", "A stack of your own"),
        ("text", "A stack of your own"),
        ("python", "In your program"),
        ("sh", "In your pull requests"),
        ("sh", "Deploy it"),
    }
    assert {(b.language, b.heading) for b in blocks()} == run


def test_the_picture_is_the_stack():
    """Each box is a component of the stack, and an arrow leads to what stands on it, perhaps by others between them."""
    graph = recorded(STACK)
    structure = Structure(graph)
    ours = [one for one in graph.resources if one.package == "eks-inference" and not one.type.endswith(":InferencePlatform")]
    parts = {resource.type.rpartition(":")[2]: resource for resource in ours}
    parts["KarpenterPool"] = next(resource for resource in ours if resource.name == f"{STACK}-inferentia-inf2")
    within = {child.urn: resource.urn for resource in ours for child in structure.inside(resource.urn)}
    stands_on: dict[str, set[str]] = {}
    for one in graph.resources:
        if one.urn in within:
            stands_on.setdefault(within[one.urn], set()).update(within[urn] for urn in one.dependencies if urn in within)
    text = block("mermaid", "The stacks").text
    for line in text.splitlines()[1:]:
        for before, after in pairwise(re.findall(r"(\w+)(?:\[[^]]*\])?(?: -->|$)", line.strip())):
            seen, waiting = set(), [parts[after].urn]
            while waiting:
                urn = waiting.pop()
                if urn not in seen:
                    seen.add(urn)
                    waiting += stands_on.get(urn, ())
            assert parts[before].urn in seen, f"{after} does not stand on {before}"


def test_make_says_what_it_can_do():
    """Every target that is meant for people has a line, and each of the other words of the Makefile's list is one."""
    shown = subprocess.run(["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    listed = {line.split()[1] for line in shown.splitlines()}
    (phony,) = re.findall(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.M)
    assert listed == {*phony.split()}


@pytest.mark.thorough
def test_a_setup_without_a_network_says_so_in_a_line(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    done = subprocess.run(
        ["make", "preview"], cwd=tmp_path, env={**environment, "PIP_RETRIES": "0"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2
    told = [line for line in done.stderr.splitlines() if not line.startswith("make:")]
    assert told == [
        "setting up .venv (once, about a minute)",
        "setting up .venv needs a network once, and no package index answers; pip says more in .venv/setup.log",
    ]


def texts() -> tuple[str, str]:
    """A refusal, and excerpts of a preview."""
    refusal, preview = (one.text for one in blocks() if one.language == "text")
    return refusal, preview


@pytest.fixture
def project_folder(monkeypatch: pytest.MonkeyPatch, recorded_once: None) -> None:
    monkeypatch.chdir(ROOT)


def test_the_preview_looks_as_shown(project_folder, capsys):
    """An excerpt: what stands between two lines of […] is the command's own output, in its order."""
    _, shown = texts()
    assert main(["preview", STACK]) == 0
    rest = capsys.readouterr().out
    for part in shown.split("[…]\n"):
        _, found, rest = rest.partition(part)
        assert found, f"not in the output any more, or not in this order:\n{part}"


@pytest.mark.parametrize(
    ("heading", "left"),
    [
        ("A stack of your own", ["?? stacks/Pulumi.mine.yaml"]),
        pytest.param("In your pull requests", [], marks=pytest.mark.thorough),
    ],
)
def test_the_commands_work_and_leave_nothing_but_the_stack_that_was_asked_for(heading, left, clone, recorded_once, capsys):
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    for line in shell(heading):
        if line in ("make preview", ". .venv/bin/activate"):
            continue  # installs; test_a_setup_without_a_network_says_so_in_a_line
        program, *words = line.split()
        assert program == "eks-inference"
        assert main(words) == 0, line
        assert capsys.readouterr().out
    status = subprocess.run([*git, "status", "--porcelain", "--ignored"], capture_output=True, text=True, check=True).stdout
    assert status.splitlines() == left


def test_a_stack_that_cannot_run_is_refused_as_shown(clone, capsys):
    file = clone / STACK_FILE
    text = file.read_text()
    assert text.count("max_num_seqs: 10") == 1
    file.write_text(text.replace("max_num_seqs: 10", "max_num_seqs: 40"))
    assert main(["check", STACK]) == 2
    assert capsys.readouterr().out.startswith(texts()[0])


def test_the_program_is_a_stack():
    code = compile(block("python", "In your program").text, "README.md", "exec")
    graph = record(lambda: exec(code, {}), config={"aws:region": "us-west-2"})
    assert graph.one("eks-inference:index:VllmServer").name == "chat"
    assert graph.outputs["endpoint"].startswith("http://chat.")


@pytest.mark.thorough
def test_the_stack_that_the_readme_makes_is_deployed_from_where_its_reader_sits(clone, recorded_once):
    """Run by hand against the engine; here: the commands deploy the stack that `new` writes, and its API can be reached."""
    lines = shell("Deploy it")
    assert all(line.startswith("pulumi ") for line in lines)
    [new] = [line.split()[1:] for line in shell("A stack of your own") if " new " in line]
    assert {line.split()[-1] for line in lines[1:]} == {new[1]}
    assert main(new) == 0
    cluster = yaml.safe_load((clone / "stacks" / f"Pulumi.{new[1]}.yaml").read_text())["config"]["eks-inference:stack"]["cluster"]
    assert cluster["endpoint"]["public"]


GUIDE = ROOT / "docs" / "stacks" / f"{STACK}.md"


@pytest.mark.thorough
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


@pytest.mark.thorough
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
    """In a code span, brackets before parentheses are a pattern."""
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", re.sub(r"`[^`\n]+`", "", document.read_text())):
        assert (document.parent / target).exists(), target
