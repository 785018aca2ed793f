"""Every option of the stack file is set, checked, previewed and shown: in a small set of stacks that ``covering.py`` finds."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal, get_args, get_origin

import pulumi
import pytest
from pulumi import _types
from pydantic import BaseModel, Field

import conftest
import covering
from conftest import STACKS
from covering import Example
from covering_graphs import covering_graphs, recorded
from eks_inference.specs.base import KmsKeyArn, Spec
from eks_inference.stack import reading
from eks_inference.stack.registry import check_spec
from eks_inference.stack.spec import StackSpec
from eks_inference_tools.check.registry import check_graph
from eks_inference_tools.reading.rollouts import rows
from schema_walk import SET, Schema
from stackgraph.diff import replacements
from stackgraph.diff.differences import Path
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource
from stackgraph.recorder.lazy_sdk import lazy_sdks
from stackgraph.recorder.symbols import resource_class
from stackgraph.testing import losses
from stackgraph.views.manifests import render_manifests
from stackgraph.views.tree import render_tree

WITHOUT_EFFECT = {
    "draft_gib": "how much memory rules count for a draft model",
    "catalog": "which names later keys may have",
    "config": "what rules judge: it becomes shape",
    "gated": "whether the secret huggingFaceToken has to be there; where it is, pods get it in any case",
    "instance_type": "which one of its pool, which has no other in most stacks",
    "karpenter": "the controller is there wherever a pool needs it; keys below it have an effect",
    "shape": "what rules judge: no resource depends on the size of a model the catalog does not know",
    "silenced": "what rules say stops nothing any more",
}
"""Keys that change no resource: what they do instead."""

SAMPLE = 4
"""So many options are set alone, to see that the graph changes."""


@pytest.fixture(scope="module")
def graphs() -> Mapping[str, Graph]:
    return covering_graphs()


# -- the set covers --------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_every_option_is_set_by_one_of_few_stacks():
    examples = covering.covering_set()
    schema = covering.schema()
    met = set().union(*(schema.met(example.stack) for example in examples))
    missing = [str(demand) for demand in covering.demands() if demand not in met]
    assert not missing, (
        "no stack has:\n"
        + "\n".join(missing)
        + "\nrun with UPDATE_GOLDEN=1; if that is not enough, add a value or a seed to tests/support/covering.yaml"
    )
    assert len(examples) <= covering.MOST_STACKS


@pytest.mark.thorough
def test_the_library_takes_every_stack_of_the_set():
    for example in covering.covering_set():
        spec = reading.parse_stack(json.dumps(example.stack))
        assert not check_spec(spec, example.region).faults, example.name


# -- the stacks are previewed ----------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_rules_have_nothing_against_the_graphs(graphs):
    for example in covering.covering_set():
        # Its numbers of pods go to their bounds, and its nodes do not.
        silenced = {"K8S022": "a stack that nobody deploys", **example.stack.get("silenced", {})}
        faults = check_graph(graphs[example.name], silenced).faults
        assert not faults, f"{example.name}:\n" + "\n".join(fault.render() for fault in faults)


@pytest.mark.thorough
def test_every_graph_is_shown_as_a_tree_and_every_type_of_object_as_a_manifest(graphs):
    """``test_every_value_of_kubernetes.py`` reads all objects of all graphs."""
    shown: set[str] = set()
    for name, graph in graphs.items():
        assert graph.resources[0].name.split("-")[0] in render_tree(graph), name
        types = {resource.type for resource in graph.resources if is_kubernetes_object(resource)}
        if types - shown:
            manifests = render_manifests(graph)
            assert all(f"kind: {type_.rpartition(':')[2].removesuffix('Patch')}\n" in manifests for type_ in types), name
            shown |= types


@pytest.mark.thorough
def test_the_order_of_named_members_is_no_part_of_their_names(graphs):
    """Whoever writes a pool, server, route or endpoint before the others takes nothing of theirs: in one stack for all kinds of
    members beside each other."""
    shown: set[object] = set()
    for place, example in enumerate(covering.covering_set()):
        members = {*_members(example.stack)}
        if members - shown:
            turned = recorded(replace(example, stack=_turned(example.stack)), secrets=bool(place % 2))
            assert not [*losses(graphs[example.name], turned)], example.name
            shown |= members
    assert len(shown) > 16


def _are_named(value: dict[str, Any]) -> bool:
    return len(value) > 1 and all(isinstance(one, dict) for one in value.values())


def _members(value: Any, *path: str) -> Iterator[object]:
    """Where named members stand, with all of their kinds."""
    if isinstance(value, dict):
        if named := _are_named(value):
            yield path, frozenset(one.get("kind") for one in value.values())
        for name, one in value.items():
            yield from _members(one, *path, "*" if named else name)


def _turned(value: Any) -> Any:
    """The value with the last of named members first."""
    if not isinstance(value, dict):
        return value
    members = reversed(value.items()) if _are_named(value) else value.items()
    return {name: _turned(one) for name, one in members}


@pytest.mark.thorough
def test_no_input_of_a_component_hides_what_programs_call(graphs):
    """The SDK makes attributes of inputs: ``placement`` of a pool was a method once, and no longer one of a pool that had it."""
    classes = {cls.__name__: cls for cls in _below(pulumi.ComponentResource) if cls.__module__.startswith("eks_inference")}
    hidden = {
        f"{cls.__name__}.{key}"
        for graph in graphs.values()
        for resource in graph.resources
        if (cls := classes.get(resource.type.rpartition(":")[2])) and resource.type.startswith("eks-inference:")
        for key in resource.inputs
        if hasattr(cls, key)
    }
    assert not hidden


@pytest.mark.thorough
def test_the_fields_of_every_object_are_those_of_its_type(graphs):
    """By the types that SDKs generate of the schemas of Kubernetes and AWS; custom resources have none."""
    wrong = {
        f"{name}: {resource.type} {resource.name}: {fault}"
        for name, graph in graphs.items()
        for resource in graph.resources
        if resource.custom and not resource.is_provider
        for fault in _of_another_shape(resource)
    }
    assert not wrong, "\n".join(sorted(wrong))


def _below(cls: type) -> Iterator[type]:
    for one in cls.__subclasses__():
        yield one
        yield from _below(one)


def _of_another_shape(resource: Resource) -> Iterator[str]:
    cls = resource_class(resource.type)
    if cls is None:
        return
    types = _types.resource_types(cls)
    for key, value in resource.inputs.items():
        # The SDK itself adds these.
        if key not in ("apiVersion", "kind", "compat", "__defaults"):
            yield from _faults(types[key], value, key) if key in types else [f"{key}: no such field"]


def _faults(wanted: Any, value: Any, path: str) -> Iterator[str]:
    """Where a value is not of the SDK's type."""
    wanted = _types.unwrap_optional_type(wanted)
    if value is None or value in ("[secret]", "<unknown>"):
        return
    entries = value if isinstance(value, dict) else {}
    origin = get_origin(wanted)
    if origin in (Sequence, Mapping):
        if not isinstance(value, list if origin is Sequence else dict):
            yield f"{path}: {value!r}"
            return
        for key, one in enumerate(value) if origin is Sequence else entries.items():
            yield from _faults(get_args(wanted)[-1], one, f"{path}[{key!r}]")
    elif isinstance(wanted, type) and _types.is_output_type(wanted):
        known = _types.output_type_types(wanted)
        for key, one in entries.items():
            yield from _faults(known[key], one, f"{path}.{key}") if key in known else [f"{path}.{key}: no such field"]
    elif wanted in (str, bool, int, float):
        fitting = {str: str, bool: bool, int: int, float: (int, float)}[wanted]
        if not isinstance(value, fitting) or (isinstance(value, bool) and wanted is not bool):
            yield f"{path}: {value!r}"


# -- what an update does with every property is known ----------------------------------------------------------------------------


def properties(graph: Graph) -> Iterator[tuple[str, Path]]:
    """Each property of each type, those of a ``spec`` one by one."""
    for resource in graph.resources:
        for key, value in resource.inputs.items() if resource.custom or resource.remote else ():
            below = value if key == "spec" and isinstance(value, dict) and resource.package == "kubernetes" else {}
            yield from ((resource.type, (key, *deeper)) for deeper in ([(name,) for name in below] or [()]))


def unknown(graphs: list[Graph]) -> set[str]:
    found = {pair for graph in graphs for pair in properties(graph)}
    return {f"{type_} {'.'.join(map(str, path))}" for type_, path in found if not is_known(type_, path)}


def is_known(type_: str, path: Path) -> bool:
    """Whether a row names it, the API takes it for its identity, or the provider's schema tells that an update is in place."""
    replaced = any(replacements.covers(one, path) for row in replacements.rows(type_) for one in row.replace)
    in_place = not type_.startswith("kubernetes:") and replacements.is_known(type_)
    return path[0] in ("apiVersion", "kind") or replaced or in_place or any(row.named(type_, path) is not None for row in rows())


def test_every_property_of_the_shipped_stacks_has_a_row():
    assert not unknown([conftest.recorded(stack) for stack in STACKS[:3]])


@pytest.mark.thorough
def test_every_property_that_a_stack_can_have_has_a_row(graphs):
    assert not unknown([*map(conftest.recorded, STACKS), *graphs.values()])


# -- an option does something ----------------------------------------------------------------------------------------------------


@cache
def content_of_seed(name: str) -> Any:
    return content(next(seed for seed in covering.seeds() if seed.name == name))


def content(example: Example) -> Any:
    """What would be deployed."""
    with lazy_sdks():
        graph = recorded(example, secrets=True)
    resources = [(one.urn, one.inputs, one.options, one.dependencies) for one in graph.resources if one.custom or one.remote]
    return resources, graph.outputs


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(SAMPLE))
def test_an_option_changes_what_is_deployed(part: int):
    """Some of them: all options take minutes. A new option seldom changes which."""
    common = set.intersection(*(covering.schema().met(seed.stack) for seed in covering.seeds()))
    demands = [demand for demand in covering.schema().demands() if demand.want == SET]
    # An empty object may say no more than its default.
    objects = {demand.path[:length] for demand in demands for length in range(len(demand.path))}
    options = [one for one in demands if one not in common and one.path[-1] not in WITHOUT_EFFECT and one.path not in objects]
    mixed = sorted(options, key=lambda option: hashlib.sha256(str(option).encode()).digest())
    # Some can be set only together with others.
    demand = next(demand for demand in mixed[part::SAMPLE] if any(True for _ in covering.alone(demand)))
    assert any(content(changed) != content_of_seed(seed.name) for seed, changed in covering.alone(demand)), str(demand)


# -- the walk over a schema ------------------------------------------------------------------------------------------------------


class Small(BaseModel):
    kind: Literal["small"] = "small"
    size: int = Field(default=3, ge=1, le=9)


class Large(BaseModel):
    kind: Literal["large"]
    colours: tuple[Literal["red", "blue"], ...] = ()


class Toy(BaseModel):
    name: str = Field(max_length=4)
    loud: bool = False
    part: Small | Large | None = Field(default=None, discriminator="kind")
    labels: dict[str, str | int] = Field(default_factory=dict)


def test_what_a_schema_asks():
    assert {str(demand) for demand in Schema(Toy.model_json_schema()).demands()} == {
        "name: longest",
        "loud: set",
        "loud: true",
        "loud: false",
        "part: set",
        "part.<small>: set",
        "part.<small>.size: set",
        "part.<small>.size: 1",
        "part.<small>.size: 9",
        "part.<large>: set",
        "part.<large>.colours: set",
        'part.<large>.colours.[]: "red"',
        'part.<large>.colours.[]: "blue"',
        "labels: set",
        "labels.*.<string>: set",
        "labels.*.<integer>: set",
    }


@pytest.mark.parametrize(
    ("example", "met"),
    [
        ({}, {"loud: false"}),
        ({"name": "four", "loud": True}, {"name: longest", "loud: set", "loud: true"}),
        ({"part": {"size": 9}}, {"part: set", "part.<small>: set", "part.<small>.size: set", "part.<small>.size: 9"}),
        ({"part": {"kind": "large", "colours": []}}, {"part: set", "part.<large>: set"}),
        ({"labels": {"a": 1}}, {"labels: set", "labels.*.<integer>: set"}),
    ],
)
def test_what_an_example_answers(example: dict[str, Any], met: set[str]):
    found = {str(demand) for demand in Schema(Toy.model_json_schema()).met(example)}
    assert found - {"loud: false"} == met - {"loud: false"}
    assert ("loud: false" in found) == ("loud" not in example)


class Probe(Spec):
    role: KmsKeyArn
    level: Literal["low", "high"] = "low"
    share: float | None = Field(default=None, gt=0, le=1)


class WiderStack(StackSpec):
    probe: Probe | None = None


@pytest.mark.thorough
def test_a_new_section_joins_by_itself(monkeypatch):
    for module in (covering, reading):
        monkeypatch.setattr(module, "StackSpec", WiderStack)
    monkeypatch.setattr(covering, "schema", cache(lambda: Schema(WiderStack.model_json_schema())))
    asked = [demand for demand in covering.schema().demands() if demand.path[0] == "probe"]
    assert len(asked) == 6
    for demand in asked:
        _, changed = next(covering.alone(demand))
        assert demand in covering.schema().met(changed.stack)
