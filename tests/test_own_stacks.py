"""A clone with stacks of a user's own: neither the tests nor what is made by them takes notice."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clones import copy_project
from conftest import ROOT, STACKS

OWN = {
    "own-copy": (ROOT / "stacks" / "Pulumi.smoke-gpu.yaml").read_text("utf-8"),
    "own-draft": "config:\n  eks-inference:stack: {nam: draft, catalog: [./own.toml]}\n",
    "own-broken": "config: [\n",
}


@pytest.mark.thorough
def test_no_test_is_about_a_stack_of_a_user(tmp_path: Path) -> None:
    copy_project(tmp_path)
    for one in ROOT.iterdir():
        if one.name != ".git" and not (tmp_path / one.name).exists():
            (tmp_path / one.name).symlink_to(one)
    shutil.copy(ROOT / "tests" / "data" / "ours.toml", tmp_path / "own.toml")
    for name, text in OWN.items():
        (tmp_path / "stacks" / f"Pulumi.{name}.yaml").write_text(text)
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if re.search(r"STACKS|\bstacks\(\)", path.read_text("utf-8"))]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-m", "", "-p", "no:cacheprovider"]
        + [str(path.relative_to(ROOT)) for path in files],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    collected = [line for line in done.stdout.splitlines() if "::" in line]
    assert all(any(f"[{stack}]" in one for one in collected) for stack in STACKS)
    assert not [one for one in collected if any(name in one for name in OWN)]
