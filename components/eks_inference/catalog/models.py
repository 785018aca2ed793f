"""Model shapes: loads ``models.toml``."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from eks_inference.catalog.tables import Row, load, missing, nearest, table

_BYTES = {"bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Model(Row):
    """The shape of a decoder: enough to compute the memory of its weights and KV cache."""

    repositories: tuple[str, ...]
    """Hugging Face Hub repositories that hold this model."""
    architecture: str
    """``model_type`` in config.json. An engine must support it to serve the model."""
    dtype: Literal["bfloat16", "float16"]
    """Data type of the published weights."""
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    """Width of the MLP."""
    vocabulary: int
    max_positions: int
    """Longest supported sequence, in tokens."""
    chat_repositories: tuple[str, ...] = ()
    """Repositories of the model tuned for chats that may come without a chat template."""
    chat_template: str = ""
    """Template for them, as vLLM takes it on the command line: Jinja in one line, with escapes."""
    gated: tuple[str, ...] = ()
    safetensors: bool = True
    """Whether the repository is known to have its weights as safetensors."""
    """Repositories that need an accepted licence, and therefore a token (Hub documentation, "Gated models")."""
    tied_embeddings: bool = False
    """Whether the output layer shares its weights with the input embedding."""
    query_key_norms: bool = False
    """Whether each layer normalises queries and keys, with weights as wide as one head."""
    counted_parameters: int | None = None
    """Number of weights, for models without the structure of Llama."""

    @property
    def parameters(self) -> int:
        """Number of weights.

        With the structure of Llama: attention, gated MLP and norms of each layer, one or two embeddings, the final norm.
        """
        if self.counted_parameters is not None:
            return self.counted_parameters
        attention = 2 * self.hidden * (self.heads + self.kv_heads) * self.head_dim
        norms = 2 * self.hidden + (2 * self.head_dim if self.query_key_norms else 0)
        return self.layers * (attention + 3 * self.hidden * self.mlp + norms) + self.embeddings + self.hidden

    @property
    def embeddings(self) -> int:
        """Number of weights of the input embedding and the output layer."""
        return (1 if self.tied_embeddings else 2) * self.vocabulary * self.hidden

    def weight_bytes(self, bytes_per_parameter: int | None = None, quantized_bytes: int | None = None) -> int:
        """Total size of the weights in bytes. ``bytes_per_parameter`` is by default as published.

        ``quantized_bytes`` is the size of weights that a quantization converts: all but embedding and output layer, which vLLM
        leaves as they are (``Fp8Config.get_quant_method`` converts linear layers).
        """
        width = bytes_per_parameter or _BYTES[self.dtype]
        return self.embeddings * width + (self.parameters - self.embeddings) * (quantized_bytes or width)

    def kv_heads_at(self, tensor_parallel: int) -> int:
        """Total number of KV heads on all cores of one server.

        If the degree exceeds the model's KV heads, the engine repeats them until each core has one. If the degree is no multiple
        of them, it expands them to the number of query heads. Source: NxD Inference, ``REPLICATE_TO_TP_DEGREE`` and
        ``CONVERT_TO_MHA``.
        """
        if tensor_parallel <= self.kv_heads:
            return self.kv_heads
        return tensor_parallel if tensor_parallel % self.kv_heads == 0 else self.heads

    def kv_bytes_per_token(self, tensor_parallel: int = 1, bytes_per_element: int = 2) -> int:
        """KV cache size of one token on all cores of one server, in bytes: keys and values of every layer."""
        return 2 * self.layers * self.kv_heads_at(tensor_parallel) * self.head_dim * bytes_per_element

    def splits_over(self, tensor_parallel: int) -> bool:
        """Whether the attention heads divide evenly among the cores, as NxD Inference and vLLM require."""
        return self.heads % tensor_parallel == 0


@cache
def models() -> dict[str, Model]:
    """All known models by name."""
    return load(Model, "models.toml")


def find_model(text: str) -> Model | None:
    """Returns the model with this name (in any case) or Hugging Face repository; None if it is unknown."""
    return next(
        (one for one in models().values() if text.casefold() == one.name.casefold() or text in one.repositories),
        None,
    )


def chat_template(repository: str) -> str:
    """Returns the chat template for a repository that may have none; empty for all others."""
    model = find_model(repository)
    return model.chat_template if model and repository in model.chat_repositories else ""


def is_gated(repository: str) -> bool:
    """Whether a repository needs an accepted licence: by the row of its model or, without one, of its owner."""
    if known := find_model(repository):
        return repository in known.gated
    return table("owners.toml").get(repository.partition("/")[0], {}).get("gated", False)


def nearest_models(text: str) -> list[str]:
    """Returns up to three names or repositories in the catalog that are like ``text``, the likeliest first."""
    return nearest(text, [*models(), *(repository for one in models().values() for repository in one.repositories)])


def model(text: str) -> Model:
    """As ``find_model``, but raises ``KeyError`` with the nearest names and repositories for an unknown model."""
    if found := find_model(text):
        return found
    raise missing("model", text, [*models(), *(repository for one in models().values() for repository in one.repositories)])
