"""What tests on a real control plane have in common. They are skipped, with the reason, where its programs are not there."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from cluster.shared_planes import PLANES, SharedPlanes
from eks_inference_tools.simulate import simulation
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain, installed

LONGEST = ("test_day.py", "test_rollout.py", "test_simulate.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest begin first. A day mostly waits, and other files run beside it."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    found = installed()
    if reason := found.missing():
        pytest.skip(reason)
    return found


@pytest.fixture(scope="session", autouse=True)
def planes() -> Iterator[SharedPlanes]:
    """Simulations use them by themselves."""
    with closing(PLANES), pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "control_plane", PLANES.control_plane)
        yield PLANES
