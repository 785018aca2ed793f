"""Rows of a team beside those of the catalog: what they extend, and what a wrong file is told."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import ROOT
from eks_inference import extend_catalog
from eks_inference.catalog import tables
from eks_inference.catalog.engines import engines
from eks_inference.catalog.instances import instance_type, instance_types
from eks_inference.catalog.models import find_model, model, model_of, models
from eks_inference.catalog.own import LARGEST, rows_of
from eks_inference.faults import SpecError
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from eks_inference_tools.cli import main

OURS = ROOT / "tests" / "data" / "ours.toml"


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_of_program", "_of_stack"):
        monkeypatch.setattr(tables, name, tables.Own())


def stack(**changes: Any) -> str:
    file = yaml.safe_load((ROOT / "stacks" / "Pulumi.inf2-llama3.yaml").read_text("utf-8"))
    return json.dumps(file["config"]["eks-inference:stack"] | changes)


def told(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        rows_of({"ours.toml": text.encode()})
    return str(caught.value)


def test_a_program_extends_the_catalog(monkeypatch: pytest.MonkeyPatch):
    before = (len(models()), len(engines()), len(instance_types()))
    monkeypatch.chdir(OURS.parent)
    extend_catalog("ours.toml")
    assert (len(models()), len(engines()), len(instance_types())) == tuple(one + 1 for one in before)
    assert find_model("ours/one") is models()["Our-1B"]
    assert engines()["ours"].serves(instance_type("g99.4xlarge"))
    assert engines()["cuda-vllm-0.30"].serves(instance_type("g99.4xlarge"))
    parse_stack(stack(), ROOT)
    assert "Our-1B" in models()


def test_a_stack_extends_it_until_the_next_is_read():
    spec = parse_stack(stack(catalog=["./tests/data/ours.toml"]), ROOT)
    assert spec.catalog == ("./tests/data/ours.toml",)
    assert "Our-1B" in models()
    assert not check_spec(spec, "us-west-2").faults
    parse_stack(stack(), ROOT)
    assert "Our-1B" not in models()


def test_names_of_the_file_may_stand_in_the_stack():
    given = json.loads(stack(catalog=["./tests/data/ours.toml"]))
    given["pools"]["ours"] = {"kind": "karpenter", "instance_types": ["g99.4xlarge"]}
    assert parse_stack(json.dumps(given), ROOT).pools["ours"].instances()[0].chip == "L4"
    del given["catalog"]
    with pytest.raises(SpecError, match="g99"):
        parse_stack(json.dumps(given), ROOT)


def test_a_file_that_cannot_be_used_is_told_at_its_key():
    with pytest.raises(SpecError) as caught:
        parse_stack(stack(catalog=["./tests/data/ours.toml", "nowhere.toml"]), ROOT)
    (fault,) = caught.value.faults
    assert fault.path == ("catalog",)
    assert "this file cannot be read: No such file or directory; given: nowhere.toml" in fault.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models", "ours.toml: this is not TOML"),
        ("[modles.a]", "ours.toml: modles: no such section; allowed: models, engines, instances"),
        ("models = 3", "models: no such section"),
        ("[models]\na = 3", "models.a: not a table of columns"),
        ('[models."Qwen3-8B"]', "models.Qwen3-8B: there is a row of this name already; given: Qwen3-8B; allowed: another name"),
        ("[instances.inf2]", "instances.inf2: there is a row of this name already"),
        ("[models.a]\nhiden = 3", "models.a.hiden: there is no such column; allowed: hidden"),
        ("[models.a]\nhidden = 3", "models.a.layers: this column is required and missing"),
        ('[models.a]\nsame_as = "Qwen3-8"', "models.a.same_as: the catalog has no such model; given: Qwen3-8; allowed: Qwen3-8B"),
        ("[models.a]\nsame_as = [3]", "models.a.same_as: the catalog has no such model"),
        ("[instances.g99]", "instances.g99.sizes: not a table with the columns of each size"),
        ("[instances.g99.sizes]\nlarge = { vcpus = 1 }", "instances.g99.memory_mib: this column is required and missing"),
        ("[engines.e]", "engines.e.generation: this column is required and missing"),
        ("#" * (1 << 20) + "\n", "ours.toml: this file is too large"),
    ],
)
def test_a_wrong_file_is_told_with_file_row_and_key(text: str, said: str):
    assert said in told(text)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("hidden = 2048", 'hidden = "2048"', "models.Our-1B.hidden: input should be a valid integer; given: '2048'"),
        ("vcpus = 16", "vcpus = true", "instances.g99.vcpus: input should be a valid integer; given: True"),
        ('"CUDA"', '"CUDB"', "engines.ours: this is not a row; given: generation 'CUDB' is not in the catalog; nearest: CUDA"),
        ("load_s = 300", 'load_s = "x"', "engines.ours.startup.load_s: input should be a valid integer; given: 'x'"),
        ('architecture = "llama"', 'architecture = "mamba"', "models.Our-1B.architecture: it has no formula here"),
        ("hidden = 2048", "hidden = 0", "models.Our-1B.hidden: no model has so few; given: 0; allowed: at least 1"),
        ("layers = 16", "layers = -3", "models.Our-1B.layers: no model has so few"),
        ("hidden = 2048", "hidden = 2048\ncounted_parameters = -5", "models.Our-1B.counted_parameters: no model has so few"),
        ("hidden = 2048", "hidden = 2048\nexpert_layers = 900", "models.Our-1B.expert_layers: more than there are layers"),
        ("kv_heads = 8", "kv_heads = 7", "models.Our-1B.kv_heads: heads are not a multiple of it"),
        ("hidden = 2048", "hidden = 2048\nwindow_layers = 17", "models.Our-1B.window_layers: more than there are layers"),
        ("hidden = 2048", "hidden = 2048\nfull_kv_heads = 7", "models.Our-1B.full_kv_heads: heads are not a multiple of it"),
        (
            "layers = 16",
            f"layers = {10**16}",
            f"models.Our-1B.layers: no model has so many; given: {10**16}; allowed: at most {10**15}",
        ),
        ('"llama"', '"whisper"', "models.Our-1B.heard: the attention of whisper hears"),
        ('"llama"', '"deepseek_v3"', "models.Our-1B.kv_rank: the attention of deepseek_v3 keeps a latent vector"),
        ('"llama"', '"qwen3_next"', "models.Our-1B.full_every: layers keep a state, whose size it decides"),
        ("hidden = 2048", "hidden = 2048\nfull_every = 17", "models.Our-1B.full_every: no layer has full attention"),
        ('"llama"', '"nemotron_h"', "models.Our-1B.pattern: not a letter for each layer; allowed: 16 of * W M E -"),
        ("hidden = 2048", f'hidden = 2048\npattern = "{"M" * 16}"', "models.Our-1B.pattern: no layer attends"),
        ('"llama"', '"glm_moe_dsa"', "models.Our-1B.index_dim: the attention of glm_moe_dsa has an index"),
        (
            "hidden = 2048",
            'hidden = 2048\nquantization = { method = "fp8", bits = -8 }',
            "Our-1B.quantization.bits: no model has so few; given: -8",
        ),
        (
            '["ours/one"]',
            "[]",
            "models.Our-1B.repositories: a model is found by one; given: []; allowed: at least one repository",
        ),
        (
            '"llama"',
            '"mamba"\ncounted_parameters = 5\nquantization = { method = "mxfp4", bits = 4, experts_only = true }',
            "quantization.experts_only: the size of the experts is unknown",
        ),
        ("vcpus = 16", "vcpus = -1", "instances.g99.vcpus: no instance type has so few; given: -1; allowed: at least 1"),
        ("ebs_mb_s = 1000", "ebs_mb_s = nan", "instances.g99.ebs_mb_s: no instance type has so many; given: nan"),
        ("devices = 1", "devices = 1, cuda_memory_gib = inf", "instances.g99.cuda_memory_gib: no instance type has so many"),
        ("devices = 1", "devices = 0", "instances.g99.devices: instance types with nvidia devices have one; given: 0"),
        ('"nvidia"', '"neuron"', "instances.g99.compute_capability: only NVIDIA GPUs have one"),
        ('"nvidia"', '"neuron"', "instances.g99.cores_per_device: instance types with neuron devices have one; given: 0"),
        ('"0.30.0"', '"newest"', "engines.ours.vllm: no release; given: newest"),
        ('"registry.example/vllm:v0.30.0"', '"vllm of ours"', "engines.ours.image: no image"),
        ("load_s = 300", "load_s = -1", "engines.ours.startup.load_s: no engine has so few"),
        ('["llama"]', '["llama"]\narguments = ["--x={oops}"]', "engines.ours.arguments: the text in braces has no value"),
        (
            '["llama"]',
            '["llama"]\nunpacks = { fp8 = ["--x={"] }',
            "engines.ours.unpacks.fp8: the text in braces",
        ),
    ],
)
def test_a_value_that_no_row_has_is_told(old: str, new: str, said: str):
    assert said in told(OURS.read_text("utf-8").replace(old, new, 1))


def test_every_row_of_the_catalog_is_possible():
    """The bounds of a team's rows are not narrower than those that there are."""
    for section in ("models", "engines", "instances"):
        text = (tables.FOLDER / f"{section}.toml").read_text("utf-8")
        renamed = re.sub(r'^\["?([^"\].]+(?:\.\d[^"\]]*)?)"?', rf'[{section}."our-\1"', text, flags=re.MULTILINE)
        read = rows_of({"all.toml": renamed.encode()}).of(f"{section}.toml")
        assert set(read) == {f"our-{name}" for name in tables.table(f"{section}.toml")}


def test_a_quantization_of_ones_own_takes_the_shape_of_its_model():
    row = 'same_as = "Qwen3-VL-8B"\nsource = "s"\nread = "2026-11"\nrepositories = ["ours/q"]\n'
    read = rows_of({"a.toml": f"[models.q]\n{row}quantization = {{ method = 'awq', bits = 4, group = 128 }}".encode()})
    made, plain = model_of("q", read.of("models.toml")["q"]), model("Qwen3-VL-8B")
    assert (made.parameters, made.tower, made.max_positions) == (plain.parameters, plain.tower, plain.max_positions)
    assert made.weight_bytes() < plain.weight_bytes() / 2


def test_all_faults_of_all_files_are_told_at_once():
    with pytest.raises(SpecError) as caught:
        rows_of({"a.toml": b"[foo.a]", "b.toml": b"[models.x]\nhiden = 1"})
    assert {fault.message.partition(":")[0] for fault in caught.value.faults} == {"a.toml", "b.toml"}


def test_plan_takes_the_file(capsys: pytest.CaptureFixture[str]):
    where = ["--instance", "g99.4xlarge", "--engine", "ours", "--max-model-len", "8192"]
    assert main(["plan", "--catalog", str(OURS), "--model", "Our-1B", *where]) == 0
    assert "Our-1B on g99.4xlarge" in capsys.readouterr().out
    assert main(["plan", "--catalog", "nowhere", "--model", "Our-1B", *where]) == 2
    assert "--catalog: this file cannot be read" in capsys.readouterr().err


def test_plan_tells_what_is_wrong_with_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copy(OURS, tmp_path / "ours.toml")
    (tmp_path / "ours.toml").write_text(OURS.read_text("utf-8").replace("hidden = 2048", "hiden = 2048"))
    assert main(["plan", "--catalog", str(tmp_path / "ours.toml"), "--model", "Our-1B", "--instance", "g5.xlarge"]) == 2
    assert "models.Our-1B.hiden: there is no such column" in capsys.readouterr().err
    (tmp_path / "ours.toml").write_text("#" * LARGEST + "\n")
    assert main(["plan", "--catalog", str(tmp_path / "ours.toml"), "--model", "Our-1B", "--instance", "g5.xlarge"]) == 2
    assert "this file is too large" in capsys.readouterr().err
