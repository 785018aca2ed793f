"""Reads a bundle, which may come from anybody: bounded, and only rows whose columns are of the right types."""

import json
import math
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from eks_inference_tools.flight.bundle import COLUMNS, KIND, SCHEMA
from stackgraph.files import content
from stackgraph.problems import Problem, ProblemsFound

MOST_BYTES = 8 << 20
MOST_ROWS = 20_000
_NUMBERS = frozenset({"seconds", "gb", "first_token_s", "cpu", "memory_mib", "usd"}) | {
    *(name for name in COLUMNS["capacity"] if "/" in name),
    *COLUMNS["load"] - {"tool", "model", "type"},
}
_OPTIONAL = {"why", "unit"}
_NEEDED = {"capacity": {"type"}, "load": {"tool"}}
"""Of kinds that seldom have all columns; others need all but those that are optional."""


def read_bundle(path: Path) -> Mapping[str, Any]:
    """Returns a bundle. Raises ``ProblemsFound`` for a file that is none, with every row that is wrong."""
    shown = str(path)
    try:
        found = json.loads(content(path, MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise ProblemsFound([Problem(f"not JSON: {error}", shown)]) from None
    hint = "`eks-inference first-flight STACK` writes one"
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise ProblemsFound([Problem("not a bundle of a first flight", shown, hint=hint)])
    if found.get("schema") != SCHEMA:
        raise ProblemsFound(
            [Problem("a bundle of another release", shown, given=str(found.get("schema"))[:40], allowed=str(SCHEMA))]
        )
    rows = found.get("rows")
    if not isinstance(rows, list) or len(rows) > MOST_ROWS:
        raise ProblemsFound([Problem("rows: must be a list", shown, allowed=f"at most {MOST_ROWS:,} rows")])
    problems = [Problem(why, shown, key=f"rows[{number}]") for number, row in enumerate(rows) if (why := _wrong(row))]
    if problems:
        raise ProblemsFound(problems[:20])
    return found


def _wrong(row: Any) -> str:
    """What is wrong with a row; empty if nothing is."""
    if not isinstance(row, dict) or (columns := COLUMNS.get(str(row.get("kind")))) is None:
        return f"must be an object with a kind: {', '.join(COLUMNS)}"
    try:
        date.fromisoformat(row["date"])
    except (KeyError, TypeError, ValueError):
        return "date: must be a day, YYYY-MM-DD"
    if unknown := row.keys() - columns - {"kind", "date"}:
        return f"has unknown columns: {', '.join(sorted(unknown))[:80]}"
    if missing := _NEEDED.get(row["kind"], columns - _OPTIONAL) - row.keys():
        return f"lacks columns: {', '.join(sorted(missing))}"
    return next((why for key in sorted(columns & row.keys()) if (why := _wrong_value(key, row[key]))), "")


def _wrong_value(key: str, value: Any) -> str:
    if key in _NUMBERS:
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
        return "" if good else f"{key}: must be a number of at least 0"
    if key == "started":
        return "" if isinstance(value, bool) else "started: must be true or false"
    if key == "facts":
        return "" if isinstance(value, dict) else "facts: must be an object"
    return "" if isinstance(value, str) and len(value) <= 1000 else f"{key}: must be a text of at most 1000 letters"
