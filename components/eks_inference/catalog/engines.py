"""Engine profiles: loads ``engines.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from eks_inference.catalog.accelerators import Accelerator, ForAccelerator
from eks_inference.catalog.generations import Generation, generation
from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.catalog.models import Model
from eks_inference.catalog.tables import Own, Row, arguments, extended, find, own


@dataclass(frozen=True)
class Startup:
    """The longest time that each phase of a cold start may take, in seconds: limits for waiting, not typical values."""

    node_start_s: int
    image_pull_s: int
    download_s: int
    compile_s: int
    load_s: int

    @property
    def engine_s(self) -> int:
        """From the start of the engine's process until it answers requests."""
        return self.download_s + self.compile_s + self.load_s


@dataclass(frozen=True)
class EngineProfile(ForAccelerator, Row):
    """One combination of engine, SDK, image and flags that work together."""

    generation: Generation
    """Properties that releases for the same kind of chip share: KV cache, compile cache, flags."""
    accelerator: Accelerator
    server: Literal["vllm", "triton"]
    """What listens on ``port``: vLLM's own OpenAI server, or Triton with vLLM as its backend."""
    vllm: str
    """The vLLM release inside the image."""
    image: str
    """Image of the engine, without mirrors. Neuron images do not contain Ray: ``serving/assets/Dockerfile`` adds it."""
    architectures: tuple[str, ...]
    """Model architectures (``Model.architecture``) that the engine serves."""
    tensor_parallel: Mapping[str, tuple[int, ...]]
    """Supported tensor parallel degrees by instance family. The keys are the families the profile supports."""
    startup: Startup
    arguments: tuple[str, ...] = ()
    """Flags that the server needs for every model; ``flags`` fills in ``{max_num_seqs}`` and ``{max_model_len}``."""
    unpacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Quantizations of checkpoints (``quant_method``) that the engine unpacks to the type of the model → the flags for it."""
    checkpoints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Quantizations of checkpoints that the engine is known to load → the architectures of which. On Neuron only."""
    smallest_batch: Mapping[str, int] = field(default_factory=dict)
    """Model architectures of which the engine supports only batches of at least so many sequences."""
    fp8_kv_checkpoints: tuple[str, ...] = ()
    """Quantizations of checkpoints with which the engine keeps the KV cache in FP8, without a flag."""
    sdk: str | None = None
    """Neuron SDK in the image. None: not Neuron."""
    image_gb: float | None = None
    """Size of the image in GB, as people who pull it report it. None: unknown."""
    ray: str | None = None
    """Ray release for running the image under Ray Serve. None: no release is known to work."""
    minimum_driver: str | None = None
    """Oldest driver of the node's devices with which the image is known to run. None: unknown, or the image has what it needs."""
    minimum_compute_capability: tuple[int, int] | None = None
    """Lowest CUDA compute capability that the image supports. None: not CUDA."""
    client_image: str | None = None
    """Image with the matching clients, for load tests. None: the server speaks only the OpenAI API."""
    efa_userspace: bool = False
    """Whether the image is known to contain the EFA libraries."""
    kv_connectors: tuple[str, ...] = ()
    """Connectors in the image that move a KV cache between servers. Disaggregated inference needs one."""
    metric_names: Mapping[str, str] = field(default_factory=dict)
    """Metrics with another name in this release: its name → the current name, which dashboards and rules use."""
    fast_load: str = ""
    """A value of ``--load-format`` that loads weights faster and that the image has. Empty: none is known."""
    streams_s3: bool = False
    """Whether the image has what ``STREAMER`` needs for S3."""
    port: int = 8000
    """HTTP port of the server."""
    chosen_for: tuple[str, ...] = ()
    """Kinds of servers for which the profile is chosen where nobody names one. Empty: every kind."""
    on_request: bool = False
    """Whether the profile is chosen only where somebody names it. Its caveat says why."""
    caveat: str = ""
    """What to know before choosing the profile; empty if nothing."""
    ends: str = ""
    """Since or from when its makers support it no longer; empty if they say nothing. Profiles without an end are chosen first."""
    retired: str = ""
    """Why the profile can no longer be used; empty if it can. The row remains so that the name is recognised."""

    def flags(self, *, max_num_seqs: int, max_model_len: int, model: Model | None = None) -> list[str]:
        """Returns ``arguments``, and those of ``unpacks``, with the values of one server."""
        unpacking = self.unpacks[model.quantization.method] if model and model.quantization and self._unpacks(model) else ()
        return [one.format(max_num_seqs=max_num_seqs, max_model_len=max_model_len) for one in (*self.arguments, *unpacking)]

    def served(self, model: Model) -> Model:
        """Returns the model as the engine holds it: unpacked where ``unpacks`` says so."""
        return replace(model, quantization=None) if self._unpacks(model) else model

    def _unpacks(self, model: Model) -> bool:
        method = model.quantization.method if model.quantization else ""
        return method in self.unpacks and model.architecture in self.checkpoints.get(method, (model.architecture,))

    def batch_for(self, sequences: int, model: Model) -> int:
        """Returns the smallest batch of at least so many sequences that the engine supports with a model."""
        return max(sequences, self.smallest_batch.get(model.architecture, 1))

    @property
    def standalone(self) -> bool:
        """Whether vLLM itself listens, rather than a server that embeds it."""
        return self.server == "vllm"

    def serves(self, instance: InstanceType) -> bool:
        """Whether the profile supports this instance type."""
        return instance.family in self.tensor_parallel


def engines() -> dict[str, EngineProfile]:
    """All engine profiles by name."""
    return _engines(own())


@cache
def _engines(rows: Own) -> dict[str, EngineProfile]:
    return {name: profile_of(name, row) for name, row in extended("engines.toml", rows).items()}


def engine(name: str) -> EngineProfile:
    """Returns one engine profile. Raises ``KeyError`` with the nearest names if it is unknown."""
    return find("engine profile", name, engines())


STREAMER = "runai_streamer"
"""Value of ``--load-format`` of the Run:ai Model Streamer, which also reads S3."""

_NO_GPU = (1000, 0)  # higher than the compute capability of any GPU


def profile_of(name: str, row: Mapping[str, Any]) -> EngineProfile:
    """A row of ``engines.toml`` as a profile. Raises ``KeyError`` for a generation that is unknown."""
    facts = arguments(row)
    chips, capability = facts.pop("chips", ()), facts.get("minimum_compute_capability", _NO_GPU)
    degrees: dict[str, tuple[int, ...]] = {}
    for one in instance_types().values():
        if one.chip in chips or (one.compute_capability or (0, 0)) >= capability:
            # Sizes of a GPU family support different degrees; the engine supports those of the largest size.
            degrees[one.family] = max(degrees.get(one.family, ()), one.tensor_parallel, key=len)
    common = generation(row["generation"])
    facts |= {"generation": common, "accelerator": common.accelerator, "startup": Startup(**row["startup"])}
    return EngineProfile(name=name, tensor_parallel=degrees, **facts)
