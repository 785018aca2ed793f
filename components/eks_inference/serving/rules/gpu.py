"""Rules for model servers of every kind on GPUs. Ids GPU…"""

from collections.abc import Iterator
from functools import partial

from eks_inference.catalog.kernels import Capability, LinearBackend, kernel
from eks_inference.catalog.quantization import Quantization
from eks_inference.rules import Judgement, Path, not_judged, rule
from eks_inference.serving import linear_backend
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flag, number
from eks_inference.serving.pods import vllm_release
from eks_inference.serving.rules import any_accelerator
from eks_inference.serving.rules.any_accelerator import accelerator_rule

gpu_rule = partial(accelerator_rule, "nvidia")

_CONVERTS_BFLOAT16 = (0, 9)  # first vLLM release that falls back to float16 on GPUs without bfloat16


memory_suffices = gpu_rule(
    "GPU001",
    "Weights, KV cache and what vLLM takes beside them fit the memory of a GPU.",
    fix="lower max_model_len, split the model over more GPUs, or choose a larger GPU",
    source="vLLM refuses to start when one sequence of the longest does not fit (kv_cache_utils, _check_enough_kv_cache_memory); "
    "EC2 instance types and logs: memory of each GPU; measurements: docs/memory.md",
)(any_accelerator.memory)


@gpu_rule(
    "GPU002",
    "A pod has a GPU for each part of the model, and its node has the GPUs.",
    fix="ask for as many GPUs as the model is split over, and no more than the instance type has",
    source="Kubernetes scheduling: a pod takes its GPUs from one node; vLLM documentation, tensor parallelism",
)
def gpus_suffice(server: ServingFacts) -> Iterator[Judgement]:
    there, instance = server.instance.devices, server.instance.name
    yield Judgement(
        holds=server.devices <= there,
        path=server.at("devices"),
        working=(f"GPUs of one pod: {server.devices}; GPUs of {instance}: {there}",),
        message=f"no {instance} has {_gpus(server.devices)}: the pod stays Pending forever",
        given=str(server.devices),
        allowed=f"at most {there}",
    )
    yield Judgement(
        holds=server.tensor_parallel <= server.devices,
        path=server.at("tensor_parallel"),
        working=(f"tensor_parallel {server.tensor_parallel}; GPUs of one pod: {server.devices}",),
        message=f"tensor_parallel {server.tensor_parallel} is more than the {_gpus(server.devices)} of a pod",
        given=str(server.tensor_parallel),
        allowed=f"at most {server.devices}",
    )
    if "pipeline-parallel-size" in server.extra_args and server.engine.standalone:  # Triton: TRI002
        stages, degree = _stages(server), server.tensor_parallel
        yield Judgement(
            holds=degree * stages <= server.devices,
            path=server.under("extra_args", "pipeline-parallel-size"),
            working=(
                f"tensor_parallel {degree} x {stages} stages = {_gpus(degree * stages)}; GPUs of one pod: {server.devices}",
            ),
            message=f"a copy of the model takes {_gpus(degree * stages)}, and a pod has {server.devices}",
            given=str(stages),
            allowed=f"at most {max(server.devices // max(degree, 1), 1)}",
        )


heads_divide = gpu_rule(
    "GPU003",
    "Attention heads divide evenly among the GPUs, and KV heads among them or they among KV heads.",
    fix="choose a tensor_parallel that divides the number of heads",
    source="vLLM refuses it (ModelConfig.verify_with_parallel_config; attention of its models: issue 16021, Phi-4 over 4)",
)(any_accelerator.heads)


@gpu_rule(
    "GPU004",
    "The GPU has the arithmetic the model is asked for in: bfloat16 needs compute capability 8.0.",
    fix="say float16, or choose a GPU of compute capability 8.0 or later",
    source="vLLM refuses bfloat16 below 8.0 (CudaPlatform.check_if_supports_dtype); NVIDIA, CUDA GPU compute capability: T4 7.5",
)
def gpu_has_the_dtype(server: ServingFacts) -> Iterator[Judgement]:
    if server.instance.compute_capability is None:
        return
    major, minor = server.instance.compute_capability
    said = flag(server.arguments, "dtype") or "auto"
    wanted, how = "float16" if said == "half" else said, f"dtype {said}"
    if wanted == "auto" and server.model is not None:
        converts = vllm_release(server.engine) >= _CONVERTS_BFLOAT16 and not server.instance.has_bfloat16
        wanted = "float16" if converts else server.model.dtype
        how = f"dtype auto: {server.model.name} is published in {server.model.dtype}"
        how += f", vLLM {server.engine.vllm} falls back to float16 on GPUs without it" if wanted != server.model.dtype else ""
    elif wanted == "auto" and not server.instance.has_bfloat16 and vllm_release(server.engine) < _CONVERTS_BFLOAT16:
        yield server.unknown_model("dtype")
        return
    yield Judgement(
        holds=wanted != "bfloat16" or server.instance.has_bfloat16,
        path=server.at_flag("dtype"),
        working=(how, f"{server.instance.name}: compute capability {major}.{minor}; bfloat16 from 8.0"),
        message=f"the GPUs of {server.instance.name} have no bfloat16: vLLM does not start",
        given=how,
        allowed="float16",
    )


@rule(
    "GPU005",
    "The engine is for the GPUs.",
    fix="choose one of the allowed engine profiles, or another instance type",
    source="release notes of each image: oldest CUDA compute capability, as catalog/engines.toml keeps it",
)
def engine_is_for_the_gpu(server: ServingFacts) -> Iterator[Judgement]:
    if server.instance.nvidia or server.engine.nvidia:
        yield from any_accelerator.engine(server)


@gpu_rule(
    "GPU006",
    "No GPU is idle.",
    severity="warning",
    fix="ask for as many GPUs as are used, or split the model over all of them",
    source="a GPU that a pod holds or cannot reach is paid for",
)
def no_gpu_is_idle(server: ServingFacts) -> Iterator[Judgement]:
    if not 0 < server.devices <= server.instance.devices:
        return
    per_copy = server.tensor_parallel * _stages(server)
    used = server.copies * per_copy
    if used <= server.devices:
        copies = "1 copy" if server.copies == 1 else f"{server.copies} copies"
        yield Judgement(
            holds=used == server.devices,
            path=server.at("devices"),
            working=(f"{copies} x {per_copy} GPUs = {used} of {server.devices} GPUs of a pod",),
            message=f"{server.devices - used} of the {server.devices} GPUs of a pod are idle",
            given=str(server.devices),
            allowed=str(used),
        )
    pods, left = divmod(server.instance.devices, server.devices)
    yield Judgement(
        holds=not left,
        path=server.at("devices"),
        working=(f"{server.instance.name}: {server.instance.devices} GPUs = {pods} pods x {server.devices}, {left} left",),
        message=f"{left} of the {server.instance.devices} GPUs of each node are idle: pods of {server.devices} do not fill it",
        given=str(server.devices),
        allowed=", ".join(str(count) for count in range(1, server.instance.devices + 1) if not server.instance.devices % count),
    )


pod_fits = gpu_rule(
    "GPU007",
    "A pod fits a node.",
    fix="ask for less CPU or memory, or leave them out for the GPUs' share",
    source="Kubernetes node allocatable as AL2023 reserves it; DaemonSets' requests inferred",
)(any_accelerator.pod)


engine_knows_the_model = gpu_rule(
    "GPU008",
    "The engine knows the model's architecture.",
    fix="choose another engine profile",
    source="model registry of each vLLM release, as catalog/engines.toml keeps it",
)(any_accelerator.architecture)


@gpu_rule(
    "GPU009",
    "The engine listens where the Service leads.",
    fix="leave --port out",
    source="vLLM documentation, --port (default 8000)",
)
def ports_agree(server: ServingFacts) -> Iterator[Judgement]:
    if server.engine.standalone:
        yield from any_accelerator.ports(server)


@gpu_rule(
    "GPU010",
    "vLLM has a kernel for the quantization of the weights on the GPU.",
    fix="choose another instance type, or weights that are quantized otherwise or not at all",
    source="vLLM documentation, Quantization: supported hardware; the kernels of each release: catalog/kernels.toml",
)
def gpu_has_a_kernel(server: ServingFacts) -> Iterator[Judgement]:
    if server.instance.compute_capability is None:
        return
    online = server.model is None or server.model.quantization is None
    if (found := linear_backend.weights(server.arguments, server.model)) is not None:
        yield from _kernel(server, found, server.at_flag("quantization") if online else (*server.path, "model", "id"))
    if (found := linear_backend.draft_weights(server.arguments)) is not None:
        yield from _kernel(server, found, server.at_flag("speculative-config"))


def _kernel(server: ServingFacts, quantization: Quantization, path: Path) -> Iterator[Judgement]:
    has = server.instance.compute_capability
    assert has is not None
    method = f"{quantization.method}{' with 8-bit integers' if quantization.integer_activations else ''}"
    known = kernel(quantization, server.engine.vllm)
    if known is None:
        why = f"which GPUs vLLM {server.engine.vllm} has a kernel for is not known here"
        yield not_judged("kernel", method, path, why=why, fix="look at the log of vLLM when it starts")
        return
    allowed = f"{_text(known.minimum)} or later" + (f", before {_text(known.below)}" if known.below else "")
    yield Judgement(
        holds=known.serves(has),
        path=path,
        working=(f"{method} on vLLM {server.engine.vllm}: {allowed}; {server.instance.name}: compute capability {_text(has)}",),
        message=f"vLLM {server.engine.vllm} has no kernel for {method} on the GPUs of {server.instance.name}",
        given=f"compute capability {_text(has)}",
        allowed=allowed,
    )
    if known.minimum <= has < (known.certain or known.minimum):
        why = f"below compute capability {_text(known.certain or known.minimum)} it depends on the checkpoint"
        yield not_judged("kernel", method, path, why=why, fix="look at the log of vLLM when it starts")
    if (needed := linear_backend.needed(server.engine.vllm, server.instance, quantization)) and known.serves(has):
        yield _selected(server, method, needed, path)


def _selected(server: ServingFacts, method: str, needed: LinearBackend, path: Path) -> Judgement:
    """The kernel that the engine selects among those that it has."""
    vllm, given = server.engine.vllm, linear_backend.chosen(server.arguments)
    path = next(
        (server.under("extra_args", one) for one in ("linear-backend", "kernel-config") if one in server.extra_args), path
    )
    fix = f"say linear-backend: {needed.backend}, or leave it out"
    if given != needed.backend and (given in needed.unsaid or server.model is None):
        why = "the weights of a repository that is unknown here may have other kernels" if server.model is None else ""
        why = why or f"nobody has said whether it computes {method} below compute capability {_text(needed.below)}"
        return not_judged("linear-backend", given, path, why=why, fix=fix)
    return Judgement(
        holds=given == needed.backend,
        path=path,
        working=(f"{method} on vLLM {vllm} below compute capability {_text(needed.below)}: linear-backend {needed.backend}",),
        message=f"vLLM {vllm} has no kernel for {method} on the GPUs of {server.instance.name} with linear-backend {given}",
        given=given,
        allowed=needed.backend,
        fix=fix,
    )


def _text(capability: Capability) -> str:
    return f"{capability[0]}.{capability[1]}"


def _stages(server: ServingFacts) -> int:
    return int(number(flag(server.arguments, "pipeline-parallel-size"), 1))


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"
