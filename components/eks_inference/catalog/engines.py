"""Engine profiles as data: ``engines.toml`` and its typed loader."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Literal


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
class EngineProfile:
    """One combination of engine, SDK, image and flags that belongs together."""

    name: str
    generation: Literal["A", "B", "C", "D"]
    """Generation of vLLM on Neuron; flags are not compatible between them."""
    sdk: str
    vllm: str
    ray: str
    """The Ray release that goes with the image where Ray Serve runs the engine."""
    image: str
    """Image of the engine, before mirrors. Holds no Ray: ``serving/assets/Dockerfile`` adds it."""
    arguments: tuple[str, ...]
    """Flags of ``vllm serve`` this generation needs; ``{max_num_seqs}`` and ``{max_model_len}`` are filled in."""
    minimum_driver: str
    """Oldest Neuron driver of a node this image is known to run on."""
    tensor_parallel: Mapping[str, tuple[int, ...]]
    """Supported tensor parallel degrees by instance family: also the families the profile is for."""
    startup: Startup

    def flags(self, *, max_num_seqs: int, max_model_len: int) -> list[str]:
        """``arguments`` for one server."""
        return [argument.format(max_num_seqs=max_num_seqs, max_model_len=max_model_len) for argument in self.arguments]


@cache
def engines() -> dict[str, EngineProfile]:
    """All engine profiles by name."""
    rows = tomllib.loads(files("eks_inference.catalog").joinpath("engines.toml").read_text("utf-8"))
    return {
        name: EngineProfile(
            name=name,
            arguments=tuple(row.pop("arguments")),
            tensor_parallel={family: tuple(degrees) for family, degrees in row.pop("tensor_parallel").items()},
            startup=Startup(**row.pop("startup")),
            **row,
        )
        for name, row in rows.items()
    }


def engine(name: str) -> EngineProfile:
    """The engine profile of that name; ``KeyError`` with the nearest names when there is none."""
    if name in engines():
        return engines()[name]
    nearest = get_close_matches(name, engines(), n=3, cutoff=0.3)
    hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
    raise KeyError(f"engine profile '{name}' is not in the catalog{hint}")
