"""Shipped stacks with a section changed, as somebody who edits the stack file would change it."""

import json
from typing import Any

from conftest import PROJECT, record_once
from stackgraph.graph.document import Graph


def recorded_with(section: dict[str, Any], stack: str = "inf2-llama3") -> Graph:
    """The graph of a stack with ``section`` laid over its stack object; ``None`` takes a key away."""
    config = dict(PROJECT.config(PROJECT.stack_file(stack)).values)
    spec = json.loads(config["eks-inference:stack"])
    _lay(spec, section)
    config["eks-inference:stack"] = json.dumps(spec)
    return record_once(PROJECT.main, project=PROJECT.name, stack=stack, config=config, root=PROJECT.root)


def _lay(spec: dict[str, Any], section: dict[str, Any]) -> None:
    for key, value in section.items():
        if isinstance(value, dict) and isinstance(spec.get(key), dict):
            _lay(spec[key], value)
        elif value is None:
            del spec[key]
        else:
            spec[key] = value
