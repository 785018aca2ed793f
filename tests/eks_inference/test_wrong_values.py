"""Wrong values in Python programs: every field of every spec and every argument of every component answers in words of ours."""

import asyncio
import inspect
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast, get_args

import pulumi
import pytest
from pydantic import ValidationError
from pydantic_core._pydantic_core import list_all_errors

import eks_inference
from another_kind import PlainServerSpec
from eks_inference import (
    ClusterSpec,
    ExistingPool,
    HubModel,
    ManagedPoolSpec,
    NetworkSpec,
    RayServeVllmSpec,
    SpecError,
    StackSettings,
    StackSpec,
    Subnet,
    TritonClient,
    TritonServerSpec,
    VllmServerSpec,
    Vpc,
)
from eks_inference.component import Component, Handle
from eks_inference.faults import Fault, format_path
from eks_inference.serving.kinds import KINDS
from eks_inference.specs.base import Spec
from eks_inference.specs.validation import RENAMED, _shape_fault
from stackgraph.recorder.recording import record

THEIRS = re.compile(
    r"pydantic|Input|validation error|For further information|input_value|type=|object at 0x|String should|(List|Tuple) should"
    r"|should have at (least|most)|valid (integer|string|boolean|number|list|tuple|dictionary)|unable to|Field required"
    r"|Extra inputs|Value error|Assertion failed|Instance is"
)


def unresolved() -> pulumi.Output[str]:
    """Returns an Output that a loop of its own holds: other tests leave none behind."""
    loop = asyncio.new_event_loop()
    value, known, secret = (loop.create_future() for _ in range(3))
    for future, result in ((value, "x"), (known, True), (secret, False)):
        future.set_result(result)
    return pulumi.Output(set(), value, known, secret)


# pydantic looks for attributes of an Output, each of which is a further Output.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine 'Output:RuntimeWarning")

WRONG: dict[str, Any] = {
    "an object": object(),
    "an Output": unresolved(),
    "another spec": ClusterSpec(),
    "a text": "\N{SNOWMAN}",
    "a number": -1.5,
    "a list": [object()],
    "a mapping": {"nonsense": object()},
}


def public(base: type) -> list[Any]:
    found = (getattr(eks_inference, name) for name in dir(eks_inference))
    return sorted({one for one in found if isinstance(one, type) and issubclass(one, base)}, key=lambda one: one.__name__)


def inside(cls: type) -> Iterator[type]:
    for one in cls.__subclasses__():
        yield from (one, *inside(one))


def named(cls: type) -> str:
    return cls.__name__


OURS = {one for one in inside(Spec) if one.__module__.startswith("eks_inference") and not one.__name__.startswith("_")}
SPECS: list[Any] = sorted(OURS, key=named)


def refused(make: Callable[[], object]) -> tuple[Fault, ...]:
    """The faults of what cannot be made. Nothing that Python prints of the error has words of pydantic."""
    with pytest.raises(SpecError) as caught:
        make()
    error = caught.value
    printed = f"{error}\n" + "\n".join(fault.render() for fault in error.faults)
    printed += "\n".join(line for line in traceback.format_exception(error) if not line.startswith('  File "'))
    assert not (found := THEIRS.search(printed)), printed[max(0, found.start() - 200) : found.end() + 100]
    return tuple(error.faults)


def test_the_specs_are_all_there():
    assert set(public(Spec)) <= set(SPECS)
    assert len(SPECS) > 50


# Validators that meet an Output take it for an object with attributes, which are Outputs too.
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize("spec", SPECS, ids=named)
def test_a_wrong_value_of_any_field_is_a_fault_of_that_field(spec: Any):
    for what, wrong in WRONG.items():
        wrong_in_all = dict.fromkeys(spec.model_fields, wrong)
        try:
            spec(**wrong_in_all)
        except SpecError:
            paths = {fault.path[0] for fault in refused(lambda given=wrong_in_all: spec(**given))}
            assert {fault.path[0] for fault in refused(lambda given=wrong_in_all: spec.model_validate(given))} == paths
        else:
            paths = set()
        assert paths == set(spec.model_fields) or what != "an object"


@pytest.mark.thorough
@pytest.mark.parametrize("spec", [one for one in SPECS if one.model_fields], ids=named)
def test_a_misspelt_field_names_the_nearest(spec: Any):
    for field in spec.model_fields:
        (fault,) = [fault for fault in refused(lambda field=field: spec(**{f"{field}z": 1})) if fault.path == (f"{field}z",)]
        assert (fault.message, field in fault.allowed) == ("unknown key", True)
        assert "did you mean" in fault.hint or len(field) < 2


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_renamed_field_tells_its_name(old: str, new: str):
    told = [
        fault.hint
        for kind in KINDS.values()
        if new in kind.spec.model_fields
        for fault in refused(lambda kind=kind: kind.spec.model_validate({old: 1}))
        if fault.path == (old,)
    ]
    assert set(told) == {f"it is now called '{new}'"}


@pytest.mark.parametrize("spec", [VllmServerSpec, TritonServerSpec, RayServeVllmSpec])
def test_a_text_in_the_place_of_an_object_tells_how_to_write_it(spec: Any):
    (fault,) = [fault for fault in refused(lambda: spec(model="Qwen/Qwen3-8B")) if fault.path == ("model",)]
    assert fault.message == "should be an object"
    assert fault.hint.endswith("in Python HubModel(id='Qwen/Qwen3-8B')")
    assert "{kind: hugging_face, id: Qwen/Qwen3-8B}" in fault.hint
    assert HubModel(id="Qwen/Qwen3-8B").kind == "hugging_face"


def test_a_spec_of_another_kind_names_both():
    pools: Any = {"core": NetworkSpec(), "other": ManagedPoolSpec(instance_types=("m5.large",), size=2)}
    (fault,) = refused(lambda: StackSpec(name="x", pools=pools))
    assert (fault.path, fault.given) == (("pools", "core"), "NetworkSpec")
    assert fault.allowed == "ManagedPoolSpec, KarpenterPoolSpec", "who gives an object reads Python"


def test_a_region_that_cannot_be_is_a_fault_and_a_partition_that_is_known_is_none():
    wrong = {"": "the region is missing", "us-wst-2": "did you mean 'us-west-2'?", "eusc-de-east-1": "not know the partition"}
    for region, says in wrong.items():
        (fault,) = refused(lambda region=region: StackSettings(region=region))
        assert says in fault.message
    assert StackSettings(region="us-gov-east-1").region == "us-gov-east-1"


def test_a_stack_is_an_object():
    assert [fault.message for fault in refused(lambda: StackSpec.model_validate("x"))] == ["should be an object"]


def test_an_output_in_a_spec_says_where_outputs_go():
    (fault,) = refused(lambda: StackSettings(region=WRONG["an Output"]))
    assert "give it as plain text" in fault.hint
    assert "handles such as ExistingVpc and SecretRef" in fault.hint


def test_a_spec_stays_as_it_is_and_its_copy_is_validated():
    spec: Any = NetworkSpec(zones=3)
    with pytest.raises(ValidationError, match="frozen"):
        spec.zones = 2
    assert refused(lambda: spec.model_copy(update={"zones": "many"}))[0].path == ("zones",)
    assert spec.model_copy(update={"zones": 2}) == NetworkSpec(zones=2)


def test_a_spec_takes_no_positions_and_reads_json_with_faults():
    network: Any = NetworkSpec
    assert "write NetworkSpec.of(mapping)" in refused(lambda: network({"zones": 3}))[0].hint
    assert refused(lambda: NetworkSpec.model_validate_json('{"zonez": 3}'))[0].path == ("zonez",)
    assert refused(lambda: NetworkSpec.model_validate_json("{"))[0].message.startswith("is not JSON")


@pytest.mark.parametrize("error", list_all_errors(), ids=lambda one: one["type"])
def test_every_type_of_error_has_words_of_ours(error: Any):
    """Also those that no spec raises yet: a new field must not show words of pydantic."""
    problem = {
        "type": error["type"],
        "loc": ("zones",),
        "ctx": error["example_context"] or {},
        "msg": error["example_message_python"],
    }
    fault = _shape_fault(problem, {"zones": "x"}, NetworkSpec.model_json_schema())
    assert fault.message
    assert fault.message != problem["msg"]
    ours = fault.message.replace(str(problem["ctx"].get("error")), "")
    assert not THEIRS.search(ours)


# -- components ------------------------------------------------------------------------------------------------------------------

COMPONENTS = public(Component)


class Pool:
    """Something that has a placement, as every pool."""

    def placement(self) -> None: ...


def parameters(component: type) -> dict[str, Any]:
    return {name: one for name, one in inspect.get_annotations(component.__init__, eval_str=True).items() if name != "return"}


def test_every_public_component_compares_its_arguments():
    assert set(public(pulumi.ComponentResource)) == set(COMPONENTS)
    assert len(COMPONENTS) > 20


@pytest.mark.parametrize("component", COMPONENTS, ids=named)
def test_a_wrong_argument_is_a_fault_of_that_argument(component: Any):
    every = parameters(component)
    for what in ("an object", "a list", "a number"):
        faults = refused(lambda what=what: component(**dict.fromkeys(every, WRONG[what])))
        assert {format_path(fault.path).partition("[")[0].partition(".")[0] for fault in faults} == set(every)
    assert {fault.path for fault in refused(component)} <= {(name,) for name in every}


@pytest.mark.parametrize("component", COMPONENTS, ids=named)
def test_a_misspelt_argument_names_the_nearest(component: Any):
    for name in parameters(component):
        (fault,) = [fault for fault in refused(lambda name=name: component(**{f"{name}z": 1})) if fault.path == (f"{name}z",)]
        assert fault.hint == f"did you mean '{name}'?"


@pytest.mark.parametrize("component", [one for one in COMPONENTS if "placement" in parameters(one)], ids=named)
def test_a_pool_in_the_place_of_a_placement_says_how_to_get_one(component: Any):
    (fault,) = [fault for fault in refused(lambda: component("x", placement=Pool())) if fault.path == ("placement",)]
    assert (fault.given, fault.allowed) == ("Pool", "Placement")
    assert "pass pool.placement()" in fault.hint


@pytest.mark.parametrize("component", [one for one in COMPONENTS if "spec" in parameters(one)], ids=named)
def test_a_wrong_mapping_as_spec_has_the_faults_of_its_own_keys(component: Any):
    given, *_ = get_args(parameters(component)["spec"])
    kinds = {one.model_fields["kind"].default: one for one in specs_in(given) if "kind" in one.model_fields}
    for mapping in [{"kind": kind, "namez": 1} for kind in kinds] or [{"namez": 1}]:
        spec = kinds.get(cast(Any, mapping.get("kind"))) or next(specs_in(given))
        faults = refused(lambda mapping=mapping: component(name="x", spec=mapping))
        assert {fault.allowed for fault in faults if fault.path == ("namez",)} == {", ".join(sorted(spec.model_fields))}
        assert set(refused(lambda mapping=mapping, spec=spec: spec(**mapping))) <= set(faults)


def specs_in(annotation: Any) -> Iterator[Any]:
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        yield annotation
    for inner in get_args(annotation):
        yield from specs_in(inner)


@pytest.mark.parametrize("handle", public(Handle), ids=named)
def test_a_wrong_field_of_a_handle_is_a_fault_of_that_field(handle: Any):
    _, *every = inspect.signature(handle.__init__).parameters
    for what in ("an object", "a number"):
        faults = refused(lambda what=what: handle(**dict.fromkeys(every, WRONG[what])))
        assert {fault.path for fault in faults} == {(name,) for name in every}


@pytest.mark.parametrize("number", [10**400, 1e308, -(2**63)])
def test_a_number_that_no_machine_counts_with_is_a_fault(number):
    (fault,) = refused(lambda: ManagedPoolSpec.model_validate({"instance_types": ["m5.large"], "size": number}))
    assert (fault.path, fault.message) == (("size",), "this number is too large")


@pytest.mark.parametrize("text", [None, 3, b"\xff", "[" * 100_000])
def test_what_is_no_json_is_a_fault(text: Any):
    assert "is not JSON" in refused(lambda: NetworkSpec.model_validate_json(text))[0].message


def test_a_zone_has_its_id_everywhere():
    """A name such as us-west-2a is another zone in each account, and no rule about zones knows it."""
    assert refused(lambda: Subnet("us-west-2a", "subnet-1"))[0].path == ("zone_id",)
    (fault,) = refused(lambda: ExistingPool("gpu", {"a": "b"}, ["g5.xlarge"], zone_ids=["usw2-az1", "us-west-2b"]))
    assert fault.path == ("zone_ids", 1)
    assert "'us-west-2b' is not the id of an availability zone, such as usw2-az4" in fault.message


def test_a_range_of_a_subnet_is_an_address_block():
    (fault,) = refused(lambda: Subnet("usw2-az1", "subnet-1", cidr="10.0.0.1/19"))
    assert (fault.path, fault.message.partition("; ")[2]) == (("cidr",), "the block that contains it is 10.0.0.0/19")
    (fault,) = refused(lambda: Subnet("usw2-az1", "subnet-1", cidr="my subnet"))
    assert "'my subnet' is not an address block" in fault.message
    assert Subnet("usw2-az1", "subnet-1", cidr="10.0.0.0/19").cidr == "10.0.0.0/19"


def test_a_selector_of_an_existing_pool_selects_its_instance_types():
    label = "node.kubernetes.io/instance-type"
    (fault,) = refused(lambda: ExistingPool("core", {label: "m5.large"}, ["m5.2xlarge"]))
    assert (fault.path, fault.given, fault.allowed) == (("node_selector", label), "m5.large", "m5.2xlarge")
    ExistingPool("core", {label: "m5.large"}, ["m5.2xlarge", "m5.large"])


def test_a_text_is_no_list_of_texts():
    text: Any = "m5.large"
    (fault,) = refused(lambda: ExistingPool(pool="core", node_selector={}, instance_types=text))
    assert (fault.path, fault.given) == (("instance_types",), "str")


def test_what_a_component_stands_on_comes_by_name():
    vpc: Any = eks_inference.Vpc
    (fault,) = [fault for fault in refused(lambda: vpc("net", {}, None, SETTINGS)) if fault.path == ()]
    assert (fault.message, fault.given) == ("only name, spec, opts come by position", "StackSettings")
    assert "settings=…" in fault.hint


def test_the_client_of_triton_takes_no_other_server_of_its_api():
    client: Any = TritonClient

    class Another:
        namespace = endpoint = model_id = "x"
        ready, startup_seconds, spec = (), 1, PlainServerSpec

    (fault,) = [fault for fault in refused(lambda: client("x", server=Another())) if fault.path == ("server",)]
    assert (fault.given, fault.allowed) == ("Another", "TritonServer")


# -- subclasses ------------------------------------------------------------------------------------------------------------------


class AnyArguments(Vpc):
    def __init__(self, name: str, **others: Any) -> None:
        super().__init__(name, **others)


class OwnArguments(Vpc):
    def __init__(self, name: str, zones: int = cast(Any, None)) -> None:
        super().__init__(name, cast(Any, {"zonez": 2} if zones == 1 else NetworkSpec(zones=zones or 2)), settings=SETTINGS)


class SameArguments(Vpc): ...


SETTINGS = StackSettings(region="us-west-2")


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: AnyArguments("net", spec=3, settings=SETTINGS), ("spec",)),
        (lambda: AnyArguments("net", spac=3, spec=NetworkSpec(), settings=SETTINGS), ("spac",)),
        (lambda: OwnArguments("net", cast(Any, "two")), ("zones",)),
        (lambda: OwnArguments("net", 1), ("zonez",)),
        (lambda: SameArguments("net", cast(Any, 3), settings=SETTINGS), ("spec",)),
    ],
)
def test_what_a_subclass_passes_on_is_compared(make: Callable[[], object], path: tuple[str, ...]):
    assert path in {fault.path for fault in refused(make)}


@pytest.mark.parametrize("annotation", ["Imported", "pulumi.OnlyInStubs", "int[str]", "a Python list"])
def test_what_only_type_checkers_read_leaves_the_other_arguments_compared(annotation: str):
    """With ``from __future__ import annotations``, names may be imported under ``TYPE_CHECKING``."""

    class Network(Vpc):
        def __init__(self, name: str, other: Any, opts: pulumi.ResourceOptions | None = None) -> None:
            super().__init__(name, {"zonez": 1}, opts, settings=StackSettings(region="us-west-2"))

    class Pool(ExistingPool):
        team: Any

    Network.__init__.__annotations__["other"] = Pool.__annotations__["team"] = annotation
    network, pool = cast(Any, Network), cast(Any, dataclass(frozen=True, kw_only=True)(Pool))
    assert [fault.path for fault in refused(lambda: network(1, object()))] == [("name",)]
    assert [fault.path for fault in refused(lambda: network("name", object()))] == [("zonez",)]
    given = {"pool": 1, "node_selector": {}, "instance_types": ["m5.large"], "team": object()}
    assert [fault.path for fault in refused(lambda: pool(**given))] == [("pool",)]


@pytest.mark.parametrize("component", [*COMPONENTS, *public(Handle)], ids=named)
def test_none_is_taken_where_it_is_the_default(component: Any):
    optional = [name for name, one in inspect.signature(component).parameters.items() if one.default is None]
    faults = refused(lambda: component(**dict.fromkeys(optional), nonsense=1)) if component in COMPONENTS else ()
    assert not {fault.path[0] for fault in faults} & {*optional}


@pytest.mark.parametrize("handle", public(Handle), ids=named)
def test_a_handle_names_a_field_that_it_has_not_and_one_that_is_missing(handle: Any):
    required = {name for name, one in inspect.signature(handle.__init__).parameters.items() if one.default is one.empty} - {
        "self"
    }
    faults = refused(lambda: handle(nonsense=1))
    assert {(fault.path[0], fault.message.partition(" ")[0]) for fault in faults} == {("nonsense", "unknown")} | {
        (name, "this") for name in required
    }


def test_none_is_the_same_as_nothing_in_a_subclass():
    record(lambda: OwnArguments("net", cast(Any, None)))


METHODS = [
    (one, name) for one in (*public(Handle), *COMPONENTS) for name in vars(one) if callable(getattr(one, name)) and name[0] != "_"
]


@pytest.mark.parametrize(("cls", "method"), METHODS, ids=lambda one: getattr(one, "__name__", one))
def test_a_wrong_argument_of_a_public_method_is_a_fault(cls: Any, method: str):
    """Class methods only have faults of arguments; the others are called on what the tests of wiring make."""
    function = getattr(cls, method)
    if inspect.ismethod(function) and (required := [*inspect.signature(function).parameters][0:1]) != ["opts"]:
        assert {fault.path[0] for fault in refused(lambda: function(3))} >= {*required}


def test_a_pool_says_what_it_has():
    pool = ExistingPool("core", {"team": "x"}, ["m5.large", "m5.xlarge"])
    for wrong in ("m5.larg", None):
        assert refused(lambda wrong=wrong: pool.placement(wrong))[0].allowed == "m5.large, m5.xlarge"
    assert refused(lambda: cast(Any, pool).placement(instance="m5.large"))[0].allowed == "instance_type"
    assert refused(lambda: ExistingPool("core", {}, ["m5.larg"]))[0].path == ("instance_types", 0)


@pytest.mark.parametrize("field", ["size", "max_unavailable"])
def test_a_boolean_is_no_number(field: str) -> None:
    with pytest.raises(SpecError, match=f"{field}: should be a number; given: true"):
        ManagedPoolSpec.of({"instance_types": ["m5.large"], "size": 1, field: True})
