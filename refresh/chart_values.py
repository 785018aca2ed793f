"""What the values of the pinned charts are called and of which type they are.

FOLDER holds the charts unpacked, as ``helm pull --untar`` leaves them: ``<chart>/values.yaml``, and those of their dependencies
below ``<chart>/charts``. A value that the chart only mentions in a comment is known by its name, wherever it stands.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from eks_inference.catalog import tables
from eks_inference.catalog.versions import chart
from eks_inference.kubernetes.merge import merged
from refresh import ROOT

FILE = ROOT / "components" / "eks_inference" / "catalog" / "chart_values.json"

_COMMENTED = re.compile(r"^\s*#+[\s#-]*([A-Za-z][\w.-]*):(?:\s|$)", re.MULTILINE)
_TYPES = {bool: "boolean", int: "number", float: "number", str: "text", list: "list"}


def table(folder: str) -> str:
    relied = tables.table("chart_values.toml")["relied"]
    found = {name: _of(Path(folder) / name, relied[name]) for name in sorted(relied)}
    # A line for each value at the top of a chart, so that a diff names what changed.
    return _lines(found, depth=3) + "\n"


def _lines(value: Any, *, depth: int) -> str:
    """JSON with a line for each key down to a depth."""
    if not depth or not isinstance(value, dict):
        return json.dumps(value)
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {_lines(of, depth=depth - 1)}" for key, of in value.items()) + "\n}"


def _of(folder: Path, relied: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of one chart. Ends the program where the chart no longer has a value that the rest of a stack relies on."""
    texts = [(folder / "values.yaml").read_text("utf-8")]
    values = yaml.safe_load(texts[0])
    for part in sorted(folder.glob("charts/*/values.yaml")):
        texts.append(part.read_text("utf-8"))
        values[part.parent.name] = merged(yaml.safe_load(texts[-1]), values.get(part.parent.name) or {})
    for path, value in _leaves(relied):
        there: Any = values
        for key in path:
            there = there.get(key) if isinstance(there, Mapping) else None
        if there != value and (there or value):
            sys.exit(
                f"{folder.name} {chart(folder.name).version}: {'.'.join(path)} is {there!r}, and the stack relies on {value!r}"
            )
    mentioned = {name for text in texts for name in _COMMENTED.findall(text)}
    return {"version": chart(folder.name).version, "mentioned": sorted(mentioned), "values": _types(values)}


def _types(value: Any) -> Any:
    """The type of a value. An empty mapping may hold anything, as may one whose type no default shows (null)."""
    if isinstance(value, dict):
        return {key: _types(value[key]) for key in sorted(value)} if value else "any"
    return _TYPES.get(type(value), "any")


def _leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value
