"""Tests of Pulumi Python programs: records a program offline, and answers questions about its graph in a test's words.

``record`` runs a program, a function or a component, as ``pulumi preview`` of a new stack would. ``assert_snapshot`` compares its
graph with a file in git, ``losses`` names what a deployment over an older graph would replace or delete, and ``Mocks`` is for
tests that stay with ``pulumi.runtime.set_mocks``. The fixture ``record_stack`` of pytest is ``record``.
"""

from stackgraph.testing.graph import RecordedResource, RecordedStack
from stackgraph.testing.running import Mocks, record
from stackgraph.testing.snapshots import Loss, assert_snapshot, losses

__all__ = ["Loss", "Mocks", "RecordedResource", "RecordedStack", "assert_snapshot", "losses", "record"]
