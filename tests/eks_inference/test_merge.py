"""A user's values beside ours: whatever they are, what the stack relies on stays, or the report names the value."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.faults import SpecError
from eks_inference.kubernetes.merge import beside, merged
from stackgraph.problems import ProgramError
from variants import recorded_with

KEYS = st.sampled_from(["a", "b", "image", "resources", "settings"])
VALUES = st.dictionaries(
    KEYS, st.recursive(st.integers(0, 2) | st.none(), lambda inner: st.dictionaries(KEYS, inner, max_size=3))
)


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(value, dict) or not value:
        return {path: value}
    return {place: leaf for key, inner in value.items() for place, leaf in leaves(inner, (*path, key)).items()}


@given(VALUES, VALUES)
def test_ours_stay_or_the_users_are_refused(ours: dict[str, Any], theirs: dict[str, Any]):
    try:
        values = beside(ours, theirs)
    except SpecError as error:
        for fault in error.faults:
            assert fault.path[0] == "values"
            assert not {"image", "resources"} & set(fault.path)
        return
    assert values == merged(ours, theirs)
    for path, leaf in leaves(ours).items():
        if path and leaf != {} and not {"image", "resources"} & set(path):
            assert leaves(values)[path] == leaf


def test_a_path_that_a_chart_declares_free_is_the_users():
    ours = {"rbac": {"everything": False}, "settings": {"clusterName": "ours"}}
    assert beside(ours, {"rbac": {"everything": True}}, free=["rbac.everything"])["rbac"] == {"everything": True}
    with pytest.raises(SpecError, match=r"values\.settings: the stack relies on its own value"):
        beside(ours, {"settings": None}, free=["rbac.everything"])


def test_the_report_names_the_value_of_the_chart():
    with pytest.raises(ProgramError, match=r"karpenter\.values\.settings\.clusterName: the stack relies on its own value"):
        recorded_with({"karpenter": {"values": {"settings": {"clusterName": "other"}}}})
