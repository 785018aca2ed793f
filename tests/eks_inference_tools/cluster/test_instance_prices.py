"""The prices of instances are those of the pinned Go modules. Needs Go, which downloads their files, and no control plane."""

import shutil
from pathlib import Path

import pytest

from golden import assert_golden
from instance_prices import derived, rendered

pytestmark = pytest.mark.cluster

FILE = "../../components/eks_inference/catalog/prices_instances.json"


def test_the_prices_are_those_of_the_pinned_modules(tmp_path: Path):
    if not shutil.which("go"):
        pytest.skip("no `go` on PATH")
    assert_golden(FILE, rendered(derived(tmp_path)))
