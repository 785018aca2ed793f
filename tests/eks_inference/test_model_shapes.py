"""Models that the catalog does not know, by their config.json or shape in a stack file: what rules judge, and what is refused."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import ROOT
from eks_inference.catalog.models import model
from eks_inference.faults import SpecError
from eks_inference.serving.shape import CompilingServerSpec
from eks_inference.serving.spec import HubModel, S3Model, VolumeModel
from eks_inference.serving.storage_plan import content_key
from eks_inference.specs.project_files import files_below, read_file
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import Verdict, check_spec
from eks_inference.stack.spec import StackSpec

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
SERVER = "vllm-llama3-inf2"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "config.json").write_text(json.dumps(LLAMA | {"hidden_act": "silu"}))
    return tmp_path


def stack_with(described: dict[str, Any], folder: Path | None = None) -> StackSpec:
    file = yaml.safe_load((ROOT / "stacks" / "Pulumi.inf2-llama3.yaml").read_text("utf-8"))
    stack = file["config"]["eks-inference:stack"]
    stack["servers"][SERVER]["model"] = {"id": "ours/model", **described}
    return parse_stack(json.dumps(stack), folder)


def told(verdict: Verdict) -> list[tuple[str, bool, tuple[str, ...]]]:
    return [(rule.id, one.holds, one.working) for rule, one in verdict.judgements]


def _ours(line: str) -> str:
    return line.replace("meta-llama/Meta-Llama-3-8B", "ours/model").replace("Llama-3-8B", "ours/model")


@pytest.mark.parametrize("described", [{"config": "./ours/config.json"}, {"config": "ours/config.json"}, {"shape": LLAMA}])
def test_a_described_model_is_judged_like_one_of_the_catalog(described: dict[str, Any], project: Path):
    ours = check_spec(stack_with(described, project), "us-west-2")
    known = check_spec(stack_with({"id": "meta-llama/Meta-Llama-3-8B"}), "us-west-2")
    assert not ours.not_judged
    by_name = [
        (id_, holds, tuple(line.replace("Llama-3-8B", "ours/model") for line in lines)) for id_, holds, lines in told(known)
    ]
    assert told(ours) == by_name


def test_without_a_description_it_is_not_judged_and_told_what_to_give():
    (left, *_) = check_spec(stack_with({}), "us-west-2").not_judged
    assert "model.config" in left.fix


def test_an_architecture_without_a_formula_is_not_judged_and_says_so():
    verdict = check_spec(stack_with({"shape": LLAMA | {"model_type": "mamba2"}}), "us-west-2")
    (left, *_) = verdict.not_judged
    assert left.why == "this architecture has no formula here (mamba2)"


def test_a_model_too_large_is_refused_with_its_arithmetic(project: Path):
    (project / "ours" / "config.json").write_text(json.dumps(LLAMA | {"num_hidden_layers": 300}))
    findings = check_spec(stack_with({"config": "ours/config.json"}, project), "us-west-2").findings
    assert any("ours/model needs" in finding.judgement.message for finding in findings)


@pytest.mark.parametrize(
    ("layers", "unjudged"), [(32, []), (30, ["it has 32 layers of 4096 in the catalog, and 30 layers of 4096 here"])]
)
def test_a_shape_is_not_judged_where_the_catalog_says_otherwise(layers: int, unjudged: list[str]):
    ours = {"id": "meta-llama/Meta-Llama-3-8B", "shape": LLAMA | {"num_hidden_layers": layers}}
    assert [not_judged.why for not_judged in check_spec(stack_with(ours), "us-west-2").not_judged] == unjudged


def test_the_spec_keeps_the_shape_and_not_the_path(project: Path):
    with files_below(project):
        one = HubModel(id="ours/model", config="./ours/config.json")
    assert one.inputs() == {"id": "ours/model", "kind": "hugging_face", "shape": LLAMA}
    again = HubModel.model_validate(one.inputs())
    assert again.known == one.known
    assert one.known is not None
    assert one.known.parameters == model("Llama-3-8B").parameters


@pytest.mark.parametrize(
    "make",
    [
        lambda **shape: S3Model(id="m", uri="s3://models/m", **shape),
        lambda **shape: VolumeModel(id="m", claim="m", **shape),
    ],
)
def test_models_of_buckets_and_volumes_have_shapes_too(make: Callable[..., Any]):
    assert make(shape=LLAMA).known.layers == 32
    assert make().known is None


@pytest.mark.parametrize(
    ("described", "said"),
    [
        ({"config": "nowhere.json"}, "nowhere.json: this file cannot be read: No such file or directory"),
        ({"config": "ours"}, "ours: this file cannot be read: Is a directory"),
        ({"config": ""}, "this file cannot be read: Is a directory"),
        ({"config": "../secret"}, "this file is not below the project's folder"),
        ({"config": "/etc/hostname"}, "this file is not below the project's folder"),
        ({"config": "link.json"}, "this file is not below the project's folder"),
        ({"config": "loop.json"}, "this file cannot be read"),
        ({"config": "a\0b"}, "this is not a path"),
        ({"config": "empty.json"}, "this is not JSON: Expecting value"),
        ({"config": "list.json"}, "this is not a JSON object; given: [1]"),
        ({"config": "deep.json"}, "this cannot be read: it is nested too deep"),
        ({"config": "utf16.json"}, "this cannot be read: it is not in UTF-8"),
        ({"config": "digits.json"}, "this cannot be read: a number in it has too many digits"),
        ({"config": "ours/config.json", "shape": LLAMA}, "config says the same; leave out one of them"),
        ({"shape": {}}, "model_type: this key is required and missing"),
        ({"shape": LLAMA | {"hidden_size": 0}}, "hidden_size: not such a number; given: 0; allowed: a number from 1"),
    ],
)
def test_what_is_no_description_is_told_with_its_key(described: dict[str, Any], said: str, project: Path):
    (project / "empty.json").write_text("")
    (project / "list.json").write_text("[1]")
    (project / "deep.json").write_text("[" * 100_000)
    (project / "utf16.json").write_bytes(b"\xff\xfe{")
    (project / "digits.json").write_text('{"hidden_size": ' + "9" * 5000 + "}")
    (project.parent / "secret").write_text(json.dumps(LLAMA))
    os.symlink(project.parent / "secret", project / "link.json")
    os.symlink(project / "loop.json", project / "loop.json")
    with pytest.raises(SpecError) as caught:
        stack_with(described, project)
    (fault,) = caught.value.faults
    assert said in str(fault)
    assert fault.path[:3] == ("servers", SERVER, "model")
    assert fault.path[-1] in ("config", "shape")


def test_outside_of_a_stack_paths_start_at_the_working_directory(monkeypatch: pytest.MonkeyPatch, project: Path):
    monkeypatch.chdir(project)
    assert read_file("ours/config.json", 10) == b'{"model_typ'
    monkeypatch.chdir(ROOT)
    with pytest.raises(SpecError, match="cannot be read"):
        read_file("ours/config.json", 10)


def test_a_description_changes_no_compiled_graph():
    plain, described = (stack_with(given).servers[SERVER] for given in ({}, {"shape": LLAMA}))
    assert isinstance(plain, CompilingServerSpec)
    assert isinstance(described, CompilingServerSpec)
    assert content_key(plain, "inf2") == content_key(described, "inf2")


@pytest.mark.parametrize(("name", "task"), [("Qwen/Qwen3-Embedding-0.6B", "embed"), ("ours/model", "chat")])
def test_a_config_that_names_no_task_leaves_that_of_the_catalog(name: str, task: str) -> None:
    said = HubModel.model_validate({"id": name, "shape": LLAMA}).known
    assert said
    assert (said.task, said.hidden) == (task, 4096)
