"""Says of each case whether the engine's start-up code takes it: ``python -m refresh.engine.judge LIBCUDA < cases > answers``.

A case is a line of JSON: ``id``, ``gpu`` (name, capability, mib, count), ``args`` of `vllm serve`, ``env``, and ``sight`` to ask
what the model sees with. An answer has the case's id, ``verdict`` (starts, refuses, died), the ``stage`` that was reached,
``error`` in the engine's words, and what it made of the settings:

arguments   the command line
config      create_engine_config: dtype, quantization, lengths, features
devices     as many devices as ranks, and their dtypes
model       every layer of one rank of each pipeline stage, on the meta device: bytes of weights and of the room for adapters,
            back ends, kernels of the first
cache       bytes of KV cache of the first, and whether one sequence of max_model_len fits all
"""

import functools
import gc
import importlib
import json
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from refresh.engine import stand_ins
from refresh.engine.asking import PARSERS, moved

stand_ins.load(Path(sys.argv[1]))

import torch  # noqa: E402
import vllm.model_executor.model_loader.utils as loading  # noqa: E402
from vllm.config import VllmConfig, set_current_vllm_config  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends  # noqa: E402
from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402
from vllm.model_executor.kernels.linear.scaled_mm import cutlass  # noqa: E402
from vllm.model_executor.layers import quantization  # noqa: E402
from vllm.model_executor.layers.fused_moe import expert_map_manager  # noqa: E402
from vllm.model_executor.layers.quantization.utils import w8a8_utils  # noqa: E402
from vllm.model_executor.models import registry  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402
from vllm.usage.usage_lib import UsageContext  # noqa: E402
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402
from vllm.utils.torch_utils import set_default_torch_dtype  # noqa: E402
from vllm.v1.attention.backend import AttentionCGSupport  # noqa: E402
from vllm.v1.attention.backends.registry import AttentionBackendEnum  # noqa: E402
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs  # noqa: E402
from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec  # noqa: E402

from refresh.engine import adapters, sight  # noqa: E402

make_arg_parser, validate_parsed_serve_args = (
    moved(name, *PARSERS) for name in ("make_arg_parser", "validate_parsed_serve_args")
)
validate_api_server_args = moved(
    "validate_api_server_args", *PARSERS, "vllm.entrypoints.launchers.launcher", "vllm.entrypoints.openai.api_server"
)
_planning = ("vllm.v1.core.kv_cache_planning", "vllm.v1.core.kv_cache_utils")
get_kv_cache_configs, get_global_kv_cache_groups, get_kv_cache_groups, part_of, taken_by = (
    moved(name, *_planning)
    for name in (
        "get_kv_cache_configs",
        "get_global_kv_cache_groups",
        "get_kv_cache_groups",
        "_project_kv_cache_groups_to_worker",
        "_max_memory_usage_bytes_from_groups",
    )
)
get_kv_cache_config_builder = moved("get_kv_cache_config_builder", "vllm.v1.core.kv_cache_config_builder")  # since 0.33
get_supported_kv_cache_layouts, resolve_kv_cache_layout = (
    moved(name, "vllm.v1.attention.backends.utils") for name in ("get_supported_kv_cache_layouts", "resolve_kv_cache_layout")
)

MOST_SECONDS = 300
"""After which a case is ended: DeepSeek-V3 takes 15 s."""


class Refused(Exception):
    pass


def _parsed(arguments: list[str]) -> Any:
    parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))

    def refuse(message: str) -> None:
        raise Refused(message)

    parser.error = refuse
    parsed = parser.parse_args(arguments)
    parsed.model = getattr(parsed, "model_tag", None) or parsed.model
    validate_parsed_serve_args(parsed)
    validate_api_server_args(parsed)
    return parsed


def _built(config: VllmConfig, rank: int) -> torch.nn.Module:
    stand_ins.fake_world(config, rank)
    dtype, meta = set_default_torch_dtype(config.model_config.dtype), torch.device("meta")
    with set_current_vllm_config(config), dtype, meta, stand_ins.OnMeta():
        return loading.initialize_model(vllm_config=config)


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in {id(tensor): tensor for tensor in tensors}.values())


def _kernels(model: torch.nn.Module) -> list[str]:
    """Methods of the layers, each with the kernel that it chose."""
    found = set()
    for layer in model.modules():
        for made in (getattr(layer, "quant_method", None), getattr(layer, "scheme", None)):
            if made is not None:
                inside = {type(one).__name__: one for one in vars(made).values()}
                chosen = [name for name in inside if "Kernel" in name]
                chosen += [one.name for name, one in inside.items() if name.lower().endswith("moebackend")]
                found.add(":".join([type(made).__name__, *sorted(chosen)]))
    return sorted(found)


def _of_stage(config: VllmConfig, rank: int) -> tuple[int, Any]:
    """Bytes of weights and of the room for adapters, and KV cache of each layer. Built in a fork, as a process is one rank."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            built = _built(config, rank)
            size, specs = _bytes(built.parameters()) + _bytes(built.buffers()), _specs(config)
            found = size + _bytes(adapters.reserved(built, config)), specs
        except BaseException as error:
            found = Refused(f"rank {rank}: {type(error).__name__}: {error}")
        with os.fdopen(write, "wb") as out:
            pickle.dump(found, out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        found = pickle.load(answer)
    os.waitpid(child, 0)
    if isinstance(found, Refused):
        raise found
    return found


def _specs(config: VllmConfig) -> Any:
    if config.model_config.is_hybrid:  # as executors do when the model is loaded
        current_platform.update_block_size_for_backend(config)
    with set_current_vllm_config(config):
        register_all_kvcache_specs(config)
        return get_kv_cache_spec(config)


def _cache(config: VllmConfig, stages: list[tuple[int, Any]], found: dict[str, Any]) -> None:
    specs = [one for _, one in stages]
    if not any(specs):
        return
    with set_current_vllm_config(config):
        found["block"] = config.cache_config.block_size
        share = int((stand_ins.HERE.mib << 20) * config.cache_config.gpu_memory_utilization)
        if resolve_kv_cache_layout:  # since 0.30
            layouts = [one.name for one in get_supported_kv_cache_layouts(get_current_attn_backends(config))]
            resolve_kv_cache_layout(config, [layouts], list(specs[0].values()))
        groups = get_kv_cache_groups(config, {name: spec for one in specs for name, spec in one.items()})
        if specs[0]:
            builder = [get_kv_cache_config_builder(config)] if get_kv_cache_config_builder else []
            found["kv_one"] = taken_by(*builder, config, part_of(groups, specs[0]))
        if not config.cache_config.kv_cache_memory_bytes:
            given = [get_global_kv_cache_groups(config, specs)] if get_global_kv_cache_groups else []
            made, *_ = get_kv_cache_configs(config, specs, [share - weights for weights, _ in stages], *given)
            found["blocks"] = made.num_blocks
            if config.model_config.is_hybrid:  # as the runner does before it captures CUDA graphs
                resolve, most = config.compilation_config.resolve_cudagraph_mode_and_sizes, found["max_num_seqs"]
                resolve(AttentionCGSupport.UNIFORM_BATCH, None, kv_cache_config=made, max_num_reqs=most)


def _judge(case: dict[str, Any]) -> dict[str, Any]:
    stand_ins.choose(case["gpu"])
    for cached in _CACHES:
        cached.cache_clear()
    for module in (w8a8_utils, cutlass):  # a constant of the GPU at the time of the import
        module.CUTLASS_BLOCK_FP8_SUPPORTED = w8a8_utils.cutlass_block_fp8_supported()
    os.environ.update(case.get("env", {}))
    found: dict[str, Any] = {"id": case["id"]}
    stage = "arguments"
    try:
        parsed = _parsed(case["args"])
        stage = "config"
        config = AsyncEngineArgs.from_cli_args(parsed).create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
        model, parallel = config.model_config, config.parallel_config
        found |= {
            "architecture": model.architecture,
            "dtype": str(model.dtype).removeprefix("torch."),
            "quantization": model.quantization,
            "kv": config.cache_config.cache_dtype,
            "max_model_len": model.max_model_len,
            "max_num_seqs": config.scheduler_config.max_num_seqs,
            "batched": config.scheduler_config.max_num_batched_tokens,
            "prefix_caching": config.cache_config.enable_prefix_caching,
            "world": parallel.world_size_across_dp,
        }
        stage = "devices"
        if parallel.nnodes == 1 and (needed := parallel.data_parallel_size_local * parallel.world_size) > stand_ins.HERE.count:
            # What the worker's init_device asserts.
            raise Refused(f"{needed} ranks on {stand_ins.HERE.count} devices")
        current_platform.check_if_supports_dtype(model.dtype)
        stage = "model"
        ranks = parallel.world_size // parallel.pipeline_parallel_size
        others = [_of_stage(config, ranks * one) for one in range(1, parallel.pipeline_parallel_size)]
        built = _built(config, 0)
        weights, tables = _bytes(built.parameters()), _bytes(built.buffers())
        layers = config.compilation_config.static_forward_context.values()
        backends = {layer.get_attn_backend().get_name() for layer in layers if hasattr(layer, "get_attn_backend")}
        found.update(weights=weights, tables=tables, backends=sorted(backends), kernels=_kernels(built))
        specs = _specs(config)
        if case.get("sight"):
            found["sight"] = sight.asked(built, config)
        found["adapters"] = _bytes(adapters.reserved(built, config))
        stage = "cache"
        _cache(config, [(weights + tables + found["adapters"], specs), *others], found)
        found["verdict"] = "starts"
    except BaseException as error:  # SystemExit of argparse, too
        own = [one for one in traceback.extract_tb(error.__traceback__) if "site-packages" in one.filename][-2:]
        found.update(
            verdict="refuses",
            error=f"{type(error).__name__}: {str(error)[:900]}",
            at=[f"{one.filename.partition('site-packages/')[2]}:{one.lineno}" for one in own],
        )
    return {**found, "stage": stage}


def _start(case: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        try:
            os.write(write, json.dumps(_judge(case), default=str).encode())
        finally:
            os._exit(0)
    os.close(write)
    return read, {"id": case["id"], "child": child, "since": time.monotonic(), "data": b""}


def _ended(one: dict[str, Any]) -> dict[str, Any]:
    os.waitpid(one["child"], 0)
    try:
        found = json.loads(one["data"])
    except json.JSONDecodeError:
        found = {"id": one["id"], "verdict": "died", "stage": "unknown"}
    return {**found, "seconds": round(time.monotonic() - one["since"], 1)}


def answers(cases: list[dict[str, Any]], tell: Callable[[dict[str, Any]], None], at_once: int) -> None:
    """Judges each case in a fork of this process, so that no case meets what another left."""
    waiting, running = cases[::-1], {}
    while waiting or running:
        while waiting and len(running) < at_once:
            read, one = _start(waiting.pop())
            running[read] = one
        ready, _, _ = select.select(list(running), [], [], 1)
        for read, one in list(running.items()):
            chunk = os.read(read, 1 << 16) if read in ready else None
            one["data"] += chunk or b""
            if chunk is None and time.monotonic() - one["since"] > MOST_SECONDS:
                os.kill(one["child"], signal.SIGKILL)
            if chunk == b"":
                os.close(read)
                tell(_ended(running.pop(read)))


_OFTEN = "llama mixtral qwen2 qwen3 qwen3_moe gemma2 gemma3 phi3 granite opt glm4 glm4_moe deepseek_v2 gpt_oss"


def _imported_once() -> None:
    """What every fork would import again."""
    registry._run_in_subprocess = lambda function: function()  # it would import the engine anew, for each architecture
    for one in vars(expert_map_manager).values():
        if hasattr(one, "get_compressed_map_string"):
            one.get_compressed_map_string = lambda self: ""  # a line of the log that reads a tensor
    for name in _OFTEN.split():
        importlib.import_module(f"vllm.model_executor.models.{name}")
    for name in (
        "vllm.v1.worker.gpu_worker",
        "vllm.v1.worker.gpu.model_runner",
        "vllm.v1.attention.backends.mla.prefill.selector",
    ):
        importlib.import_module(name)
    for ask, names in (
        (quantization.get_quantization_config, quantization.QUANTIZATION_METHODS),
        (lambda one: one.get_class(), AttentionBackendEnum),
    ):
        for name in names:
            try:
                ask(name)
            except Exception as error:  # a package for other hardware is not there
                print(f"without {name}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)


_CACHES: list[Any] = []

if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the engine's prints are no answers
    _imported_once()
    _CACHES = [one for one in gc.get_objects() if isinstance(one, functools._lru_cache_wrapper)]
    gc.freeze()
    answers(
        [json.loads(line) for line in sys.stdin if line.strip()],
        lambda found: print(json.dumps(found), file=out, flush=True),
        at_once=os.cpu_count() or 1,
    )
