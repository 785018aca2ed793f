"""What a server needs to know about the LeaderWorkerSet controller, whoever installed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi

from eks_inference.cluster.handle import Cluster
from eks_inference.component import Handle


class LeaderWorkerSets(Protocol):
    """Something that turns LeaderWorkerSets into pods: ``LeaderWorkerSetController`` or ``ExistingLeaderWorkerSets``."""

    @property
    def ready(self) -> Sequence[pulumi.Resource]: ...


@dataclass(frozen=True)
class ExistingLeaderWorkerSets(Handle):
    """A LeaderWorkerSet controller that the team already runs: v0.9.0 or newer."""

    ready: Sequence[pulumi.Resource] = ()
    cluster: Cluster | None = None
    """The cluster where it is; None: not said, so that it goes with any."""
