"""The timeline's plan against a small model of the engine (tests/support/engine_model.py)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import STACKS, recorded
from eks_inference.catalog.times import Typical
from eks_inference_tools.timeline.schedule import Step, schedule
from eks_inference_tools.timeline.timeline import timeline
from eks_inference_tools.timeline.update_steps import creation, deletion
from engine import remote
from engine_model import Spans, created, destroyed
from stackgraph.graph.document import STACK_TYPE, Graph, Resource

UNLIMITED = 10_000


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any resources that stand on earlier ones: some inside components, some kept, some that go with others."""
    stack = Resource("stack", STACK_TYPE, "stack", custom=False)
    resources = [stack]
    for number in range(draw(st.integers(1, 25))):
        earlier = [resource.urn for resource in resources[1:] if resource.custom]
        needed = draw(st.lists(st.sampled_from(earlier), max_size=3, unique=True)) if earlier else []
        options: dict[str, object] = {}
        if earlier and draw(st.booleans()):
            options["deletedWith"] = draw(st.sampled_from(earlier))
        if draw(st.integers(0, 9)) == 0:
            options["retainOnDelete"] = True
        resources.append(
            Resource(
                f"urn-{draw(st.integers(0, 99))}-{number}",
                "some:index:Thing",
                f"thing-{number}",
                parent=draw(st.sampled_from([resource.urn for resource in resources if not resource.custom])),
                custom=draw(st.integers(0, 3)) > 0,
                dependencies=tuple(needed[: len(needed) // 2]),
                property_dependencies={"of": tuple(needed)},
                options=options,
            )
        )
    return Graph("project", "stack", tuple(sorted(resources, key=lambda resource: resource.urn)))


@given(graphs(), st.lists(st.integers(0, 5), min_size=30, max_size=30))
def test_any_graph_goes_as_in_the_engine(graph: Graph, lengths: Sequence[int]) -> None:
    seconds = {one.urn: float(length) for one, length in zip(graph.resources, lengths, strict=False) if one.custom}
    assert planned(creation(graph, {}), seconds) == created(graph, seconds, UNLIMITED)
    assert planned(deletion(graph), seconds) == destroyed(graph, seconds, UNLIMITED)


def planned(steps: Sequence[Step], seconds: Mapping[str, float]) -> Spans:
    """The spans of steps that all take other times; what takes none by its nature stays so."""
    timed = [replace(step, time=_exactly(seconds.get(step.urn, 0.0)) if step.time is None else step.time) for step in steps]
    spans = schedule(timed).spans
    return {step.urn: (spans[step.id].start, spans[step.id].end) for step in timed if step.urn}


def _exactly(seconds: float) -> Typical:
    return Typical(seconds, seconds, seconds, 1, "made up", "2026-11")


@pytest.mark.parametrize("stack", STACKS)
def test_a_shipped_stack_goes_as_in_the_engine(stack: str) -> None:
    """Also with what is inside remote components, and with as few operations at once as a machine with two CPUs allows."""
    graph, found = recorded(stack), timeline(recorded(stack))
    names = {one.urn: remote.main_resource(one).urn if one.remote else one.urn for one in graph.resources}
    for plan, run in ((found.creation.typical, created), (found.deletion.typical, destroyed)):
        spans = {urn: plan.of(urn) for urn in names if urn in {step.urn for step in plan.steps.values()}}
        seconds = {names[urn]: span.seconds for urn, span in spans.items()}
        whole = remote.with_inside(graph)
        modelled = run(whole, seconds, UNLIMITED)
        assert {urn: modelled[names[urn]] for urn in spans} == {
            urn: (pytest.approx(span.start), pytest.approx(span.end)) for urn, span in spans.items()
        }
        assert total(run(whole, seconds, 8)) < 1.03 * plan.in_update


def total(spans: Spans) -> float:
    return max(end for _, end in spans.values())
