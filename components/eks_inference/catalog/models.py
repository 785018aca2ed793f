"""Model shapes as data: ``models.toml`` and its typed loader."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Model:
    """The shape of a decoder of the Llama family: gated MLP, separate input and output embeddings."""

    name: str
    repositories: tuple[str, ...]
    """Ids on the Hugging Face Hub that hold this model."""
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

    @property
    def parameters(self) -> int:
        """Number of weights: attention, gated MLP and two norms a layer, two embeddings, the last norm."""
        attention = 2 * self.hidden * (self.heads + self.kv_heads) * self.head_dim
        layer = attention + 3 * self.hidden * self.mlp + 2 * self.hidden
        return self.layers * layer + 2 * self.vocabulary * self.hidden + self.hidden

    def splits_over(self, tensor_parallel: int) -> bool:
        """Whether the attention heads divide evenly among that many cores (NxD Inference requires it)."""
        return self.heads % tensor_parallel == 0


@cache
def models() -> dict[str, Model]:
    """All known models by name."""
    rows = tomllib.loads(files("eks_inference.catalog").joinpath("models.toml").read_text("utf-8"))
    return {name: Model(name=name, repositories=tuple(row.pop("repositories")), **row) for name, row in rows.items()}


def find_model(repository: str) -> Model | None:
    """The model a Hugging Face repository holds; None when the catalog does not know it."""
    return next((model for model in models().values() if repository in model.repositories), None)
