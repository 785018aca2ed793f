"""What the engine meets in place of GPUs and of the other ranks. Everything else in its process is its own code.

- ``libcuda.c`` for the driver;
- the functions of NVML and of torch.cuda that tell which GPUs there are;
- torch's own process group "fake", in which one process is any rank of a world of any size;
- tensors on the meta device where code asks for the GPU.
"""

import array
import ctypes
import importlib.util
import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass
class Gpus:
    """The GPUs of the machine, as a case of ``judge.py`` has them."""

    name: str
    capability: tuple[int, int]
    mib: int
    count: int


HERE = Gpus("NVIDIA A100-SXM4-80GB", (8, 0), 81920, 8)
"""What is asked while the engine is imported. A fork changes it to the GPUs of its case."""

_SHARED_KIB = {(7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 9): 99, (9, 0): 227, (10, 0): 227, (10, 3): 227, (12, 0): 99}
"""Shared memory of a block by compute capability (CUDA C++ programming guide, "Technical Specifications")."""


def choose(gpu: dict) -> None:
    HERE.name, HERE.capability, HERE.mib, HERE.count = gpu["name"], tuple(gpu["capability"]), gpu["mib"], gpu["count"]


def load(libcuda: Path) -> None:
    """Has to come before any import of vLLM."""
    ctypes.CDLL(str(libcuda), ctypes.RTLD_GLOBAL)
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="WARNING")
    if sys.version_info < (3, 12):  # since when the type has parameters, which FlashInfer of vLLM 0.27 gives it
        array.array = type("array", (array.array,), {"__class_getitem__": classmethod(lambda cls, of: cls)})
    _cuda()
    _nvml()
    _triton()
    _renamed()


def _triton() -> None:
    """What kernels of linear attention ask of Triton's driver when they are imported."""
    from triton.runtime import driver

    target = types.SimpleNamespace(backend="cuda", warp_size=32)
    driver.set_active(types.SimpleNamespace(get_current_target=lambda: target))


def _renamed() -> None:
    """What vLLM 0.30.0 imports by the names that transformers had until 5.13. Only running a model would call it."""
    import transformers.models.pixtral.modeling_pixtral as pixtral

    if not hasattr(pixtral, "PixtralRotaryEmbedding"):
        pixtral.PixtralRotaryEmbedding = lambda config, device=None: pixtral.PixtralVisionRotaryEmbedding(config)
        pixtral.position_ids_in_meshgrid = None


def _properties(device: object = None) -> types.SimpleNamespace:
    shared = _SHARED_KIB[HERE.capability] << 10
    return types.SimpleNamespace(
        name=HERE.name,
        major=HERE.capability[0],
        minor=HERE.capability[1],
        total_memory=HERE.mib << 20,
        multi_processor_count=132,
        is_integrated=0,
        is_multi_gpu_board=0,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=shared + 1024,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        warp_size=32,
        L2_cache_size=40 << 20,
        uuid="GPU-0",
        gcnArchName="",
    )


class _Stream:
    cuda_stream = 0

    def __init__(self, *given: object, **named: object) -> None: ...

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *error: object) -> None: ...

    def __getattr__(self, name: str) -> object:
        return lambda *given, **named: None


def _cuda() -> None:
    cuda, accelerator = torch.cuda, torch.accelerator

    def nothing() -> Callable[..., None]:
        return lambda *given, **named: None  # each its own, since torch's compiler has a table of functions

    for made, functions in (
        (
            cuda,
            {
                "is_available": lambda: True,
                "is_initialized": lambda: False,
                "_is_in_bad_fork": lambda: False,
                "_lazy_init": nothing(),
                "init": nothing(),
                "device_count": lambda: HERE.count,
                "_device_count_nvml": lambda: HERE.count,
                "current_device": lambda: 0,
                "set_device": nothing(),
                "get_device_capability": lambda device=None: HERE.capability,
                "get_device_properties": _properties,
                "get_device_name": lambda device=None: HERE.name,
                "get_arch_list": lambda: ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"],
                "mem_get_info": lambda device=None: (HERE.mib << 20, HERE.mib << 20),
                "synchronize": nothing(),
                "empty_cache": nothing(),
                "current_stream": lambda device=None: _Stream(),
                "Stream": _Stream,
                "Event": _Stream,
            },
        ),
        (
            accelerator,
            {
                "is_available": lambda: True,
                "device_count": lambda: HERE.count,
                "current_accelerator": lambda *given, **named: torch.device("cuda"),
                "current_device_index": lambda: 0,
                "set_device_index": nothing(),
                "synchronize": nothing(),
                "empty_cache": nothing(),
                "get_memory_info": lambda device=None: (HERE.mib << 20, HERE.mib << 20),
                "max_memory_allocated": lambda *given: 0,
            },
        ),
        (torch, {"Stream": _Stream, "Event": _Stream}),
    ):
        for name, function in functions.items():
            setattr(made, name, function)


def _nvml() -> None:
    # Before any other module of vLLM, whose import decides which hardware there is.
    folder = Path(importlib.util.find_spec("vllm").origin).parent / "third_party"
    parent = sys.modules["vllm.third_party"] = types.ModuleType("vllm.third_party")
    parent.__path__ = [str(folder)]
    spec = importlib.util.spec_from_file_location("vllm.third_party.pynvml", folder / "pynvml.py")
    nvml = parent.pynvml = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nvml)
    whole = types.SimpleNamespace
    for name, function in {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: HERE.count,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetIndex": lambda handle: handle,
        "nvmlDeviceGetName": lambda handle: HERE.name,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetCudaComputeCapability": lambda handle: HERE.capability,
        "nvmlDeviceGetMemoryInfo": lambda handle: whole(total=HERE.mib << 20, free=HERE.mib << 20, used=0),
        # No machine of EC2 with several GPUs of compute capability below 8.0, nor the G families, has NVLink.
        "nvmlDeviceGetP2PStatus": lambda *given: 0 if HERE.capability in ((8, 0), (9, 0), (10, 0), (10, 3)) else 5,
    }.items():
        setattr(nvml, name, function)


class OnMeta(torch.overrides.TorchFunctionMode):
    """Tensors that code asks for on the GPU, by name or number, are on the meta device."""

    def __torch_function__(self, function, types, given=(), named=None):
        named = dict(named or {})
        if str(named.get("device", "")).startswith(("cuda", *"01234567")):
            named["device"] = "meta"
        there = (isinstance(one, torch.device) and one.type == "cuda" for one in given)
        return function(*("meta" if cuda else one for cuda, one in zip(there, given, strict=True)), **named)


def fake_world(config: object, rank: int) -> None:
    """Makes this process ``rank`` of all ranks of an engine."""
    import torch.distributed as dist
    import vllm.distributed.device_communicators.shm_broadcast as shm
    import vllm.distributed.parallel_state as state
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from vllm.config import set_current_vllm_config
    from vllm.platforms import current_platform
    from vllm.v1.worker.workspace import init_workspace_manager

    init_workspace_manager(torch.device("meta"))  # as the worker does; sparse attention reserves its part when it is built
    parallel = config.parallel_config  # type: ignore[attr-defined]
    new_group = dist.new_group
    dist.new_group = lambda ranks=None, timeout=None, backend=None, **named: new_group(ranks, backend="fake")
    base = "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"
    type(current_platform).get_device_communicator_cls = classmethod(lambda cls: base)
    shm.MessageQueue.create_from_process_group = staticmethod(lambda *given, **named: None)
    state.in_the_same_node_as = lambda group, source_rank=0: (
        [True] * (group.world_size if isinstance(group, state.GroupCoordinator) else dist.get_world_size(group))
    )
    dist.init_process_group(backend="fake", store=FakeStore(), rank=rank, world_size=parallel.world_size_across_dp)
    with set_current_vllm_config(config):
        state.init_distributed_environment(parallel.world_size, rank, "fake://", rank % max(HERE.count, 1), "fake")
        state.initialize_model_parallel(
            parallel.tensor_parallel_size,
            parallel.pipeline_parallel_size,
            parallel.prefill_context_parallel_size,
            parallel.decode_context_parallel_size,
            backend="fake",
        )
