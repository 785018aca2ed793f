"""The rule about what an engine on GPUs takes of its pod's memory beside the GPUs'. Id GPU…"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.engine_facts import engine_facts
from eks_inference.catalog.engines import STREAMER
from eks_inference.rules import Judgement
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flag, number, object_flag, switched
from eks_inference.serving.memory import GIB, server_memory
from eks_inference.serving.pods import vllm_release
from eks_inference.serving.rules.any_accelerator import gpu_rule
from eks_inference.serving.split import parallel

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
class Term:
    """One part of the sum."""

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


def terms(server: ServingFacts) -> Iterator[Term]:
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
        yield Term("KV cache offloaded", offloaded, ranks, flag="kv-offloading-size")
    lmcache = any(connector.startswith("LMCacheConnector") for connector, _ in transfers)
    if lmcache and server.environment.get("LMCACHE_LOCAL_CPU", "true").lower() != "false":
        size = number(server.environment.get("LMCACHE_MAX_LOCAL_CPU_SIZE"), _LMCACHE_GIB)
        yield Term("LMCache", size, gpus, flag="kv-transfer-config")
    memory = server_memory(server)
    if weights := number(flag(arguments, "cpu-offload-gb"), 0):
        most = memory.weights / GIB if memory else weights
        yield Term("weights offloaded", round(min(weights, most), 2), gpus, flag="cpu-offload-gb")
    if vllm_release(server.engine) < _SWAPS_BEFORE:
        yield Term("swap space", number(flag(arguments, "swap-space"), _SWAP_GIB), gpus, flag="swap-space")
    if flag(arguments, "load-format") == STREAMER:
        limit = object_flag(arguments, "model-loader-extra-config").get("memory_limit")
        limit = str(limit) if limit is not None else server.environment.get("RUNAI_STREAMER_MEMORY_LIMIT")
        size = number(limit, _STREAMER_GIB * GIB) / GIB
        most = memory.model.weight_bytes() / GIB if memory else size
        yield Term("buffer of the streamer", round(min(size, most), 2), gpus, sure=False, flag="load-format")
    if server.model and server.model.uncounted and not switched(arguments, "language-model-only", False):
        cache = number(flag(arguments, "mm-processor-cache-gb"), _MULTIMODAL_GIB)
        yield Term("cache of images", cache, server.copies + ranks, sure=False, flag="mm-processor-cache-gb")
    yield Term("processes", _PROCESS_GIB, server.copies + ranks + (gpus if gpus > ranks else 0), sure=False)


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
    found = [one for one in terms(server) if one.each_gib]
    sure = sum(one.gib for one in found if one.sure)
    whole, has = sum(one.gib for one in found), server.memory_mib / 1024
    names = " with ".join(one.what for one in found if one.sure)
    yield Judgement(
        holds=whole <= has,
        path=server.at("memory"),
        working=(f"{' + '.join(one.text for one in found)} = {whole:g} GiB; memory of the pod: {has:g} GiB",),
        message=f"{names} takes {sure:g} GiB of host memory, and a pod has {has:g}: it is killed when it starts"
        if sure > has
        else f"a pod may need {whole:g} GiB of host memory, and has {has:g}",
        given=f"{has:g} GiB",
        allowed=f"at least {whole:g} GiB",
        severity="error" if sure > has else "warning",
    )
    facts, shared = engine_facts(server.engine.vllm), server.shared_memory_mib / 1024
    there = next((one for one in found if one.flag == "kv-offloading-size"), None)
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
