"""Engine profiles as data: ``engines.toml`` and its typed loader."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from eks_inference.catalog.accelerators import Accelerator, ForAccelerator
from eks_inference.catalog.generations import Generation, generation
from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.catalog.tables import arguments, missing, table


@dataclass(frozen=True)
class Startup:
    """How long each part of a cold start may take, in seconds. Upper bounds for waiting, not expectations."""

    node_start_s: int
    image_pull_s: int
    download_s: int
    compile_s: int
    load_s: int

    @property
    def engine_s(self) -> int:
        """From the start of the engine's process until it answers."""
        return self.download_s + self.compile_s + self.load_s

    @property
    def total_s(self) -> int:
        """From the wish for a node until the engine answers."""
        return self.node_start_s + self.image_pull_s + self.engine_s


@dataclass(frozen=True)
class EngineProfile(ForAccelerator):
    """One combination of engine, SDK, image and flags that belongs together."""

    name: str
    generation: Generation
    """What it has in common with other releases on the same kind of chip: KV cache, compile cache, flags."""
    accelerator: Accelerator
    """That of the generation."""
    server: Literal["vllm", "triton"]
    """What listens on ``port``: vLLM's own OpenAI server, or Triton with vLLM as its backend."""
    vllm: str
    """The vLLM release inside the image."""
    image: str
    """Image of the engine, before mirrors. Neuron images hold no Ray: ``serving/assets/Dockerfile`` adds it."""
    architectures: tuple[str, ...]
    """Architectures of the catalog's models (``Model.architecture``) the engine serves."""
    tensor_parallel: Mapping[str, tuple[int, ...]]
    """Supported tensor parallel degrees by instance family: also the families the profile is for."""
    startup: Startup
    source: str
    """Where the row comes from."""
    read: str
    """When it was read: a month or a day, ISO."""
    arguments: tuple[str, ...] = ()
    """Flags the server needs whatever the model; ``{max_num_seqs}`` and ``{max_model_len}`` are filled in."""
    sdk: str | None = None
    """Neuron SDK inside the image. None: not Neuron."""
    ray: str | None = None
    """The Ray release that goes with the image where Ray Serve runs the engine. None: none is known to."""
    minimum_driver: str | None = None
    """Oldest Neuron driver of a node this image is known to run on. None: not Neuron, or not known."""
    minimum_compute_capability: tuple[int, int] | None = None
    """Oldest CUDA compute capability the image runs on. None: not CUDA."""
    client_image: str | None = None
    """Image with the clients of the same release, for load tests. None: the server speaks the OpenAI API only."""
    efa_userspace: bool = False
    """Whether the image holds the libraries that reach EFA interfaces, as far as is known."""
    kv_connectors: tuple[str, ...] = ()
    """Connectors that move a KV cache between servers of this image: disaggregated inference needs one."""
    metric_names: Mapping[str, str] = field(default_factory=dict)
    """Metrics that this release calls otherwise than today's, which dashboards and rules ask for: its name → today's."""
    port: int = 8000
    """HTTP port of the server."""
    caveat: str = ""
    """What to know before choosing the profile; empty when there is nothing."""
    retired: str = ""
    """Why the profile cannot be used today; empty when it can. Such rows are there to be recognised."""

    def flags(self, *, max_num_seqs: int, max_model_len: int) -> list[str]:
        """``arguments`` for one server."""
        return [argument.format(max_num_seqs=max_num_seqs, max_model_len=max_model_len) for argument in self.arguments]

    @property
    def standalone(self) -> bool:
        """Whether vLLM itself listens, not another server around it."""
        return self.server == "vllm"

    def serves(self, instance: InstanceType) -> bool:
        """Whether the profile is for this instance type."""
        return instance.family in self.tensor_parallel


@cache
def engines() -> dict[str, EngineProfile]:
    """All engine profiles by name."""
    return {name: _profile(name, row) for name, row in table("engines.toml").items()}


def engine(name: str) -> EngineProfile:
    """The engine profile of that name; ``KeyError`` with the nearest names when there is none."""
    if name not in engines():
        raise missing(f"engine profile '{name}' is not in the catalog", name, engines())
    return engines()[name]


_NO_GPU = (1000, 0)  # more than any GPU has


def _profile(name: str, row: Mapping[str, Any]) -> EngineProfile:
    facts = arguments(row)
    chips, capability = facts.pop("chips", ()), facts.get("minimum_compute_capability", _NO_GPU)
    degrees: dict[str, tuple[int, ...]] = {}
    for one in instance_types().values():
        if one.chip in chips or (one.compute_capability or (0, 0)) >= capability:
            # GPU families differ by size: what the largest takes is what the engine takes.
            degrees[one.family] = max(degrees.get(one.family, ()), one.tensor_parallel, key=len)
    common = generation(row["generation"])
    facts |= {"generation": common, "accelerator": common.accelerator, "startup": Startup(**row["startup"])}
    return EngineProfile(name=name, tensor_parallel=degrees, **facts)
