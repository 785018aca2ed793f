"""Rules for model servers of every kind on GPUs, and about what an engine takes of its pod's memory beside them. Ids GPU…"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.engine_facts import engine_facts
from eks_inference.catalog.engines import STREAMER
from eks_inference.catalog.tables import version_numbers
from eks_inference.rules import Judgement, rule
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.features import sees
from eks_inference.serving.flags import flag, number, object_flag
from eks_inference.serving.memory import GIB, server_memory
from eks_inference.serving.pod_parts import vllm_release
from eks_inference.serving.rules import any_accelerator
from eks_inference.serving.rules.any_accelerator import gpu_rule
from eks_inference.serving.split import FLAGS, parallel

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
    split = parallel(server.arguments, server.tensor_parallel)
    given = [name for name in FLAGS if name in server.extra_args]
    if given and server.engine.standalone:  # Triton: TRI002
        parts = {"stages": split.stages, "data parallel ranks": split.ranks, "parts of a prompt": split.prefill_context}
        factors = "".join(f" x {count} {what}" for what, count in parts.items() if count > 1)
        yield Judgement(
            holds=split.devices <= server.devices,
            path=server.under("extra_args", given[0]),
            working=(f"tensor_parallel {split.tensor}{factors} = {_gpus(split.devices)}; GPUs of one pod: {server.devices}",),
            message=f"the parts of the model take {_gpus(split.devices)}, and a pod has {server.devices}: vLLM does not start",
            given=f"--{given[0]}={server.extra_args[given[0]]}",
            allowed=f"{_gpus(server.devices)} together",
        )
    facts, model = engine_facts(server.engine.vllm), server.model
    if model and split.stages > 1:
        by_experts = bool(facts and model.architecture in facts.experts_in_stages)
        first, last = (split.layers(model.layers)[end] for end in (0, -1))  # the stages between have no fewer
        what, before = ("layer with experts", model.layers - model.expert_layers) if by_experts else ("layer", 0)
        bare = [name for name, stage in (("first", first), ("last", last)) if stage.stop <= max(before, stage.start)]
        yield Judgement(
            holds=not bare,
            path=server.under("extra_args", FLAGS[0]),
            working=(f"layers: {model.layers}, {before} of them before the first {what}; stages: {split.stages}",),
            message=f"the {' and the '.join(bare)} stage has no {what}, without which vLLM does not start {model.name}",
            given=str(split.stages),
            allowed=f"at most {model.layers} stages, each with a {what}",
        )


heads_divide = gpu_rule(
    "GPU003",
    "Attention heads divide evenly among the GPUs, and KV heads among them or they among KV heads.",
    fix="choose a tensor_parallel that divides the number of heads",
    source="vLLM refuses it (ModelConfig.verify_with_parallel_config; attention of its models: issue 16021, Phi-4 over 4)",
)(any_accelerator.heads)


@rule(
    "GPU005",
    "The engine is for the GPUs.",
    fix="choose one of the allowed engine profiles, or another instance type",
    source="release notes of each image: oldest CUDA compute capability, as catalog/engines.toml keeps it",
)
def engine_is_for_the_gpu(server: ServingFacts) -> Iterator[Judgement]:
    if not server.instance.neuron:
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
    per_copy = parallel(server.arguments, server.tensor_parallel).devices
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
        message=f"{left} of the {server.instance.devices} GPUs on each node are idle: pods with {server.devices} do not fill it",
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
    "GPU014",
    "The NVIDIA driver of the nodes is as new as the image's CUDA.",
    fix="choose a newer AMI release (ami.release_version), or leave it out",
    source="NVIDIA, CUDA compatibility: CUDA 13 needs driver 580; awslabs/amazon-eks-ami, CHANGELOG.md: driver of each release",
)
def driver_suits_the_image(server: ServingFacts) -> Iterator[Judgement]:
    driver, oldest = server.placement.driver, server.engine.minimum_driver
    if driver is None or oldest is None:
        return
    yield Judgement(
        holds=version_numbers(driver) >= version_numbers(oldest),
        path=server.at("engine"),
        working=(f"driver on the nodes of pool '{server.placement.pool}': {driver}; the image needs {oldest}",),
        message=f"the CUDA of the image does not start with driver {driver}",
        given=driver,
        allowed=f"{oldest} or newer",
    )


_TAKEN_GIB = (0.45, 0.63)
"""What an empty GPU has less than its memory once a process has a CUDA context, as vLLM's logs show it ("Free memory on device"):
RTX 4090 0.45, H100 0.47, RTX 5090 0.5 and 0.63, H200 0.6. Nobody published it of Turing."""


@gpu_rule(
    "GPU015",
    "The share of a GPU's memory that the engine wants is free when it starts.",
    severity="warning",
    fix="lower gpu-memory-utilization",
    source="vLLM, request_memory in vllm/v1/worker/utils.py: it does not start with less; public logs of it (_TAKEN_GIB)",
)
def share_is_free(server: ServingFacts) -> Iterator[Judgement]:
    memory = server_memory(server)
    if memory is None or not memory.engine.generation.paged:
        return
    left, (least, most), share = (memory.memory - memory.capacity) / GIB, _TAKEN_GIB, memory.settings.utilization
    key = "gpu-memory-utilization"
    yield Judgement(
        holds=left >= most,
        path=server.under("extra_args", key) if server.engine.standalone else server.at("gpu_memory_utilization"),
        working=(f"(1 - {share:g}) x {memory.memory / GIB:.4g} GiB = {left:.2f}; a CUDA context takes {least:g} to {most:g}",),
        message=f"vLLM may not start: its share leaves {left:.2f} GiB, and its own CUDA context takes {least:g} to {most:g}",
        given=f"{share:g}",
        allowed=f"at most {1 - most * GIB / memory.memory:.3f}",
    )


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


_PROCESS_GIB = 1.5
"""What a process of vLLM takes, libraries and buffers included. Inferred: nobody published a figure, so it only warns."""
_LMCACHE_GIB = 5
"""LMCache, ``max_local_cpu_size``: pinned by each worker when it starts."""
_SWAP_GIB = 4
_SWAPS_BEFORE = (0, 9)
"""vLLM before its V1 engine pinned ``--swap-space`` for each GPU."""
_STREAMER_GIB = 37
"""run:ai Model Streamer, ``RUNAI_STREAMER_MEMORY_LIMIT``: 40 GB of buffer in each process that reads."""
_MULTIMODAL_GIB = 4


@dataclass(frozen=True)
class HostTerm:
    """One part of what an engine takes on the host."""

    what: str
    each_gib: float
    count: int = 1
    sure: bool = True
    """Whether the engine takes it when it starts, and not perhaps."""
    flag: str = ""

    @property
    def gib(self) -> float:
        return self.each_gib * self.count

    @property
    def text(self) -> str:
        return f"{self.what} {self.each_gib:g}" + (f" x {self.count}" if self.count != 1 else "")


def host_terms(server: ServingFacts) -> Iterator[HostTerm]:
    """What the engine pins or maps on the host."""
    split, arguments = parallel(server.arguments, server.tensor_parallel), server.arguments
    gpus, ranks = split.devices * server.copies, split.ranks * server.copies
    transfers = list(_transfers(object_flag(arguments, "kv-transfer-config")))
    offloaded = number(flag(arguments, "kv-offloading-size"), 0) or sum(
        number(str(extra.get("cpu_bytes_to_use")), 0) / GIB
        for connector, extra in transfers
        if connector.endswith(("OffloadingConnector", "CPUOffloadConnector"))
    )
    if offloaded and flag(arguments, "kv-offloading-backend") != "lmcache":
        yield HostTerm("KV cache offloaded", offloaded, ranks, flag="kv-offloading-size")
    lmcache = any(connector.startswith("LMCacheConnector") for connector, _ in transfers)
    if lmcache and server.environment.get("LMCACHE_LOCAL_CPU", "true").lower() != "false":
        size = number(server.environment.get("LMCACHE_MAX_LOCAL_CPU_SIZE"), _LMCACHE_GIB)
        yield HostTerm("LMCache", size, gpus, flag="kv-transfer-config")
    memory = server_memory(server)
    if weights := number(flag(arguments, "cpu-offload-gb"), 0):
        most = memory.weights / GIB if memory else weights
        yield HostTerm("weights offloaded", round(min(weights, most), 2), gpus, flag="cpu-offload-gb")
    if vllm_release(server.engine) < _SWAPS_BEFORE:
        yield HostTerm("swap space", number(flag(arguments, "swap-space"), _SWAP_GIB), gpus, flag="swap-space")
    if flag(arguments, "load-format") == STREAMER:
        limit = object_flag(arguments, "model-loader-extra-config").get("memory_limit")
        limit = str(limit) if limit is not None else server.environment.get("RUNAI_STREAMER_MEMORY_LIMIT")
        size = number(limit, _STREAMER_GIB * GIB) / GIB
        most = memory.model.weight_bytes() / GIB if memory else size
        yield HostTerm("buffer of the streamer", round(min(size, most), 2), gpus, sure=False, flag="load-format")
    if server.model and server.model.sees and sees(arguments, server.model):
        cache = number(flag(arguments, "mm-processor-cache-gb"), _MULTIMODAL_GIB)
        yield HostTerm("cache of images", cache, server.copies + ranks, sure=False, flag="mm-processor-cache-gb")
    yield HostTerm("processes", _PROCESS_GIB, server.copies + ranks + (gpus if gpus > ranks else 0), sure=False)


def _transfers(config: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields connectors with their settings, also those inside a MultiConnector."""
    if isinstance(config, Mapping):
        extra = config.get("kv_connector_extra_config")
        extra = extra if isinstance(extra, Mapping) else {}
        yield str(config.get("kv_connector", "")), extra
        inside = extra.get("connectors")
        for one in inside if isinstance(inside, list) else ():
            yield from _transfers(one)


@gpu_rule(
    "GPU013",
    "A pod has the host memory that the engine pins, maps and fills, and shared memory for what it offloads there.",
    fix="raise memory and shared_memory_gib, lower what the engine keeps on the host, or choose a larger instance type",
    source="vLLM 0.30.0: SharedOffloadRegion in /dev/shm, CacheConfig.kv_offloading_size, UVAOffloadConfig, MultiModalConfig; "
    "LMCache, configuration; run:ai Model Streamer, environment variables; processes: inferred",
)
def host_memory_suffices(server: ServingFacts) -> Iterator[Judgement]:
    if not server.memory_mib or server.beside:
        return
    found = [host_term for host_term in host_terms(server) if host_term.each_gib]
    sure = sum(host_term.gib for host_term in found if host_term.sure)
    whole, has = sum(host_term.gib for host_term in found), server.memory_mib / 1024
    names = " with ".join(host_term.what for host_term in found if host_term.sure)
    yield Judgement(
        holds=whole <= has,
        path=server.at("memory"),
        working=(f"{' + '.join(host_term.text for host_term in found)} = {whole:g} GiB; memory of the pod: {has:g} GiB",),
        message=f"{names} takes {sure:g} GiB of host memory, and a pod has {has:g}: it is killed when it starts"
        if sure > has
        else f"a pod may need {whole:g} GiB of host memory, and has {has:g}",
        given=f"{has:g} GiB",
        allowed=f"at least {whole:g} GiB",
        severity="error" if sure > has else "warning",
    )
    facts, shared = engine_facts(server.engine.vllm), server.shared_memory_mib / 1024
    there = next((host_term for host_term in found if host_term.flag == "kv-offloading-size"), None)
    # Another connector, which a variable or its name chooses, keeps it in private memory.
    simple = server.environment.get("VLLM_USE_SIMPLE_KV_OFFLOAD", "0") not in ("", "0") or any(
        "SimpleCPUOffloadConnector" in connector
        for connector, _ in _transfers(object_flag(server.arguments, "kv-transfer-config"))
    )
    if facts and facts.offloads_to_shared_memory and there and shared and not simple:
        yield Judgement(
            holds=there.gib <= shared,
            path=server.at("shared_memory_gib"),
            working=(f"{there.text} = {there.gib:g} GiB in /dev/shm, which has {shared:g} GiB",),
            message=f"vLLM {facts.name} offloads to /dev/shm, and {there.gib:g} GiB do not fit its {shared:g}: it does not start",
            given=f"{shared:g} GiB",
            allowed=f"at least {there.gib:g} GiB, and the memory for it",
        )
