"""Reads answers to the functions of providers from a file: what a program's data sources and stack references would give.

A YAML list of rows. The first row that fits a call answers it::

    - function: aws:ec2/getAmi:getAmi      # the token of the function
      args: {owners: [amazon]}             # optional: arguments that the call has, among others
      region: eu-west-1                    # optional: of the call, or of its provider
      provider: east                       # optional: the name of the explicit provider
      result: {id: ami-12345678}           # what is left out gets placeholders
    - stack: acme/network/prod             # a StackReference
      outputs: {vpcId: vpc-1}
      secrets: [password]                  # optional: outputs whose values are left out
    - config: {region: eu-west-1}          # of the program, before what its stack's file says
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackgraph.problems import Problem, ProblemsFound

if TYPE_CHECKING:
    from stackgraph.recorder.yaml_file import Document

_FUNCTION = {"function": str, "args": dict, "region": str, "provider": str, "result": dict}
_STACK = {"stack": str, "outputs": dict, "secrets": list}
_CONFIG = {"config": dict}
_WORDS = {str: "text", dict: "mapping", list: "list"}
_REQUIRED = ("function", "result", "stack", "outputs")


@dataclass(frozen=True)
class Answers:
    """The rows of an answers file."""

    rows: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    def of_function(self, token: str, args: Mapping[str, Any], provider: str, region: Any) -> Mapping[str, Any] | None:
        """The result of a function, by its token, arguments, provider's name and region; None without a row."""
        called = {"function": token, "provider": provider, "region": region}
        for row in self.rows:
            if "function" not in row or any(row[key] != value for key, value in called.items() if key in row):
                continue
            if _within(row.get("args", {}), args):
                return row["result"]
        return None

    def of_stack(self, name: str) -> tuple[Mapping[str, Any], Sequence[str]] | None:
        """The outputs of a stack, and the names of those that are secret; None without a row."""
        return next(((row["outputs"], row.get("secrets", ())) for row in self.rows if row.get("stack") == name), None)

    @property
    def config(self) -> Mapping[str, Any]:
        """Values of the program's configuration, by key."""
        return {key: value for row in reversed(self.rows) for key, value in row.get("config", {}).items()}


NO_ANSWERS = Answers()


Given = Path | Mapping[str, Any]
"""A file of answers, or a row."""


def read_answers(*given: Given) -> Answers:
    """The rows, the last one first, and then those of the files. Raises ``ProblemsFound`` with all that is wrong in a file."""
    from stackgraph.recorder.yaml_file import read_document

    rows = [one for one in reversed(given) if not isinstance(one, Path)]
    return Answers((*rows, *(row for one in given if isinstance(one, Path) for row in rows_of(read_document(one)))))


def rows_of(document: "Document") -> list[Mapping[str, Any]]:
    """The rows of a document. Raises ``ProblemsFound`` with everything that is wrong in them."""
    rows = document.data or []
    if not isinstance(rows, list):
        allowed = "rows of `function` and `result`, of `stack` and `outputs`, or of `config`"
        raise ProblemsFound([Problem("answers must be a list", document.shown, 1, given=type(rows).__name__, allowed=allowed)])
    problems = [
        Problem(message, document.shown, document.line((number, *key)), f"row {number + 1}", hint=hint)
        for number, row in enumerate(rows)
        for message, key, hint in _faults(row)
    ]
    if problems:
        raise ProblemsFound(problems)
    return rows


def _faults(row: Any) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """What is wrong with a row, each with its key and a hint."""
    kinds = [kind for kind in (_FUNCTION, _STACK, _CONFIG) if isinstance(row, dict) and next(iter(kind)) in row]
    if len(kinds) != 1:
        yield "a row has one of `function`, `stack` and `config`", (), ""
        return
    (allowed,) = kinds
    for key, value in row.items():
        if key not in allowed:
            nearest = get_close_matches(str(key), allowed, n=1)
            hint = f"did you mean '{nearest[0]}'?" if nearest else f"allowed are {', '.join(allowed)}"
            yield f"unknown key `{key}`", (str(key),), hint
        elif not isinstance(value, allowed[key]):
            yield f"`{key}` must be a {_WORDS[allowed[key]]}, not {value!r}", (key,), ""
    for key in allowed:
        if key in _REQUIRED and key not in row:
            yield f"`{key}` is missing", (), ""


def _within(part: Any, whole: Any) -> bool:
    """Whether a value has everything of another: keys of mappings, at any depth."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(key in whole and _within(value, whole[key]) for key, value in part.items())
    return part == whole
