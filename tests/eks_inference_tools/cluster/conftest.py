"""What tests on a real control plane have in common. They are skipped, with the reason, where its programs are not there."""

import pytest

from eks_inference_tools.simulate.control_plane.toolchain import Toolchain, installed

LONGEST = ("test_replay.py", "test_simulate.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest begin first: a replay takes eight minutes, in which it mostly waits and other files run beside it."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    found = installed()
    if reason := found.missing():
        pytest.skip(reason)
    return found
