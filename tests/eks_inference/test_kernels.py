"""Kernels for quantized checkpoints: what vLLM selects, GPU by GPU, and what of it works."""

from dataclasses import replace

import pytest

from eks_inference.catalog.engine_facts import engine_facts, failing, pads
from eks_inference.catalog.models import model
from eks_inference.catalog.quantization import METHODS, Quantization, quantization
from eks_inference.serving.rules.engine_flags import quantization_is_that_of_the_checkpoint
from eks_inference.serving.rules.gpu_arithmetic import gpu_has_a_kernel
from vectors.gpu import gpu_server


def compressed(kind: str, bits: int, activations: str | None, *, zeros: bool = False) -> Quantization:
    group = {
        "weights": {"num_bits": bits, "type": kind, "symmetric": not zeros, **({"group_size": 128} if bits == 4 else {})},
        "input_activations": activations and {"num_bits": 8, "type": activations},
    }
    found = quantization({"quant_method": "compressed-tensors", "config_groups": {"group_0": group}})
    assert found is not None
    return found


AWQ = Quantization("awq", 4, 128, 20)
INT8 = compressed("int", 8, "int")


@pytest.mark.parametrize(
    ("checkpoint", "on", "verdict"),
    [
        (AWQ, "g4dn.xlarge", "runs"),
        (Quantization("fp8", 8), "g4dn.xlarge", "runs"),  # as weights only
        (Quantization("fbgemm_fp8", 8), "g4dn.xlarge", "refused"),
        (Quantization("fbgemm_fp8", 8), "p4d.24xlarge", "unjudged"),
        (Quantization("fbgemm_fp8", 8), "g6.xlarge", "runs"),
        (Quantization("modelopt", 8), "g4dn.xlarge", "refused"),
        (compressed("int", 4, None), "g4dn.xlarge", "runs"),
        (compressed("int", 4, None, zeros=True), "g4dn.xlarge", "runs"),
        (INT8, "g4dn.xlarge", "runs"),
        (INT8, "p5.48xlarge", "runs"),
        (INT8, "g7.4xlarge", "refused"),
        (INT8, "p6-b200.48xlarge", "refused"),
        (compressed("float", 8, "float"), "p6-b200.48xlarge", "runs"),
        (compressed("int", 8, None), "p6-b200.48xlarge", "runs"),
        (Quantization("int8", 8), "g5.xlarge", "unjudged"),
        (None, "g4dn.xlarge", "nothing"),
    ],
)
def test_each_gpu_runs_what_vllm_has_a_kernel_for(checkpoint: Quantization | None, on: str, verdict: str) -> None:
    shape = replace(model("Llama-3.1-8B"), quantization=checkpoint)
    named = ("--linear-backend=marlin",) if checkpoint is None or checkpoint.bits == 8 else ()
    server = gpu_server(on, model=shape, arguments=named)
    found = list(gpu_has_a_kernel.judge(server))
    seen = "nothing" if not found else "refused" if not all(judgement.holds for judgement in found) else "runs"
    assert ("unjudged" if any(judgement.unjudged for judgement in found) else seen) == verdict


@pytest.mark.parametrize(
    ("given", "holds"),
    [("awq", True), ("awq_marlin", True), ("moe_wna16", True), ("fp8", False), ("gptq", False), ("compressed-tensors", False)],
)
def test_a_flag_may_name_the_kernel_but_no_other_method(given: str, holds: bool) -> None:
    server = gpu_server(model=replace(model("Llama-3.1-8B"), quantization=AWQ), arguments=(f"--quantization={given}",))
    assert [judgement.holds for judgement in quantization_is_that_of_the_checkpoint.judge(server)] == [holds]


def test_a_kernel_that_a_user_names_for_four_bits_is_not_judged() -> None:
    """vLLM refuses what it named kernels for on newer GPUs only: "CutlassW4A8LinearKernel requires capability 90"."""
    shape = replace(model("Llama-3.1-8B"), quantization=AWQ)
    *_, last = gpu_has_a_kernel.judge(gpu_server("g5.xlarge", model=shape, arguments=("--linear-backend=cutlass",)))
    assert last.unjudged
    assert last.unjudged.of == "cutlass"


def test_kernels_of_experts_that_a_user_names_are_not_judged() -> None:
    """vLLM: "WNA16 MoE backend 'TRITON' does not support the deployment configuration since expert bias is not supported"."""
    named = ("--moe-backend=triton",)
    (found,) = gpu_has_a_kernel.judge(gpu_server(model=model("Qwen3-30B-A3B"), arguments=named))
    assert found.unjudged
    assert found.unjudged.of == "triton"
    assert not list(gpu_has_a_kernel.judge(gpu_server(arguments=named)))


@pytest.mark.parametrize(("on", "verdict"), [("g4dn.xlarge", [False]), ("g5.xlarge", [True])])
def test_experts_have_kernels_of_their_own(on: str, verdict: list[bool]) -> None:
    """vLLM 0.30 has none for MXFP4 on Turing, where all other layers of GPT-OSS are not quantized."""
    assert [judgement.holds for judgement in gpu_has_a_kernel.judge(gpu_server(on, model=model("GPT-OSS-20B")))] == verdict


def test_a_release_that_was_not_asked_is_not_judged() -> None:
    server = gpu_server(model=replace(model("Llama-3.1-8B"), quantization=AWQ))
    (found,) = gpu_has_a_kernel.judge(replace(server, engine=replace(server.engine, vllm="0.29.0")))
    assert found.unjudged


def test_what_another_release_selects_is_no_answer() -> None:
    facts = engine_facts("0.30.0")
    assert facts is not None
    assert facts.selected(AWQ, (9, 0), experts=True)
    assert replace(facts, expert_kernels={**facts.expert_kernels, AWQ.form: {}}).selected(AWQ, (9, 0), experts=True) is None


@pytest.mark.parametrize(("vllm", "holds"), [("0.30.0", False), ("0.33.0", True)])
def test_a_release_is_judged_by_what_it_selects_itself(vllm: str, holds: bool) -> None:
    """On A100, 0.30 selects CUTLASS for ModelOpt's FP8, which fails there, and 0.33 Marlin."""
    server = gpu_server("p4d.24xlarge", model=replace(model("Llama-3.1-8B"), quantization=Quantization("modelopt", 8)))
    server = replace(server, engine=replace(server.engine, vllm=vllm), arguments=("--linear-backend=auto",))
    assert all(judgement.holds for judgement in gpu_has_a_kernel.judge(server)) == holds


@pytest.mark.parametrize("arguments", [(), ("--allow-deprecated-quantization",)])
def test_what_a_release_is_about_to_drop_needs_a_word(arguments: tuple[str, ...]) -> None:
    """vLLM: "The quantization method fbgemm_fp8 is deprecated", of a checkpoint, too."""
    dropped = replace(model("Llama-3.1-8B"), quantization=Quantization("fbgemm_fp8", 8))
    server = gpu_server("p5.48xlarge", model=dropped, arguments=arguments)
    assert [judgement.holds for judgement in quantization_is_that_of_the_checkpoint.judge(server)] == [bool(arguments)]


def test_the_rows_are_of_methods_that_are_read() -> None:
    facts = engine_facts("0.30.0")
    assert facts is not None
    assert {kernel.partition("-")[0] for kernel in facts.kernels} <= {one.partition("-")[0] for one in METHODS}
    assert {kernel for rows in facts.kernels.values() for kernel in rows.values()} >= failing().keys()


@pytest.mark.parametrize(
    ("on", "grown"), [((8, 0), 1.0904), ((8, 9), 1.0904), ((9, 0), 1.0667), ((10, 3), 1.1378), ((12, 0), 1.0904)]
)
def test_experts_of_gpt_oss_grow_to_what_the_kernel_takes(on: tuple[int, int], grown: float) -> None:
    shape = model("GPT-OSS-120B")
    assert shape.quantization is not None
    found = pads(shape.quantization.method, on)
    assert found is not None
    assert found.grown(shape.hidden, shape.mlp) == pytest.approx(grown, abs=1e-4)
