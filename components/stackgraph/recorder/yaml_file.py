"""Reads YAML files as the Pulumi CLI does, and notes the line of every key."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from stackgraph.problems import Problem, ProblemsFound

KeyPath = tuple[str | int, ...]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The YAML dialect of the CLI's Go library: ``on``, ``8000:80`` and dates are strings, unlike in YAML 1.1 and PyYAML."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


_DIGITS = list("-+0123456789")
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9_]*|0o?[0-7_]+|0x[0-9a-fA-F_]+)", _DIGITS),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", [*_DIGITS, "."]),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^({_pattern})$"), _first)


@dataclass(frozen=True)
class Document:
    """A YAML file. ``shown`` is its path for messages, ``lines`` has the line of every key and list item."""

    path: Path
    shown: str
    data: Any
    lines: Mapping[KeyPath, int]

    def line(self, path: Sequence[str | int]) -> int:
        """The line of a key, or of its nearest ancestor in the file."""
        parts = tuple(path)
        while parts and parts not in self.lines:
            parts = parts[:-1]
        return self.lines.get(parts, 1)

    def problem(self, message: str, *path: str | int, key: str = "", **details: Any) -> Problem:
        """A problem at a path. It names ``key``, by default the last part of the path."""
        return Problem(message, self.shown, self.line(path), key or "".join(map(str, path[-1:])), **details)


def read_document(path: Path, root: Path) -> Document:
    """The YAML file at a path. Raises ``ProblemsFound`` if it is not valid, or has duplicate keys."""
    shown = shown_path(path, root)
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=_Loader)
    except UnicodeDecodeError as error:
        raise ProblemsFound([Problem(f"not a UTF-8 text: {error.reason}", file=shown)]) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        reason = getattr(error, "problem", None) or getattr(error, "context", None) or str(error).splitlines()[0]
        raise ProblemsFound([Problem(f"not valid YAML: {reason}", file=shown, line=mark.line + 1 if mark else 0)]) from error
    lines = _lines(node, shown) if node is not None else {}
    try:
        data = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        # Valid syntax that stands for no value, such as a list as a key.
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error)
        raise ProblemsFound([Problem(f"invalid value: {reason}", file=shown, line=mark.line + 1 if mark else 0)]) from error
    return Document(path, shown, data, lines)


def _lines(root: yaml.Node, shown: str) -> dict[KeyPath, int]:
    lines: dict[KeyPath, int] = {}
    duplicates: list[Problem] = []

    def collect(node: Any, path: KeyPath) -> None:
        lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            for key_node, value_node in node.value:
                name, line = str(key_node.value), key_node.start_mark.line + 1
                if first := lines.get((*path, name)):
                    duplicates.append(Problem(f"this key is given twice, first on line {first}", shown, line, name))
                    continue
                lines[*path, name] = line
                collect(value_node, (*path, name))
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                collect(item, (*path, index))

    collect(root, ())
    if duplicates:
        raise ProblemsFound(duplicates)
    return lines


def shown_path(path: Path, root: Path) -> str:
    """The path relative to ``root``; outside of it, the file name."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else path.name
