"""Every value that reaches AWS: bounded as the models of its API say, or its documents, or with a reason why not.

Beside ``test_every_option.py``, because it needs the same recorded graphs.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

import aws_reach
from covering_graphs import shipped_and_covering_graphs
from eks_inference.faults import format_path
from eks_inference_tools.check.limit_rules import limits
from eks_inference_tools.check.value_rules import aws_documented, aws_stated, values_are_documented, values_are_taken
from eks_inference_tools.reading.graph_facts import GraphFacts
from golden import assert_golden
from refresh import aws_bounds, changes
from refresh.aws_bounds import Derived, Schema, steps
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import grouped


@pytest.fixture(scope="module")
def graphs() -> list[Graph]:
    return shipped_and_covering_graphs()


@pytest.fixture(scope="module")
def types(graphs: list[Graph]) -> Mapping[str, Derived]:
    return aws_bounds.derived(aws_bounds.recorded_inputs(graphs))


@pytest.mark.thorough
def test_the_bounds_are_those_of_the_models(types):
    assert not changes(aws_bounds.FILE, aws_bounds.rendered(types)), "`make refresh TABLE=aws_bounds` writes them anew"


@pytest.mark.thorough
def test_each_property_that_a_user_reaches_has_a_bound_a_rule_or_a_reason(types):
    found = list(aws_reach.rows(types))
    assert_golden("../../docs/bounds-aws.md", aws_reach.page(found))
    lacking = [f"{row.type}: {row.path}" for row in found if not row.judge]
    assert not lacking, "say in tests/support/aws_reach.toml who judges these, or why nobody has to:\n" + "\n".join(lacking)


@pytest.mark.thorough
def test_no_reason_is_left_over(types):
    given = {(type_, path, reason) for type_, paths in aws_reach.REASONS.items() for path, reason in paths.items()}
    assert given <= {(row.type, row.path, row.judge) for row in aws_reach.rows(types)}


def test_documents_say_more_than_the_models():
    for type_, row in aws_documented().items():
        for path, written in bounds_in(row["schema"]):
            known = aws_reach.node(aws_stated().get(type_, {}).get("schema", {}), path)
            for keyword in written.keys() & known.keys() - {"properties", "items"}:
                narrower = keyword == "pattern" or (keyword == "minimum" and written[keyword] > known[keyword])
                assert narrower, f"{type_}: {path}: the model states {keyword}"


@pytest.mark.thorough
def test_every_pattern_can_be_compared():
    for row in (*aws_stated().values(), *aws_documented().values()):
        for _, schema in bounds_in(row.get("schema", {})):
            if "pattern" in schema:
                re.compile(schema["pattern"])
                assert schema["pattern"].endswith("$")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("[a-z]+", "^[a-z]+$"),
        ("^[a-z]+", "^[a-z]+$"),
        ("^a$|^b$", "^(?:a$|^b)$"),
        ("a|b", "^(?:a|b)$"),
        ("^(a|[|])$", "^(a|[|])$"),
    ],
)
def test_patterns_are_for_the_whole_text(theirs: str, ours: str):
    assert aws_bounds.whole(theirs) == ours


@pytest.mark.thorough
def test_tags_are_judged_as_the_services_want_them():
    """AWS012 judges the tags of all resources at once; no service takes less than it does."""
    known = limits()["tags"]
    for type_ in aws_bounds.TABLE["types"]:
        strict = type_.startswith(tuple(known["strict"]))
        for bounds, longest in zip(aws_bounds.tag_bounds(type_), (known["longest_key"], known["longest_value"]), strict=True):
            assert bounds.get("maxLength", longest) >= longest, type_
            assert bounds.get("minLength", 0) <= 1
            assert "pattern" not in bounds or strict, f"{type_}: its API states the characters of tags"
            for text in (*ODD, "a,b", "x+-=._:/@", "\u00a0"):
                if "pattern" in bounds and text:
                    assert bool(re.search(bounds["pattern"], text)) == bool(re.fullmatch(known["form"], text)), (type_, text)


# -- values out of bounds --------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_value_outside_of_each_bound_is_found(graphs):
    """In recorded resources that have the property."""
    by_type = grouped((resource.type, resource) for graph in graphs for resource in graph.resources)
    both = ((values_are_taken, aws_stated()), (values_are_documented, aws_documented()))
    rows = [(rule, type_, row) for rule, table in both for type_, row in table.items()]
    values = [
        (rule, type_, path, value)
        for rule, type_, row in rows
        for path, schema in bounds_in(row.get("schema", {}))
        for value in outside(schema)
    ]
    values += [
        (rule, type_, f"{path}.{key}".removeprefix("."), None)
        for rule, type_, row in rows
        for path, schema in bounds_in(row.get("schema", {}))
        for key in schema.get("required", ())
    ]
    assert len(values) > 200
    for rule, type_, path, value in values:
        nameless = Resource(urn="", type=type_, name="x")
        found = [made for one in (*by_type.get(type_, ()), nameless) if (made := planted(one.inputs, steps(path), value))]
        assert found, f"no resource has {type_}: {path}"
        inputs, where = found[0]
        judgements = rule.judge(GraphFacts(Graph("test", "test", (replace(nameless, inputs=inputs),))))
        said = f" x: the API does not accept {format_path(where)}"
        assert any(judgement.message.endswith(said) for judgement in judgements), (rule.id, type_, path, value)


ODD = ("", " ", "\t", "é", "\u4e00", "a..b", "-", "/", "A", "a b", "%", "xxxxx", "10.0.0.0/8", "aws/")


def bounds_in(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every place of a schema."""
    yield path, schema
    for key, inner in schema.get("properties", {}).items():
        yield from bounds_in(inner, f"{path}.{key}".removeprefix("."))
    for keyword, step in (("items", "[]"), ("additionalProperties", ".*"), ("propertyNames", ".~")):
        if keyword in schema:
            yield from bounds_in(schema[keyword], f"{path}{step}")


def outside(schema: Schema) -> Iterator[Any]:
    """Values that break one bound of a place each."""
    if "enum" in schema:
        yield "none of them"
    if schema.get("minLength"):
        yield "x" * (schema["minLength"] - 1)
    if "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1)
    if "pattern" in schema:
        yield next(text for text in ODD if not re.search(schema["pattern"], text))
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"] + 1
    if "maxItems" in schema:
        yield ["x"] * (schema["maxItems"] + 1)


def planted(inputs: Mapping[str, Any], path: list[str], value: Any) -> tuple[dict[str, Any], list[Any]] | None:
    """The inputs with another value at a path, and that path with its indexes and names; None if they have no such place."""
    changed = copy.deepcopy(dict(inputs))
    place: Any = changed
    where: list[Any] = []
    for step in path:
        if where:
            place = place[where[-1]] if isinstance(place, list) else place.get(where[-1])
        if type(place) not in (dict, list) or (step in ("[]", "*", "~") and not place):
            return None
        where.append(0 if step == "[]" else next(iter(place)) if step in ("*", "~") else step)
    if path[-1] == "~":
        place[value] = place.pop(where[-1])
        where[-1] = value
    else:
        place[where[-1]] = value
    return changed, where
