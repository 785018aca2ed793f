"""Vectors of the rules about servers on Neuron devices, including the mistakes of the source systems."""

from dataclasses import replace
from typing import Any

from eks_inference.catalog.engines import engine
from eks_inference.catalog.models import Model, find_model, model
from eks_inference.catalog.quantization import Quantization
from eks_inference.loadtest.rules import LoadTestFacts, RequestFacts
from eks_inference.loadtest.spec import LoadTestSpec, TokenCounts
from eks_inference.serving.facts import ServingFacts
from vectors import Vector
from vectors.serving import on, server, trn2


def llama3(**changes: Any) -> ServingFacts:
    """Returns Llama-3-8B on the two cores of one device, as in the source system for Ray Serve."""
    settings: dict[str, Any] = {
        "model_id": "NousResearch/Meta-Llama-3-8B-Instruct",
        "model": find_model("Llama-3-8B"),
        "placement": on("inf2.8xlarge"),
        "devices": 1,
        "tensor_parallel": 2,
        "max_num_seqs": 10,
        "cpu_millis": 30_000,
        "memory_mib": 104_904,
        "scheduler": False,
    }
    return server(**settings | changes)


def load_test(**spec: Any) -> LoadTestFacts:
    """Returns a load test of the three servers for Llama-2-13B."""
    return LoadTestFacts(LoadTestSpec(**spec), "llama", server(), ("load_test",))


def requests(prompt: int, stddev: int = 0) -> RequestFacts:
    """Returns requests for answers of 245 tokens from a server with sequences of 4096."""
    return RequestFacts("llama", server(), TokenCounts(mean=prompt, stddev=stddev), TokenCounts(mean=245), ("load_test",))


def claiming(**changes: Any) -> ServingFacts:
    """Returns a server on a pool whose devices are claimed."""
    return trn2(**{"placement": on("trn2.48xlarge", driver="2.30.2", devices="claims"), "claims": True, **changes})


PACKED = '{"neuron_config": {"fp8_packed_kv": true, "num_seqs_buckets": [8]}}'


def quantized(method: str) -> Model:
    """Returns Llama 3.3 70B from a checkpoint that is quantized in 8 bits."""
    return replace(model("Llama-3.3-70B"), quantization=Quantization(method, 8))


def static_fp8() -> Model:
    """Returns Llama 3.3 70B as NVIDIA's ModelOpt quantizes it, with scales for its KV cache."""
    return quantized("modelopt")


def qwen3_moe(sequences: int) -> ServingFacts:
    """Returns Qwen3-30B-A3B on NxD Inference."""
    return trn2(engine=engine("neuron-2.31-vllm-0.16"), model=model("Qwen3-30B-A3B"), max_num_seqs=sequences)


VECTORS = {
    "DRA005": Vector(claiming, lambda: claiming(claims=False), "servers of kind vllm need a device plugin"),
    "DRA006": Vector(claiming, lambda: claiming(devices=2), "publishes no sets of this many devices of trn2.48xlarge"),
    "LT001": Vector(lambda: requests(512), lambda: requests(4000), "refuses most requests, of 4245 tokens"),
    "NEU002": Vector(server, lambda: trn2(devices=32), "32 Neuron devices on trn2.48xlarge, which has 16"),
    "NEU003": Vector(server, lambda: server(devices=1), "tensor_parallel 8 is more than the 2 NeuronCores of a pod"),
    # The source system's optional change to a whole node: the model stays on two cores.
    "NEU004": Vector(
        llama3,
        lambda: llama3(placement=on("inf2.48xlarge"), devices=12),
        "22 of the 24 NeuronCores of a pod are idle",
    ),
    "NEU005": Vector(server, lambda: server(tensor_parallel=5), "no document lists 5 cores on inf2"),
    "NEU006": Vector(
        server,
        lambda: llama3(placement=on("inf2.48xlarge"), devices=12, tensor_parallel=24),
        "32 attention heads of Llama-3-8B do not divide evenly among 24 cores",
    ),
    "NEU007": Vector(server, trn2, "each of the 8 KV heads is held 2 times, and"),
    "NEU008": Vector(server, lambda: server(max_model_len=8192), "needs 21.87 GiB a core, but only 16 are available"),
    "NEU009": Vector(server, lambda: server(scheduler=False), "needs the Neuron scheduler"),
    "NEU012": Vector(server, lambda: server(engine=engine("neuron-2.32-vllm-0.24")), "is not for inf2.48xlarge"),
    "NEU013": Vector(server, lambda: server(model=find_model("OPT-350M")), "does not serve OPT-350M"),
    "NEU014": Vector(server, lambda: server(arguments=("--num-gpu-blocks-override=12",)), "12 blocks for 24 sequences"),
    "NEU015": Vector(
        server,
        lambda: trn2(placement=on("trn2.48xlarge", driver="2.26.5")),
        "SDK 2.32.0 do not work with driver 2.26.5",
    ),
    "NEU019": Vector(
        lambda: load_test(sampling={"top_k": 50}),
        lambda: load_test(sampling={"top_k": 1000}),
        "keep 256 candidates",
    ),
    "LT002": Vector(
        lambda: load_test(sampling={"top_k": 0, "top_p": 0.9, "temperature": 0}),
        lambda: load_test(sampling={"top_p": 5}),
        "server 'llama' refuses every request",
    ),
    "LT003": Vector(
        lambda: load_test(ready_timeout_seconds=7200), lambda: load_test(ready_timeout_seconds=60), "gives up after 60 s"
    ),
    "NEU020": Vector(load_test, lambda: load_test(users=(22, 96)), "96 users at once on server 'llama', which handles 72"),
    "NEU021": Vector(server, lambda: server(memory_mib=900 * 1024), "no inf2.48xlarge has 900 GiB for a pod"),
    "NEU022": Vector(server, lambda: server(container_port=8080, service_port=8080), "the engine listens on 8000"),
    "NEU023": Vector(server, lambda: server(compile_cache=False), "compiles again"),
    "NEU025": Vector(
        server,
        lambda: server(placement=on("inf2.xlarge"), devices=1, tensor_parallel=2, memory_mib=12 * 1024),
        "may take 24 GiB of host memory, and the pod has 12",
    ),
    "NEU027": Vector(
        lambda: trn2(environment={"NEURON_SKIP_EFA_AFFINITY": "1"}),
        lambda: trn2(environment={"NEURON_SKIP_EFA_AFFINITY": "0"}),
        "looks for an EFA interface that it does not find",
    ),
    "NEU028": Vector(
        lambda: trn2(arguments=('--additional-config={"neuron_config": {"num_seqs_buckets": [8]}}',)),
        # As AWS's guide spells it for the command line, for an engine that reads another.
        lambda: server(arguments=('--additional-config={"override-neuron-config": {"async_mode": true}}',)),
        "does not read 'override-neuron-config'",
    ),
    "NEU029": Vector(
        lambda: trn2(model=static_fp8(), arguments=(f"--additional-config={PACKED}", "--block-size=128")),
        # The recipe of AWS without its last setting.
        lambda: trn2(model=static_fp8(), arguments=("--block-size=128",)),
        "whose kernel reads FP8 only packed",
    ),
    "NEU030": Vector(
        lambda: trn2(model=static_fp8()),
        lambda: trn2(model=quantized("awq")),
        "does not load checkpoints quantized with awq",
    ),
    "NEU031": Vector(
        lambda: trn2(arguments=('--additional-config={"neuron_config": {"enable_structured_outputs": true}}',)),
        lambda: trn2(arguments=('--additional-config={"neuron_config": {"on_device_sampling_config": null}}',)),
        "add --no-async-scheduling",
    ),
    "NEU032": Vector(lambda: qwen3_moe(16), lambda: qwen3_moe(4), "in batches of 16 sequences or more"),
}
