"""The JSON of a report, read back: it tells the same, and nothing but a report is read."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from comparisons import comparison, planted
from eks_inference_tools.documents import schema_of
from json_schemas import fits
from odd_graphs import recorded as demo
from stackgraph import strict_json
from stackgraph.diff.comparison_domain import ComparedDomain
from stackgraph.diff.contents import Contents, FindingText, Revision
from stackgraph.diff.document import render_json
from stackgraph.diff.report import Recorded, Report, StackReport
from stackgraph.diff.saved import MOST_STACKS, read_contents
from stackgraph.diff.telling import contents
from stackgraph.diff.titles import Titles
from stackgraph.graph.document import Graph
from stackgraph.problems import Problem, ProblemsFound

TITLES = Titles(measures=("cost",), measures_note="Two fresh creations.")


def read(written: str, project: str = "p", link: str = "") -> Contents:
    return read_contents(written.encode(), shown="diff.json", project=project, link=link, tool="stackgraph", titles=TITLES)


def test_a_report_that_is_read_back_tells_the_same():
    """Of stacks on one side only, failed ones and findings; test_diff_comments.py has any two graphs."""
    before, after = demo(), edited(demo())
    finding = FindingText("NEU008", "error", "servers.a", "it does not fit")
    at = {source: source for resource in before.resources if (source := resource.source.rpartition(":")[0])}
    sides = [Recorded(before, findings=(finding,), places=at), Recorded(after, findings=(), places=at, sealed_config={"k": "2"})]
    domain = ComparedDomain(titles=TITLES, measures={"cost": lambda before, after: f"{bool(before)} to {bool(after)}"})
    stacks = [
        StackReport("test", replace(sides[0], sealed_config={"k": "1"}), sides[1], domain),
        StackReport("new", None, sides[1], domain),
        StackReport("gone", sides[0], None, domain),
        StackReport("failed", Recorded(problems=(Problem("it broke", hint="mend it"),)), sides[1]),
    ]
    report = Report("p", Revision("a", "a" * 40), Revision("working tree", dirty=True), stacks, ["a note"], "https://link")
    told = contents(report)
    assert read(render_json(report), link="https://link") == told
    assert [stack.measures for stack in told.stacks[:3]] == [
        {"cost": f"{pair}"} for pair in ("True to True", "False to True", "True to False")
    ]
    assert told.stacks[0].changes
    assert told.stacks[0].rotated
    assert told.stacks[0].cured_findings


def test_the_schema_that_is_published_is_what_is_read_and_written():
    schema = schema_of("diff")
    found = json.loads(json.dumps(comparison(failed=True)))
    assert fits(found, schema)
    assert fits(planted("any"), schema)
    for wrong in (
        {"schema": 2},
        {"danger": [{}]},
        {"changed": 1},
        {"more": 1},
        {"stacks": [{**found["stacks"][0], "stack": "a b"}]},
    ):
        assert not fits({**found, **wrong}, schema), wrong
    del found["headline"]
    assert not fits(found, schema)


def edited(graph: Graph) -> Graph:
    """Without one resource, and with another input of the others."""
    return replace(graph, resources=tuple(replace(one, inputs={**one.inputs, "edited": [1]}) for one in graph.resources[1:]))


def places(value: Any, *path: str | int) -> Iterator[tuple[str | int, ...]]:
    """Every place in a document; of values of programs, only the outermost."""
    yield path
    if path[-1:] in (("before",), ("after",)):
        return
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], *path, key)


FULL = planted("a")
PLACES = sorted({tuple(0 if isinstance(step, int) else step for step in path) for path in places(FULL) if path}, key=str)


def with_value(path: tuple[str | int, ...], *value: Any) -> str:
    """The document with another value at a path, or with none."""
    document = copy.deepcopy(FULL)
    *way, last = path
    at: Any = document
    for step in way:
        at = at[step]
    if value:
        (at[last],) = value
    else:
        del at[last]
    return json.dumps(document)


@pytest.mark.parametrize("path", PLACES, ids=lambda path: ".".join(map(str, path)))
def test_every_place_takes_what_a_report_has_there_and_nothing_else(path):
    key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).strip(".")
    if path[-1] in ("before", "after") and "facts" not in path:
        read(with_value(path, {"any": [1.5]}), "eks-inference")
        read(with_value(path), "eks-inference")
        return
    for wrong in (1.5, {"x": 1}):
        with pytest.raises(ProblemsFound) as found:
            read(with_value(path, wrong), "eks-inference")
        assert all(problem.key.startswith(key) for problem in found.value.problems)
    if isinstance(path[-1], str) and path[-2:-1] != ("summary",):
        with pytest.raises(ProblemsFound, match="missing") as found:
            read(with_value(path), "eks-inference")
        assert [problem.key for problem in found.value.problems] == [key]


def test_all_faults_of_a_document_are_told_at_once_but_not_without_end():
    found = comparison()
    found["notes"] = [1] * 1000
    found["schema"] = "one"
    with pytest.raises(ProblemsFound) as caught:
        read(json.dumps(found), "eks-inference")
    assert [problem.key for problem in caught.value.problems][:3] == ["schema", "notes[0]", "notes[1]"]
    assert len(caught.value.problems) == 10
    assert "in the version that reads it" in str(caught.value)


@pytest.mark.parametrize(
    ("fits", "most"),
    [
        (lambda n: "[" * n + "]" * n, strict_json.DEEPEST),
        (lambda n: f"[{'0,' * (n - 2)}0]", strict_json.MOST_VALUES),
        (lambda n: f"{'0':{n}}", 1 << 20),
    ],
)
def test_the_most_that_is_read(fits: Any, most: int):
    strict_json._parsed(fits(most).encode(), 1 << 20)
    with pytest.raises(strict_json._Unreadable, match="has more than "):
        strict_json._parsed(fits(most + 1).encode(), 1 << 20)


def test_a_report_has_a_number_of_stacks():
    found = comparison()
    found["stacks"] = [{**found["stacks"][0], "stack": f"s{number}"} for number in range(MOST_STACKS + 1)]
    with pytest.raises(ProblemsFound, match="given: 201"):
        read(json.dumps(found), "eks-inference")
    del found["stacks"][0]
    assert len(read(json.dumps(found), "eks-inference").stacks) == MOST_STACKS
