"""Keys that resolve otherwise in another revision: only where there are two."""

from eks_inference_tools.reading.clusters import PLATFORM
from eks_inference_tools.reading.dangers import resolved_otherwise
from stackgraph.diff.graphs import compare
from stackgraph.graph.document import Graph, Resource


def resolved(value: int) -> Graph:
    inputs = {"resolved": {"servers.llm.max_num_seqs": {"value": value, "why": "a row"}}}
    return Graph("demo", "dev", (Resource(urn="platform", type=PLATFORM, name="platform", inputs=inputs, custom=False),))


def test_a_key_that_resolves_otherwise_is_told_with_what_decides() -> None:
    (danger,) = resolved_otherwise(compare(resolved(4), resolved(8)))
    assert danger.what == "the stack file leaves servers.llm.max_num_seqs open: it resolves to 8 instead of 4 (a row)"
    assert not list(resolved_otherwise(compare(resolved(4), resolved(4))))


def test_a_stack_that_comes_or_goes_resolves_nothing_otherwise() -> None:
    assert not list(resolved_otherwise(compare(None, resolved(8))))
    assert not list(resolved_otherwise(compare(resolved(4), None)))
