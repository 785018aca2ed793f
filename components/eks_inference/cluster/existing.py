"""The handle of an existing cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s

from eks_inference.cluster.objects import kubernetes_provider
from eks_inference.component import Handle, comparing
from eks_inference.faults import Fault, SpecError
from eks_inference.kubernetes.network_policy import PRIVATE_RANGES
from eks_inference.network.handle import Network
from eks_inference.specs.settings import StackSettings


@dataclass(frozen=True)
class ExistingCluster(Handle):
    """An existing cluster that can run pods and has the add-ons its workloads need.

    Workloads need ``provider``; pools also need the other values, which ``aws eks describe-cluster`` prints.
    ``certificate_authority`` is base64 PEM; ``security_group_id`` is the group that EKS created (``clusterSecurityGroupId``).
    When the same program creates the cluster, ``ready`` lists resources that must exist before ours and outlive them.
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
    network: Network | None = None
    """Its VPC; None: not said, so that its pools may be in any."""
    addons: Collection[str] | None = None
    """EKS names of its add-ons, however they were installed: ``eks-pod-identity-agent``. None: not said, so none is missed."""
    api_cidrs: Sequence[str] = PRIVATE_RANGES

    @property
    def pods_ready(self) -> Sequence[pulumi.Resource]:
        """The same as ``ready``: nothing says which of them are about volumes."""
        return self.ready

    @classmethod
    @comparing
    def from_eks(
        cls,
        cluster: eks.Cluster,
        *,
        name: str,
        version: str,
        settings: StackSettings,
        service_cidr: str = "172.20.0.0/16",
        ready: Sequence[pulumi.Resource] = (),
        network: Network | None = None,
        addons: Collection[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> Self:
        """Returns the handle of a pulumi-eks cluster of the same program, with a new explicit provider.

        ``name``, ``version`` and ``service_cidr`` must match the cluster: a preview needs them before the cluster's outputs are
        known. Without an explicit service block EKS chooses one by the addresses of the VPC, which may be 10.100.0.0/16 instead
        of the default here. ``ready`` lists what workloads need besides the cluster, such as the add-on
        eks-pod-identity-agent, which gives pods their roles. ``opts`` are the options of the provider.
        """
        # Clusters of several regions may have one name; the resources of a program have different ones.
        return cls._of(
            f"{cluster.pulumi_resource_name}-k8s",
            endpoint=cluster.eks_cluster.endpoint,
            certificate_authority=cluster.eks_cluster.certificate_authority.data,
            security_group_id=cluster.eks_cluster.vpc_config.cluster_security_group_id,
            name=name,
            version=version,
            settings=settings,
            service_cidr=service_cidr,
            ready=(cluster, *ready),
            network=network,
            addons=addons,
            opts=opts,
        )

    @classmethod
    @comparing
    def from_aws(
        cls,
        cluster: aws.eks.Cluster | str,
        *,
        name: str | None = None,
        version: str,
        settings: StackSettings,
        service_cidr: str = "172.20.0.0/16",
        ready: Sequence[pulumi.Resource] = (),
        network: Network | None = None,
        addons: Collection[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> Self:
        """Returns the handle of a pulumi-aws cluster, or of the cluster with that name, with a new explicit provider.

        For a resource of the same program ``name`` is its name in AWS, which a preview does not know of the resource. A name is
        looked up in the region of ``settings`` with the default AWS provider; for another account, pass
        ``aws.eks.Cluster.get(…)`` with its provider. The other arguments are those of ``from_eks``. ``addons`` are the add-ons it
        has: components that need another one refuse the cluster. Whoever runs Pulumi needs the ``aws`` command and access to the
        cluster; a cluster that authenticates by ``CONFIG_MAP`` only takes no access entries. Raises ``SpecError`` when a resource
        comes without ``name``, or a name with another one.
        """
        if isinstance(cluster, str):
            if name not in (None, cluster):
                raise SpecError([Fault(("name",), "another name than that of the cluster", given=name, allowed=cluster)])
            name, region = cluster, settings.region
            found = aws.eks.get_cluster_output(name=name, region=region)
            resource_name, authority, before = f"{name}-{region}-k8s", found.certificate_authorities[0].data, ()
        elif name is None:
            raise SpecError([Fault(("name",), "a preview knows no name of a resource", allowed="its name in AWS")])
        else:
            found, authority, before = cluster, cluster.certificate_authority.data, (cluster,)
            resource_name = f"{cluster.pulumi_resource_name}-k8s"
        return cls._of(
            resource_name,
            endpoint=found.endpoint,
            certificate_authority=authority,
            security_group_id=found.vpc_config.cluster_security_group_id,
            name=name,
            version=version,
            settings=settings,
            service_cidr=service_cidr,
            ready=(*before, *ready),
            network=network,
            addons=addons,
            opts=opts,
        )

    @classmethod
    def _of(
        cls,
        resource_name: str,
        *,
        name: str,
        settings: StackSettings,
        endpoint: pulumi.Input[str],
        certificate_authority: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None,
        **known: Any,
    ) -> Self:
        provider = kubernetes_provider(resource_name, endpoint, certificate_authority, name=name, settings=settings, opts=opts)
        return cls(
            name=name,
            settings=settings,
            provider=provider,
            endpoint=endpoint,
            certificate_authority=certificate_authority,
            **known,
        )
