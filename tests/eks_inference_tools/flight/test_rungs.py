"""Rungs grow in place: nothing is replaced on the way up, and only the smoke test goes."""

import json
from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest

from conftest import ROOT
from eks_inference_tools.flight.course import reach
from eks_inference_tools.flight.journal import Caps, Meter
from eks_inference_tools.flight.report import course as course_document
from eks_inference_tools.flight.report import render_course
from eks_inference_tools.flight.rungs import RUNGS, smoke_of
from eks_inference_tools.program import STACK_KEY, program
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


@pytest.mark.parametrize(
    ("caps", "spent", "price", "left"),
    [
        (Caps(10), 4, 2, 3 * 3600 - 60),
        (Caps(10), 11, 2, -1800 - 60),
        (Caps(10), 10, 0, inf),
        (Caps(10), 10.1, 0, -inf),
        (Caps(10, 5), 4, 2, 300 - 100 - 60),
        (Caps(), 99, 2, inf),
    ],
)
def test_a_way_down_begins_before_either_cap(caps: Caps, spent: float, price: float, left: float) -> None:
    assert Meter(caps, spent, 100).left_s(price, 60) == left


def test_the_first_server_is_on_a_node_of_the_stack_or_on_a_small_one() -> None:
    for stack, expected in (("smoke-inf2", ("neuron", ["inf2.xlarge"], True)), ("gpu-opt350m", ("smoke", ["g6.xlarge"], False))):
        given = program(stack, ROOT)
        assert (spec := given.spec())
        assert (found := smoke_of(spec, json.loads(given.config.values[STACK_KEY])))
        assert (found.pool, found.node["instance_types"], found.own) == expected


def test_the_course_has_what_each_rung_costs_so_far_and_what_has_no_price() -> None:
    doctor, plane = course()[:2]
    descent = replace(plane.descent, p50=600)
    plane = replace(plane, descent=descent, usd_per_hour=2, unpriced=("x",))
    (_, rung), back = course_document("s", [doctor, plane])["rungs"], 2 * 600 / 3600
    assert (rung["usd"], rung["usd_with_return"], rung["without_price"]) == (plane.usd, plane.usd + back, ["x"])
    assert "Not in these amounts: x" in render_course("s", [doctor, plane], Caps())
