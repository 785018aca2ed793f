"""Reads and writes the flags of an engine, and finds the longest sequence that it takes, from flags and the model. Pure.

Sources: vLLM 0.30.0, its parser (the last occurrence of a flag wins) and ``_get_and_verify_max_len`` in ``config/model.py``.
"""

import json
import math
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.models import Model

_Default = TypeVar("_Default", bool, None)

_SCALINGS = ("rope_scaling", "rope_parameters")
_OF_LENGTHS = frozenset({"max_position_embeddings", "rope_theta", *_SCALINGS})
_ALREADY_SCALED = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "default", None)
"""Kinds of scaling whose factor is in ``max_position_embeddings`` already."""


def flag(arguments: Sequence[str], name: str) -> str | None:
    """Returns the value of ``--name=value`` or ``--name value``; empty if it has no value, None if the flag is absent."""
    return _values(tuple(arguments)).get(name)


def object_flag(arguments: Sequence[str], name: str) -> Mapping[str, Any]:
    """Returns the JSON object that a flag has; empty if the flag is absent or has anything else."""
    text = flag(arguments, name)
    if not text:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def attention_backend(arguments: Sequence[str]) -> str | None:
    """Returns the back end of attention that vLLM is told to take."""
    named = flag(arguments, "attention-backend") or object_flag(arguments, "attention-config").get("backend")
    return str(named).upper() if named else None


@lru_cache(maxsize=64)  # many rules ask for flags of the same server
def _values(arguments: tuple[str, ...]) -> Mapping[str, str]:
    """The flags with their values, the last of each."""
    found: dict[str, str] = {}
    for argument, following in zip(arguments, (*arguments[1:], "--"), strict=False):
        if key := flag_name(argument):
            _, equals, value = argument.partition("=")
            found[key] = value if equals else "" if following.startswith("--") else following
    return found


def switched(arguments: Sequence[str], name: str, default: _Default) -> bool | _Default:
    """Returns which of ``--name`` (true) and ``--no-name`` (false) comes last; ``default`` if neither is present."""
    last = _order(tuple(arguments))
    on, off = last.get(name, -1), last.get(f"no-{name}", -1)
    return default if on == off else on > off


@lru_cache(maxsize=64)
def _order(arguments: tuple[str, ...]) -> Mapping[str, int]:
    """The flags with the place of the last of each."""
    return {flag_name(argument): place for place, argument in enumerate(arguments)}


def flag_names(arguments: Sequence[str]) -> frozenset[str]:
    """Returns the names of all flags, of ``--no-name`` also ``name``."""
    return frozenset(one.removeprefix("no-") for one in _order(tuple(arguments))) | frozenset(_order(tuple(arguments)))


def number(text: str | None, default: float) -> float:
    """Parses a number >= 0. Returns ``default`` for anything else, which the engine itself rejects."""
    try:
        value = float(text or "")
    except ValueError:
        return default
    return value if 0 <= value < float("inf") else default


def flag_name(argument: str) -> str:
    """Returns the name that an argument sets, with dashes; empty for anything but a flag."""
    return argument.partition("=")[0][2:].replace("_", "-") if argument.startswith("--") else ""


def flags(settings: Mapping[str, Any], several: Container[str] = ()) -> list[str]:
    """Returns engine settings as flags of ``vllm serve``: true and false become --flag and --no-flag, objects become JSON.

    A list becomes JSON too, but the values of a flag among ``several`` follow it one by one.
    """
    return [part for name, value in settings.items() for part in _flag(name.replace("_", "-"), value, several)]


def _flag(name: str, value: Any, several: Container[str]) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, list) and name in several:
        return [f"--{name}", *map(_text, value)]
    return [f"--{name}={_text(value)}"]


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) else json.dumps(value)


def spelt_out(settings: Any) -> Any:
    """Returns flags of a user as one spelling: dashes for underscores, and ``flag.key: value`` as an object, as vLLM reads both.

    Anything but a mapping, and keys that are no flags, are left to validation. Raises ``ValueError`` for a flag given twice: of a
    flag and its parts, vLLM would take the parts only.
    """
    if not isinstance(settings, Mapping):
        return settings
    found: dict[Any, Any] = {}
    parts: dict[str, Any] = {}
    for key, value in settings.items():
        name, *path = key.split(".") if isinstance(key, str) else (key,)
        name = name.replace("_", "-") if isinstance(name, str) else name
        if name in found and not (path and name in parts):
            raise ValueError(f"the flag {name} is given twice, once as {key}; vLLM takes one of them")
        if not path:
            found[name] = value
            continue
        found[name] = parts.setdefault(name, {})
        _put(parts[name], path, value, key)
    return found


def _put(into: dict[str, Any], path: Sequence[str], value: Any, key: str) -> None:
    """Sets ``into[a][b] = value`` for the path ``a, b``."""
    for step in path[:-1]:
        into = into.setdefault(step, {})
        if not isinstance(into, dict):
            raise ValueError(f"{key} is given twice, once as a whole")
    if path[-1] in into or not all(path):
        raise ValueError(f"{key} is given twice, or has an empty part")
    into[path[-1]] = value


def plugin_settings(engine: EngineProfile, arguments: Sequence[str]) -> Mapping[str, Any] | None:
    """Returns the settings of vLLM's plugin for Neuron as it reads them, from one JSON object below a key of the generation.

    None where the flag has anything else than such an object.
    """
    known = engine.generation.settings
    text = flag(arguments, known.flag) if known else None
    if known is None or text is None:
        return {}
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return None
    found = config.get(known.key, {}) if isinstance(config, dict) else None
    return found if isinstance(found, dict) else None


def with_object(engine: EngineProfile, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a user's flags with the plugin's object as such where it is JSON text, so that ours can stand beside theirs."""
    known = engine.generation.settings
    text = given.get(known.flag) if known else None
    found = object_flag([f"--{known.flag}={text}"], known.flag) if known and isinstance(text, str) else {}
    return {**given, known.flag: found} if known and found else given


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
