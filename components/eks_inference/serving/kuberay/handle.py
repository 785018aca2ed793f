"""What a Ray workload needs to know of the operator, whoever installed it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi


class RayOperator(Protocol):
    """A KubeRay operator that watches all namespaces: ``KubeRayOperator`` or ``ExistingKubeRayOperator``."""

    @property
    def namespace(self) -> str:
        """Where the operator runs: its pods call the heads of Ray clusters."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """What must exist before a Ray resource and outlive it: the operator finalizes what it made."""
        ...


@dataclass(frozen=True)
class ExistingKubeRayOperator:
    """A KubeRay operator the team already runs; 1.4 or newer, with the definitions of its version."""

    namespace: str = "kuberay-operator"
    ready: Sequence[pulumi.Resource] = ()
