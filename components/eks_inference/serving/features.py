"""Features of engines that a user turns on by a key of the server, and the media that it takes. Which engine has which feature is
data: ``catalog/features.toml``. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.features import Choice, documented
from eks_inference.catalog.models import Model, find_model
from eks_inference.catalog.vllm_arguments import vllm_releases
from eks_inference.kubernetes.merge import merged
from eks_inference.serving.flags import object_flag, switched
from eks_inference.specs.base import Spec


def checkpoint_method(engine: EngineProfile, model: Model | None, features: Mapping[str, str]) -> str:
    """Returns how the checkpoint is quantized: by its config.json, or by a feature that only such a checkpoint has."""
    if model and model.quantization:
        return model.quantization.method
    chosen = documented(engine.name).get("quantized_weights", {}).get(features.get("quantized_weights", ""))
    return chosen.checkpoint if chosen else ""


def kv_in_fp8(engine: EngineProfile, kv_cache_dtype: str, model: Model | None, features: Mapping[str, str]) -> bool:
    """Whether the KV cache is in FP8: by ``--kv-cache-dtype``, or where that says nothing by the checkpoint."""
    if kv_cache_dtype not in ("", "auto"):
        return kv_cache_dtype.startswith("fp8")
    said = engine.nvidia and model is not None and model.quantization is not None and model.quantization.fp8_cache
    return said or checkpoint_method(engine, model, features) in engine.fp8_kv_checkpoints


def fp8_kv_settings(engine: EngineProfile, model: Model | None, max_num_seqs: int) -> dict[str, Any]:
    """Returns the engine settings that such a KV cache needs; empty where it needs none, or no document has them."""
    known, plugin = engine.generation.fp8_kv, engine.generation.settings
    if known is None or plugin is None or (model and model.architecture not in known.architectures):
        return {}
    return {"block-size": known.block_size, plugin.flag: {plugin.key: {known.packed: True, known.batches: [max_num_seqs]}}}


Method = Literal["draft_model", "eagle", "eagle3", "ngram"]
"""What proposes the tokens that the model then verifies."""


_MOST_BUCKETS = 64
"""Each is a graph to compile for minutes."""


def _rising(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if len(sizes) > _MOST_BUCKETS:
        raise ValueError(f"{len(sizes)} buckets are {len(sizes)} graphs to compile; at most {_MOST_BUCKETS}")
    if list(sizes) != sorted({*sizes}):
        raise ValueError("buckets are in rising order, each once")
    return sizes


Buckets = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1), AfterValidator(_rising)]
"""Sizes for which graphs are compiled, the smallest first."""


def set_twice(settings: Mapping[str, Any], extra_args: Mapping[str, Any]) -> list[str]:
    """Returns the settings of features that a user's flags set as well. An object given as text sets everything inside it."""
    theirs = {name.removeprefix("no-") if value is True else name: value for name, value in extra_args.items()}
    return sorted(_both(settings, theirs))


def _both(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key in ours.keys() & theirs.keys():
        mine, other = ours[key], theirs[key]
        if isinstance(mine, Mapping) and isinstance(other, Mapping):
            yield from _both(mine, other, f"{path}{key}.")
        else:
            yield f"{path}{key}"


class Speculation(Spec):
    """Speculative decoding: something fast proposes tokens, and the model verifies several at once. Answers stay the same."""

    method: Method = Field(
        description="ngram: text that was there before, without another model. eagle, eagle3: a head trained for exactly this "
        "model. draft_model: a small model with the same vocabulary."
    )
    draft: str | None = Field(
        default=None,
        pattern=r"^[\w./=+@,-]+$",
        description="The draft: a repository of the Hugging Face Hub, or a folder in the pod. Not for ngram. NxD Inference needs "
        "a head that was converted for it, which contains the output layer of the model.",
    )
    tokens: int = Field(ge=1, le=64, description="Tokens proposed for each step; 3 to 7 are usual.")
    draft_gib: float | None = Field(
        default=None,
        gt=0,
        description="Size of the draft's weights where the catalog does not have it; rules add it to the model's. Without "
        "it, the memory is not judged.",
    )

    @property
    def draft_bytes(self) -> int:
        """Size of the weights of the draft. 0: there is none, or its size is unknown."""
        known = find_model(self.draft) if self.draft else None
        return known.weight_bytes() if known else int((self.draft_gib or 0) * 1024**3)

    @model_validator(mode="after")
    def _draft_is_the_methods(self) -> Self:
        if (self.method == "ngram") != (self.draft is None):
            raise ValueError(
                "draft: ngram has no draft; leave it out"
                if self.draft
                else f"draft: {self.method} needs one: name its repository"
            )
        return self


class NeuronTuning(Spec):
    """Settings of the compiled model on Neuron devices. Which engine has which: the documents of its release (SRV012)."""

    fused_qkv: bool | None = Field(
        default=None,
        description="Compute queries, keys and values in one step. AWS's tutorials for Llama do. Default: the engine's (off).",
    )
    async_mode: bool | None = Field(
        default=None,
        description="Let CPU and device work at the same time; AWS highly recommends it with sampling on the device, which is "
        "on. Default: the engine's (off).",
    )
    sequence_parallel: bool | None = Field(
        default=None,
        description="Split also norms and embeddings of long prompts over the cores. Default: the engine's (off).",
    )
    prompt_buckets: Buckets | None = Field(
        default=None,
        description="Lengths of prompts for which graphs are compiled, in tokens. Default: powers of two from 128 on, each a "
        "graph to compile and to keep in memory. NxD Inference: the last is max_model_len. Its successor: the last is the most "
        "tokens of a batch; several only where that is max_model_len and prefix_caching is false.",
    )
    length_buckets: Buckets | None = Field(
        default=None,
        description="Lengths of sequences for which graphs that generate are compiled, in tokens. NxD Inference: the last is "
        "max_model_len. Its successor: multiples of 128 below max_model_len.",
    )
    batch_buckets: Buckets | None = Field(
        default=None, description="Numbers of sequences for which graphs that generate are compiled; the last is max_num_seqs."
    )


class EngineFeatures(Spec):
    """Features of the engine on servers of every kind that can have them. None: the engine's default."""

    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field(
        default="auto",
        description="Data type of weights and arithmetic. auto: the model's; T4 GPUs have no bfloat16, and Gemma 2 and 3 "
        "then take float32, which needs twice the memory.",
    )
    prefix_caching: bool | None = Field(
        default=None,
        description="Keep the KV cache of prompts, for others that begin alike. Default: on, except with NxD Inference, and "
        "with its successor where max_model_len is at most 2048: it processes such prompts whole, and only segments can be kept.",
    )
    quantized_weights: Literal["fp8", "int8"] | None = Field(
        default=None,
        description="Weights in 8 bits. On GPUs, fp8 converts the weights of any model at the start. On Neuron, the checkpoint "
        "has to be quantized beforehand. Default: as the model is published.",
    )
    quantized_checkpoint: str | None = Field(
        default=None,
        pattern=r"^/[\w./=+@,-]+$",
        description="Folder or file in the pod with the weights in int8 that NxD Inference saved.",
    )
    quantized_kv: Literal["fp8"] | None = Field(
        default=None,
        description="KV cache in 8 bits: twice the sequences in the same memory, slightly different answers; on Trn2 without NxD "
        "Inference, worse ones unless the checkpoint has scales for it. Default: as dtype.",
    )
    speculation: Speculation | None = Field(default=None, description="Speculative decoding. Default: none.")

    @property
    def draft_bytes(self) -> int:
        """Size of the weights of the draft. 0: there is none, or its size is unknown."""
        return self.speculation.draft_bytes if self.speculation else 0

    @property
    def draft(self) -> str | None:
        """The draft model of speculative decoding, a repository or a folder; None if there is none."""
        return self.speculation.draft if self.speculation else None

    @property
    def chosen(self) -> Mapping[str, str]:
        """The features that the user decided, with their values as the catalog calls them."""
        return dict(self._chosen())

    def _chosen(self) -> Iterator[tuple[str, str]]:
        if self.prefix_caching is not None:
            yield "prefix_caching", "on" if self.prefix_caching else "off"
        if self.quantized_weights:
            yield "quantized_weights", self.quantized_weights
        if self.quantized_kv:
            yield "quantized_kv", self.quantized_kv
        if self.speculation:
            yield "speculation", self.speculation.method

    def _values(self) -> dict[str, Any]:
        """Values of the server that settings of features may name."""
        speculation = self.speculation
        return {
            "quantized_checkpoint": self.quantized_checkpoint,
            "draft": self.draft,
            "tokens": speculation.tokens if speculation else None,
        }

    def feature_settings(self, engine: str, *, max_model_len: int | None, max_num_seqs: int | None) -> dict[str, Any]:
        """Returns the engine's settings of the features; of those that its documents do not have (SRV012), none."""
        found: dict[str, Any] = {} if self.dtype == "auto" else {"dtype": self.dtype}
        for choice in self._documented(engine):
            size = choice.block_size
            blocks = -(-max_model_len // size) * max_num_seqs if size and max_model_len and max_num_seqs else None
            values = {"max_model_len": max_model_len, "block_size": size, "blocks": blocks, **self._values()}
            found = merged(found, choice.settings(values))
        return found

    def feature_environment(self, engine: str) -> dict[str, str]:
        """Returns the variables of the features."""
        return {name: value for choice in self._documented(engine) for name, value in choice.environment.items()}

    def setting(self, engine: str, flag: str) -> str | None:
        """Returns the first feature that sets a flag; None if none does."""
        known = documented(engine)
        return next((one for one, choice in self._chosen() if flag in known.get(one, {}).get(choice, Choice()).flags), None)

    def _documented(self, engine: str) -> Iterator[Choice]:
        known = documented(engine)
        return (known[feature][choice] for feature, choice in self._chosen() if choice in known.get(feature, {}))


class OpenAiFeatures(EngineFeatures):
    """Features of servers with an OpenAI API, and of models that are compiled."""

    tool_parser: str | None = Field(
        default=None,
        pattern=r"^[\w-]+$",
        description="Lets the model call tools when it decides to: vLLM's parser for the calls of this model, e.g. llama3_json "
        "or hermes. The chat template must offer the tools. Default: no calls, except those that a request enforces.",
    )
    chat_template: str | None = Field(
        default=None,
        min_length=1,
        description="Chat template: a file in the pod, or Jinja in one line. Default: the model's own, or the catalog's for "
        "models that have none.",
    )
    neuron: NeuronTuning | None = Field(
        default=None, description="Settings of the model compiled for Neuron. Default: the engine's."
    )

    def _chosen(self) -> Iterator[tuple[str, str]]:
        yield from super()._chosen()
        if self.tool_parser:
            yield "tool_parser", "on"
        if self.chat_template:
            yield "chat_template", "on"
        for name, value in self.neuron.model_dump(exclude_none=True).items() if self.neuron else ():
            yield f"neuron.{name}", "off" if value is False else "on"

    def _values(self) -> dict[str, Any]:
        tuning = self.neuron or NeuronTuning()
        buckets = {name: list(getattr(tuning, name) or ()) for name in ("prompt_buckets", "length_buckets", "batch_buckets")}
        return {
            **super()._values(),
            **buckets,
            "largest_prompt": tuning.prompt_buckets[-1] if tuning.prompt_buckets else None,
            "tool_parser": self.tool_parser,
            "chat_template": self.chat_template,
        }

    @field_validator("chat_template")
    @classmethod
    def _template_is_one(cls, template: str | None) -> str | None:
        """As validate_chat_template of vLLM: what is no file has to have a brace."""
        if template and not template.startswith("/") and not {*template} & {*"{}"}:
            raise ValueError(f"'{template}' is neither the absolute path of a file nor Jinja in one line")
        return template


Medium = Literal["image", "video"]
Domain = Annotated[str, StringConstraints(pattern=r"^([a-z0-9-]+\.)+[a-z][a-z0-9-]*$", max_length=253)]
"""The name of a host, and no address: the engine compares whole names, in small letters."""

NOWHERE = "none.invalid"
"""A host that does not exist (RFC 2606): without any, the engine fetches from all (vLLM 0.30.0, MediaConnector)."""

_MOST = 999
"""The engine's own limit (vLLM 0.30.0, MultiModalConfig)."""


def fetches(engine: EngineProfile, model: Model | None) -> bool:
    """Whether the engine can be told where it fetches pictures from, and the model takes any."""
    release = vllm_releases().get(engine.vllm)
    return bool(model and model.sees and release and "allowed-media-domains" in release.flags)


def most(arguments: Sequence[str], medium: Medium) -> int:
    """How many of a medium a prompt may have (``--limit-mm-per-prompt``)."""
    limit = object_flag(arguments, "limit-mm-per-prompt").get(medium)
    limit = limit.get("count") if isinstance(limit, Mapping) else limit
    return 0 if switched(arguments, "language-model-only", False) else limit if isinstance(limit, int) else _MOST


def sees(arguments: Sequence[str], model: Model) -> bool:
    """Whether a prompt may have a medium that the model takes. Without one the engine loads no tower."""
    media = ("image",) if model.tower and not model.tower.video else get_args(Medium)
    return any(most(arguments, one) for one in media)
