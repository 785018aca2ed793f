"""Features that engines document, and settings of AWS's recipes: loads ``features.toml`` and ``recipes.toml``; and what lets
others into an engine, an interface or a chart: ``openings.toml``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from eks_inference.catalog.models import Model
from eks_inference.catalog.tables import Row, arguments, load, rows, table


@dataclass(frozen=True)
class Choice:
    """One documented value of a feature."""

    flags: Mapping[str, Any] = field(default_factory=dict)
    """Engine settings that turn it on. A text that is one ``{name}`` stands for a value of the server."""
    environment: Mapping[str, str] = field(default_factory=dict)
    block_size: int | None = None
    """Tokens in a block of the KV cache. None: the engine's."""
    needs: str | None = None
    """A further key of the server that the choice needs."""
    checkpoint: str = ""
    """How a checkpoint has to be quantized beforehand (``quant_method``), where the engine converts nothing."""
    architectures: tuple[str, ...] = ()
    """Model architectures (``Model.architecture``) that have it; empty: all that the engine serves."""

    def settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns ``flags`` with the values of a server; a key whose value is None is left out."""
        return filled(self.flags, values)


@dataclass(frozen=True)
class FeatureSet(Row):
    """What the documents of some engines say works."""

    engines: frozenset[str]
    choices: Mapping[str, Mapping[str, Choice]]
    """Documented values by feature."""


@cache
def feature_sets() -> tuple[FeatureSet, ...]:
    """All known sets."""
    return tuple(_feature_set(name, row) for name, row in table("features.toml").items())


def documented(engine: str) -> Mapping[str, Mapping[str, Choice]]:
    """The documented values of an engine profile by feature; empty if there are none."""
    return next((feature_set.choices for feature_set in feature_sets() if engine in feature_set.engines), {})


def engines_with(feature: str, choice: str) -> list[str]:
    """The engine profiles whose documents have a value of a feature."""
    return sorted(engine for one in feature_sets() if choice in one.choices.get(feature, {}) for engine in one.engines)


def _feature_set(name: str, row: Mapping[str, Any]) -> FeatureSet:
    choices = {
        feature: {choice: _choice(columns) for choice, columns in values.items()}
        for feature, values in rows(row).items()
        if feature != "engines"
    }
    return FeatureSet(name=name, source=row["source"], read=row["read"], engines=frozenset(row["engines"]), choices=choices)


def _choice(columns: Mapping[str, Any]) -> Choice:
    return Choice(**arguments(columns))


def filled(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns engine settings with the values of a server; a key whose value is None is left out."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found[key] = filled(value, values)
        elif isinstance(value, str) and value.startswith("{"):
            if (given := values[value[1:-1]]) is not None:
                found[key] = given
        else:
            found[key] = value
    return found


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
    found = (recipe.flags for recipe in recipes() if engine in recipe.engines and name in recipe.models)
    return filled(next(found, {}), {"batch": [max_num_seqs]})


_OFF = ("", "0", "false", "none", "null")


@dataclass(frozen=True)
class Opening(Row):
    """A flag, a variable or a value of a chart, by name. The name of a value is the end of its path."""

    of: Literal["engine", "interface", "chart"]
    """Where it counts: flags and variables of an engine, variables of any container, values of charts."""
    opens: str
    """What it does, as a part of a sentence."""
    values: tuple[str, ...] = ()
    """Values that do, in lower case. Empty: all that are not off."""
    beside: str = ""
    """Another variable that has to be on as well."""
    pinned: bool = False
    """Whether a revision of the model makes it safe."""

    def by(self, value: object) -> bool:
        """Returns whether a value opens it."""
        text = "true" if value is None else str(value).strip().lower()  # a flag without a value is a switch
        return text in self.values if self.values else text not in _OFF


@cache
def openings(of: str) -> Mapping[str, Opening]:
    """What counts there, by name."""
    return {name: row for name, row in load(Opening, "openings.toml").items() if row.of == of}
