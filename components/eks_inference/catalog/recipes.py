"""Settings of AWS's recipes: loads ``recipes.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from eks_inference.catalog.features import filled
from eks_inference.catalog.models import Model
from eks_inference.catalog.tables import Row, load


@dataclass(frozen=True)
class Recipe(Row):
    """What one recipe sets for models with an engine."""

    engines: tuple[str, ...]
    models: tuple[str, ...]
    """Rows of models.toml."""
    flags: Mapping[str, Any]
    """Engine settings. A text that is one ``{name}`` stands for a value of the server."""


@cache
def recipes() -> tuple[Recipe, ...]:
    """All known recipes."""
    return tuple(load(Recipe, "recipes.toml").values())


def recipe_settings(engine: str, model: Model | None, max_num_seqs: int) -> dict[str, Any]:
    """Returns the settings of the recipe for a model with an engine profile; empty where there is none."""
    name = model.name if model else ""
    found = (one.flags for one in recipes() if engine in one.engines and name in one.models)
    return filled(next(found, {}), {"batch": [max_num_seqs]})
