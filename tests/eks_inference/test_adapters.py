"""LoRA adapters of a server: what its pods download and start, the names that lead to them, and the memory they take."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_disaggregated import HUB_STAND_IN
from test_tasks import pods

from conftest import ROOT
from eks_inference.catalog.models import models
from eks_inference.serving.memory_settings import weights_of_a_rank
from eks_inference.serving.split import Parallel
from variants import faults, recorded_with

SQL, LAW = "0123456789abcdef" * 2 + "01234567", "89abcdef01234567" * 2 + "89abcdef"
ADAPTERS = {
    "sql": {"repository": "acme/sql", "revision": SQL, "rank": 16},
    "law": {"repository": "acme/law", "revision": LAW, "rank": 64},
}


def section(**changes: Any) -> dict[str, Any]:
    """Changes of the stack on one GPU: two adapters of its model, with further keys of the server."""
    return {"servers": {"qwen3": {"adapters": ADAPTERS, **changes}}}


@pytest.mark.parametrize(
    ("name", "tensor", "reserved"),
    [
        ("Llama-2-13B", 1, 255_098_880),
        ("Llama-2-13B", 2, 175_800_320),
        ("Llama-2-13B", 8, 116_326_400),
        ("Mistral-7B", 1, 167_772_160),
        ("Mistral-7B", 8, 72_351_744),
        ("Qwen3-32B", 1, 556_974_080),
        ("Qwen3-32B", 8, 215_662_592),
        ("Qwen2.5-0.5B", 2, 22_413_312),
        ("Gemma-2-9B", 8, 86_016_000),
        ("Gemma-3-1B", 2, 33_226_752),
        ("Phi-3.5-mini", 8, 39_100_416),
    ],
)
def test_a_gpu_has_the_room_that_the_engine_reserves(name: str, tensor: int, reserved: int) -> None:
    """Against ``LoRAModelManager`` of vLLM 0.30.0 on the meta device: two adapters of rank 16, in two bytes."""
    numbers = weights_of_a_rank(models()[name], Parallel(tensor=tensor))
    assert numbers
    assert 2 * 16 * 2 * numbers == reserved


@pytest.mark.parametrize(
    ("name", "split", "reserved"),
    [
        ("Qwen3-30B-A3B", Parallel(), 160_628_736),
        ("Qwen3-30B-A3B", Parallel(tensor=4), 131_432_448),
        ("Qwen3-30B-A3B", Parallel(tensor=4, expert=True), 55_934_976),
        ("Mixtral-8x7B", Parallel(tensor=4), 31_163_392),
    ],
)
def test_experts_have_the_room_that_the_engine_reserves(name: str, split: Parallel, reserved: int) -> None:
    """The same of models with two layers."""
    numbers = weights_of_a_rank(replace(models()[name], layers=2, expert_layers=2), split)
    assert numbers
    assert 2 * 16 * 2 * numbers == reserved


@pytest.mark.parametrize("name", ["GPT-OSS-20B", "DeepSeek-V2-Lite"])
def test_what_the_engine_was_not_asked_is_unknown(name: str) -> None:
    assert weights_of_a_rank(models()[name], Parallel()) is None


def test_pods_download_adapters_by_commit_and_start_with_them_by_name() -> None:
    graph = recorded_with({**section(), "endpoints": {"api": {"keys": False}}}, "smoke-gpu")
    (engine,) = pods(graph, "qwen3-deployment")
    words = " ".join(engine["args"])
    assert f"--lora-modules law=/scratch/adapters/acme/law/{LAW} sql=/scratch/adapters/acme/sql/{SQL}" in words
    assert "--enable-lora --max-loras=2 --max-lora-rank=64" in words
    (deployment,) = (resource for resource in graph.resources if resource.name == "qwen3-deployment")
    (download,) = deployment.inputs["spec"]["template"]["spec"]["initContainers"]
    assert download["command"][2:] == [
        *("acme/law", LAW, f"/scratch/adapters/acme/law/{LAW}"),
        *("acme/sql", SQL, f"/scratch/adapters/acme/sql/{SQL}"),
    ]
    (config,) = (resource for resource in graph.resources if resource.name == "api-config")
    routes = json.dumps(config.inputs["data"])
    assert all(name in routes for name in ("sql", "law", "Qwen/Qwen3-0.6B"))


def test_adapters_from_s3_are_copied_and_their_folders_alone_are_read() -> None:
    model = {"kind": "s3", "uri": "s3://our-models/qwen3/v1", "id": "Qwen/Qwen3-0.6B"}
    law = {"kind": "s3", "uri": "s3://our-adapters/law/v2", "rank": 8}
    for source, beside in ((model, {}), ({"id": "Qwen/Qwen3-0.6B"}, {"sql": ADAPTERS["sql"]})):
        graph = recorded_with({"servers": {"qwen3": {"model": source, "adapters": {"law": law, **beside}}}}, "smoke-gpu")
        (engine,) = pods(graph, "qwen3-deployment")
        assert "law=/scratch/adapters/our-adapters/law/v2" in engine["args"]
        (deployment,) = (resource for resource in graph.resources if resource.name == "qwen3-deployment")
        first = {one["name"]: one for one in deployment.inputs["spec"]["template"]["spec"]["initContainers"]}
        copy = first["download-adapter-0"]
        assert copy["args"][:4] == ["s3", "sync", law["uri"], "/scratch/adapters/our-adapters/law/v2"]
        assert {"name": "scratch", "mountPath": "/scratch"} in copy["volumeMounts"]
        assert law["uri"] not in " ".join([*first["download-model"]["command"], *first["download-model"].get("args", ())])
        policy = json.dumps([resource.inputs for resource in graph.resources if resource.type == "aws:iam/rolePolicy:RolePolicy"])
        assert "arn:aws:s3:::our-adapters/law/v2/*" in policy
        assert ("our-models/qwen3/v1" in policy) == (source is model)


def test_a_comma_in_a_folder_is_no_sign_of_json() -> None:
    """vLLM 0.30.0, LoRAParserAction: an entry with a comma is JSON, and the engine ends where it is none."""
    law = {"kind": "s3", "uri": "s3://our-adapters/law,v2", "rank": 8}
    (engine,) = pods(recorded_with({"servers": {"qwen3": {"adapters": {"law": law}}}}, "smoke-gpu"), "qwen3-deployment")
    (entry,) = (one for one in engine["args"] if "law" in one)
    assert json.loads(entry) == {"name": "law", "path": "/scratch/adapters/our-adapters/law,v2"}


def test_adapters_of_a_name_can_be_shared_and_limited_at_an_endpoint() -> None:
    limited = {"endpoints": {"api": {"requests_per_minute_by_model": {"sql": 10}}}}
    assert not faults({**section(), **limited})
    misspelt = {"endpoints": {"api": {"requests_per_minute_by_model": {"sqll": 10}}}}
    assert "sqll" in " ".join(faults({**section(), **misspelt}))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"adapters": {"sql": {**ADAPTERS["sql"], "revision": "main"}}}, "revision"),
        ({"adapters": {"sql": {**ADAPTERS["sql"], "rank": 24}}}, "rank"),
        ({"adapters": {"a=b": ADAPTERS["sql"]}}, "a=b"),
        ({"adapters": {"-sql": ADAPTERS["sql"]}}, "-sql"),
        ({"adapters": {"Qwen/Qwen3-0.6B": ADAPTERS["sql"]}}, "a name of the model itself"),
        ({"extra_args": {"served-model-name": ["Qwen/Qwen3-0.6B", "sql"]}}, "sql is a name of the model itself"),
        ({"extra_args": {"lora-modules": ["tax=acme/tax"]}}, "lora-modules"),
        ({"model": {"kind": "s3", "uri": "s3://models/m", "id": "m"}}, "keep them in S3"),
        ({"adapters": {"sql": {"kind": "s3", "uri": "s3://models", "rank": 16}}}, "s3://<bucket>/<folder>"),
        ({"extra_args": {"max-loras": 8}}, "max-loras"),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, Any], why: str) -> None:
    assert why in " ".join(faults(section(**changed)))


def test_engines_without_adapters_in_their_documents_refuse_them() -> None:
    found = faults(section(engine="neuron-2.28-vllm-0.13"))
    assert any("adapters" in fault for fault in found), found


def test_the_room_of_adapters_counts_against_the_gpu() -> None:
    """192 adapters of rank 512 take more than an L4 has."""
    many = {f"a{number}": {**ADAPTERS["sql"], "rank": 512} for number in range(192)}
    assert any("memory" in fault.lower() or "GiB" in fault for fault in faults({"servers": {"qwen3": {"adapters": many}}}))


def test_an_adapter_is_downloaded_beside_a_model(tmp_path: Path) -> None:
    (tmp_path / "huggingface_hub.py").write_text(HUB_STAND_IN)
    script = ROOT / "components" / "eks_inference" / "serving" / "assets" / "download.py"
    one, other = tmp_path / "a" / "1", tmp_path / "b" / "2"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HUB_COMMIT": SQL}

    def run(files: str) -> int:
        command = [sys.executable, str(script), "acme/a", SQL, str(one), "acme/b", LAW, str(other)]
        return subprocess.run(command, env={**environment, "HUB_FILES": files}, capture_output=True, check=False).returncode

    assert run("adapter_config.json") == 1
    assert run("adapter_config.json adapter_model.safetensors") == 0
    assert (one / "adapter_config.json").is_file()
    assert (other / "adapter_model.safetensors").is_file()
