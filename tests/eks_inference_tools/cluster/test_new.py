"""Stacks that `new` writes, on a real control plane: everything is admitted, and every pod finds its node."""

import pytest

from conftest import PROJECT
from eks_inference.accelerators.neuron.plan import DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference.catalog.models import model
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.fitting.search import Wish, search
from eks_inference_tools.fitting.stack_file import Order, stack_file
from eks_inference_tools.fitting.trials import VLLM
from eks_inference_tools.program import unwritten
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.simulation import rolled_out, simulation

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    ("name", "type_", "resource"),
    [
        ("GPT-OSS-120B", "g6e.12xlarge", GPU_RESOURCE),
        ("meta-llama/Llama-3.1-70B-Instruct", "trn1.32xlarge", DEVICE_RESOURCE),
    ],
)
def test_a_stack_of_the_first_row_lands(name: str, type_: str, resource: str, toolchain: Toolchain) -> None:
    """A GPU, Neuron, and a gated repository, which needs a token."""
    wanted = model(name)
    source = {"id": name if name in wanted.gated else next(one for one in wanted.repositories if one not in wanted.gated)}
    found = search(Wish(source, wanted, "us-east-1", 4096, types=(type_,), quantized=("published",)), PriceBook())
    row = next(row for row in found.rows if row.trial.kind is VLLM)
    order = Order("mine", row, source)
    graph = unwritten(PROJECT, "mine", stack_file(order)).record()
    with simulation(graph, toolchain) as simulated:
        report = rolled_out(simulated)
    assert not report.admission.refusals
    assert not report.scheduled.pending
    assert report.is_well, report.faults
    assert [node.taken.get(resource) for node in report.scheduled.nodes if resource in node.devices] == [row.trial.devices]
