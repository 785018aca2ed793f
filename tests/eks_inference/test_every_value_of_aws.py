"""Every value that reaches AWS: bounded as its API's models say, or as documents do, or with a reason why not.

Beside ``test_every_option.py``, whose recorded graphs it uses.
"""

import json
import os
from collections.abc import Mapping

import pytest

import aws_api
import aws_reach
from aws_api import Derived
from conftest import STACKS, recorded
from covering_graphs import covering_graphs
from golden import assert_golden
from stackgraph.graph.document import Graph

SAMPLE = int(os.environ.get("AWS_VALUES", "150"))
"""So many values are planted; 0 stands for all, which takes a minute."""


@pytest.fixture(scope="module")
def graphs() -> list[Graph]:
    return [*covering_graphs().values(), *map(recorded, STACKS)]


@pytest.fixture(scope="module")
def types(graphs: list[Graph]) -> Mapping[str, Derived]:
    return aws_api.derived(aws_api.recorded_inputs(graphs))


def test_the_bounds_are_those_of_the_models(types):
    assert_golden(
        "../../components/eks_inference_tools/check/aws_bounds.json", json.dumps(aws_api.data(types), indent=1, sort_keys=True)
    )


def test_each_property_that_a_user_reaches_has_a_bound_a_rule_or_a_reason(types):
    found = list(aws_reach.rows(types))
    assert_golden("../../docs/bounds-aws.md", aws_reach.page(found))
    lacking = [f"{row.type}: {row.path}" for row in found if not row.judge]
    assert not lacking, "say in tests/support/aws_reach.toml who judges these, or why nobody has to:\n" + "\n".join(lacking)
