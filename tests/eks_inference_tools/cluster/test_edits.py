"""Edits of stacks, applied on a real control plane: what was written down before is what happens."""

import os

import pytest

from cluster.applied import applied
from edits import EDITS, Edit
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain

pytestmark = pytest.mark.cluster

APPLIED = [one for one in EDITS if one.happens is not None and (one.few or os.environ.get("EDITS") == "all")]


@pytest.mark.parametrize("edit", APPLIED, ids=lambda edit: f"{EDITS.index(edit)}-{edit.stack}")
def test_what_an_edit_does_was_written_down_before(edit: Edit, toolchain: Toolchain):
    """``EDITS=all`` applies all of them, which takes half an hour."""
    before, after = edit.graphs()
    assert applied(before, after, edit.rolls, toolchain) == edit.happens
