"""The prices of instances are those of the pinned Go modules. Needs Go, which downloads their files, and no control plane."""

import shutil
from pathlib import Path

import pytest

from refresh import changes
from refresh.instance_prices import FILE, derived, rendered

pytestmark = pytest.mark.cluster


def test_the_prices_are_those_of_the_pinned_modules(tmp_path: Path):
    if not shutil.which("go"):
        pytest.skip("no `go` on PATH")
    assert not changes(FILE, rendered(derived(tmp_path))), "`make refresh TABLE=instance_prices` writes them anew"
