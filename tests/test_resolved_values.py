"""Nothing is unpinned: what an open key resolves to changes only with a line in the changelog."""

import os
from dataclasses import replace
from itertools import product

import pytest

import resolved_values
from eks_inference.catalog import engines
from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.models import models
from eks_inference.serving.kinds import KINDS
from golden import assert_golden
from released import CHANGELOG, version
from resolved_values import FILE, UNRELEASED, Change, Resolution, changes, read, resolutions, rows, unannounced, written

SAID = """\
    {change}
If that is meant, say so in CHANGELOG.md under Unreleased, with the reason: - Resolves `{change.key}` of `{change.row}`: …"""
ROW = "OPT-350M on g6.48xlarge as vllm"
SET_OF_ALL = [*resolved_values._set()]


@pytest.mark.thorough
def test_nothing_resolves_otherwise_without_a_word():
    """One test, so that one process works the values out."""
    today = rows()
    if os.environ.get("UPDATE_GOLDEN") and (not FILE.exists() or read()[0] == UNRELEASED):
        assert_golden(f"../released/{FILE.name}", written(today, UNRELEASED))
    release, before = read()
    found = [*changes(before, today)]
    announced = resolutions(CHANGELOG.read_text("utf-8"))
    untold = unannounced(iter(found), announced)
    if release == UNRELEASED:
        assert not untold, "no release resolves anything yet: run with UPDATE_GOLDEN=1 and review\n" + "\n".join(map(str, untold))
    said = "\n".join(SAID.format(change=change) for change in untold[:10])
    assert not untold, f"a stack file that release {release} resolved now resolves otherwise ({len(untold)} values):\n{said}"
    for resolution in announced:
        assert any(map(resolution.covers, found)), f"{resolution} announces what no stack resolves otherwise"
    assert {row.rpartition(" as ")[2] for row in today if " as " in row} == {"vllm", "triton", "ray_serve_vllm"}
    assert today[ROW]["engine"] == "cuda-vllm-0.30"
    assert {bool(values) for row, values in today.items() if row.startswith("DeepSeek-V3 ")} == {True, False}
    assert today["core pool"]["size"] == 2


def test_the_set_has_every_model_on_every_family():
    kinds = {kind for kind, _, _ in SET_OF_ALL if kind != "triton"}
    there = {(kind, name, instance.family) for kind, name, instance in SET_OF_ALL}
    families = {one.family: one.accelerator for one in instance_types().values() if one.accelerator}
    for kind, name, family in product(kinds, models(), families):
        assert (families[family] not in KINDS[kind].spec.accelerators) == ((kind, name, family) not in there)


def test_the_values_are_those_of_the_version():
    assert read()[0] in (UNRELEASED, version()), "after a new version: make release"


@pytest.mark.thorough
def test_a_row_of_the_catalog_that_changes_a_value_is_found(monkeypatch):
    # A caveat on the newest profile for GPUs leaves its rows without an engine, as no other profile of theirs is without Triton.
    known = engines.engines()
    retired = {name: replace(one, retired="planted") if name == "cuda-vllm-0.30" else one for name, one in known.items()}
    monkeypatch.setattr("eks_inference.serving.choosing.engines", lambda: retired)
    monkeypatch.setattr(resolved_values, "_set", lambda: [one for one in SET if one[2].name == "g6.48xlarge"])
    found = [*changes({ROW: read()[1][ROW]}, resolved_values.rows())]
    assert ("engine", "cuda-vllm-0.30", None) in [(change.key, change.old, change.new) for change in found]
    assert unannounced(iter(found), [Resolution("*", "* on g5.48xlarge as vllm")]) == found
    assert not unannounced(iter(found), [Resolution("*", "* on g6.48xlarge as vllm")])


SET = [one for one in SET_OF_ALL if one[0] == "vllm"]


def test_a_line_of_the_changelog_announces_values():
    next_release = "- Resolves `engine` of `* on g6*`: a newer vLLM.\n- Resolves `disk_gib` of `x`:\n"
    text = f"## Unreleased\n\n{next_release}\n## 0.1.0\n\n- Resolves `a` of `b`: c\n"
    assert resolutions(text) == [Resolution("engine", "* on g6*")], "without a reason, or released"
    assert Resolution("engine", "* on g6*").covers(Change("engine", ROW, "a", "b"))
    assert not Resolution("engine", "* on g6*").covers(Change("devices", ROW, 1, 2))


@pytest.mark.thorough
def test_new_rows_change_nothing():
    assert not [*changes({}, {ROW: {"engine": "a"}})]
    assert [*changes({ROW: {"engine": "a"}}, {})] == [Change("engine", ROW, "a", None)]
