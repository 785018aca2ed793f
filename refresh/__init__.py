"""Derives the tables of data that are shipped from their sources: ``make refresh TABLE=name``.

A module here makes one table. Its first line says from what, ``FILE`` is where the table is, and ``table()`` what it has to be.
"""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def changes(file: Path, text: str) -> list[str]:
    """What a new text changes in a table of JSON or TOML: a line for each value that is added, removed or different."""
    read = tomllib.loads if file.suffix == ".toml" else json.loads
    before, after = (dict(_values(one)) for one in (read(file.read_text("utf-8")) if file.exists() else {}, read(text)))
    gone = [f"removed {path}: {before[path]}" for path in before if path not in after]
    new = [f"added {path}: {after[path]}" for path in after if path not in before]
    other = [
        f"changed {path}: {before[path]} → {after[path]}" for path in after if path in before and before[path] != after[path]
    ]
    return [*gone, *new, *other]


def _values(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield path, json.dumps(value, ensure_ascii=False, default=str)
    else:
        for key, inner in value.items():
            yield from _values(inner, f"{path} › {key}" if path else key)
