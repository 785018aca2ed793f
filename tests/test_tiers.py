"""What `make test` leaves to `make thorough`: single tests, never a whole file, unless a reason stands here."""

import ast
import re
from collections.abc import Iterator
from functools import cache, partial

import pytest

from conftest import ROOT

TESTS = ROOT / "tests"

WHOLE = {
    "eks_inference_tools/flight/test_engine.py": "needs `pulumi` on PATH",
    "eks_inference_tools/test_timeline_engine.py": "needs `pulumi` on PATH",
    "eks_inference_tools/test_engine_parity.py": "needs `pulumi` on PATH",
    "test_own_stacks.py": "collects tests in a process of its own",
    "test_vllm_pair.py": "needs vLLM, 6 GB",
    "test_vllm_scheduler.py": "needs vLLM, 6 GB",
}
"""Files whose tests all have the mark, and why."""


@cache
def tiers() -> dict[str, frozenset[str]]:
    """The commands that run tests of each file, by its path below ``tests/``."""
    return {str(path.relative_to(TESTS)): frozenset(_tiers(path.read_text("utf-8"))) for path in TESTS.rglob("test_*.py")}


def _tiers(text: str) -> Iterator[str]:
    if re.search(r"^pytestmark = .*mark\.cluster", text, re.M):
        yield "make cluster"
        return
    if "thorough" not in text:
        yield "make test"
        return
    for one in ast.parse(text).body:
        if isinstance(one, ast.FunctionDef) and one.name.startswith("test_"):
            decorators = [ast.unparse(each) for each in one.decorator_list]
            marked = "pytest.mark.thorough" in decorators
            yield "make thorough" if marked else "make test"
            if not marked and any("thorough" in each for each in decorators):
                yield "make thorough"


def test_no_file_is_thorough_as_a_whole() -> None:
    marked = [
        path.name for path in TESTS.rglob("test_*.py") if re.search(r"^pytestmark\b.*thorough", path.read_text("utf-8"), re.M)
    ]
    assert not marked, "mark its tests, and leave `make test` at least one"
    assert {name for name, found in tiers().items() if found == {"make thorough"}} == WHOLE.keys()


def test_make_cluster_names_the_folder_of_its_tests() -> None:
    folder = "eks_inference_tools/cluster"
    assert {name for name, found in tiers().items() if "make cluster" in found} == {name for name in tiers() if folder in name}
    assert f"tests/{folder}\n" in (ROOT / "Makefile").read_text("utf-8")


ROWS = re.findall(
    r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$",
    (ROOT / "docs" / "architecture.md").read_text("utf-8").partition("## Where proof comes from")[2],
    re.M,
)


@pytest.mark.parametrize(("tier", "where", "when"), [row for row in ROWS if "test_" in row[1]], ids=lambda cell: cell[:20])
def test_the_table_of_tiers_says_when_its_tests_run(tier: str, where: str, when: str) -> None:
    names, commands = re.findall(r"`([\w/]+\.py)`", where), set(re.findall(r"`(make \w+)`", when))
    found = set().union(*(tiers()[name] for name in names))
    if of_their_own := commands - {"make test", "make thorough", "make cluster"}:
        # They name the files that they run, and `make test` skips those.
        made = (ROOT / "Makefile").read_text("utf-8")
        assert all(any(f"tests/{name}" in target for name in names) for target in map(partial(_target, made), of_their_own))
    else:
        assert commands == found, tier


def _target(makefile: str, command: str) -> str:
    return makefile.partition(f"\n{command.removeprefix('make ')}:")[2].partition("\n\n")[0]


def test_the_table_names_where_each_tier_is() -> None:
    assert {tier for tier, where, when in ROWS if "test_" not in where} <= {"tier", "---", "site", "AWS, Neuron hardware"}
