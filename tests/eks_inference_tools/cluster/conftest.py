"""What tests on a real control plane have in common. They are skipped, with the reason, where its programs are not there."""

import pytest

from eks_inference_tools.simulate.control_plane.toolchain import Toolchain, installed


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    found = installed()
    if reason := found.missing():
        pytest.skip(reason)
    return found
