"""Reads the flags of an engine as vLLM's parser does: the last occurrence of a flag wins."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def flag(arguments: Sequence[str], name: str) -> str | None:
    """Returns the value of ``--name=value`` or ``--name value``; empty if it has no value, None if the flag is absent."""
    found = None
    for position, argument in enumerate(arguments):
        key, equals, value = argument.partition("=")
        if _name(key) == name:
            following = arguments[position + 1] if position + 1 < len(arguments) else "--"
            found = value if equals else "" if following.startswith("--") else following
    return found


def switched(arguments: Sequence[str], name: str, default: bool) -> bool:
    """Returns which of ``--name`` (true) and ``--no-name`` (false) comes last; ``default`` if neither is present."""
    on = default
    for argument in arguments:
        key = _name(argument.partition("=")[0])
        if key in (name, f"no-{name}"):
            on = key == name
    return on


def number(text: str | None, default: float) -> float:
    """Parses a number >= 0. Returns ``default`` for anything else, which the engine itself rejects."""
    try:
        value = float(text or "")
    except ValueError:
        return default
    return value if 0 <= value < float("inf") else default


def _name(key: str) -> str:
    return key[2:].replace("_", "-") if key.startswith("--") else ""


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Returns engine settings as flags of ``vllm serve``: true and false become --flag and --no-flag, objects become JSON."""
    return [_flag(name.replace("_", "-"), value) for name, value in settings.items()]


def _flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value if isinstance(value, str | int | float) else json.dumps(value)}"
