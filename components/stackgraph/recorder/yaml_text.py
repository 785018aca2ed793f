"""Writes values as YAML that ``bounded_yaml`` reads back as the same values."""

from typing import Any

import yaml

from stackgraph.recorder.bounded_yaml import is_plain_text

_WIDEST = 10**6


class _Dumper(yaml.SafeDumper):
    """Quotes what a reader of YAML 1.2 takes for a number, and keeps every text on its line."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    broken = any(len(line) < len(text) for line in text.splitlines())
    style = '"' if broken else None if is_plain_text(text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def flow(value: Any) -> str:
    """Returns a value on one line."""
    return _dumped([value], flow_style=True).strip()[1:-1]


def block(value: Any, *, width: int = _WIDEST) -> str:
    """Returns a mapping or a list on lines of its own, in its order."""
    return _dumped(value, width=width)


def _dumped(value: Any, *, flow_style: bool = False, width: int = _WIDEST) -> str:
    return yaml.dump(value, Dumper=_Dumper, default_flow_style=flow_style, width=width, sort_keys=False, allow_unicode=True)
