"""The graphs of the shipped stacks, recorded once for all tests."""

import signal
from functools import cache
from pathlib import Path

import pytest

from stackgraph.graph.document import Graph
from stackgraph.recorder.project import find_project
from stackgraph.recorder.recording import record

ROOT = Path(__file__).parents[1]

# What a shell starts in the background ignores Ctrl-C and hands that on; tests send it to programs of theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)
STACKS = find_project(ROOT).stacks()


@cache
def recorded(stack: str, *, strict: bool = False) -> Graph:
    project = find_project(ROOT)
    config = project.config(project.stack_file(stack))
    return record(
        project.main,
        project=project.name,
        stack=stack,
        config=config.values,
        secret_keys=config.secret_keys,
        strict=strict,
        root=project.root,
    )


@pytest.fixture(params=STACKS)
def shipped(request: pytest.FixtureRequest) -> Graph:
    """The graph of each shipped stack in turn."""
    return recorded(request.param)


@pytest.fixture(scope="session")
def llama3() -> Graph:
    return recorded("inf2-llama3")
