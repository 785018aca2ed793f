"""A kind of server that only tests have, on a real control plane: nothing there knows it."""

import pytest

from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.simulation import rolled_out, simulation
from plain_stack import PLAIN, STACK, plain_kind
from variants import recorded_with

pytestmark = pytest.mark.cluster


def test_it_is_admitted_lands_and_is_scaled(toolchain: Toolchain) -> None:
    """Four pods, as many as its autoscaler may ask for, on the four GPU nodes of the stack."""
    with plain_kind():
        graph = recorded_with(PLAIN, STACK)
    with simulation(graph, toolchain, replicas={"plain/plain": 4}) as simulated:
        report = rolled_out(simulated)
    assert not report.admission.refusals
    assert not report.scheduled.pending
    assert report.is_well, report.faults
    assert [node.taken.get(GPU_RESOURCE) for node in report.scheduled.nodes if GPU_RESOURCE in node.devices] == [1] * 4
