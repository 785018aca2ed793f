"""Vectors of the rules about networks."""

from eks_inference.network.rules import NetworkFacts
from eks_inference.network.spec import NetworkSpec
from vectors import Vector


def network(service_cidr: str = "172.20.0.0/16", cidr: str = "10.1.0.0/16", pods: int = 58) -> NetworkFacts:
    return NetworkFacts(
        spec=NetworkSpec(cidr=cidr),
        service_cidr=service_cidr,
        zone_ids=("usw2-az1", "usw2-az4"),
        pods={"core": pods},
    )


VECTORS = {
    "NET001": Vector(network, lambda: network(service_cidr="10.1.0.0/16"), "overlaps the VPC range"),
    "NET002": Vector(network, lambda: network(cidr="10.1.0.0/21", pods=737), "the private subnets have only 502"),
}
