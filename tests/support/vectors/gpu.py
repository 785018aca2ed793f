"""Vectors of the rules about servers on GPUs."""

from dataclasses import replace
from typing import Any

from eks_inference.catalog.engines import engine
from eks_inference.catalog.instances import instance_type
from eks_inference.catalog.models import Model, model
from eks_inference.catalog.quantization import Quantization
from eks_inference.place.placement import POOL_LABEL, Placement
from eks_inference.serving.facts import ServingFacts
from vectors import Vector


def gpu_server(
    on: str = "g6e.12xlarge", model_name: str = "Llama-3.1-8B", profile: str = "cuda-vllm-0.30", **changes: Any
) -> ServingFacts:
    """Returns a valid vLLM server on four GPUs, with changes."""
    shape, known = instance_type(on), model(model_name)
    good = ServingFacts(
        path=("servers", "llama"),
        kind="vllm",
        engine=engine(profile),
        model_id=known.repositories[0],
        model=known,
        placement=Placement("gpu", shape, {POOL_LABEL: "gpu"}, max_nodes=1),
        devices=shape.devices,
        tensor_parallel=shape.devices,
        max_num_seqs=256,
        max_model_len=8192,
        cpu_millis=8000,
        memory_mib=64 * 1024,
        startup_timeout_s=1200,
        arguments=("--dtype=auto", "--gpu-memory-utilization=0.9"),
    )
    return replace(good, **changes)


def with_driver(version: str) -> ServingFacts:
    server = gpu_server()
    return replace(server, placement=replace(server.placement, driver=version))


def t4_server(**changes: Any) -> ServingFacts:
    """Returns OPT-350M on one T4, with changes."""
    wish = {"max_model_len": 2048, "cpu_millis": 2000, "memory_mib": 12 * 1024, **changes}
    return gpu_server("g4dn.xlarge", "OPT-350M", **wish)


def llama_on_t4(**changes: Any) -> ServingFacts:
    """Returns 15 GiB of two-byte weights on one T4, with changes."""
    return t4_server(model=model("Llama-3.1-8B"), model_id="meta-llama/Llama-3.1-8B", **changes)


def _in_blocks(mlp: int) -> Model:
    """Returns Llama with an MLP of that width, its weights in blocks of 128 x 128."""
    return replace(model("Llama-3.1-8B"), mlp=mlp, quantization=Quantization("fp8", 8, 128 * 128, 32))


VECTORS = {
    "GPU001": Vector(gpu_server, llama_on_t4, "needs 16.35 GiB a GPU, but only 13.1 are available"),
    "GPU002": Vector(gpu_server, lambda: gpu_server(devices=8), "no g6e.12xlarge has 8 GPUs"),
    "GPU003": Vector(gpu_server, lambda: gpu_server(tensor_parallel=3), "32 attention heads of Llama-3.1-8B do not divide"),
    "GPU004": Vector(t4_server, lambda: t4_server(arguments=("--dtype=bfloat16",)), "have no bfloat16"),
    "GPU005": Vector(gpu_server, lambda: gpu_server(profile="neuron-2.28-vllm-0.13"), "is not for g6e.12xlarge"),
    "GPU006": Vector(gpu_server, lambda: gpu_server(tensor_parallel=2), "2 of the 4 GPUs of a pod are idle"),
    "GPU014": Vector(
        lambda: with_driver("580.126.09"), lambda: with_driver("570.195.03"), "does not start with driver 570.195.03"
    ),
    "GPU015": Vector(
        lambda: t4_server(arguments=("--gpu-memory-utilization=0.95",)),
        lambda: t4_server(arguments=("--gpu-memory-utilization=0.98",)),
        "its share leaves 0.29 GiB",
    ),
    "GPU007": Vector(t4_server, lambda: t4_server(cpu_millis=4000), "no g4dn.xlarge has 4 CPU for a pod"),
    "GPU008": Vector(
        gpu_server, lambda: gpu_server(model_name="Qwen3-8B", profile="triton-24.07-vllm-0.5"), "does not serve Qwen3-8B"
    ),
    "SRV008": Vector(
        lambda: gpu_server(arguments=("--quantization=awq",)),
        lambda: gpu_server(arguments=("--quantization=awk",)),
        "vLLM 0.30.0 knows no quantization 'awk'",
    ),
    "SRV016": Vector(
        lambda: gpu_server(model_name="DeepSeek-V3", arguments=("--quantization=fp8",)),
        lambda: gpu_server(model_name="DeepSeek-V3", arguments=("--quantization=awq",)),
        "deepseek-ai/DeepSeek-V3 is quantized with fp8, and vLLM does not start with awq",
    ),
    "GPU010": Vector(
        lambda: gpu_server(model_name="GPT-OSS-20B"),
        lambda: gpu_server("g4dn.12xlarge", "GPT-OSS-20B"),
        "vLLM 0.30.0 has no kernel for mxfp4 on the GPUs of g4dn.12xlarge",
    ),
    "GPU011": Vector(
        lambda: gpu_server(model=_in_blocks(12288)),
        lambda: gpu_server(model=_in_blocks(9728 // 2)),
        "inputs of the MLP's output of Llama-3.1-8B over 4 GPUs are 1216 wide, no multiple of the 128 weights that share a scale",
    ),
    "GPU012": Vector(
        lambda: gpu_server(arguments=("--kv-cache-dtype=fp8",)),
        lambda: gpu_server(arguments=("--kv-cache-dtype=nvfp4",)),
        "vLLM 0.30.0 has no attention back end for heads of 128 in bfloat16, KV cache nvfp4 on g6e.12xlarge",
    ),
    "GPU013": Vector(
        lambda: gpu_server(arguments=("--kv-offloading-size=32",), shared_memory_mib=40 * 1024),
        lambda: gpu_server(arguments=("--kv-offloading-size=128",), shared_memory_mib=160 * 1024),
        "KV cache offloaded takes 128 GiB of host memory, and a pod has 64: it is killed when it starts",
    ),
    "SRV019": Vector(
        lambda: gpu_server(shared_memory_mib=16 * 1024),
        lambda: gpu_server(shared_memory_mib=160 * 1024),
        "/dev/shm may take 163840 MiB",
    ),
    "SRV018": Vector(
        lambda: gpu_server(model_name="DeepSeek-V3", arguments=('--speculative-config={"method": "mtp"}',)),
        lambda: gpu_server(arguments=('--speculative-config={"method": "mtp"}',)),
        "Llama-3.1-8B has no layers that propose tokens",
    ),
    "GPU009": Vector(gpu_server, lambda: gpu_server(arguments=("--port=8080",)), "the engine listens on 8080"),
}
