"""What a Ray workload needs to know about the KubeRay operator, whoever installed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi

from eks_inference.cluster.handle import Cluster
from eks_inference.component import Handle


class RayOperator(Protocol):
    """A KubeRay operator that watches all namespaces: ``KubeRayOperator`` or ``ExistingKubeRayOperator``."""

    @property
    def namespace(self) -> str:
        """Namespace of the operator, whose pods call the heads of Ray clusters."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """Resources that must exist before a Ray resource and outlive it: the operator finalizes what it created."""
        ...


@dataclass(frozen=True)
class ExistingKubeRayOperator(Handle):
    """A KubeRay operator that the team already runs: 1.4 or newer, with the custom resource definitions of its version."""

    namespace: str = "kuberay-operator"
    ready: Sequence[pulumi.Resource] = ()
    cluster: Cluster | None = None
    """The cluster where it is; None: not said, so that it goes with any."""
