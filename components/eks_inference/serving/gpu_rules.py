"""What a model server on NVIDIA GPUs must keep to. Numbers GPU…"""

from collections.abc import Iterator

from eks_inference.rules import Judgement, rule
from eks_inference.serving import judgements
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flag

_VLLM_TP = "vLLM documentation, parallelism and scaling"


@rule(
    "GPU001",
    "The engine is for the GPUs.",
    fix="choose one of the allowed engine profiles, or another instance type",
    source="vLLM installation guide and NVIDIA's release notes of Triton: oldest compute capability",
)
def engine_is_for_the_gpu(server: ServingFacts) -> Iterator[Judgement]:
    if _gpu(server) and server.engine.accelerator == "nvidia":
        yield from judgements.engine(server)


@rule(
    "GPU002",
    "The engine knows the model's architecture.",
    fix="choose another engine profile",
    source="vLLM documentation, supported models, as catalog/engines.toml keeps them",
)
def engine_knows_the_model(server: ServingFacts) -> Iterator[Judgement]:
    if _gpu(server):
        yield from judgements.architecture(server)


@rule(
    "GPU003",
    "A pod asks for no more GPUs than its instance type has.",
    fix="ask for fewer GPUs, or choose a larger instance type",
    source="Kubernetes: extended resources of a pod come from one node",
)
def gpus_exist(server: ServingFacts) -> Iterator[Judgement]:
    if not _gpu(server):
        return
    yield Judgement(
        holds=1 <= server.devices <= server.instance.devices,
        path=server.at("devices"),
        working=(f"{server.instance.name} has {_gpus(server.instance.devices)}; a pod asks for {server.devices}",),
        message=f"{_gpus(server.devices)} on {server.instance.name}, which has {server.instance.devices}",
        given=str(server.devices),
        allowed=f"1 to {server.instance.devices}",
    )


@rule(
    "GPU004",
    "The GPUs of a pod are as many as the parts of the model.",
    fix="let the number of GPUs be tensor_parallel times the copies",
    source=_VLLM_TP,
)
def gpus_and_degree_agree(server: ServingFacts) -> Iterator[Judgement]:
    if not _gpu(server):
        return
    used = max(server.copies, 1) * server.tensor_parallel
    missing = used > server.devices
    yield Judgement(
        holds=used == server.devices,
        path=server.at("tensor_parallel" if missing else "devices"),
        working=(f"{max(server.copies, 1)} x tensor_parallel {server.tensor_parallel} = {used} of {_gpus(server.devices)}",),
        message=f"tensor_parallel {server.tensor_parallel} is more than the {_gpus(server.devices)} of a pod"
        if missing
        else f"{server.devices - used} of the {_gpus(server.devices)} of a pod are idle",
        given=f"tensor_parallel {server.tensor_parallel}, {_gpus(server.devices)}",
        severity="error" if missing else "warning",
    )


@rule(
    "GPU005",
    "Attention heads divide evenly among the GPUs.",
    fix="choose a tensor_parallel that divides the number of heads",
    source="vLLM, ModelConfig.verify_with_parallel_config: refuses to start otherwise",
)
def heads_divide(server: ServingFacts) -> Iterator[Judgement]:
    if _gpu(server):
        yield from judgements.heads(server)


@rule(
    "GPU006",
    "Weights and one sequence of the longest fit the memory of a GPU.",
    fix="lower max_model_len, split the model over more GPUs, or choose GPUs with more memory",
    source="vLLM documentation, gpu_memory_utilization; memory of GPUs as the EC2 API has it",
)
def memory_suffices(server: ServingFacts) -> Iterator[Judgement]:
    if _gpu(server):
        yield from judgements.memory(server)


@rule(
    "GPU007",
    "The GPU computes in the type of the weights.",
    fix="give --dtype=half, or choose GPUs of compute capability 8.0 or later",
    source="vLLM: bfloat16 needs compute capability 8.0; without --dtype newer releases fall back to float16, older ones stop",
)
def gpu_has_the_type(server: ServingFacts) -> Iterator[Judgement]:
    if not _gpu(server) or server.model is None:
        return
    said = flag(server.arguments, "dtype")
    wanted = server.model.dtype if said in (None, "auto") else said
    capability = ".".join(map(str, server.instance.compute_capability or ()))
    yield Judgement(
        holds=wanted != "bfloat16" or server.instance.has_bfloat16,
        path=server.at("extra_args"),
        working=(f"weights as {wanted}; {server.instance.name}: compute capability {capability}, bfloat16 from 8.0 on",),
        message=f"{server.instance.name} does not compute in bfloat16"
        if said == "bfloat16"
        else f"{server.model.name} is published in bfloat16, which {server.instance.name} does not compute in",
        given=f"--dtype={said}" if said else "no --dtype",
        allowed="--dtype=half, --dtype=float32",
        severity="error" if said == "bfloat16" else "warning",
    )


@rule(
    "GPU008",
    "A pod fits a node.",
    fix="ask for less CPU or memory",
    source="Kubernetes node allocatable as AL2023 reserves it; DaemonSets' requests inferred",
)
def pod_fits(server: ServingFacts) -> Iterator[Judgement]:
    if _gpu(server):
        yield from judgements.pod(server)


@rule(
    "GPU009",
    "The engine listens where the Service leads.",
    fix="leave --port out",
    source="vLLM documentation, --port (default 8000); Triton, --http-port (default 8000)",
)
def ports_agree(server: ServingFacts) -> Iterator[Judgement]:
    if _gpu(server):
        yield from judgements.ports(server)


def _gpu(server: ServingFacts) -> bool:
    return server.instance.accelerator == "nvidia"


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"
