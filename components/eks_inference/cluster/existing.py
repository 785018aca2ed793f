"""A cluster that somebody else made."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import pulumi
import pulumi_eks as eks
import pulumi_kubernetes as k8s

from eks_inference.cluster.provider import kubernetes_provider
from eks_inference.settings import StackSettings


@dataclass(frozen=True)
class ExistingCluster:
    """A cluster the team already owns; it can run pods and has the add-ons its workloads need.

    Workloads need ``provider``; pools need the rest too, as ``aws eks describe-cluster`` tells it. ``certificate_authority`` is
    base64 PEM; ``security_group_id`` is the group EKS made (``clusterSecurityGroupId``); ``ready`` is what must exist before
    anything of ours and outlive it, when the cluster is of the same program.
    """

    name: str
    version: str
    settings: StackSettings
    provider: k8s.Provider
    endpoint: pulumi.Input[str]
    certificate_authority: pulumi.Input[str]
    security_group_id: pulumi.Input[str]
    service_cidr: str = "172.20.0.0/16"
    ready: Sequence[pulumi.Resource] = ()

    @classmethod
    def from_eks(
        cls,
        cluster: eks.Cluster,
        *,
        name: str,
        version: str,
        settings: StackSettings,
        service_cidr: str = "172.20.0.0/16",
        opts: pulumi.ResourceOptions | None = None,
    ) -> Self:
        """The handle of a pulumi-eks cluster of the same program, with an explicit provider of its own.

        ``name``, ``version`` and ``service_cidr`` must be the cluster's own: they are needed at preview, when its outputs are not
        known yet. A cluster made without a service block may have got 10.100.0.0/16 instead of the default here: EKS chooses by
        the addresses of the VPC. ``opts`` are those of the provider.
        """
        provider = kubernetes_provider(f"{name}-k8s", cluster, name=name, settings=settings, opts=opts)
        return cls(
            name=name,
            version=version,
            settings=settings,
            provider=provider,
            endpoint=cluster.eks_cluster.endpoint,
            certificate_authority=cluster.eks_cluster.certificate_authority.data,
            security_group_id=cluster.eks_cluster.vpc_config.cluster_security_group_id,
            service_cidr=service_cidr,
            ready=(cluster,),
        )
