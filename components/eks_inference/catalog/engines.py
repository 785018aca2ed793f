"""Engine profiles, their generations, and failures that somebody reports of them: loads ``engines.toml``, ``generations.toml``
and ``reported.toml``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from eks_inference.catalog.instances import Accelerator, ForAccelerator, InstanceType, instance_types
from eks_inference.catalog.models import APART, Model
from eks_inference.catalog.tables import Own, Row, arguments, extended, find, load, own, table


@dataclass(frozen=True)
class KvPool:
    """Limits of a paged KV cache whose size is compiled into the graphs."""

    fraction: float
    """Largest share of the engine's memory that the pool may take."""
    fraction_variable: str
    """Environment variable that overrides ``fraction``."""
    smallest_gib: float
    """The engine exits if the pool would be smaller."""
    smallest_variable: str
    """Environment variable that overrides ``smallest_gib``."""


@dataclass(frozen=True)
class Buckets:
    """The sizes for which graphs can be compiled."""

    segment_sizes: tuple[int, ...]
    """KV cache segments that the attention kernel supports, in tokens."""
    block_size: int
    """Default of ``--block-size``, in tokens."""
    length_unit: int = 1
    """Lengths of sequences for which graphs are compiled are multiples of it."""
    segments: int | None = None
    """Segment sizes for one server. None: several."""
    longest_whole: int | None = None
    """Longest ``max_model_len`` whose prompts may be processed whole, in tokens. None: no limit."""


@dataclass(frozen=True)
class PluginSettings:
    """The flag with the settings of vLLM's plugin: a JSON object, of which the plugin ignores what it does not know."""

    flag: str
    """Name of the flag, without dashes."""
    key: str
    """Key in the object that holds the settings."""
    beside: tuple[str, ...] = ()
    """Other keys in the object that the plugin reads."""
    keys: tuple[str, ...] = ()
    """Settings that the plugin reads. Empty: not listed here."""


@dataclass(frozen=True)
class Fp8Kv:
    """A KV cache in FP8."""

    types: tuple[str, ...]
    """Values of ``--kv-cache-dtype`` for it."""
    architectures: tuple[str, ...]
    """Model architectures that have the packed form."""
    packed: str
    """The setting of the plugin that packs it; without, prompts cannot be processed in segments."""
    batches: str
    """The setting with the batches for which graphs are compiled: one for all, as odd numbers of sequences may not be packed."""
    block_size: int
    """``--block-size`` with which it was validated, in tokens."""


@dataclass(frozen=True)
class EfaAffinity:
    """The engine's search for the EFA interface beside a device, without which its workers do not start."""

    instance_types: tuple[str, ...]
    """Where it knows the addresses of the interfaces."""
    switch: str
    """Environment variable that turns the search off."""
    skips: str
    """Its value that does."""
    seeks: str
    """Its default; every other value turns the search off."""

    def finds(self, instance_type: str, efa_interfaces: int) -> bool:
        """Whether the search finds an interface in a pod with so many."""
        return efa_interfaces > 0 and instance_type in self.instance_types


@dataclass(frozen=True)
class Generation(ForAccelerator, Row):
    """What all releases of one way to run vLLM on a kind of chip share."""

    accelerator: Accelerator
    kv_cache: Literal["contiguous", "paged"]
    """contiguous: the engine reserves memory for a full batch of the longest sequences at start. paged: sequences share pages."""
    compile_cache: Literal["s3", "folder"]
    """Where compiled graphs can persist: ``s3`` is a bucket or a folder, ``folder`` only a folder."""
    compile_cache_variable: str
    """Environment variable that holds the location."""
    waits: Mapping[str, str] = field(default_factory=dict)
    """Environment variables with the seconds that the engine itself waits → the limit of ``Startup`` that each gets."""
    efa_affinity: EfaAffinity | None = None
    """How the engine's workers choose CPUs by the EFA interface of their device. None: they do not."""
    refuses_other_checkpoints: bool = False
    """Whether the engine refuses quantized checkpoints that its profiles do not list."""
    settings: PluginSettings | None = None
    """How to set what is the plugin's own. None: nothing is known of it, or there is no plugin."""
    fp8_kv: Fp8Kv | None = None
    """What a KV cache in FP8 needs. None: nothing further, or nothing is known of it."""
    kv_pool: KvPool | None = None
    """Limits of the page pool. None: pages take the memory that weights leave free."""
    needs_block_size: bool = False
    """Whether ``--block-size`` must equal the longest sequence, unless prefix caching is on."""
    blocks_are_sequences: bool = False
    """Whether ``--num-gpu-blocks-override`` must equal the number of sequences, unless prefix caching is on."""
    copies_hub_models: bool = False
    """Whether the engine saves another copy, of four bytes a weight, of a model that it downloads itself."""
    pads_heads: bool = False
    """Whether the engine adds empty attention heads where theirs do not divide evenly among the cores."""
    sharding: Mapping[str, Any] | None = None
    """Flags with which a finished artifact holds the weights too, so that a start from it needs neither compiler nor checkpoint.
    None: artifacts are not kept."""
    largest_top_k: int | None = None
    """Largest top-k of the on-device sampler. None: no limit."""
    buckets: Buckets | None = None
    """Which buckets can be set. None: the engine chooses them, or there is no flag."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The engine's values of flags that are not given, where they differ from those of other generations."""

    @property
    def paged(self) -> bool:
        """Whether the KV cache is paged."""
        return self.kv_cache == "paged"

    def takes_prompts_whole(self, max_model_len: int) -> bool:
        """Whether the engine's own batch holds the longest prompt, so that no prompt is split into segments."""
        return self.buckets is not None and max_model_len <= self.defaults.get("max-num-batched-tokens", 0)


@cache
def generations() -> dict[str, Generation]:
    """All generations by name."""
    return {name: _generation(name, row) for name, row in table("generations.toml").items()}


def generation(name: str) -> Generation:
    """Returns one generation. Raises ``KeyError`` with the nearest names if it is unknown."""
    return find("generation", name, generations())


def _generation(name: str, row: dict[str, Any]) -> Generation:
    nested = {"kv_pool": KvPool, "buckets": Buckets, "efa_affinity": EfaAffinity, "settings": PluginSettings, "fp8_kv": Fp8Kv}
    return Generation(name=name, **row | {key: of(**arguments(row[key])) for key, of in nested.items() if key in row})


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
    listed: tuple[str, ...] = ()
    """Architectures that its documents list beside them, and nobody here looked at: they are not judged."""
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

    def loads(self, model: Model) -> bool:
        """Whether it serves a model as what it was made for: what is apart, plain vLLM on GPUs alone (SRV020)."""
        able = model.task not in APART or (self.standalone and not self.neuron)
        return able and model.architecture in self.architectures

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
    for instance_type in instance_types().values():
        if instance_type.chip in chips or (instance_type.compute_capability or (0, 0)) >= capability:
            # Sizes of a GPU family support different degrees; the engine supports those of the largest size.
            degrees[instance_type.family] = max(degrees.get(instance_type.family, ()), instance_type.tensor_parallel, key=len)
    common = generation(row["generation"])
    facts |= {"generation": common, "accelerator": common.accelerator, "startup": Startup(**row["startup"])}
    return EngineProfile(name=name, tensor_parallel=degrees, **facts)


@dataclass(frozen=True)
class Report(Row):
    """A failure of some engine profiles. ``source`` is the report itself."""

    engines: tuple[str, ...]
    says: str
    """What fails, and for what exactly somebody saw it, without a full stop."""
    who: str = "users"
    """Who says so."""
    families: tuple[str, ...] = ()
    """Instance families."""
    types: tuple[str, ...] = ()
    """Instance types, where the report is not about whole families."""
    models: tuple[str, ...] = ()
    """Rows of models.toml, or repositories that have none."""
    architectures: tuple[str, ...] = ()
    """Model architectures (``Model.architecture``), where the report is about all models of them."""

    def about(self, engine: EngineProfile, instance: InstanceType, model_id: str, model: Model | None) -> bool:
        """Whether the report is about such a server. ``model`` is None where nobody knows its shape."""
        names = {model_id, model.name} if model else {model_id}
        named = bool(names.intersection(self.models)) or (model is not None and model.architecture in self.architectures)
        return named and engine.name in self.engines and (instance.family in self.families or instance.name in self.types)


@cache
def reports() -> tuple[Report, ...]:
    """All known reports."""
    return tuple(load(Report, "reported.toml").values())
