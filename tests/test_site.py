"""The documentation site: reference pages are today's, every block of a guide does what it says, every page is listed."""

import json
import re
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import component_pages
import reference_pages
from conftest import PROJECT, ROOT, recorded
from eks_inference.catalog import tables
from eks_inference.catalog.own import rows_of
from eks_inference_tools import cli
from eks_inference_tools.check.report import judge
from eks_inference_tools.cli import main
from eks_inference_tools.comparison import eks_compared
from eks_inference_tools.program import unwritten
from golden import assert_golden
from mermaid_pictures import PICTURES, diagrams
from readme import Block, block, blocks
from stack_table import stack_table
from stackgraph.diff.dangers import dangers
from stackgraph.diff.graphs import compare
from stackgraph.recorder.project import find_project
from stackgraph.recorder.recording import record
from stackgraph.testing import record as recorded_program
from variants import recorded_with

DOCS = ROOT / "docs"
PAGES = "../../docs"
"""As seen from the golden files."""
STACK = "inf2-llama3"


def page(name: str) -> Path:
    return DOCS / f"{name}.md"


# -- what is written by tests ----------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["command_line", "stack_file", "iam"])
def test_a_reference_page_is_todays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_golden(f"{PAGES}/{name.replace('_', '-')}.md", getattr(reference_pages, name)())


def test_the_page_of_metrics_is_todays() -> None:
    exported = tomllib.loads((ROOT / "tests" / "exported_metrics.toml").read_text())
    assert_golden(f"{PAGES}/metrics.md", reference_pages.metrics(exported))


@pytest.mark.thorough
@pytest.mark.parametrize(("file", "stacks"), [("README.md", "docs/stacks"), ("docs/index.md", "stacks")])
def test_the_table_of_the_stacks_is_todays(file: str, stacks: str) -> None:
    before, start, rest = (ROOT / file).read_text().partition("<!-- stacks -->\n")
    _, end, after = rest.partition("<!-- /stacks -->")
    assert start
    assert end
    assert_golden(f"../../{file}", f"{before}{start}{stack_table(stacks)}\n{end}{after}")


def test_every_handle_is_listed_with_its_arguments() -> None:
    before, start, rest = page("existing-cluster").read_text().partition("<!-- handles -->\n")
    _, end, after = rest.partition("<!-- /handles -->")
    arguments = component_pages.handles()
    assert_golden(f"{PAGES}/existing-cluster.md", f"{before}{start}{arguments}\n{end}{after}")
    assert all(f"`{name}" in before for name in re.findall(r"^### (\w+)", arguments, re.M))


@pytest.mark.thorough
def test_the_program_on_what_a_platform_runs_builds_no_second_one_of_it() -> None:
    code = compile(block("python", "With what a platform team already runs", page("existing-cluster")).text, "program", "exec")
    graph = recorded_program(lambda: exec(code, {}), config={"aws:region": "us-west-2"})
    assert not [one for one in graph if one.type == "kubernetes:helm.sh/v3:Release"]
    made = {one.type.rpartition(":")[2] for one in graph if one.type.startswith("eks-inference:")}
    assert made >= {"KarpenterPool", "VllmServer", "VllmMetrics", "Autoscaler", "ModelEndpoint", "Gateway"}


def test_every_diagram_has_its_picture_and_no_picture_is_left() -> None:
    assert {file.stem for file in PICTURES.glob("mermaid-*.svg")} == diagrams().keys()


def test_every_page_is_listed() -> None:
    """What Sphinx refuses as well, without the environment of `make docs`."""
    listed = {
        line for text in re.findall(r"```{toctree}\n(.*?)```", page("index").read_text(), re.S) for line in text.splitlines()
    }
    below = {"stacks": "stacks/*", "components": "components/README", "diff": "diff", "runbook": "runbook/README"}
    for file in DOCS.rglob("*.md"):
        name = str(file.relative_to(DOCS).with_suffix(""))
        if name not in ("index", "_index", "installation-configuration"):  # the last two are for Pulumi's registry
            assert {name, below.get(name.partition("/")[0])} & listed, f"{name} is not in docs/index.md"


MOST_WORDS = 45_000
WRITTEN_BY_TESTS = {
    *(
        "bounds-aws",
        "bounds-kubernetes",
        "command-line",
        "doors",
        "iam",
        "known-models",
        "known-pairs",
        "metrics",
        "refusals",
        "rules",
        "speed",
        "stack-file",
    ),
    *("components", "diff"),
}
"""Pages and folders."""


def test_pages_that_people_write_are_read_by_people() -> None:
    """Words without blocks of code and without what tests write."""
    words = 0
    for file in DOCS.rglob("*.md"):
        if file.relative_to(DOCS).parts[0].removesuffix(".md") not in WRITTEN_BY_TESTS:
            text = re.sub(r"<!-- (\w[\w ]*) -->.*?<!-- /\1 -->", "", file.read_text(), flags=re.S)
            words += len(re.sub(r"```.*?```", "", text, flags=re.S).split())
    assert words <= MOST_WORDS


# -- blocks of guides ------------------------------------------------------------------------------------------------------------

GUIDES = (
    "get-started",
    "existing-cluster",
    "escape-hatches",
    "deploy",
    "alerts",
    "neuron",
    "gpu",
    "autoscaling",
    "isolated-network",
    "runbook/upgrade",
    "recipes",
    "stack-file",
)
RUN = {
    ("get-started", "sh"),
    ("get-started", "text"),
    ("existing-cluster", "python"),
    ("escape-hatches", "yaml"),
    ("escape-hatches", "python"),
    ("deploy", "sh"),
    ("deploy", "yaml"),
    ("alerts", "yaml"),
    ("neuron", "yaml"),
    ("gpu", "yaml"),
    ("autoscaling", "yaml"),
    ("isolated-network", "yaml"),
    ("runbook/upgrade", "yaml"),
    ("runbook/upgrade", "sh"),
    ("recipes", "toml"),
    ("recipes", "sh"),
    ("recipes", "python"),
    ("stack-file", "yaml"),
}
"""Kinds of blocks that the tests of this file, test_readme.py and test_wheel.py run."""


def test_every_block_of_a_guide_is_run() -> None:
    assert {(guide, one.language) for guide in GUIDES for one in blocks(page(guide))} == RUN


def shell(guide: str) -> list[str]:
    return [line for one in blocks(page(guide)) if one.language == "sh" for line in one.text.splitlines()]


@pytest.mark.thorough
@pytest.mark.parametrize("line", [line for line in shell("get-started") if line.startswith("eks-inference ")])
def test_a_command_of_get_started_works(
    clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], recorded_once: None, line: str
):
    _, *words = line.split()
    if words[0] != "new" and len(words) > 1:
        # The program of the clone runs once for all tests. Without a name, all stacks there are meant, also a user's own.
        import os

        os.chdir(ROOT)
    assert main([str(tmp_path / word) if before == "-o" else word for before, word in pairwise(["", *words])]) == 0
    assert words[0] != "new" or (clone / "stacks" / "Pulumi.mine.yaml").is_file()
    assert capsys.readouterr().out or words.count("-o")


def text_of(guide: str, number: int) -> str:
    return [one.text for one in blocks(page(guide)) if one.language == "text"][number]


@pytest.mark.thorough
def test_mistakes_are_reported_as_shown(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = clone / "stacks" / f"Pulumi.{STACK}.yaml"
    text = file.read_text()
    for right, wrong in (("zones: 2", "zonez: 2"), ("instance_type: inf2.8xlarge", "instance_type: inf2.8xlrage")):
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    file.write_text(text)
    assert main(["preview", STACK]) == 2
    assert capsys.readouterr().err == text_of("get-started", 0)


def test_a_stack_that_cannot_run_is_refused_as_shown(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = clone / "stacks" / f"Pulumi.{STACK}.yaml"
    file.write_text(file.read_text().replace("max_num_seqs: 10", "max_num_seqs: 40"))
    assert main(["check", STACK]) == 2
    assert capsys.readouterr().out.strip() == text_of("get-started", 1).strip()


def test_the_plan_looks_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = [line.split()[1:] for line in shell("get-started") if " plan " in line]
    assert main(command) == 0
    assert capsys.readouterr().out.strip() == text_of("get-started", 2).strip()


WHOLE = [
    (guide, one.text)
    for guide in GUIDES
    for one in blocks(page(guide))
    if one.language == "yaml" and one.text.startswith("config:")
]


@pytest.mark.thorough
@pytest.mark.parametrize(("guide", "text"), WHOLE, ids=[guide for guide, _ in WHOLE])
def test_a_stack_of_a_guide_can_run_without_a_warning(guide: str, text: str) -> None:
    report = judge(unwritten(PROJECT, "mine", text))
    assert (report.state, report.not_judged) == ("can run", ())
    assert not [finding.summary for finding in report.verdict.findings if not finding.reason]


def section(guide: str, number: int = 0) -> dict:
    return yaml.safe_load([one.text for one in blocks(page(guide)) if one.language == "yaml"][number])


@pytest.mark.thorough
def test_an_upgrade_changes_the_version_of_everything_that_follows() -> None:
    (cluster,) = recorded_with(section("runbook/upgrade")).of_type("eks:index:Cluster")
    assert cluster.inputs["version"] == section("runbook/upgrade")["cluster"]["version"]


@pytest.mark.thorough
def test_a_successor_takes_over_without_an_outage() -> None:
    secrets = {"eks-inference:endpointKeys": '{"team-a": "a-key-of-team-a-in-a-test"}'}
    now: dict = {"endpoints": {"chat": {}}}
    before = recorded_with(now, "smoke-gpu", secrets)
    for step in range(3):
        now = {**now, **section("runbook/model-change", step)}
        after = recorded_with(now, "smoke-gpu", secrets)
        diff = compare(before, after)
        assert not [danger for danger in dangers(diff, eks_compared()) if danger.effects], step
        changed = {change.resource.name for change in diff.changes if change.kind == "update"}
        assert changed >= {"chat-config", "chat-deployment"}
        assert "qwen3-deployment" not in changed
        before = after


@pytest.mark.thorough
def test_the_address_is_the_one_of_the_gateway() -> None:
    secrets = {"eks-inference:endpointKeys": '{"team-a": "a-key-of-team-a-in-a-test"}'}
    assert recorded_with(section("deploy"), secrets=secrets).outputs["addresses"] == {"models": "https://models.example.com/v1"}


@pytest.mark.thorough
def test_alerts_go_where_the_stack_file_says() -> None:
    graph = recorded_with(section("alerts"))
    (prometheus,) = [one for one in graph.of_type("kubernetes:helm.sh/v3:Release") if one.name.endswith("-prometheus-release")]
    assert "sns_configs" in prometheus.inputs["values"]["alertmanager"]["config"]["receivers"][1]
    expected = graph.named("vllm-llama3-inf2-metrics-expectations").inputs["spec"]["groups"][0]["rules"]
    assert {rule["record"]: rule["expr"] for rule in expected}["server:time_to_first_token_seconds:objective"] == "vector(2)"


@pytest.mark.thorough
def test_the_deployment_commands_name_what_exists() -> None:
    """Run by hand against the engine; here: the stack, its file and the secret they name are real."""
    from eks_inference.kubernetes.secrets import CONFIG_SECRETS

    lines = [line for line in shell("deploy") if line.startswith("pulumi ")]
    assert {word for line in lines for word in line.split() if word.startswith("inf2")} == {STACK}
    named = set(re.findall(r"eks-inference:(\w+)", page("deploy").read_text()))
    assert "huggingFaceToken" in named
    assert named <= set(CONFIG_SECRETS)
    assert (ROOT / "infra" / "requirements.txt").exists()
    (new,) = [line for line in shell("get-started") if line.startswith("pulumi new ")]
    assert (ROOT / new.split('"')[1].removeprefix("$clone/") / "Pulumi.yaml").is_file()
    assert [line for line in shell("deploy") if line not in lines] == ["eks-inference schema -o stacks/schema.json"]


# -- escape hatches --------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_helm_values_are_merged_last() -> None:
    graph = recorded_with(section("escape-hatches", 0))
    before = {r.urn: r.inputs["values"] for r in recorded(STACK).of_type("kubernetes:helm.sh/v3:Release") if "values" in r.inputs}
    values = {r.name: r.inputs["values"] for r in graph.of_type("kubernetes:helm.sh/v3:Release") if "values" in r.inputs}
    assert values[f"{STACK}-karpenter-release"]["logLevel"] == "debug"
    assert values[f"{STACK}-kuberay-release"]["batchScheduler"] == {"enabled": True}
    for release in graph.of_type("kubernetes:helm.sh/v3:Release"):
        if release.urn in before:
            assert before[release.urn].keys() <= release.inputs["values"].keys()


@pytest.mark.thorough
def test_flags_and_variables_reach_the_server() -> None:
    (service,) = recorded_with(section("escape-hatches", 1)).of_type("kubernetes:ray.io/v1:RayService")
    environment = yaml.safe_load(service.inputs["spec"]["serveConfigV2"])["applications"][0]["runtime_env"]["env_vars"]
    assert any("seed" in argument and "7" in argument for argument in json.loads(environment["ENGINE_ARGS"]))
    assert environment["NEURON_COMPILE_CACHE_URL"] == "/tmp/neuron-cache"


@pytest.mark.thorough
def test_labels_and_taints_reach_nodes_and_what_is_placed_there() -> None:
    graph = recorded_with(section("escape-hatches", 2))
    pools = {p.inputs["metadata"]["name"]: p for p in graph.of_type("kubernetes:karpenter.sh/v1:NodePool")}
    pool = pools["inferentia-inf2"]
    assert pool.inputs["spec"]["template"]["metadata"]["labels"]["cost-center"] == "research"
    taint = {"key": "dedicated", "value": "llm", "effect": "NoSchedule"}
    assert taint in pool.inputs["spec"]["template"]["spec"]["taints"]
    (service,) = graph.of_type("kubernetes:ray.io/v1:RayService")
    worker = service.inputs["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["spec"]
    assert {**taint, "operator": "Equal"} in worker["tolerations"]


@pytest.mark.thorough
def test_transforms_change_everything_else(clone: Path) -> None:
    (clone / "infra" / "__main__.py").write_text(block("python", "Transforms", page("escape-hatches")).text)
    project = find_project(clone)
    config = project.config(project.stack_file(STACK)).values
    graph = record(project.main, project=project.name, stack=STACK, config=config, root=clone)
    (group,) = graph.of_type("aws:eks/nodeGroup:NodeGroup")
    assert group.inputs["nodeRepairConfig"] == {"enabled": True}


# -- recipes ---------------------------------------------------------------------------------------------------------------------


def recipe(language: str, heading: str) -> Block:
    return block(language, heading, page("recipes"))


@pytest.mark.thorough
def test_rows_of_a_recipe_extend_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("_of_program", "_of_stack"):
        monkeypatch.setattr(tables, name, tables.Own())
    rows = recipe("toml", "A model, an instance type, an engine").text
    rows_of({"ours.toml": rows.encode()})
    (tmp_path / "ours.toml").write_text(rows)
    monkeypatch.chdir(tmp_path)
    (line,) = recipe("sh", "A model, an instance type, an engine").text.splitlines()
    assert main(line.split()[1:]) == 0
    said = capsys.readouterr().out
    assert "Our-8B on g99.4xlarge" in said
    assert "our-build: vLLM 0.30.0" in said


def test_the_rule_of_a_recipe_judges() -> None:
    from eks_inference.network.rules import NetworkFacts
    from eks_inference.rules import Rule
    from eks_inference_tools.check.registry import all_rules

    made: dict = {}
    exec(compile(recipe("python", "A rule").text, "docs/recipes.md", "exec"), made)
    rule: Rule = made["three_zones"]
    assert rule.subject is NetworkFacts
    assert rule.id not in all_rules()

    class Zones:
        zone_ids = ("usw2-az1", "usw2-az2")

    (found,) = rule.judge(Zones())
    assert (found.holds, found.message) == (False, "the network spans 2 zones")


@pytest.mark.thorough
def test_the_chart_of_a_recipe_is_released() -> None:
    code = compile(recipe("python", "A chart").text, "docs/recipes.md", "exec")
    graph = recorded_program(lambda: exec(code, {}), config={"aws:region": "us-west-2"})
    release = graph.one("kubernetes:helm.sh/v3:Release")
    assert (release.inputs["name"], release.inputs["version"]) == ("keda", "2.20.2")


def test_the_command_of_a_recipe_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = ModuleType("eks_inference_tools.commands.hello")
    exec(compile(recipe("python", "A command").text, "docs/recipes.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(vars(cli)["GROUPS"], "greet", ("hello",))
    for example in module.EXAMPLES:
        assert main(example.split()) == 0
    assert capsys.readouterr().out == "hello, you\nhello, Ada\n"


def test_a_kind_is_one_short_file() -> None:
    """test_kinds.py builds stacks with it."""
    assert "another_kind.py" in page("recipes").read_text()
    assert (ROOT / "tests" / "support" / "another_kind.py").is_file()


@pytest.mark.parametrize("file", sorted((ROOT / "docs").glob("*.md")), ids=lambda file: file.stem)
def test_a_page_with_an_address_that_nobody_has_says_whose_it_is(file: Path) -> None:
    text = file.read_text()
    if "github.com/OWNER/" in text and file.stem not in ("_index", "get-started"):
        assert "get-started.md#whose-address" in text
