"""vLLM's own start-up code against our verdicts: what it refuses is never "can run", what it starts is not refused."""

import json
import os
import re
import tempfile
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine_cases import RELEASE, Asked, advised, drawn, known, shipped
from golden import assert_golden
from known_pairs import ANSWERS, pairs
from refresh.engine.asking import answers

PYTHON = os.environ.get("ENGINE", "")
if not PYTHON:
    pytest.skip("vLLM's wheel for CUDA is not installed: make engine", allow_module_level=True)

SEED, COUNT = int(os.environ.get("SEED") or 1), int(os.environ.get("COUNT") or 200)
OFF, UNNOTICED = 0.02, 32 << 20
"""How far our bytes may be from the engine's: a share, or what no GPU notices."""
EXCEPTIONS = tomllib.loads((Path(__file__).parent / "engine_exceptions.toml").read_text("utf-8"))
"""Disagreements that stand, by name, with the reason. The list only becomes shorter."""


@cache
def judged() -> list[tuple[Asked, dict[str, Any]]]:
    asked = {asked.id: asked for asked in (*shipped(), *advised(), *drawn(SEED, COUNT))}
    with tempfile.TemporaryDirectory() as folder:
        cases = [one.case(Path(folder)) for one in asked.values() if "spec" not in one.ours.why]
        return [(asked[found["id"]], found) for found in answers(cases, Path(PYTHON))]


def excepted(one: Asked, words: str) -> bool:
    return any(row.get("ours", one.ours.says) == one.ours.says and re.search(row["words"], words) for row in EXCEPTIONS.values())


def told(one: Asked, found: dict[str, Any]) -> str:
    why = "; ".join(f"{rule}: {message}" for rule, message in one.ours.why.items())
    theirs = f"{found['verdict']} ({found['stage']}) {found.get('error', '')}"
    return f"{one.id} on {one.on}, {dict(one.keys)}: {one.ours.says} {why} | {theirs}"


def test_what_the_engine_refuses_is_never_said_to_run() -> None:
    wrong = [
        told(one, found)
        for one, found in judged()
        if found["verdict"] == "refuses"
        and one.ours.says == "can run"
        and not excepted(one, found["error"])
        # Weights that are quantized while they are loaded are still whole here.
        and not (found["stage"] == "cache" and one.ours.memory and one.ours.memory.settings.quantized_bytes)
    ]
    assert not wrong, "\n".join(wrong)


def test_what_the_engine_starts_is_not_refused() -> None:
    wrong = [
        told(one, found)
        for one, found in judged()
        # Memory beside weights and KV cache, and what runs after the weights are loaded, the engine tells on a GPU only.
        if found["verdict"] == "starts"
        and one.ours.says == "refused"
        and not all(excepted(one, f"{rule}: {message}") for rule, message in one.ours.why.items())
    ]
    assert not wrong, "\n".join(wrong)


def test_every_case_is_answered() -> None:
    dead = [told(one, found) for one, found in judged() if found["verdict"] == "died"]
    assert not dead, "\n".join(dead)


@pytest.mark.parametrize("what", ["weights", "kv_one", "adapters"])
def test_bytes_are_the_engines(what: str) -> None:
    wrong = []
    for one, found in judged():
        memory = one.ours.memory
        # What is quantized while it is loaded has its size only then, and what no formula counts we do not judge.
        quantized = what == "weights" and memory and memory.settings.quantized_bytes
        if memory is None or what not in found or quantized or memory.model.uncounted:
            continue
        weights, kv = memory.of_stage(0)
        kv = memory.kv if memory.model.heard else kv  # more at the start than a sequence takes later
        # The room for adapters is that of the fullest stage.
        adapters = memory.adapters if memory.split.stages == 1 else None
        ours = {"weights": weights, "kv_one": kv, "adapters": adapters}[what]
        if ours is None:
            continue
        theirs = found[what] + (found["tables"] if what == "weights" else 0)
        off = abs(ours - theirs)
        if off > max(OFF * theirs, UNNOTICED) and not excepted(one, f"{what} of {memory.model.architecture}"):
            wrong.append(f"{ours / theirs:.3f}: {told(one, found)}")
    assert not wrong, "\n".join(wrong)


def test_the_answers_beside_the_known_pairs_are_the_engines() -> None:
    """With ``UPDATE_GOLDEN=1`` they are written; docs/known-pairs.md shows them."""
    asked = {pair.key: known(pair) for pair in pairs() if pair.profile == RELEASE and pair.asked}
    if not asked:
        pytest.skip(f"no pair is of {RELEASE}")
    with tempfile.TemporaryDirectory() as folder:
        found = {answer["id"]: answer for answer in answers([one.case(Path(folder)) for one in asked.values()], Path(PYTHON))}
    said = {key: beside(found[one.id]) for key, one in asked.items()}
    assert_golden(f"../data/{ANSWERS.name}", json.dumps(said, indent=1, sort_keys=True))


def beside(found: dict[str, Any]) -> str:
    """An answer in a cell of a table."""
    if found["verdict"] != "starts":
        return f"does not start: {re.sub(r'^.*?Error[:,] ', '', found['error'])[:100].partition('. ')[0]}"
    weights, kv = (f"{size / 2**30:.2f} GiB" for size in (found["weights"] + found["tables"], found["kv_one"]))
    return f"starts: weights {weights}, KV cache of a sequence {kv}"
