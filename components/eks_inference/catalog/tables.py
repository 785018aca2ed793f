"""Loads the catalog's data files. Each file is parsed once, on first use.

Every row names its origin: ``source`` (what was read, with its version or commit) and ``read`` (the month or day, ISO). Rows with
the same origin have both keys in the table around them. The reasons for a row are comments in its file.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from eks_inference.faults import Fault, SpecError

FOLDER = Path(__file__).parent
PROVENANCE = ("source", "read")


@dataclass(frozen=True, kw_only=True)
class Row:
    """The columns that every row has."""

    name: str
    source: str
    """What the row was read from."""
    read: str
    """When it was read: a month or a day, ISO."""


_Row = TypeVar("_Row", bound=Row)
_Value = TypeVar("_Value")


@cache
def table(file: str) -> Mapping[str, Any]:
    """The content of a data file. All callers share it and must not change it."""
    return tomllib.loads((FOLDER / file).read_text("utf-8"))


@dataclass(frozen=True)
class Own:
    """Rows of a team beside the catalog's: data file → rows, as JSON, so that they can be compared and hashed."""

    text: str = "{}"

    def of(self, file: str) -> dict[str, Any]:
        """The rows for one data file."""
        return json.loads(self.text).get(file, {})

    def with_(self, other: "Own") -> "Own":
        """Both together."""
        files = json.loads(self.text).keys() | json.loads(other.text).keys()
        return Own(json.dumps({file: self.of(file) | other.of(file) for file in sorted(files)}))


_of_program, _of_stack = Own(), Own()


def own() -> Own:
    """The rows that count now: those of the program, and those of the stack that was read last."""
    return _of_program.with_(_of_stack) if _of_program != Own() else _of_stack


def use(rows: Own, *, of_stack: bool) -> None:
    """Makes rows count beside the catalog's: those of a stack until the next is read, those of a program until it ends."""
    global _of_program, _of_stack
    if of_stack:
        _of_stack = rows
    else:
        _of_program = _of_program.with_(rows)


def extended(file: str, rows: Own) -> Mapping[str, Any]:
    """The content of a data file with further rows."""
    return {**table(file), **rows.of(file)}


def rows(of: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a table without its provenance keys."""
    return {name: row for name, row in of.items() if name not in PROVENANCE}


def load(row_type: type[_Row], file: str) -> dict[str, _Row]:
    """The rows of a data file by name, each as a ``row_type``."""
    return {name: row_type(name=name, **arguments(row)) for name, row in table(file).items()}


def arguments(row: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a row's dataclass. Lists become tuples, nested lists too."""
    return {key: _frozen(value) for key, value in row.items()}


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(one) for key, one in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def find(what: str, name: str, known: Mapping[str, _Value]) -> _Value:
    """Returns ``known[name]``. Raises ``KeyError`` that says ``what`` is missing and lists the nearest names."""
    if name not in known:
        raise missing(what, name, known)
    return known[name]


class NotInCatalogError(SpecError, KeyError):
    """The catalog lacks what was asked for. A fault of the user's wherever no spec was validated against the catalog before."""

    def __init__(self, message: str) -> None:
        super().__init__([Fault((), message)])

    __str__ = Exception.__str__  # that of KeyError quotes


def missing(what: str, name: str, known: Iterable[str]) -> KeyError:
    """The error for a name that is not in a table, with up to three similar names. Case does not count."""
    like = nearest(name, known)
    hint = "; `eks-inference list` has all" if what in ("engine profile", "instance type", "model") else ""
    hint = f"; nearest: {', '.join(like)}" if like else hint
    return NotInCatalogError(f"{what} '{name}' is not in the catalog{hint}")


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Returns up to three similar names, the likeliest first. Case does not count."""
    spellings = {one.casefold(): one for one in known}
    return [spellings[one] for one in get_close_matches(name.casefold(), spellings, n=3, cutoff=0.5)]


def version_numbers(version: str) -> tuple[int, ...]:
    """A dotted version as comparable numbers: ``2.28.0`` is newer than ``2.9``. Raises ``ValueError`` for other text."""
    return tuple(int(number) for number in version.split("."))
