"""Rules about networks. Ids NET…"""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from eks_inference.network.plan import RESERVED_ADDRESSES, plan_subnets
from eks_inference.network.spec import NetworkSpec
from eks_inference.rules import Judgement, not_judged, rule


@dataclass(frozen=True)
class NetworkFacts:
    """A network and its load. ``pods`` maps managed pools to the largest number of pods, of one address each, on their nodes."""

    about: ClassVar[str] = "networks"

    spec: NetworkSpec
    service_cidr: str
    zone_ids: tuple[str, ...]
    pods: Mapping[str, int]


@rule(
    "NET001",
    "The address ranges of the VPC and of Kubernetes services do not overlap.",
    fix="choose another cluster.service_cidr; it cannot change once the cluster exists",
    source="EKS API, CreateCluster: serviceIpv4Cidr",
)
def services_outside_the_vpc(network: NetworkFacts) -> Iterator[Judgement]:
    if network.spec.existing and "cidr" not in network.spec.model_fields_set:
        what, why = "whether services have addresses of their own", "the VPC is there, and network.cidr does not say its range"
        yield not_judged(what, "the network", ("network", "existing"), why=why, fix="give network.cidr")
        return
    vpc, services = ipaddress.ip_network(network.spec.cidr), ipaddress.ip_network(network.service_cidr)
    yield Judgement(
        holds=not vpc.overlaps(services),
        path=("cluster", "service_cidr"),
        working=(f"VPC {vpc[0]} to {vpc[-1]}; services {services[0]} to {services[-1]}",),
        message="the service range overlaps the VPC range",
        given=network.service_cidr,
        allowed=f"a range outside {network.spec.cidr}",
    )


@rule(
    "NET002",
    "The private subnets have enough addresses for the pods of the managed pools.",
    severity="warning",
    fix="choose a larger network.cidr, span more zones, or lower maxPods in the pool's kubelet settings",
    source="Amazon VPC CNI: each pod has its own address; VPC user guide: AWS reserves five addresses in each subnet",
)
def addresses_for_pods(network: NetworkFacts) -> Iterator[Judgement]:
    if not network.zone_ids:
        return
    if network.spec.existing:
        what, why = "whether subnets have addresses for all pods", "the VPC is there, and a stack file does not know their sizes"
        yield not_judged(what, "the network", ("network", "existing"), why=why, fix="compare them: aws ec2 describe-subnets")
        return
    plans = plan_subnets(network.spec.cidr, network.zone_ids, public=network.spec.public_subnets)
    usable = sum(plan.private.num_addresses - RESERVED_ADDRESSES for plan in plans)
    needed = sum(network.pods.values())
    yield Judgement(
        holds=needed <= usable,
        path=("network", "cidr"),
        working=(
            f"{len(plans)} private subnets of /{plans[0].private.prefixlen}: {usable} addresses",
            f"pods: {' + '.join(f'{count} ({pool})' for pool, count in network.pods.items()) or '0'} = {needed}",
        ),
        message=f"nodes can hold {needed} pods, but the private subnets have only {usable} addresses",
        given=network.spec.cidr,
    )
