"""Shipped stacks with a section changed, as somebody who edits the stack file would change it."""

import json
from typing import Any

from conftest import ROOT
from stackgraph.graph.document import Graph
from stackgraph.recorder.project import find_project
from stackgraph.recorder.recording import record


def recorded_with(section: dict[str, Any], stack: str = "inf2-llama3") -> Graph:
    """The graph of a stack with ``section`` laid over its stack object; ``None`` takes a key away."""
    project = find_project(ROOT)
    config = dict(project.config(project.stack_file(stack)).values)
    spec = json.loads(config["eks-inference:stack"])
    _lay(spec, section)
    config["eks-inference:stack"] = json.dumps(spec)
    return record(project.main, project=project.name, stack=stack, config=config, root=project.root)


def _lay(spec: dict[str, Any], section: dict[str, Any]) -> None:
    for key, value in section.items():
        if isinstance(value, dict) and isinstance(spec.get(key), dict):
            _lay(spec[key], value)
        elif value is None:
            del spec[key]
        else:
            spec[key] = value
