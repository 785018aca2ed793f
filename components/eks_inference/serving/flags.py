"""Reading the flags an engine is started with, as vLLM's parser takes them: of one given twice the last counts."""

from collections.abc import Sequence


def flag(arguments: Sequence[str], name: str) -> str | None:
    """The value of ``--name=value`` or ``--name value``; empty for one without a value, None when it is not there."""
    found = None
    for position, argument in enumerate(arguments):
        key, equals, value = argument.partition("=")
        if _name(key) == name:
            following = arguments[position + 1] if position + 1 < len(arguments) else "--"
            found = value if equals else "" if following.startswith("--") else following
    return found


def switched(arguments: Sequence[str], name: str, default: bool) -> bool:
    """Whether ``--name`` or ``--no-name`` was said last; ``default`` when neither was."""
    on = default
    for argument in arguments:
        key = _name(argument.partition("=")[0])
        if key in (name, f"no-{name}"):
            on = key == name
    return on


def number(text: str | None, default: float) -> float:
    """A value as a number from 0 up; ``default`` for what is none, which the engine itself refuses."""
    try:
        value = float(text or "")
    except ValueError:
        return default
    return value if 0 <= value < float("inf") else default


def _name(key: str) -> str:
    return key[2:].replace("_", "-") if key.startswith("--") else ""
