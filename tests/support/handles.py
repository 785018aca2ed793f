"""Handles of existing resources, for tests of a single component. Call these functions inside the recorded program."""

from typing import Any

import pulumi_kubernetes as k8s

from eks_inference.catalog.instances import instance_type
from eks_inference.cluster.existing import ExistingCluster
from eks_inference.network.handle import ExistingVpc, Subnet
from eks_inference.place.placement import POOL_LABEL, Placement, Taint
from eks_inference.specs.settings import StackSettings

REGION = "us-west-2"


def stack_settings(**settings: Any) -> StackSettings:
    return StackSettings(**{"region": REGION, **settings})


def existing_cluster(name: str = "c", version: str = "1.35", **settings: Any) -> ExistingCluster:
    return ExistingCluster(
        name=name,
        version=version,
        settings=stack_settings(**settings),
        provider=k8s.Provider(f"{name}-k8s", kubeconfig="{}", cluster_identifier=name),
        endpoint="https://cluster.example",
        certificate_authority="Q0E=",
        security_group_id="sg-cluster",
    )


def existing_vpc(zones: int = 3) -> ExistingVpc:
    ids = [f"usw2-az{n}" for n in range(1, zones + 1)]
    return ExistingVpc(
        vpc_id="vpc-1",
        private_subnets=[Subnet(zone, f"subnet-private-{zone}") for zone in ids],
        public_subnets=[Subnet(zone, f"subnet-public-{zone}") for zone in ids],
    )


def placement(name: str, *, pool: str = "pool", taints: tuple[Taint, ...] = (), max_nodes: int | None = None) -> Placement:
    return Placement(
        pool=pool,
        instance_type=instance_type(name),
        node_selector={POOL_LABEL: pool},
        taints=taints,
        max_nodes=max_nodes,
    )
