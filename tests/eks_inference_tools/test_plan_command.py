"""The command ``eks-inference plan``: its tables, its JSON, and what it says to wrong names."""

import json

import pytest

from eks_inference.catalog.instances import instance_type, instance_types
from eks_inference.catalog.models import model, models
from eks_inference.serving.feasibility import engines_for
from eks_inference_tools.cli import main
from eks_inference_tools.commands.plan import answer, as_json
from eks_inference_tools.cost.offers import offer
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.presentation.feasibility import render_text
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


def test_every_table_fits_a_terminal_and_agrees_with_the_json() -> None:
    for wanted in models():
        for instance in instance_types().values():
            if not engines_for(instance, model(wanted)):
                continue
            found = answer(wanted, instance.name)
            asked = offer(instance, "us-east-1", PriceBook())
            text, document = render_text(found, asked), json.loads(as_json(found, asked))
            assert max(map(len, text.splitlines())) <= 100, text
            assert [split.get("refusal", "") for split in document["splits"]] == [split.refusal for split in found.splits]
            for split in found.splits:
                table = text.partition("%\n")[2].splitlines()
                line = next(line for line in table if line.split()[:1] == [str(split.tensor_parallel)])
                assert split.refusal in line


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


def test_a_repository_is_a_name_too(capsys: pytest.CaptureFixture[str]) -> None:
    _, by_name, _ = plan(capsys, "--model", "llama-2-13b", "--instance", "inf2.48xlarge")
    _, by_repository, _ = plan(capsys, "--model", "NousResearch/Llama-2-13b-chat-hf", "--instance", "inf2.48xlarge")
    assert by_name == by_repository


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"--model": "Llama-2-13"}, ("model 'Llama-2-13' is not in the catalog", "Qwen3-32B", "nearest: Llama-2-13B")),
        ({"--instance": "inf2.48large"}, ("instance type 'inf2.48large' is not in the catalog", "nearest: inf2.48xlarge")),
        ({"--instance": "m5.large"}, ("m5.large has no accelerator", "allowed: types of inf2,")),
        ({"--engine": "neuron-2.28"}, ("engine profile 'neuron-2.28' is not in the catalog", "neuron-2.28-vllm-0.13")),
        ({"--engine": "cuda-vllm-0.30"}, ("engine cuda-vllm-0.30 is not for Llama-2-13B on inf2.48xlarge", "neuron-2.28")),
        ({"--engine": "neuron-2.18-vllm-0.3"}, ("removed in Neuron SDK 2.26", "allowed: neuron-2.28-vllm-0.13")),
        ({"--model": "OPT-350M"}, ("no engine serves OPT-350M on inf2", "allowed: types of g4dn,")),
        ({"--max-model-len": "8192"}, ("made for sequences of 4096 tokens", "given: 8192", "allowed: at most 4096")),
    ],
)
def test_what_cannot_be_used_is_named(options: dict[str, str], said: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    given = {"--model": "Llama-2-13B", "--instance": "inf2.48xlarge", **options}
    code, out, err = plan(capsys, *(word for pair in given.items() for word in pair))
    assert (code, out) == (2, "")
    for text in said:
        assert text in err


@pytest.mark.parametrize("length", ["0", "-4", "4k", "4096.0"])
def test_a_length_is_a_number_of_tokens(length: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["plan", "--model", "Llama-2-13B", "--instance", "inf2.48xlarge", f"--max-model-len={length}"])
    assert caught.value.code == 2
    assert f"'{length}' is not a number of tokens" in capsys.readouterr().err


def test_nothing_fits_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = plan(capsys, "--model", "Llama-3.3-70B", "--instance", "g4dn.xlarge")
    assert code == 0
    assert "no: weights alone take 131.42 GiB of 14.4 GiB a GPU" in out
    assert instance_type("g4dn.xlarge").name in out
