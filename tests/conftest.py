"""The graphs of the shipped stacks, recorded once for all tests of a process."""

import gc
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stackgraph.graph.document import Graph
from stackgraph.recorder import recording
from stackgraph.recorder.project import find_project

ROOT = Path(__file__).parents[1]

# What a shell starts in the background ignores Ctrl-C and hands that on; tests send it to programs of theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)
PROJECT = find_project(ROOT)
STACKS = PROJECT.stacks()

_record = recording.record
_recorded: dict[object, Graph] = {}


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector need not walk it again and again, a tenth of the time of all tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def record_once(program: Callable[[], Any] | Path, **how: Any) -> Graph:
    """As ``record``. The program of this clone, which no test changes, runs once for each configuration."""
    if program != PROJECT.main or how.get("root") != ROOT or how.get("digest"):
        return _record(program, **how)
    key = (how["stack"], *map(frozenset, (how["config"].items(), how.get("secret_keys", ()))), how.get("strict", False))
    if key not in _recorded:
        _recorded[key] = _record(program, **how)
    return _recorded[key]


@cache
def recorded(stack: str, *, strict: bool = False) -> Graph:
    """The graph of a shipped stack. Tests share it: whoever edits it edits a copy."""
    config = PROJECT.config(PROJECT.stack_file(stack))
    return record_once(
        PROJECT.main,
        project=PROJECT.name,
        stack=stack,
        config=config.values,
        secret_keys=config.secret_keys,
        strict=strict,
        root=ROOT,
    )


@pytest.fixture
def recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that run in this process take ``recorded`` graphs: for tests of what a command makes of a graph."""
    monkeypatch.setattr(recording, "record", record_once)


@pytest.fixture(params=STACKS)
def shipped(request: pytest.FixtureRequest) -> Graph:
    """The graph of each shipped stack in turn."""
    return recorded(request.param)


@pytest.fixture(scope="session")
def llama3() -> Graph:
    return recorded("inf2-llama3")
