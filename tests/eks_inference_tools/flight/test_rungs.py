"""Rungs grow in place: nothing is replaced on the way up, and only the smoke test goes."""

from itertools import pairwise

import pytest

from eks_inference_tools.flight.course import reach
from eks_inference_tools.flight.journal import Caps
from eks_inference_tools.flight.rungs import RUNGS
from flights import course
from stackgraph.testing import losses


@pytest.mark.thorough
@pytest.mark.parametrize("stack", ["smoke-inf2", "gpu-opt350m", "inf2-llama3", "trn2-nixl"])
def test_every_rung_grows_the_one_before_in_place(stack: str) -> None:
    legs = course(stack)
    assert [leg.name for leg in legs] == [*RUNGS]
    graphs = [(leg.name, each.graph) for leg in legs for each in leg.deployments]
    for (_, before), (name, after) in pairwise(graphs):
        lost = losses(before, after)
        assert {loss.kind for loss in lost} <= {"delete"}, name
        assert not lost or name == "stack", name
    first, last = graphs[0][1], graphs[-1][1]
    assert {resource.urn for resource in first.resources} <= {resource.urn for resource in last.resources}
    assert not any(resource.options.get("protect") for _, graph in graphs for resource in graph.resources)


def test_caps_reach_as_far_as_they_do() -> None:
    legs = course()
    assert reach(legs, Caps(100, 600)) is legs[-1]
    assert reach(legs, Caps(0.01, 600)) is legs[0]
    assert reach(legs, Caps(0.3, 600)) is legs[2]
