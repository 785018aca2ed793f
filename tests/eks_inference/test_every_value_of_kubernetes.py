"""Every property of a Kubernetes object that a user can reach is bounded, judged by a rule, or needs neither."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from covering_graphs import shipped_and_covering_graphs
from eks_inference_tools.check import value_rules
from eks_inference_tools.check.registry import all_rules
from eks_inference_tools.check.value_rules import faults, kubernetes_bounds
from golden import assert_golden
from kubernetes_reach import SHARED, Property, in_words, reachable
from out_of_bounds import planted
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph
from stackgraph.views.manifests import manifest

SUPPORT = Path(__file__).parents[1] / "support"
JUDGED = tomllib.loads((SUPPORT / "kubernetes_reach.toml").read_text("utf-8"))
REASONS = JUDGED.pop("reasons")
RAW = json.loads(Path(value_rules.__file__).with_name("kubernetes_bounds.json").read_text("utf-8"))

INTRODUCTION = """\
# Bounds of Kubernetes objects

For each property of a Kubernetes object that a stack file can change: the values that the API server accepts, and who judges them
before anything is deployed. A test makes this page from the recorded graphs of the shipped stacks and of stacks that together set
every option; it fails where a property has no bound, no rule and no reason.

Rule K8S019 compares every object with `check/kubernetes_bounds.json`. A test on a real control plane derives that file from the
API server's own OpenAPI, the definitions of custom resources, our schemas of KubeRay and LeaderWorkerSet (no Go module has
theirs), and `refresh/kubernetes_bounds.toml`: what the API server refuses and publishes nowhere. Another breaks every bound
and has the API server refuse the object. K8S019 also refuses unknown fields, missing required ones and values of another type. It
does not compare one field with another: `eks-inference simulate` asks a real API server.

Values of charts are the charts' own. Rules HEL001 and HEL002 judge their versions and pods, K8S004 and K8S017 their secrets and
doors.

In a path `[]` is an item of a list, `*` the value of any key, and `~` the key itself."""


@cache
def graphs() -> tuple[Graph, ...]:
    return tuple(shipped_and_covering_graphs())


@cache
def reached() -> Mapping[tuple[str, str], Property]:
    return reachable(graphs(), RAW)


@pytest.mark.thorough
def test_the_bounds_know_every_kind_of_the_graphs():
    missing = {item["kind"] for schema, item in objects() if not schema}
    assert not missing, "`make refresh TABLE=kubernetes_bounds` derives the bounds of new kinds"


@pytest.mark.thorough
def test_nothing_in_the_graphs_is_out_of_bounds():
    wrong = [(item["kind"], fault) for schema, item in objects() for fault in faults(item, schema)]
    assert not wrong


@pytest.mark.thorough
def test_what_the_graphs_set_is_bounded_as_deep_as_they_set_it():
    """A mapping that no graph set when the bounds were derived has an empty schema, so nothing in it would be judged."""
    shallow = {f"{item['kind']}: {path}" for schema, item in objects() for path in _unbounded(item, schema, "")}
    assert not shallow, "`make refresh TABLE=kubernetes_bounds` derives the bounds again"


@pytest.mark.thorough
def test_every_property_within_reach_is_judged_or_needs_no_judge():
    open_ = [f"{section}: {path}" for (section, path), one in reached().items() if not judges(section, path, one)]
    assert not open_, "neither bound, rule nor reason:\n" + "\n".join(open_)


@pytest.mark.thorough
def test_every_judge_exists_and_has_something_to_judge():
    known = {*all_rules(), *REASONS}
    for section, rows in JUDGED.items():
        for path, named in rows.items():
            assert (section, path) in reached(), f"no user reaches {section}: {path}"
            assert {*named.split(", ")} <= known, named


@pytest.mark.thorough
def test_the_documents_list_every_property():
    rows: dict[str, list[str]] = {}
    for (section, path), one in reached().items():
        bound = in_words(one.schema) or type_of(one.schema)
        rows.setdefault(section, []).append(f"| `{path}` | {bound} | {judges(section, path, one)} |".replace("||", r"\|\|"))
    parts = [INTRODUCTION]
    for section in (*SHARED.values(), *sorted(rows.keys() - {*SHARED.values()})):
        source = RAW["kinds"][section]["source"] if section in RAW["kinds"] else "the API server's OpenAPI and validation"
        title = section if section in RAW["kinds"] else section.capitalize()
        head = f"## {title}\n\nSource: {source}.\n\n| property | the API takes | judged by |\n|---|---|---|"
        parts.append("\n".join([head, *rows[section]]))
    assert_golden("../../docs/bounds-kubernetes.md", "\n\n".join(parts))


def judges(section: str, path: str, one: Property) -> str:
    named = JUDGED.get(section, {}).get(path, "")
    named = named or ("boolean" if one.schema.get("type") == "boolean" else "")
    others = [REASONS.get(name, name) for name in named.split(", ") if name]
    return ", ".join((["K8S019"] if in_words(one.schema) else []) + others)


def type_of(schema: Mapping[str, Any]) -> str:
    kinds = schema.get("type", "string")
    return "a value of type " + (kinds if isinstance(kinds, str) else " or ".join(kinds))


def _nodes(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
    for one in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _nodes(one)


def _unbounded(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        if not schema.keys() & {"properties", "additionalProperties", "propertyNames"}:
            yield path
        known = schema.get("properties", {})
        for key, item in value.items():
            yield from _unbounded(item, known.get(key) or schema.get("additionalProperties") or {}, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _unbounded(item, schema.get("items", {}), f"{path}[]")


def objects() -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Every object of the graphs with its schema, where that is known."""
    for graph in graphs():
        for resource in graph.resources:
            if is_kubernetes_object(resource):
                item = manifest(resource)
                kind = kubernetes_bounds().get(f"{item['apiVersion']}/{item['kind']}")
                yield (kind["schema"] if kind else {}), item


def test_every_pattern_can_be_read():
    patterns = [node["pattern"] for node in _nodes(RAW) if isinstance(node.get("pattern"), str)]
    assert patterns
    for pattern in patterns:
        re.compile(pattern)


@pytest.mark.thorough
def test_every_bound_is_watched():
    """The rule says so where one bound is broken. On a real control plane, the same objects are refused (test_bounds.py)."""
    missed = []
    count = 0
    for one in planted((schema, item) for schema, item in objects() if schema):
        count += 1
        if one.path not in {path for path, *_ in faults(one.item, one.schema)}:
            missed.append((one.item["kind"], one.path, one.value))
    assert not missed
    assert count > 500
