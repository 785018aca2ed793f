"""The data files of the catalog, each parsed once and only when somebody asks.

Every row says where it comes from: ``source`` (what was read, with its version or commit) and ``read`` (the month or day, ISO).
Rows that share a source have the two keys in the table around them. Reasons stand in comments of the files.
"""

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PROVENANCE = ("source", "read")


@cache
def table(file: str) -> Mapping[str, Any]:
    """The content of a data file. Shared by all callers: not to be changed."""
    return tomllib.loads((FOLDER / file).read_text("utf-8"))


def rows(of: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a table without the keys that say where it comes from."""
    return {name: row for name, row in of.items() if name not in PROVENANCE}


def arguments(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as the arguments of its dataclass: lists become tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def missing(sentence: str, name: str, known: Iterable[str]) -> KeyError:
    """The error for a name that is not in a table: the sentence, then the nearest names, whatever their case."""
    spellings = {one.casefold(): one for one in known}
    nearest = get_close_matches(name.casefold(), spellings, n=3, cutoff=0.5)
    return KeyError(f"{sentence}; nearest: {', '.join(spellings[one] for one in nearest)}" if nearest else sentence)


def version_numbers(version: str) -> tuple[int, ...]:
    """A dotted version as numbers, to compare by: ``2.28.0`` is newer than ``2.9``. ``ValueError`` for anything else."""
    return tuple(int(number) for number in version.split("."))
