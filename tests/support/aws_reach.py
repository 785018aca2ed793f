"""Which properties of AWS resources a user reaches, what bounds them, and who judges that: the table of docs/bounds-aws.md.

A user reaches a property whose value, or whose number of items, differs between two resources of its type in the recorded graphs.
``aws_reach.toml`` says who judges what neither the API's models nor the documents bound, or why nobody has to; of properties that
no request has, ``aws_operations.toml`` does.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eks_inference_tools.check.value_rules import aws_documented
from refresh.aws_bounds import Derived, Schema, steps

REASONS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))

INTRODUCTION = """\
# Bounds of AWS

For each property that a stack file reaches: the values that AWS accepts, and who judges them before anything is created. A test
makes this page from recorded graphs and fails where a property has no bound, no rule and no reason.

A stack file reaches a property in which two resources of a type differ, over the shipped stacks and a set of stacks that
together use every option. `[]` is an item of a list, `*` a value of a map and `~` its name. AWS012 judges tags, AWS015 the size
of policies.

- [AWS014](rules.md): stated by the model of the service's API, as botocore carries it. A pattern is for the whole text.
- [AWS013](rules.md): stated by the service's documents only.
- Otherwise another rule, the type of the key in the stack file, or a reason why none is needed.
"""


@dataclass(frozen=True)
class Row:
    type: str
    path: str
    bound: str
    judge: str


def reached(one: Derived) -> list[str]:
    """The paths of a type that users reach, sorted. Its name counts: Pulumi makes it of the name of the resource."""
    return sorted({path for path, values in one.values.items() if len(values) > 1} | set(one.row.get("named", ())))


def rows(types: Mapping[str, Derived]) -> Iterator[Row]:
    """The rows of the table; ``judge`` is empty where nothing is known."""
    for type_, one in sorted(types.items()):
        for path in reached(one):
            stated = node(one.schema, path)
            written = node(aws_documented().get(type_, {}).get("schema", {}), path)
            judges = [rule for rule, bound in (("AWS014", stated), ("AWS013", written)) if in_words(bound)]
            bound = "; ".join(filter(None, map(in_words, (stated, written))))
            reason = one.row.get("outside", {}).get(path) or REASONS.get(type_, {}).get(path, "")
            yield Row(type_, path, bound or "none stated", ", ".join(judges) or reason)


def node(schema: Schema, path: str) -> Schema:
    """The part of a schema for a path; empty if it says nothing of it."""
    for step in steps(path):
        inner = schema.get({"[]": "items", "~": "propertyNames"}.get(step, "additionalProperties"), {})
        schema = schema.get("properties", {}).get(step) or inner
    return schema


def in_words(schema: Mapping[str, Any]) -> str:
    """The bounds of one place, without those of what is inside."""
    enum, pattern = schema.get("enum"), schema.get("pattern")
    parts = [f"one of {', '.join(map(str, enum))}" if enum else ""]
    for suffix, what in (("Length", " characters"), ("Items", " items"), ("Properties", " keys"), ("imum", "")):
        least, most = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
        if least is not None and most is not None:
            parts.append(f"{least} to {most}{what}")
        elif least is not None or most is not None:
            parts.append(f"at {'least' if most is None else 'most'} {least if most is None else most}{what}")
    parts.append(schema.get("description") or (f"`{pattern}`" if pattern else ""))
    return ", ".join(filter(None, parts))


def page(found: list[Row]) -> str:
    lines = [INTRODUCTION]
    for type_ in dict.fromkeys(row.type for row in found):
        lines += [f"## {type_}", "", "| property | bound | judged by |", "|---|---|---|"]
        lines += [f"| {_cell(row.path)} | {_cell(row.bound)} | {_cell(row.judge)} |" for row in found if row.type == type_]
        lines.append("")
    return "\n".join(lines)


def _cell(words: str) -> str:
    return words.replace("|", "\\|")
