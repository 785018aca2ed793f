"""Vectors of the rules about any model server, and the valid servers that others derive from."""

from dataclasses import replace
from typing import Any

from eks_inference.catalog.engines import engine
from eks_inference.catalog.instances import instance_type
from eks_inference.catalog.models import find_model
from eks_inference.place.placement import POOL_LABEL, Placement
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.features import OpenAiFeatures
from vectors import Vector


def on(name: str, pool: str = "accelerated", **changes: Any) -> Placement:
    """Returns a placement on an instance type."""
    return Placement(pool, instance_type(name), {POOL_LABEL: pool}, **changes)


def server(**changes: Any) -> ServingFacts:
    """Returns Llama-2-13B as in the source system on Inf2, three pods of four devices on a node, with changes."""
    profile = changes.get("engine", engine("neuron-2.28-vllm-0.13"))
    sequences, length = changes.get("max_num_seqs", 24), changes.get("max_model_len", 4096)
    good = ServingFacts(
        path=("servers", "llama"),
        kind="vllm",
        engine=profile,
        model_id="NousResearch/Llama-2-13b-chat-hf",
        model=find_model("Llama-2-13B"),
        placement=on("inf2.48xlarge", driver="2.29.0"),
        devices=4,
        tensor_parallel=8,
        max_num_seqs=sequences,
        max_model_len=length,
        pods_min=3,
        pods_max=3,
        cpu_millis=60_000,
        memory_mib=200 * 1024,
        scheduler=True,
        startup_timeout_s=profile.startup.engine_s,
        arguments=tuple(profile.flags(max_num_seqs=sequences, max_model_len=length)),
        image=profile.image,
    )
    return replace(good, **changes)


def trn2(**changes: Any) -> ServingFacts:
    """Returns Llama-3.3-70B on four of the sixteen devices of a Trn2 node, with a paged KV cache and with changes."""
    settings = {
        "engine": engine("neuron-2.32-vllm-0.24"),
        "model_id": "meta-llama/Llama-3.3-70B-Instruct",
        "model": find_model("Llama-3.3-70B"),
        "placement": on("trn2.48xlarge", driver="2.30.2"),
        "devices": 4,
        "tensor_parallel": 16,
        "max_num_seqs": 8,
        "max_model_len": 8192,
        "cpu_millis": 40_000,
        "memory_mib": 400 * 1024,
    }
    return server(**settings | changes)


def gpu(**changes: Any) -> ServingFacts:
    """Returns OPT-350M on the GPU of a g4dn.xlarge, with changes."""
    settings = {
        "engine": engine("cuda-vllm-0.30"),
        "model_id": "facebook/opt-350m",
        "model": find_model("OPT-350M"),
        "placement": on("g4dn.xlarge"),
        "devices": 1,
        "tensor_parallel": 1,
        "max_num_seqs": 256,
        "max_model_len": 2048,
        "pods_min": 1,
        "pods_max": 4,
        "cpu_millis": 2000,
        "memory_mib": 8 * 1024,
        "scheduler": False,
    }
    return server(**settings | changes)


DRAFT = {"method": "draft_model", "tokens": 3}

VECTORS = {
    # A probe of two minutes, as in the source system for Triton.
    "SRV001": Vector(
        server, lambda: server(startup_timeout_s=120), "120 s is less than a start takes even with everything compiled"
    ),
    "SRV002": Vector(server, lambda: server(max_model_len=8192), "made for sequences of 4096 tokens"),
    "SRV003": Vector(server, lambda: server(engine=engine("neuron-2.18-vllm-0.3")), "transformers-neuronx was removed"),
    "SRV004": Vector(server, lambda: server(image=engine("neuron-2.31-vllm-0.16").image), "the image holds vLLM 0.16"),
    "SRV005": Vector(server, lambda: server(placement=on("inf2.48xlarge", spot=True)), "may be spot capacity"),
    "SRV006": Vector(
        lambda: server(arguments=("--max-num-seqs=24",)),
        lambda: server(arguments=("--max-num-seqs=48",)),
        "--max-num-seqs says 48, and max_num_seqs 24",
    ),
    "SRV007": Vector(
        lambda: server(extra_args={"kv-cache-dtype": "fp8", "no-enable-prefix-caching": True}),
        lambda: server(extra_args={"quantisation": "fp8"}),
        "vLLM 0.13.0 has no flag --quantisation",
    ),
    "SRV009": Vector(
        lambda: server(extra_args={"host": "0.0.0.0", "dtype": "bfloat16"}, extra_env={"VLLM_LOGGING_LEVEL": "DEBUG"}),
        lambda: server(extra_args={"host": "127.0.0.1"}),
        "host is not free to set",
    ),
    "OPN001": Vector(
        lambda: gpu(extra_args={"trust-remote-code": True}, extra_env={"VLLM_SERVER_DEV_MODE": "0"}, pinned=True),
        lambda: gpu(extra_env={"VLLM_SERVER_DEV_MODE": "1"}, led_out=True),
        "with VLLM_SERVER_DEV_MODE, /collective_rpc, /update_weights, /sleep",
    ),
    "OPN002": Vector(
        lambda: gpu(model=find_model("Gemma-3-27B"), arguments=("--allowed-media-domains", "images.example.com")),
        lambda: gpu(model=find_model("Gemma-3-27B")),
        "fetch any address that the pod reaches",
    ),
    "SRV010": Vector(
        lambda: gpu(extra_args={"gpu-memory-utilization": 0.5, "no-enable-prefix-caching": True, "kv-cache-dtype": "fp8"}),
        lambda: gpu(extra_args={"gpu-memory-utilization": 5}),
        "vLLM 0.30.0 does not take this value of gpu-memory-utilization",
    ),
    "SRV011": Vector(
        lambda: gpu(arguments=("--enable-auto-tool-choice", "--tool-call-parser=hermes")),
        lambda: gpu(arguments=("--enable-auto-tool-choice",)),
        "vLLM 0.30.0 does not start: enable-auto-tool-choice needs a tool-call-parser",
    ),
    "SRV012": Vector(
        lambda: server(features=OpenAiFeatures(prefix_caching=True, quantized_kv="fp8", tool_parser="pythonic")),
        lambda: server(features=OpenAiFeatures(quantized_weights="fp8")),
        "the documents of engine neuron-2.28-vllm-0.13 have no quantized_weights fp8",
    ),
    "SRV013": Vector(
        lambda: gpu(arguments=("--enable-auto-tool-choice", "--tool-call-parser=hermes")),
        lambda: gpu(arguments=("--enable-auto-tool-choice", "--tool-call-parser=hermess")),
        "vLLM 0.30.0 has no parser 'hermess' for tool calls: the server does not start",
    ),
    "SRV014": Vector(
        lambda: gpu(features=OpenAiFeatures.model_validate({"speculation": {**DRAFT, "draft": "facebook/opt-350m"}})),
        lambda: gpu(features=OpenAiFeatures.model_validate({"speculation": {**DRAFT, "draft": "Qwen/Qwen3-8B"}})),
        "has another vocabulary than",
    ),
    "SRV015": Vector(
        lambda: server(disk_gib=100),
        lambda: server(disk_gib=20),
        "and may write 20: it is evicted",
    ),
    "SRV017": Vector(
        lambda: server(model_id="Qwen/Qwen2.5-7B-Instruct", model=find_model("Qwen2.5-7B")),
        lambda: server(model_id="Qwen/Qwen3-8B", model=find_model("Qwen3-8B")),
        "users report: the compiler of SDK 2.28 fails on Qwen3 for Inf2",
    ),
    "SRV022": Vector(
        lambda: server(first=server()),
        lambda: server(first=server(devices=2)),
        "pods would differ: devices: 2 on inf2.48xlarge, 4 here",
    ),
    "SRV020": Vector(
        lambda: server(placement=on("g6.xlarge"), does="embed", has_task=True),
        lambda: server(does="embed", has_task=True),
        "is for embed, which neuron-2.28-vllm-0.13 does not serve so",
    ),
    "SRV023": Vector(
        lambda: server(placement=on("g6.xlarge"), does="transcribe", has_task=True, image="registry.example/hears:1"),
        lambda: server(placement=on("g6.xlarge"), does="transcribe", has_task=True),
        "lacks vllm[audio]",
    ),
}
