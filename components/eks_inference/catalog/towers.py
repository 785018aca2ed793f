"""What models see with: loads ``towers.toml``, which is asked of the engine."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

from eks_inference.catalog.tables import Row, arguments, rows, table

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
