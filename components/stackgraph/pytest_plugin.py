"""The plugin that pytest finds where this package is installed. It loads nothing until a test asks for the fixture."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stackgraph.testing import RecordedStack


@pytest.fixture(scope="session")
def record_stack() -> "Callable[..., RecordedStack]":
    """``stackgraph.testing.record``: runs a Pulumi program offline and returns what it registers."""
    from stackgraph.testing import record

    return record
