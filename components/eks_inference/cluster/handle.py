"""The interface of a cluster for pools and workloads, created here or existing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.specs.settings import StackSettings


class ControlPlane(Protocol):
    """An EKS cluster for nodes: ``EksCluster``, ``ClusterAddons`` or ``ExistingCluster``.

    ``name`` and ``version`` are plain strings, known at preview.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str:
        """Kubernetes minor version, e.g. ``1.35``."""
        ...

    @property
    def settings(self) -> StackSettings: ...
    @property
    def endpoint(self) -> pulumi.Input[str]: ...
    @property
    def certificate_authority(self) -> pulumi.Input[str]:
        """Base64 PEM, as the EKS API returns it."""
        ...

    @property
    def service_cidr(self) -> str: ...
    @property
    def api_cidrs(self) -> Sequence[str]:
        """Where pods reach the API server, at port 443: its Service, and the subnets of its interfaces."""
        ...

    @property
    def security_group_id(self) -> pulumi.Input[str]:
        """The cluster security group that EKS creates; managed nodes and control plane share it."""
        ...

    @property
    def provider(self) -> k8s.Provider: ...
    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """What nodes need; in a ``Cluster``, what pods with volumes need: also the storage class and its driver."""
        ...


class Cluster(ControlPlane, Protocol):
    """An EKS cluster whose pods have DNS: ``ClusterAddons`` or ``ExistingCluster``.

    Every Kubernetes child of a component uses ``provider`` and depends on ``pods_ready``, claims of volumes also on ``ready``.
    """

    @property
    def pods_ready(self) -> Sequence[pulumi.Resource]:
        """What pods without volumes need: nodes and DNS. A part of ``ready``."""
        ...
