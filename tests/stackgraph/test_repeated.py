"""What a recording spares the SDK changes no result, and is the SDK's own again afterwards."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pytest
from pulumi import _types, output
from pulumi.runtime import rpc

from stackgraph.problems import ProgramError
from stackgraph.recorder.process import repetition_spared
from stackgraph.recorder.recording import record

FUNCTIONS = ("_is_optional_type", "_is_union_type", "unwrap_optional_type", "unwrap_type")


@pulumi.input_type
class Made:
    pass


TYPES = (int, int | None, str | int, pulumi.Input[str], pulumi.Output[list[int]], Mapping[str, Any] | None, type(None), Any)
# Equal for Python and another thing for the SDK, which takes a dictionary after an input type for its other form.
IN_TWO_ORDERS = (Made | dict, dict | Made)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_type_is_what_it_is_for_the_sdk(name: str) -> None:
    found = [getattr(_types, name)(type_) for type_ in (*TYPES, *IN_TWO_ORDERS)]
    with repetition_spared():
        for _ in range(2):
            assert [getattr(_types, name)(type_) for type_ in (*TYPES, *IN_TWO_ORDERS)] == found


@pytest.mark.parametrize(
    ("value", "unknown"),
    [
        *((plain, False) for plain in ("text", 1, True, None, {"a": ["b"]})),
        *((holding, True) for holding in (output.UNKNOWN, {"a": ["b", output.UNKNOWN]}, [{"a": output.UNKNOWN}])),
    ],
)
def test_an_unknown_is_found_wherever_it_is(value: Any, unknown: bool) -> None:
    with repetition_spared():
        assert rpc.contains_unknowns(value) is output.contains_unknowns(value) is unknown


def test_the_sdk_is_as_before_after_a_program_also_after_one_that_fails() -> None:
    before = (*(getattr(_types, name) for name in FUNCTIONS), rpc.contains_unknowns, output.contains_unknowns)
    record(lambda: pulumi.export("a", 1))
    with pytest.raises(ProgramError):
        record(lambda: 1 / 0)
    assert (*(getattr(_types, name) for name in FUNCTIONS), rpc.contains_unknowns, output.contains_unknowns) == before
