"""Compares a recorded stack with the one in a file: what differs, and what a deployment over it would lose."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stackgraph.diff.contents import SIGNS
from stackgraph.diff.graphs import ResourceChange, compare
from stackgraph.diff.telling import property_lines
from stackgraph.graph.document import FunctionCall, Graph, read_graph
from stackgraph.graph.values import plain
from stackgraph.problems import ProblemsFound
from stackgraph.testing.graph import RecordedStack

UPDATE = "UPDATE_GOLDEN"
"""The environment variable that makes ``assert_snapshot`` write its files."""


@dataclass(frozen=True)
class Loss:
    """A resource that a deployment would replace or delete, and why: the changed inputs, or resources that it depends on."""

    kind: str
    """``replace``, ``delete``, or ``may replace`` where nothing is known about the type."""
    type: str
    name: str
    urn: str
    because: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.type} {self.name}" + (f": {', '.join(self.because)}" if self.because else "")


def losses(before: RecordedStack | Graph, after: RecordedStack | Graph) -> Sequence[Loss]:
    """What a deployment of ``after`` over a deployed ``before`` would replace or delete; aliases are honoured.

    What replaces a resource is known for the types of ``diff/replacements.toml``; a change of another type may. Names of
    resources, and the components around them, are part of a URN: a renamed resource is one deleted and one created, unless it has
    an alias.
    """
    found = [change for change in compare(_graph(before), _graph(after)).changes if change.counts]
    return [
        Loss(kind, change.resource.type, change.resource.name, change.urn, because)
        for change in found
        for kind, because in _lost(change)
    ]


def _lost(change: ResourceChange) -> Iterator[tuple[str, tuple[str, ...]]]:
    if change.kind in ("replace", "delete"):
        yield change.kind, change.because
    elif change.unsure:
        yield "may replace", change.unsure


def assert_snapshot(stack: RecordedStack, file: Path | str) -> None:
    """Asserts that a stack is the one in a file; with ``UPDATE_GOLDEN=1`` in the environment, writes the file.

    The file has no places in the source, so that it changes only with the graph. ``AssertionError`` says what a deployment over
    the file's stack would create, update, replace and delete.
    """
    __tracebackhide__ = True
    file = Path(file)
    graph = _without_sources(stack.graph)
    text = graph.to_json()
    if os.environ.get(UPDATE):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return
    if not file.exists():
        raise AssertionError(f"there is no snapshot {file} yet; run with {UPDATE}=1 to write it, and review it")
    before = file.read_text(encoding="utf-8")
    if before != text:
        told = "\n".join(_told(_read(before, file), graph))
        raise AssertionError(f"{file.name} differs; if that is intended, run with {UPDATE}=1 and review:\n{told}")


def _read(text: str, file: Path) -> Graph:
    __tracebackhide__ = True
    try:
        return read_graph(json.loads(text), str(file))
    except (json.JSONDecodeError, ProblemsFound) as error:
        raise AssertionError(f"{file} is no snapshot ({error}); run with {UPDATE}=1 to write it anew, and review it") from error


def _told(before: Graph, after: Graph) -> Iterator[str]:
    diff = compare(before, after)
    for change in diff.changes:
        if change.kind != "same":
            yield f"{SIGNS[change.kind]} {change.kind} {change.resource.type} {change.resource.name}{_reasons(change)}"
            for one in change.properties if change.kind in ("update", "replace") else ():
                yield from (f"    {line}" for line in property_lines(one, "  # replaces" if change.forces(one) else ""))
            for option in change.options if change.kind in ("update", "replace") else ():
                yield from (f"    {line}" for line in property_lines(replace(option, path=("option", *option.path))))
    for output in diff.outputs:
        yield from (f"output {line}" for line in property_lines(output))
    for sign, mine, others in (("-", before, after), ("+", after, before)):
        asked = {call.key() for call in others.functions}
        yield from (f"{sign} asks {_call(function)}" for function in mine.functions if function.key() not in asked)


def _call(one: FunctionCall) -> str:
    return f"{one.token} {json.dumps(plain(one.args), sort_keys=True)}: {one.answer}"


def _reasons(change: ResourceChange) -> str:
    return f" because of {', '.join(change.because)}" if change.because else ""


def _without_sources(graph: Graph) -> Graph:
    resources, called = (tuple(replace(item, source="") for item in items) for items in (graph.resources, graph.functions))
    return replace(graph, resources=resources, functions=called)


def _graph(given: RecordedStack | Graph) -> Graph:
    return given.graph if isinstance(given, RecordedStack) else given
