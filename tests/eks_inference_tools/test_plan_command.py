"""The command ``eks-inference plan``: its tables, its JSON, and what it says to wrong names."""

import json
import os
from pathlib import Path
from threading import Thread

import pytest
from annotated_types import Lt

from eks_inference.catalog.instances import instance_type, instance_types
from eks_inference.catalog.models import model, models
from eks_inference.observability.spec import Objectives
from eks_inference.serving.choosing import engines_for
from eks_inference_tools.cli import main, parser
from eks_inference_tools.commands import plan as command
from eks_inference_tools.commands.plan import answer
from eks_inference_tools.cost.money import offer
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.fitting import splits
from eks_inference_tools.fitting.one_type import render_text
from golden import assert_golden

SHOWN = [
    ("Llama-2-13B", "inf2.48xlarge"),
    ("Llama-3.3-70B", "trn2.48xlarge"),
    ("Qwen3-32B", "trn2.48xlarge"),
    ("OPT-350M", "g4dn.xlarge"),
]


def plan(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    code = main(["plan", *options])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(("name", "instance"), SHOWN)
def test_the_table(name: str, instance: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = plan(capsys, "--model", name, "--instance", instance)
    assert code == 0
    assert_golden(f"plan/{name}-{instance}.txt", out)


@pytest.mark.thorough
def test_every_table_fits_a_terminal_and_agrees_with_the_json() -> None:
    types = list(instance_types().values())
    for position, wanted in enumerate(models()):
        for instance in types[position % 15 :: 15]:
            if not engines_for(instance, model(wanted)):
                continue
            found = answer(wanted, instance.name)
            asked = offer(instance, "us-east-1", PriceBook())
            text, document = render_text(found, asked), json.loads(json.dumps(splits.document(found, asked)))
            assert max(map(len, text.splitlines())) <= 110, text
            assert [split.get("refusal", "") for split in document["splits"]] == [split.refusal for split in found.splits]
            for split in found.splits:
                table = text.partition("%\n")[2]
                assert any(line.split()[:1] == [str(split.tensor_parallel)] for line in table.splitlines())
                assert " ".join(split.refusal.split()) in " ".join(table.split())


@pytest.mark.thorough
def test_lengths_and_engine_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--model", "Llama-3.3-70B", "--instance", "trn2.48xlarge", "--format", "json")
    code, out, _ = plan(capsys, *options, "--engine", "neuron-2.31-vllm-0.16", "--max-model-len", "12288", "3000")
    assert code == 0
    document = json.loads(out)
    assert document["engine"] == document["engine"] | {"name": "neuron-2.31-vllm-0.16", "kv_cache": "contiguous"}
    assert document["engine"]["caveat"]
    (wanted,) = [split for split in document["splits"] if split["tensor_parallel"] == 64]
    assert [fit["max_model_len"] for fit in wanted["fits"]] == [3000, 12288]
    assert wanted["kv_repeats"] == 8
    assert (
        wanted["fits"][0]["kv_bytes_most"] + wanted["fits"][0]["weight_bytes"]
        <= wanted["fits"][0]["usable_bytes"]
        == 24 * 1024**3
    )


@pytest.mark.thorough
def test_a_repository_is_a_name_too(capsys: pytest.CaptureFixture[str]) -> None:
    _, by_name, _ = plan(capsys, "--model", "llama-2-13b", "--instance", "inf2.48xlarge")
    _, by_repository, _ = plan(capsys, "--model", "NousResearch/Llama-2-13b-chat-hf", "--instance", "inf2.48xlarge")
    assert by_name == by_repository


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"--model": "Llama-2-13"}, ("model 'Llama-2-13' is not in the catalog", "nearest: Llama-2-13B", "with --hub")),
        ({"--model": "ours/llm"}, ("--hub reads its", "https://huggingface.co/ours/llm/raw/main/config.json", "--catalog")),
        ({"--instance": "inf2.48large"}, ("instance type 'inf2.48large' is not in the catalog", "nearest: inf2.48xlarge")),
        ({"--instance": "m5.large"}, ("m5.large has no accelerator", "allowed: types of inf2,")),
        ({"--engine": "neuron-2.28"}, ("engine profile 'neuron-2.28' is not in the catalog", "neuron-2.28-vllm-0.13")),
        ({"--engine": "cuda-vllm-0.30"}, ("engine cuda-vllm-0.30 is not for Llama-2-13B on inf2.48xlarge", "neuron-2.28")),
        ({"--engine": "neuron-2.18-vllm-0.3"}, ("removed in Neuron SDK 2.26", "allowed: neuron-2.28-vllm-0.13")),
        ({"--model": "OPT-350M"}, ("no engine of the catalog serves architecture opt there", "allowed: types of g4dn,")),
        (
            {"--model": "GLM-4-9B-0414", "--instance": "trn2.48xlarge"},
            ("GLM-4-9B-0414: documents of neuron-2.32-vllm-0.24 list it, but how it is served was not examined here",),
        ),
        ({"--max-model-len": "8192"}, ("made for sequences of 4096 tokens", "given: 8192", "allowed: at most 4096")),
    ],
)
def test_what_cannot_be_used_is_named(options: dict[str, str], said: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    given = {"--model": "Llama-2-13B", "--instance": "inf2.48xlarge", **options}
    code, out, err = plan(capsys, *(word for pair in given.items() for word in pair))
    assert (code, out) == (2, "")
    for text in said:
        assert text in err


@pytest.mark.parametrize(("option", "key"), [("--ttft", "time_to_first_token_seconds"), ("--itl", "time_between_tokens_seconds")])
def test_a_time_is_one_that_a_stack_file_takes(option: str, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    (below,) = [lt.lt for lt in Objectives.model_fields[key].metadata if isinstance(lt, Lt)]
    with pytest.raises(SystemExit):
        main(["plan", "--model", "Qwen3-8B", "--rate", "1", option, str(below)])
    assert f"given: {below}\n    allowed: a time in seconds above 0 and below {below}" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize(("option", "given", "told"), [("--ttft", "1000", True), ("--ttft", "1", False), ("--itl", "50", True)])
def test_a_time_that_is_probably_in_milliseconds_is_told(
    option: str, given: str, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = plan(capsys, "--model", "Qwen3-8B", "--rate", "1", option, given, "--family", "g6e")
    assert (f"{option} is in seconds" in " ".join(out.split())) is told


@pytest.mark.thorough
@pytest.mark.parametrize("length", ["0", "-4", "4k", "4096.0"])
def test_a_length_is_a_number_of_tokens(length: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["plan", "--model", "Llama-2-13B", "--instance", "inf2.48xlarge", f"--max-model-len={length}"])
    assert caught.value.code == 2
    assert f"given: {length}\n    allowed: a whole number of tokens, at least 1" in capsys.readouterr().err


def test_nothing_fits_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = plan(capsys, "--model", "Llama-3.3-70B", "--instance", "g4dn.xlarge")
    assert code == 0
    assert "no: weights alone take 131.45 GiB of 13.1 GiB a GPU" in out
    assert instance_type("g4dn.xlarge").name in out


# ------------------------------------------------------------------------------------------------------ models of others

CONFIGS = Path(__file__).parent.parent / "data" / "model_configs"


def test_a_config_is_planned_like_a_row_of_the_catalog(capsys: pytest.CaptureFixture[str]):
    place = ["--instance", "p5.48xlarge", "--max-model-len", "131072", "--format", "json"]
    assert main(["plan", "--config", str(CONFIGS / "GPT-OSS-120B.json"), *place]) == 0
    read = json.loads(capsys.readouterr().out)
    assert main(["plan", "--model", "openai/gpt-oss-120b", *place]) == 0
    known = json.loads(capsys.readouterr().out)
    assert read["splits"] == known["splits"]
    told = {"name": "GPT-OSS-120B", "quantization": "mxfp4", "window": 128, "window_layers": 18}
    assert read["model"] | told == read["model"]
    (one,) = (split for split in read["splits"] if split["tensor_parallel"] == 1)
    assert one["fits"][0]["most_sequences"] == 1


@pytest.mark.thorough
def test_the_text_says_what_is_windowed_latent_quantized_and_left_out(capsys: pytest.CaptureFixture[str]):
    place = ["--instance", "p5.48xlarge", "--max-model-len", "2048"]
    assert main(["plan", "--config", str(CONFIGS / "Gemma-3-27B.json"), *place]) == 0
    gemma = " ".join(capsys.readouterr().out.split())
    assert "27.01 billion parameters and 0.42 for vision" in gemma
    assert "52 of 62 layers attend to 1024 tokens" in gemma
    assert main(["plan", "--config", str(CONFIGS / "DeepSeek-V3.json"), *place]) == 0
    deepseek = " ".join(capsys.readouterr().out.split())
    assert "fp8 and bfloat16: 626.82 GiB" in deepseek
    assert "128 heads, one latent vector" in deepseek


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "model_type: this key is required and missing"),
        ("nothing", "this is not JSON"),
        ('{"model_type": "rwkv"}', "model_type: this architecture has no formula here"),
        ('{"model_type": "llama", "hidden_size": -1}', "hidden_size: not such a number"),
    ],
)
def test_what_is_no_config_is_told_with_its_file(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "config.json"
    file.write_text(text)
    assert main(["plan", "--config", str(file), "--instance", "p5.48xlarge"]) == 2
    told = capsys.readouterr().err
    assert f"{file}: {said}" in told
    assert "allowed: " in told


@pytest.mark.thorough
@pytest.mark.parametrize("path", ["nowhere.json", "/", "a\0b", "x" * 5000])
def test_a_config_that_cannot_be_read_is_told(path: str, capsys: pytest.CaptureFixture[str]):
    assert main(["plan", "--config", path, "--instance", "p5.48xlarge"]) == 2
    assert "--config: this file cannot be read" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize("place", [("--instance", "g6e.xlarge"), ("--family", "g6e", "--quantization", "fp8")])
def test_a_config_may_come_through_a_pipe(place: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """As of `--config <(curl …)`: what is read once is gone."""
    pipe = tmp_path / "Qwen3-32B"
    os.mkfifo(pipe)
    content = (CONFIGS / "Qwen3-32B.json").read_bytes()
    writer = Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    assert main(["plan", "--config", str(pipe), *place]) == 0
    writer.join()
    assert "Qwen3-32B" in capsys.readouterr().out


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["a/b c", "../x", "/", "a/b\nc", 'a/"b', "a/..", "a/b/c", "a b"])
@pytest.mark.parametrize("place", [("--instance", "g6e.xlarge"), ("--family", "g6e")])
def test_a_model_of_a_config_has_a_name_that_a_repository_may_have(
    name: str, place: tuple[str, ...], capsys: pytest.CaptureFixture[str]
):
    assert main(["plan", "--config", str(CONFIGS / "Qwen3-32B.json"), f"--model={name}", *place]) == 2
    assert "error: --model: the model of --config needs a name" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_model_that_no_engine_serves_is_told_with_its_architecture(capsys: pytest.CaptureFixture[str]):
    assert main(["plan", "--config", str(CONFIGS / "DeepSeek-V3.json"), "--instance", "inf2.48xlarge"]) == 2
    assert "DeepSeek-V3: no engine of the catalog serves architecture deepseek_v3 there" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_plan_without_a_model_says_how_to_name_one(capsys: pytest.CaptureFixture[str]):
    assert main(["plan", "--instance", "p5.48xlarge"]) == 2
    assert "a repository with --hub, or its config.json with --config" in capsys.readouterr().err


@pytest.mark.parametrize("spare", ["5000", "-1", "many"])
def test_no_number_of_spare_replicas_is_refused_in_one_line(spare: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parser(["plan"]).parse_args(["plan", "--model", "Qwen3-8B", "--rate", "1", f"--spare={spare}"])
    assert f"given: {spare}\n    allowed: a number of replicas from 0 to 99" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_plan_explains_where_the_time_goes(capsys: pytest.CaptureFixture[str]):
    given = ["plan", "--model", "Llama-3.1-8B", "--family", "g6e", "--rate", "2", "--explain"]
    options = parser(["plan"]).parse_args(given)
    assert command.run(options) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "p95 to the first token: " in told
    assert "of them bandwidth " in told
    assert "bandwidth takes most; try quantized_weights: fp8" in told
    assert command.run(parser(["plan"]).parse_args([*given, "--format", "json"])) == 0
    assert json.loads(capsys.readouterr().out)["explained"]["wall"] == "bandwidth"


@pytest.mark.parametrize(
    ("name", "instance", "told"),
    [
        ("Qwen3-32B-FP8", "trn2.48xlarge", "NEU030: engine neuron-2.32-vllm-0.24 does not load checkpoints quantized with fp8"),
        ("Qwen3-32B-NVFP4", "g6e.xlarge", "GPU010: which GPUs vLLM 0.30.0 has a kernel for is not known here"),
        ("Qwen3-32B", "p5.48xlarge", ""),
    ],
)
def test_what_the_memory_does_not_tell_is_said_beside_it(
    name: str, instance: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, _ = plan(capsys, "--model", name, "--instance", instance)
    _, document, _ = plan(capsys, "--model", name, "--instance", instance, "--format", "json")
    rules = json.loads(document)["rules"]
    assert [rule.startswith(told) for rule in rules] == [True] * bool(told)
    assert ("  rules   " in text) == bool(told)
    assert told in " ".join(text.split())
