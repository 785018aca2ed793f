"""docs/components: each public component has a page, today's, and its program runs."""

import pytest

from component_pages import FOLDER, PIECES, components, contents, page, program
from eks_inference_tools.check.registry import check_graph
from golden import assert_golden
from stackgraph.testing import record

CONFIG = {"aws:region": "us-west-2"}
PAGES = "../../docs/components"
"""As seen from the golden files."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(components()))
def test_the_program_of_a_page_runs_and_builds_its_component(name):
    code = compile(program(name), f"docs/components/{name}.md", "exec")
    graph = record(lambda: exec(code, {}), config=CONFIG, secrets={"grafanaAdminPassword": "hush"})
    component = graph.one(f"eks-inference:index:{name}")
    assert component.descendants, "a component without a resource"
    assert all("hush" not in str(one.inputs) for one in graph)
    assert not check_graph(graph.graph, {}).faults


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(components()))
def test_the_page_is_todays(name):
    assert_golden(f"{PAGES}/{name}.md", page(name))


def test_there_is_a_page_for_each_component_and_no_other():
    assert_golden(f"{PAGES}/README.md", contents())
    assert {file.stem for file in FOLDER.glob("*.md")} == {*components(), "README"}
    assert {name for name in PIECES if name[0].isupper()} == set(components())
