"""Architectures with a formula: loads ``architectures.toml``, and for what models see with ``towers.toml``, which is asked of the
engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_args

from eks_inference.catalog.tables import Row, arguments, rows, table

Biased = Literal["qkv", "output", "mlp", "experts"]


@dataclass(frozen=True)
class Architecture(Row):
    """The structure that models of one ``model_type`` share: what the numbers of a config.json do not say."""

    latent: bool = False
    """Whether attention compresses keys and values to one latent vector (MLA)."""
    indexed: bool = False
    """Whether an index chooses the tokens that such attention reads (DSA)."""
    gated: bool = True
    """Whether an MLP has three matrices (gate, up, down) or two (up, down)."""
    norms: int = 2
    """Norms of a layer, as wide as the layer."""
    expert_norms: int = 0
    """Norms that a layer with experts has beside them."""
    norm_bias: bool = False
    """Whether norms have a bias beside their weight."""
    head_norms: bool = False
    """Whether each layer normalises queries and keys, with weights as wide as one head."""
    sinks: bool = False
    """Whether each head has a learned sink."""
    biases: tuple[Biased, ...] = ("qkv", "output")
    """Parts with a bias, where there is any."""
    bias_key: str | None = None
    """Key that says whether there is a bias. Empty: there always is. None: there never is."""
    tied: bool = False
    """Whether the output layer shares the weights of the embedding where config.json does not say it."""
    learned_positions: int | None = None
    """Learned positions beyond the longest sequence. None: positions are computed."""
    tables_everywhere: bool = False
    """Whether vLLM has embedding and output layer in every pipeline stage, and not in the first and last only."""
    embedding_everywhere: bool = False
    """The same of the embedding, where only the last stage has the output layer."""
    adapted_tables: bool = False
    """Whether LoRA adapters may change embedding and output layer (vLLM, ``embedding_modules``)."""
    fused: bool = False
    """Whether checkpoints have queries, keys and values as one matrix, and so gate and up: an adapter then has one factor A."""
    rotary_tables: int = 1
    """Tables of computed positions: layers with and without a window may have their own."""
    rotated: int = 1
    """Of so many numbers of a head, positions turn one."""
    full_every: int | None = None
    """Every so many layers one attends to everything, where a window is set. None: the window is that of all layers."""
    output_gate: bool = False
    """Whether a second projection as wide as the queries gates what attention writes."""
    single: bool = False
    """Whether a layer has one thing only: attention, a state, experts or an MLP."""
    mamba: bool = False
    """Whether layers with a state are those of Mamba-2."""
    wide_state: bool = False
    """Whether layers that keep a state keep it in float32."""
    window_switch: str = ""
    """Key that has to be true for the window to count."""
    window_from: str = ""
    """Key with the first layer that has the window."""
    pattern: tuple[str, ...] = ()
    """Keys that may say what each layer has, where no rule of ours does (``Layers.pattern``)."""
    experts_switch: str = ""
    """Key that has to be true for a model to have experts."""
    unread: tuple[str, ...] = ()
    """Keys that add parts that no formula counts, where they are neither false nor 0."""
    encoder: bool = False
    """Whether it reads a text as a whole, keeps no KV cache and writes nothing: it makes embeddings or scores."""
    hears: bool = False
    """Whether an encoder hears what it writes: each layer attends to that, too."""
    positions_in_all: bool = False
    """Whether ``max_position_embeddings`` includes the ``learned_positions`` that belong to no token."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Our names of numbers → keys of config.json, where they differ from the usual ones (``config_json.py``)."""


@cache
def architectures() -> dict[str, Architecture]:
    """All architectures with a formula, by ``model_type``."""
    content = table("architectures.toml")
    origin = {"source": content["source"], "read": content["read"]}
    found = {}
    for name, row in rows(content).items():
        columns = content[row["same_as"]] if "same_as" in row else row
        found[name] = Architecture(name=name, **origin | arguments(columns))
    return found


PictureSize = Literal["640x480", "1024x1024", "1920x1080", "largest"]
"""Sizes in pixels whose tokens are known, and the picture that a model makes most tokens of."""


@dataclass(frozen=True, kw_only=True)
class Tower(Row):
    """The part of a model that makes tokens of pictures."""

    architecture: str
    """``model_type`` in config.json."""
    vision: tuple[tuple[str, int], ...]
    """Numbers of ``vision_config`` that it is known by."""
    hidden: int
    """Width of the embeddings that it makes: that of the decoder's layers."""
    divided: int
    """Numbers that the devices of a copy share."""
    whole: int
    """Numbers that each of them has."""
    levels: int = 1
    """Embeddings of one token: layers of the tower beside its last may add theirs to layers of the decoder."""
    activation_bytes: int
    """What one token takes while the tower computes."""
    pictures: tuple[int, ...]
    """Tokens of a picture of each of ``PictureSize``."""
    video: int = 0
    """Tokens of the longest video that the engine makes room for; 0: it takes none."""

    @property
    def weights(self) -> int:
        return self.divided + self.whole

    def tokens(self, size: PictureSize) -> int:
        """Tokens of a picture."""
        return self.pictures[get_args(PictureSize).index(size)]

    def largest(self, video: bool, length: int) -> int:
        """Tokens of the largest picture, or of the longest video of a sequence of ``length``."""
        picture = self.tokens("largest")
        return max(picture, min(self.video, length)) if video else picture


@cache
def towers() -> dict[str, Tower]:
    """All towers by the name of a model that has them."""
    content = table("towers.toml")
    origin = {"source": content["source"], "read": content["read"]}
    return {name: Tower(name=name, **origin | arguments(row)) for name, row in rows(content).items()}


def tower_of(architecture: str, hidden: object, vision: Mapping[str, Any]) -> Tower | None:
    """Returns the tower of a config.json; None if nobody asked the engine about it."""
    known = (tower for tower in towers().values() if (tower.architecture, tower.hidden) == (architecture, hidden))
    return next((tower for tower in known if all(vision.get(key) == value for key, value in tower.vision)), None)
