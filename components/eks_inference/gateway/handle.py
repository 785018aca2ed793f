"""What the gateway stands on: a controller of load balancers, and what answers behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pulumi

from eks_inference.cluster.handle import Cluster
from eks_inference.component import Handle
from eks_inference.kubernetes.network_policy import Door

SERVICE_ACCOUNT = "aws-load-balancer-controller"
"""The service account that the chart makes by default, and ours."""


class LoadBalancers(Protocol):
    """The interface of AWS Load Balancer Controller: ``LoadBalancerController`` or ``ExistingLoadBalancerController``."""

    @property
    def ingress_class(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def service_account(self) -> str:
        """Its service account, which must read the Secrets of logins."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]: ...


@dataclass(frozen=True)
class ExistingLoadBalancerController(Handle):
    """An AWS Load Balancer Controller that the cluster already has, of version 2.14.1 or newer: older ones rewrite no paths."""

    ingress_class: str = "alb"
    namespace: str = "kube-system"
    service_account: str = SERVICE_ACCOUNT
    ready: Sequence[pulumi.Resource] = ()
    cluster: Cluster | None = None
    """The cluster where it is; None: not said, so that it goes with any."""


class Fronted(Protocol):
    """What a route leads to: a ModelEndpoint, which asks for keys before it passes requests to model servers, or the web UI."""

    @property
    def namespace(self) -> str: ...
    @property
    def doors(self) -> Sequence[Door]: ...
    @property
    def authenticates(self) -> bool:
        """Whether it asks its clients who they are."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]: ...
