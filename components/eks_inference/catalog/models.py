"""Model shapes as data: ``models.toml`` and its typed loader."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from eks_inference.catalog.tables import arguments, missing, table

_BYTES = {"bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Model:
    """The shape of a decoder, enough to tell how much memory its weights and its KV cache take."""

    name: str
    repositories: tuple[str, ...]
    """Ids on the Hugging Face Hub that hold this model."""
    architecture: str
    """``model_type`` of its config.json: what an engine must know to serve it."""
    dtype: Literal["bfloat16", "float16"]
    """Type of the published weights."""
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    """Width of the MLP."""
    vocabulary: int
    max_positions: int
    """Longest sequence the model was made for, in tokens."""
    source: str
    """Where the row comes from."""
    read: str
    """When it was read: a month or a day, ISO."""
    gated: tuple[str, ...] = ()
    """Those of the repositories that want their licence accepted first, and so a token (Hub documentation, "Gated models")."""
    tied_embeddings: bool = False
    """Whether the output layer shares the weights of the input embedding."""
    query_key_norms: bool = False
    """Whether each layer has norms of queries and keys, of one head's width."""
    counted_parameters: int | None = None
    """Number of weights of a model that is not of the Llama family's build."""

    @property
    def parameters(self) -> int:
        """Number of weights.

        Of the Llama family: attention, gated MLP and norms of each layer, one or two embeddings, the last norm.
        """
        if self.counted_parameters is not None:
            return self.counted_parameters
        attention = 2 * self.hidden * (self.heads + self.kv_heads) * self.head_dim
        norms = 2 * self.hidden + (2 * self.head_dim if self.query_key_norms else 0)
        embeddings = (1 if self.tied_embeddings else 2) * self.vocabulary * self.hidden
        return self.layers * (attention + 3 * self.hidden * self.mlp + norms) + embeddings + self.hidden

    def weight_bytes(self, bytes_per_parameter: int | None = None) -> int:
        """Memory of all weights together, in bytes. ``bytes_per_parameter``: 1 for 8-bit weights; None: of the published type."""
        return self.parameters * (bytes_per_parameter or _BYTES[self.dtype])

    def kv_heads_at(self, tensor_parallel: int) -> int:
        """KV heads held by all cores of one server together.

        Beyond the model's own number they are repeated until each core has one, or, where that does not come out even, turned
        into as many as there are query heads. Source: NxD Inference, ``REPLICATE_TO_TP_DEGREE`` and ``CONVERT_TO_MHA``.
        """
        if tensor_parallel <= self.kv_heads:
            return self.kv_heads
        return tensor_parallel if tensor_parallel % self.kv_heads == 0 else self.heads

    def kv_bytes_per_token(self, tensor_parallel: int = 1, bytes_per_element: int = 2) -> int:
        """KV cache of one token on all cores of one server together, in bytes: keys and values of every layer."""
        return 2 * self.layers * self.kv_heads_at(tensor_parallel) * self.head_dim * bytes_per_element

    def splits_over(self, tensor_parallel: int) -> bool:
        """Whether the attention heads divide evenly among that many cores (NxD Inference and vLLM require it)."""
        return self.heads % tensor_parallel == 0


@cache
def models() -> dict[str, Model]:
    """All known models by name."""
    return {name: Model(name=name, **arguments(row)) for name, row in table("models.toml").items()}


def find_model(text: str) -> Model | None:
    """The model of that name, whatever its case, or that this Hugging Face repository holds; None when it is in no row."""
    return next(
        (one for one in models().values() if text.casefold() == one.name.casefold() or text in one.repositories),
        None,
    )


def is_gated(repository: str) -> bool:
    """Whether a repository wants its licence accepted first: as its model's row says, or, where there is none, its owner's."""
    known = find_model(repository)
    if known:
        return repository in known.gated
    return table("owners.toml").get(repository.partition("/")[0], {}).get("gated", False)


def model(text: str) -> Model:
    """As ``find_model``; ``KeyError`` with the nearest names and repositories when it is in no row."""
    found = find_model(text)
    if found is None:
        known = [*models(), *(repository for one in models().values() for repository in one.repositories)]
        raise missing(f"model '{text}' is not in the catalog", text, known)
    return found
