"""Shipped stacks with a changed section, as if somebody had edited the stack file."""

import json
from typing import Any

from conftest import PROJECT, record_once
from stackgraph.graph.document import Graph


def recorded_with(section: dict[str, Any], stack: str = "inf2-llama3") -> Graph:
    """Returns the graph of a stack with ``section`` merged into its stack object; ``None`` removes a key."""
    config = dict(PROJECT.config(PROJECT.stack_file(stack)).values)
    spec = json.loads(config["eks-inference:stack"])
    merge(spec, section)
    config["eks-inference:stack"] = json.dumps(spec)
    return record_once(PROJECT.main, project=PROJECT.name, stack=stack, config=config, root=PROJECT.root)


def merge(spec: dict[str, Any], section: dict[str, Any]) -> None:
    """Merges ``section`` into ``spec``; ``None`` removes a key."""
    for key, value in section.items():
        if isinstance(value, dict) and isinstance(spec.get(key), dict):
            merge(spec[key], value)
        elif value is None:
            del spec[key]
        else:
            spec[key] = value
