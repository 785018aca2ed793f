"""Model shapes: loads ``models.toml``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

from eks_inference.catalog import weights
from eks_inference.catalog.architectures import Tower, architectures, towers
from eks_inference.catalog.quantization import Quantization
from eks_inference.catalog.tables import Own, Row, arguments, extended, find, missing, nearest, own, table

Task = Literal["chat", "complete", "embed", "rerank", "classify", "transcribe"]
POOLING: frozenset[Task] = frozenset({"embed", "rerank", "classify"})
"""Tasks whose answer is made of the states of a text, and no text (vLLM, ``--runner pooling``)."""
APART = POOLING | {"transcribe"}
"""Tasks that plain vLLM on GPUs does alone, at paths of their own."""

_BYTES = {"bfloat16": 2, "float16": 2}
_INDEX_SCALE_BYTES = 4
_OF_REPOSITORIES = frozenset({"gated", "chat_repositories", "chat_template", "quantization", "safetensors"})


@dataclass(frozen=True, kw_only=True)
class Model(weights.Layers, Row):
    """The shape of a decoder: enough to compute the memory of its weights and KV cache."""

    repositories: tuple[str, ...]
    """Hugging Face Hub repositories that hold this model."""
    architecture: str
    """``model_type`` in config.json. An engine must support it to serve the model."""
    dtype: Literal["bfloat16", "float16"]
    """Data type of the published weights."""
    vocabulary: int
    max_positions: int
    """Longest supported sequence, in tokens."""
    chat_repositories: tuple[str, ...] = ()
    """Repositories of the model tuned for chats that may come without a chat template."""
    chat_template: str = ""
    """Template for them, as vLLM takes it on the command line: Jinja in one line, with escapes."""
    gated: tuple[str, ...] = ()
    """Repositories that need an accepted licence, and therefore a token (Hub documentation, "Gated models")."""
    safetensors: bool = True
    """Whether the repository is known to have its weights as safetensors."""
    tied_embeddings: bool = False
    """Whether the output layer shares its weights with the input embedding."""
    embedding_width: int | None = None
    """Width of the embedding where a projection on either side leads to that of a layer."""
    window: int = 0
    """Tokens that layers with a sliding window attend to; 0: there is no window."""
    window_layers: int = 0
    """Layers with that window."""
    quantization: Quantization | None = None
    """How the published checkpoint is quantized. None: it is not."""
    tower: Tower | None = None
    """What it sees with. In the data file: the name of a row of ``towers.toml``."""
    uncounted: tuple[str, ...] = ()
    """Parts of the checkpoint that nobody counted: a vision tower that the engine was not asked about."""
    task: Task = "chat"
    """What it was made for."""
    counted_parameters: int | None = None
    """Number of weights, where the formula of the architecture does not hold or nobody wrote one."""

    @cached_property
    def parameters(self) -> int:
        """Number of weights, by the formula of the architecture, with what it hears and without what it sees with."""
        if self.counted_parameters is not None:
            return self.counted_parameters
        kind = architectures()[self.architecture]
        return weights.of_layers(self, kind) + self.embeddings + weights.norm(self, kind)

    @cached_property
    def embeddings(self) -> int:
        """Number of weights of input embedding, output layer, learned positions and projections between them."""
        kind, width = architectures().get(self.architecture), self.embedding_width or self.hidden
        positions = (self.max_positions + kind.learned_positions) if kind and kind.learned_positions is not None else 0
        projections = 2 * width * self.hidden if width != self.hidden else 0
        return (1 if self.tied_embeddings else 2) * self.vocabulary * width + positions * self.hidden + projections

    @cached_property
    def expert_weights(self) -> int:
        """Number of weights of all routed experts."""
        if not self.experts:
            return 0
        parts = weights.layer(self, architectures()[self.architecture], "E", True)
        return self.expert_layers * sum(part.count for part in parts if part.split == "experts")

    def weight_bytes(self, bytes_per_parameter: int | None = None, quantized_bytes: int | None = None) -> int:
        """Total size of the weights in bytes. ``bytes_per_parameter`` is by default as published.

        ``quantized_bytes`` is the size of weights that a quantization converts at start: all but embedding and output layer,
        which vLLM leaves as they are (``Fp8Config.get_quant_method`` converts linear layers). A quantized checkpoint stays
        unchanged.
        """
        width = bytes_per_parameter or self.plain_bytes
        seeing = self.tower.weights * width if self.tower else 0
        if self.quantization:
            return seeing + (self.parameters - self.quantized) * width + self.quantization.size(self.quantized)
        return seeing + self.embeddings * width + (self.parameters - self.embeddings) * (quantized_bytes or width)

    @property
    def writes(self) -> bool:
        """Whether it can write text, and then keeps a KV cache."""
        kind = architectures().get(self.architecture)
        return not (kind and kind.encoder)

    @property
    def crossed(self) -> int:
        """Tokens of the KV cache that what is heard takes beside those that are written, in whole blocks of 16."""
        return -(-self.heard // 16) * 16

    @property
    def sees(self) -> bool:
        """Whether it takes pictures, which an engine fetches where requests say so."""
        return self.tower is not None or "vision tower" in self.uncounted

    @property
    def plain_bytes(self) -> int:
        """Size of a published weight that is not quantized, in bytes."""
        return _BYTES[self.dtype]

    @property
    def quantized(self) -> int:
        """Number of weights that the published checkpoint has quantized."""
        assert self.quantization
        if self.quantization.experts_only:
            return self.expert_weights
        kind = architectures().get(self.architecture)
        spared = weights.spared(self, kind, self.quantization.plain_attention, self.quantization.plain_layers) if kind else 0
        return self.parameters - self.embeddings - spared

    def kv_heads_at(self, tensor_parallel: int) -> int:
        """Total number of KV heads on all cores of one server, in layers with a window where others have others.

        Heads that divide evenly among the cores stay unchanged. If the degree is a multiple of their number, the engine repeats
        them until each core has one. Otherwise it expands them to the number of query heads, with those that it pads. Source: NxD
        Inference, ``REPLICATE_TO_TP_DEGREE``, ``CONVERT_TO_MHA`` and ``get_shardable_head_counts``.
        """
        if self.kv_heads % tensor_parallel == 0:
            return self.kv_heads
        return tensor_parallel if tensor_parallel % self.kv_heads == 0 else self.padded_heads(tensor_parallel)

    @property
    def kv_width(self) -> int:
        """Elements of the KV cache of one token, KV head and layer: key and value, or the latent vector for both."""
        return self.kv_rank + self.rope_dim if self.kv_rank else self.head_dim + (self.value_dim or self.head_dim)

    @property
    def index_bytes(self) -> int:
        """Bytes of the key of a token in each index, whatever the type of the KV cache (vLLM, ``DeepseekV32IndexerCache``)."""
        return self.index_dim + _INDEX_SCALE_BYTES

    def kv_bytes_per_token(self, tensor_parallel: int = 1, bytes_per_element: int = 2) -> int:
        """KV cache size of one token on all cores of one server, in bytes, in every layer."""
        return self.kv_bytes(1, tensor_parallel, bytes_per_element)

    def kv_bytes(
        self, tokens: int, tensor_parallel: int = 1, bytes_per_element: float = 2, beyond: int | None = None, scale: int = 0
    ) -> int:
        """KV cache size of one sequence of ``tokens`` on all cores of one server, in bytes.

        Layers with a window hold its tokens and ``beyond`` more. None: they hold every token. Latent attention counts as one KV
        head, which every core holds (vLLM, ``MLAAttentionSpec``). ``scale`` are bytes beside a head's key or value.
        """
        if not self.writes:
            return 0
        kept = tokens if beyond is None or not self.window else min(tokens, self.window + beyond)
        found = 0
        for (one, count), held in zip(self.attending, (tokens, kept), strict=True):
            grouped = count if beyond is None or not self.window else self.group * -(-count // self.group)
            head = int(one.kv_width * bytes_per_element) + (1 if self.kv_rank else 2) * scale
            found += grouped * held * head * one.kv_heads_at(tensor_parallel)
        return found + self.index_layers * tokens * self.index_bytes * self.kv_heads_at(tensor_parallel)

    @property
    def attending(self) -> tuple[tuple["Model", int], ...]:
        """The model with the heads of layers that attend to every token, and their number; the same of those with a window."""
        return (weights.unwindowed(self, "*"), self.attention_layers - self.window_layers), (self, self.window_layers)

    @property
    def group(self) -> int:
        """Layers of a group of the KV cache: all groups hold as many, of one kind, where need be with layers that are not there
        (vLLM, ``_get_kv_cache_groups_uniform_page_size``)."""
        fewest, most = sorted((self.attention_layers - self.window_layers, self.window_layers + self.state_layers))
        return most if most < 1.5 * fewest or not fewest else fewest

    def splits_over(self, tensor_parallel: int) -> bool:
        """Whether the attention heads divide evenly among the cores, as vLLM requires and NxD Inference prefers."""
        counts = (self.heads, self.full_heads, self.state_heads, 0 if self.shared else self.state_keys)
        return not any(count % tensor_parallel for count in counts)

    def kv_splits_over(self, tensor_parallel: int) -> bool:
        """Whether the KV heads divide evenly among the cores, or the cores among them, as vLLM requires."""
        counts = (self.kv_heads, self.full_kv_heads or self.kv_heads)
        return all(count % tensor_parallel == 0 or tensor_parallel % count == 0 for count in counts)

    def padded_heads(self, tensor_parallel: int) -> int:
        """Attention heads with those that NxD Inference adds, so that they divide evenly."""
        return -(-self.heads // tensor_parallel) * tensor_parallel


def models() -> dict[str, Model]:
    """All known models by name."""
    return _models(own())


@cache
def _models(rows: Own) -> dict[str, Model]:
    content = extended("models.toml", rows)
    return {name: model_of(name, whole(row, content)) for name, row in content.items()}


def whole(row: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row with the shape of the row that it is the ``same_as``. What belongs to repositories stays behind.

    Raises ``KeyError`` where there is no such row.
    """
    if "same_as" not in row:
        return dict(row)
    shape = {key: value for key, value in whole(content[row["same_as"]], content).items() if key not in _OF_REPOSITORIES}
    return {key: value for key, value in {**shape, **row}.items() if key != "same_as"}


def model_of(name: str, row: Mapping[str, Any]) -> Model:
    """A row of ``models.toml`` as a model."""
    columns = arguments(row)
    if "quantization" in columns:
        columns["quantization"] = Quantization(**columns["quantization"])
    if "tower" in columns:
        columns["tower"] = find("tower", columns["tower"], towers())
    return Model(name=name, **columns)


def find_model(text: str) -> Model | None:
    """Returns the model with this name (in any case) or Hugging Face repository; None if it is unknown."""
    by_name, by_repository = _found_by(own())
    return by_name.get(text.casefold()) or by_repository.get(text)


@cache
def _found_by(rows: Own) -> tuple[Mapping[str, Model], Mapping[str, Model]]:
    """By name without case, and by repository."""
    found = _models(rows).values()
    return {one.name.casefold(): one for one in found}, {text: one for one in found for text in one.repositories}


def chat_template(repository: str) -> str:
    """Returns the chat template for a repository that may have none; empty for all others."""
    model = find_model(repository)
    return model.chat_template if model and repository in model.chat_repositories else ""


def is_gated(repository: str) -> bool:
    """Whether a repository needs an accepted licence: by the row of its model or, without one, of its owner."""
    if known := find_model(repository):
        return repository in known.gated
    return table("owners.toml").get(repository.partition("/")[0], {}).get("gated", False)


HUB = "https://huggingface.co"


def config_at(repository: str, revision: str = "main") -> str:
    """Returns where a person finds the config.json of a repository."""
    return f"{HUB}/{repository}/raw/{revision}/config.json"


def listens(name: str) -> bool:
    """Whether a repository or a ``model_type`` is called as models are that write what they hear (vLLM 0.30.0, registry)."""
    return any(one in name.casefold().replace("_", "-") for one in ("whisper", "voxtral", "-asr", "asr-", "speech", "transcribe"))


def ways_to_a_shape(repository: str) -> str:
    """Says how a model that the catalog does not know is judged all the same."""
    if repository.count("/") != 1:
        return "name a repository as owner/name, or give model.config: the path of its config.json"
    return (
        f"`eks-inference new NAME --model {repository} --hub` reads its config.json; or download {config_at(repository)} and "
        "give model.config: its path; or write a row of your own (docs/models.md)"
    )


_QUANTIZED = re.compile(r"-(fp[48]|nvfp4|mxfp[48]|awq|gptq|int[48]|w[48]a\d+|quantized|bnb|[48]bit|gguf)\b.*$", re.IGNORECASE)
"""How names of quantized checkpoints end, after that of the model."""


def quantized_from(repository: str) -> str:
    """Returns the known repository that another is a quantization of, by its name; empty if none is."""
    name = _QUANTIZED.sub("", repository.rpartition("/")[2]).casefold()
    of_models = (repository for found in models().values() if not found.quantization for repository in found.repositories)
    same = (one for one in of_models if one.rpartition("/")[2].casefold() == name)
    return next(same, "") if _QUANTIZED.search(repository) else ""


def no_row(text: str) -> str:
    """Says that the catalog has no such model, and up to three names or repositories that are like it, the likeliest first."""
    like = nearest(text, [*models(), *(repository for one in models().values() for repository in one.repositories)])
    return f"the catalog has no model '{text}'" + (f"; nearest: {', '.join(like)}" if like else "")


def model(text: str) -> Model:
    """As ``find_model``, but raises ``KeyError`` with the nearest names and repositories for an unknown model."""
    if found := find_model(text):
        return found
    raise missing("model", text, [*models(), *(repository for one in models().values() for repository in one.repositories)])
