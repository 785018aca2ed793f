"""The next generation of Neuron engines, gated model and EFA layout are rows: nothing below components/ compares their names."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from catalog_rows import catalog_copy
from conftest import ROOT
from eks_inference.catalog.engines import engine, engines, generations
from eks_inference.catalog.instances import instance_type, instance_types
from eks_inference.catalog.models import is_gated, model, models
from eks_inference.catalog.nixl import connectors
from eks_inference.pools.node_plan import interfaces
from eks_inference.pools.node_spec import EfaSpec
from eks_inference.rules import Finding
from eks_inference.serving.memory import GIB, MemoryUse
from eks_inference.stack.registry import check_spec
from eks_inference.stack.spec import StackSpec
from eks_inference_tools.check.registry import check_graph
from eks_inference_tools.cli import main
from graphs import of_kind
from servers import container
from stackgraph.graph.document import Graph
from stackgraph.recorder.project import find_project
from stackgraph.recorder.recording import record

# -- no code compares names of rows ---------------------------------------------------------------------------------------------

FAMILIES = {one.family for one in instance_types().values()}
STEMS = {stem for family in FAMILIES for stem in re.findall(r"^[a-z]+\d+|^[a-z]{2,}", family)}
TABLES = (instance_types(), generations(), engines(), models(), connectors())
ARCHITECTURES = {one.architecture for one in models().values()}
NAMES = {*FAMILIES, *STEMS, *ARCHITECTURES, *(name for table in TABLES for name in table)}
COLUMNS = {"accelerator", "chip", "family", "generation"}
"""Attributes that hold the name of a row: no literal stands beside one."""
ENDS = {"startswith", "endswith", "removeprefix", "match", "fullmatch"}
ALLOWED = {"catalog/instances.py": {"neuron", "nvidia"}}


def compared(source: str) -> Iterator[tuple[int, str]]:
    """Literals of a module, with their lines, that it compares with or looks for the beginning or end of a text by."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(left=left, comparators=comparators):
                sides = [left, *comparators]
            case ast.Call(func=ast.Attribute(attr=attribute, value=value), args=arguments) if attribute in ENDS:
                sides = [value, *arguments]
            case ast.MatchValue(value=value):
                sides = [value]
            case _:
                continue
        of_a_row = any(isinstance(side, ast.Attribute) and side.attr in COLUMNS for side in sides)
        for one in (literal for side in sides for literal in _literals(side)):
            if one in NAMES or of_a_row:
                yield node.lineno, one


def _literals(side: ast.expr) -> Iterator[str]:
    match side:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Tuple(elts=several) | ast.List(elts=several) | ast.Set(elts=several):
            for one in several:
                yield from _literals(one)
        case _:
            pass


@pytest.mark.parametrize(
    "line",
    [
        'engine.generation in ("A", "B", "C")',
        'profile.generation.name == "D"',
        'name.startswith("trn1")',
        'instance.family.startswith("trn")',
        'family == "p5en"',
        '"neuron" != shape.accelerator',
        'instance.name in {"trn2.48xlarge"}',
        'model.architecture == "opt"',
    ],
)
def test_a_comparison_is_found(line: str):
    assert list(compared(line))


@pytest.mark.parametrize("line", ['_LAYOUTS["p5"]', 'x = {"p5": 4}', 'layout == "hybrid"', 'f"{name}-A" == title'])
def test_a_key_of_a_table_is_none(line: str):
    assert not list(compared(line))


@pytest.mark.thorough
def test_no_code_compares_a_generation_a_family_or_a_chip():
    components = ROOT / "components"
    found = {
        f"{path.relative_to(components)}:{line}: {literal!r}"
        for path in components.rglob("*.py")
        for line, literal in compared(path.read_text())
        if literal not in ALLOWED.get("/".join(path.parts[-2:]), ())
    }
    assert found == set(), "say it in a column of components/eks_inference/catalog/*.toml and ask for that"


# -- a generation, its chip and its family, an engine, a gated model: rows of a toy --------------------------------------------

SOURCE = 'source = "a toy of this test"\nread = "2026-11"\n'

INSTANCES = f"""
[trn9]
{SOURCE}
accelerator = "neuron"
chip = "Trainium9"
every_size = true
cores_per_device = 4
physical_cores_per_device = 8
logical_core_settings = [1, 2]
device_memory_gib = 96
tensor_parallel = [1, 2, 4, 8, 16]
efa_interfaces = 4
network_cards = 5
first_efa_card = 1
ip_card_step = 2

[trn9.sizes]
8xlarge = {{ vcpus = 96, memory_mib = 1048576, ebs_mb_s = 2500, max_pods = 100, devices = 4, legal_device_counts = [1, 2, 4] }}
"""

GENERATION = f"""
[E]
{SOURCE}
accelerator = "neuron"
kv_cache = "paged"
kv_pool = {{ fraction = 0.5, fraction_variable = "TOY_FRACTION", smallest_gib = 2.0, smallest_variable = "TOY_SMALLEST" }}
settings = {{ flag = "toy-config", key = "toy" }}
buckets = {{ segment_sizes = [64, 128], block_size = 64 }}
compile_cache = "s3"
compile_cache_variable = "TOY_CACHE_URL"
largest_top_k = 64
"""

ENGINE = f"""
["neuron-9.0-vllm-9.0"]
{SOURCE}
server = "vllm"
generation = "E"
sdk = "9.0.0"
vllm = "9.0.0"
image = "registry.example/toy:9.0.0-sdk9.0.0"
architectures = ["toy"]
arguments = ["--toy-sequences={{max_num_seqs}}"]
minimum_driver = "2.29.0"
chips = ["Trainium9"]
startup = {{ node_start_s = 600, image_pull_s = 600, download_s = 600, compile_s = 600, load_s = 600 }}
"""

FEATURES = f"""
[toy]
{SOURCE}
engines = ["neuron-9.0-vllm-9.0"]
"neuron.prompt_buckets".on.flags.toy-prompts = "{{prompt_buckets}}"
"neuron.length_buckets".on.flags.toy-lengths = "{{length_buckets}}"
"""

MODEL = f"""
["Toy-1B"]
{SOURCE}
repositories = ["toylab/Toy-1B", "mirror/Toy-1B"]
gated = ["toylab/Toy-1B"]
architecture = "toy"
dtype = "bfloat16"
hidden = 2048
layers = 16
heads = 16
kv_heads = 16
head_dim = 128
mlp = 8192
vocabulary = 32000
max_positions = 8192
counted_parameters = 1073741824
"""


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[None]:
    with catalog_copy(tmp_path) as add:
        add("instances.toml", INSTANCES)
        add("generations.toml", GENERATION)
        add("engines.toml", ENGINE)
        add("features.toml", FEATURES)
        add("models.toml", MODEL)
        add("zones.toml", 'trn9 = ["use2-az1"]\n', below="[regions.us-east-2]")
        yield


def stack(**server: Any) -> dict[str, Any]:
    """The stack of Llama-2-13B with the toy in place of its chips, engine and model."""
    spec = yaml.safe_load((ROOT / "stacks" / "Pulumi.inf2-llama2.yaml").read_text())["config"]["eks-inference:stack"]
    spec["pools"]["neuron"] |= {"instance_types": ["trn9.8xlarge"], "efa": {"layout": "bandwidth"}}
    toy = {"model": {"id": "toylab/Toy-1B"}, "engine": "neuron-9.0-vllm-9.0", "devices": 2, "max_num_seqs": 8}
    spec["servers"] = {"toy": spec["servers"]["llama2-a"] | toy | server}
    spec["load_test"] |= {"servers": ["toy"], "users": [8], "input_tokens": {"mean": 1024, "stddev": 64}}
    return spec


def preview(spec: dict[str, Any], *, token: bool = True) -> Graph:
    project = find_project(ROOT)
    config = {"aws:region": "us-east-2", "eks-inference:stack": json.dumps(spec)}
    secrets = {"eks-inference:huggingFaceToken": "hf_toy"} if token else {}
    return record(
        project.main,
        project=project.name,
        stack="toy",
        config=config | secrets,
        secret_keys=frozenset(secrets),
        root=project.root,
    )


def findings(spec: dict[str, Any]) -> dict[str, str]:
    """What rules have against a stack: message by number."""
    verdict = check_spec(StackSpec.model_validate(spec), "us-east-2")
    found: list[Finding] = list(verdict.findings)
    return {finding.rule.id: finding.judgement.message for finding in found if not finding.reason}


@pytest.mark.usefixtures("toy")
def test_the_memory_of_a_new_generation_is_counted_by_its_row():
    one = MemoryUse(model("Toy-1B"), instance_type("trn9.8xlarge"), engine("neuron-9.0-vllm-9.0"), 8, 1, 8192)
    assert one.weights == GIB // 4, "2 bytes of 2 to the 30, over eight cores"
    assert one.kv == 2 * 16 * 16 * 128 * 2 * 8192 // 8
    memory, pool = one.limits
    assert memory.available == int(0.9 * 24 * GIB)
    assert memory.used == one.weights + 2 * GIB, "the smallest pool, though a sequence takes less"
    assert pool.available == int(0.5 * memory.available)


@pytest.mark.usefixtures("toy")
def test_rules_judge_what_a_new_generation_and_a_new_chip_are_given():
    assert findings(stack()) == {}
    flags = {"toy-config": '{"toy": {"kv_segment_size_buckets": [64, 512], "num_batched_tokens_buckets": [64, 512]}}'}
    assert findings(stack(extra_args=flags)) == {"NEU014": "kv_segment_size_buckets do not fit the segmented attention kernel"}
    assert "NEU002" in findings(stack(devices=3)), "no three neighbours"
    assert "NEU005" in findings(stack(tensor_parallel=3))
    assert "NEU008" in findings(stack(extra_env={"TOY_FRACTION": "0.001"}))
    assert "NEU012" in findings(stack(engine="neuron-2.32-vllm-0.24"))
    assert "NEU013" in findings(stack(model={"id": "Qwen/Qwen3-8B"}))
    assert "NEU019" in findings(stack() | {"load_test": stack()["load_test"] | {"sampling": {"top_k": 128}}})


@pytest.mark.usefixtures("toy")
def test_plan_finds_a_new_engine_for_a_new_chip(capsys: pytest.CaptureFixture[str]):
    assert main(["plan", "--model", "mirror/Toy-1B", "--instance", "trn9.8xlarge"]) == 0
    out = capsys.readouterr().out
    assert "neuron-9.0-vllm-9.0: vLLM 9.0.0, Neuron SDK 9.0.0" in out
    assert "in pages that sequences share, at most 10.8 GiB a core" in out


@pytest.mark.thorough
@pytest.mark.usefixtures("toy")
def test_a_gated_model_asks_for_the_token_and_its_copy_elsewhere_does_not():
    with pytest.raises(Exception, match="model toylab/Toy-1B of server 'toy' is not public"):
        preview(stack(), token=False)
    assert preview(stack(model={"id": "mirror/Toy-1B"}), token=False)


def test_a_repository_without_a_row_is_as_gated_as_its_owner():
    assert is_gated("meta-llama/Llama-9-900B")
    assert not is_gated("nobody/nothing")
    assert {repository for one in models().values() for repository in one.gated} == {
        repository
        for one in models().values()
        for repository in one.repositories
        if repository.startswith(("meta-llama/", "google/gemma-2", "google/gemma-3"))  # later ones are under Apache 2.0
    }


@pytest.mark.thorough
@pytest.mark.usefixtures("toy")
def test_the_preview_of_a_new_generation_on_a_new_family():
    graph = preview(stack())
    (deployment,) = [resource for resource in of_kind(graph, "Deployment") if resource.inputs["metadata"]["name"] == "toy"]
    pod = deployment.inputs["spec"]["template"]["spec"]
    environment = {one["name"]: one.get("value", "") for one in container(pod)["env"]}
    assert environment["TOY_CACHE_URL"].startswith("$(COMPILE_CACHE)/")
    assert {"VLLM_CACHE_ROOT", "NEURON_COMPILE_CACHE_URL"}.isdisjoint(environment)
    assert "--toy-sequences=8" in container(pod)["args"]
    assert container(pod)["image"] == "registry.example/toy:9.0.0-sdk9.0.0"
    templates = [one for one in graph.of_type("aws:ec2/launchTemplate:LaunchTemplate") if "networkInterfaces" in one.inputs]
    (layout,) = [template.inputs["networkInterfaces"] for template in templates]
    assert [(one["networkCardIndex"], one["deviceIndex"], one["interfaceType"]) for one in layout] == [
        (0, 0, "interface"),
        (1, 0, "efa-only"),
        (2, 0, "efa-only"),
        (2, 1, "interface"),
        (3, 0, "efa-only"),
        (4, 0, "efa-only"),
        (4, 1, "interface"),
    ]
    assert not [finding.judgement.message for finding in check_graph(graph, {}).findings if finding.stops]


# -- the layout of EFA interfaces of a family ------------------------------------------------------------------------------------


def test_the_first_card_of_a_family_may_take_no_efa():
    layout = interfaces(instance_type("p6-b300.48xlarge"), EfaSpec(layout="ip_optimized"))
    assert [(card.network_card, card.device, card.kind) for card in layout] == [
        (0, 0, "interface"),
        *((card, 0, "efa-only") for card in range(1, 17)),
    ]
