"""The graphs of the shipped stacks, recorded once for all tests of a process."""

import gc
import math
import os
import signal
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import golden
from mutations import cases
from stackgraph.graph.document import Graph
from stackgraph.presentation import progress
from stackgraph.recorder import recording
from stackgraph.recorder.answers import NO_ANSWERS
from stackgraph.recorder.project import find_project

ROOT = Path(__file__).parents[1]

# A process that a shell starts in the background ignores SIGINT, and one that nohup starts ignores SIGHUP; so do its children.
# Tests send both to theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# A proxy is for other servers than those on loopback, and tests ask no others.
for _name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[_name]
# Support of Kubernetes versions ends with time; what tests show must not change with it.
os.environ["SOURCE_DATE_EPOCH"] = str(int(datetime(2026, 9, 1, tzinfo=UTC).timestamp()))
# On a busy machine any example may take long. A change is judged by the same examples each time; who says CASES draws others.
hypothesis.settings.register_profile("same", deadline=None, max_examples=cases(20), derandomize="CASES" not in os.environ)
hypothesis.settings.load_profile("same")
# On a busy machine a command may take so long that it tells in between how far it is. In this process none does.
EVERY_SECONDS, progress._EVERY_SECONDS = progress._EVERY_SECONDS, math.inf
GOLDEN_FILE = "golden file"
PROJECT = find_project(ROOT)
STACKS = (ROOT / "tests" / "stacks.txt").read_text("utf-8").split()
"""The shipped stacks. Whoever has a clone may have stacks of their own beside them, which are no business of these tests."""

_record = recording.record
_recorded: dict[object, Graph] = {}


def pytest_configure() -> None:
    """Turns garbage collection off, which took a sixth of the time of all tests. A thousand recordings leave less than 4 GB."""
    gc.disable()


def pytest_sessionfinish() -> None:
    """Exempts all objects from the collections that pytest runs at the end."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to a test's report which golden files it wrote."""
    report = yield
    report.sections += [(GOLDEN_FILE, diff) for diff in golden.written]
    golden.written.clear()
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what ``UPDATE_GOLDEN=1`` changed, of tests that pass too: nothing is accepted unseen."""
    reports = (report for several in terminalreporter.stats.values() for report in several if hasattr(report, "sections"))
    diffs = sorted({text for report in reports for title, text in report.sections if title == GOLDEN_FILE})
    if os.environ.get("UPDATE_GOLDEN"):
        terminalreporter.section(f"golden files written: {len(diffs)}")
    for diff in diffs:
        terminalreporter.write_line(diff)


def record_once(program: Callable[[], Any] | Path, **how: Any) -> Graph:
    """Records a program as ``record`` does. This clone's program, and that of a copy of it, run once for each configuration."""
    root: Path = how.get("root") or Path.cwd()
    of_its_own = how.get("digest") or how.get("answers", NO_ANSWERS) != NO_ANSWERS
    if of_its_own or not (program == PROJECT.main if root == ROOT else program == root / "infra" and _is_copy(root)):
        return _record(program, **how)
    given = map(frozenset, (how["config"].items(), how.get("secret_keys", ())))
    key = (how["project"], how["stack"], *given, how.get("strict", False), () if root == ROOT else _files(root))
    if key not in _recorded:
        assert "PYTEST_CURRENT_TEST" in os.environ, (
            "record it in a test: every run collects all files, whichever tests it selects"
        )
        _recorded[key] = _record(program, **how)
    return _recorded[key]


def _is_copy(root: Path) -> bool:
    """Whether a folder has this project's ``Pulumi.yaml``. Its program may be another one."""
    project = root / "Pulumi.yaml"
    return project.is_file() and project.read_bytes() == (ROOT / "Pulumi.yaml").read_bytes()


def _files(root: Path) -> tuple[tuple[Path, bytes], ...]:
    """All that a program may read in a copy: what its graph depends on, besides the configuration of its stack."""
    files = sorted(file for file in root.rglob("*") if file.is_file() and file.parent.name != "stacks")
    return tuple((file.relative_to(root), file.read_bytes()) for file in files)


@cache
def recorded(stack: str, *, strict: bool = False) -> Graph:
    """Returns the graph of a shipped stack. Tests share it, so a test that edits it must copy it.

    Skips the test where stackgraph is installed alone, as its own users have it.
    """
    pytest.importorskip("eks_inference.platform", reason="stackgraph is alone here, without the programs of shipped stacks")
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
    """Makes commands in this process use ``recorded`` graphs, for tests of what a command does with a graph."""
    monkeypatch.setattr(recording, "record", record_once)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what a clone has that a preview needs, as the working folder."""
    from clones import copy_project

    monkeypatch.chdir(copy_project(tmp_path))
    return tmp_path


@pytest.fixture(params=STACKS)
def shipped(request: pytest.FixtureRequest) -> Graph:
    """Returns the graph of each shipped stack in turn."""
    return recorded(request.param)


@pytest.fixture(scope="session")
def llama3() -> Graph:
    return recorded("inf2-llama3")
