"""The longest sequence that an engine takes, from the model and from flags. Pure.

Source: vLLM 0.30.0, ``_get_and_verify_max_len`` in ``config/model.py``.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.models import Model
from eks_inference.serving.flags import object_flag, switched

_SCALINGS = ("rope_scaling", "rope_parameters")
_OF_LENGTHS = frozenset({"max_position_embeddings", "rope_theta", *_SCALINGS})
_ALREADY_SCALED = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "default", None)
"""Kinds of scaling whose factor is in ``max_position_embeddings`` already."""


def overridden(arguments: Sequence[str]) -> Mapping[str, Any]:
    """Returns what ``--hf-overrides`` changes in the text model's config.json."""
    given = object_flag(arguments, "hf-overrides")
    text = given.get("text_config")
    return {**given, **text} if isinstance(text, Mapping) else given


def only_lengths(model: Model | None, arguments: Sequence[str]) -> bool:
    """Whether ``--hf-overrides`` changes nothing but how long sequences are.

    A model that sees has its lengths in ``text_config``: what stands beside that need not reach them.
    """
    given = overridden(arguments).keys() - {"text_config"}
    beside = object_flag(arguments, "hf-overrides").keys() - {"text_config"}
    return bool(given) and given <= _OF_LENGTHS and not (model and model.sees and beside)


def scaled(arguments: Sequence[str]) -> bool:
    """Whether ``--hf-overrides`` says how positions beyond those of the training are computed."""
    return any(overridden(arguments).get(one) for one in _SCALINGS)


def positions(model: Model, arguments: Sequence[str]) -> int:
    """Returns how many positions the model has."""
    said = overridden(arguments).get("max_position_embeddings")
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else model.max_positions


def longest(model: Model, arguments: Sequence[str]) -> tuple[int, str]:
    """Returns the longest sequence in tokens, and where that follows from."""
    given, tokens = overridden(arguments), positions(model, arguments)
    why = "hf-overrides: max_position_embeddings" if tokens != model.max_positions else ""
    window = model.window if switched(arguments, "disable-sliding-window", False) else 0
    if 0 < window < tokens:
        tokens, why = window, "disable-sliding-window: the window of its layers"
    for one in _SCALINGS:
        scaling = given.get(one)
        factor = scaling.get("factor") if isinstance(scaling, Mapping) else None
        kind = scaling.get("rope_type", scaling.get("type")) if isinstance(scaling, Mapping) else None
        # Not of Gemma 3, whose layers with and without a window have tables of their own.
        multiplied = kind not in _ALREADY_SCALED and architectures()[model.architecture].rotary_tables == 1
        if isinstance(factor, int | float) and math.isfinite(factor) and factor > 0 and multiplied:
            return int(tokens * factor), f"hf-overrides: {one} of factor {factor:g}"
    return tokens, why
