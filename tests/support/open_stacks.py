"""Stack files that leave open what follows from the rest of them."""

import json
from collections.abc import Mapping
from typing import Any

from conftest import PROJECT, record_once
from eks_inference.stack.spec import StackSpec
from eks_inference_tools.reading.clusters import PLATFORM
from eks_inference_tools.resolution.origins import stack_file, values_of
from stackgraph.graph.document import Graph
from stackgraph.recorder.bounded_yaml import compose

STACK_KEY = "eks-inference:stack"


def minimal(instance: str, model: str, kind: str | None = None, **server: Any) -> dict[str, Any]:
    """The shortest stack with one server."""
    named = {} if kind is None else {"kind": kind}
    pools = {"nodes": {"instance_types": [instance], "size": 1}}
    return {"name": "mine", "pools": pools, "servers": {"m": {**named, "model": {"id": model}, **server}}}


def written_out(spec: StackSpec, given: Mapping[str, Any], *, defaults: bool = True) -> dict[str, Any]:
    """The stack object as ``preview --format stack`` prints it, read back."""
    found = values_of(spec, given)
    text = stack_file("mine", found if defaults else found.without("schema"), STACK_KEY, {"aws:region": "us-west-2"}, ())
    return compose(text).plain()["config"][STACK_KEY]


def recorded_stack(stack: Mapping[str, Any]) -> Graph:
    config = {STACK_KEY: json.dumps(stack), "aws:region": "us-west-2"}
    return record_once(PROJECT.main, project=PROJECT.name, stack="mine", config=config, root=PROJECT.root)


def without_reasons(graph: Graph) -> list[Any]:
    """The resources of a graph, but what was open in the stack file."""
    rows = [resource.document() for resource in graph.resources]
    for row in rows:
        if row["type"] == PLATFORM:
            row["inputs"] = {key: value for key, value in row["inputs"].items() if key != "resolved"}
    return rows
