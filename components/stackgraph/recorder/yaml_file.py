"""Reads the YAML files of a project, and notes the line of every key; writes values so that ``bounded_yaml`` reads the same."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stackgraph.problems import Problem, ProblemsFound, content, real
from stackgraph.recorder.bounded_yaml import MOST_BYTES, KeyPath, RefusedText, compose, is_plain_text


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


def read_document(path: Path, root: Path | None = None) -> Document:
    """The YAML file at a path: of the project in ``root``, or one that a user names, which messages then name alike.

    Raises ``ProblemsFound`` if it is not valid, beyond a bound, or a link out of the project (of the folder that it is in).
    """
    shown = shown_path(path, root) if root else str(path)
    try:
        node = compose(_text(path, root or path.parent, shown))
    except UnicodeDecodeError as error:
        raise ProblemsFound([Problem(f"not a UTF-8 text: {error.reason}", file=shown)]) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        reason = getattr(error, "problem", None) or getattr(error, "context", None) or str(error).splitlines()[0]
        hint = "compare the indentation here with the lines above: spaces, no tabs"
        raise ProblemsFound([Problem(f"not valid YAML: {reason}", shown, mark.line + 1 if mark else 0, hint=hint)]) from error
    except RefusedText as error:
        raise ProblemsFound(
            [
                Problem(found.message, shown, found.line, _key(found.path), found.given, found.allowed, found.hint)
                for found in error.mistakes
            ]
        ) from error
    return Document(path, shown, node.plain(), dict(node.lines()))


def _text(path: Path, root: Path, shown: str) -> str:
    # A link may lead to anything on this machine, and messages repeat what the file has. A project may name a folder of stack
    # files beside it.
    home = root if Path(os.path.normpath(path)).is_relative_to(root) else path.parent
    if not real(path).is_relative_to(real(home)):
        raise ProblemsFound([Problem("this link leads out of the project", file=shown, hint="copy the file")])
    if path.is_fifo():  # its reader would wait for a writer
        raise ProblemsFound([Problem("this is a pipe, not a file", file=shown)])
    return content(path, MOST_BYTES, shown).decode()


def _key(path: KeyPath) -> str:
    """A path as the other messages about stack files show it: below ``config``, with indexes in brackets."""
    text = ""
    for part in path[1:] if path[:1] == ("config",) else path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown_path(path: Path, root: Path) -> str:
    """The path relative to ``root``; outside of it, the file name."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else path.name


_WIDEST = 10**6


class _Dumper(yaml.SafeDumper):
    """Quotes what a reader of YAML 1.2 takes for a number, and keeps every text on its line."""


def _scalar(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    broken = any(len(line) < len(text) for line in text.splitlines())
    style = '"' if broken else None if is_plain_text(text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _scalar)


def flow(value: Any) -> str:
    """Returns a value on one line."""
    return _dumped([value], flow_style=True).strip()[1:-1]


def block(value: Any, *, width: int = _WIDEST) -> str:
    """Returns a mapping or a list on lines of its own, in its order."""
    return _dumped(value, width=width)


def _dumped(value: Any, *, flow_style: bool = False, width: int = _WIDEST) -> str:
    return yaml.dump(value, Dumper=_Dumper, default_flow_style=flow_style, width=width, sort_keys=False, allow_unicode=True)
