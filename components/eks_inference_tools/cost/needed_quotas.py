"""What a stack needs of an account's quotas, at its most. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.quotas import Quota, quota, quota_of
from eks_inference_tools.cost.estimate import DEPLOYMENT, TEMPLATE, Estimate, estimated, moved
from eks_inference_tools.cost.price_book import Charge
from eks_inference_tools.placing.placeholders import known_region
from eks_inference_tools.reading.clusters import cluster_resources
from eks_inference_tools.reading.node_groups import node_groups
from eks_inference_tools.reading.pods import PodSpec
from stackgraph.graph.document import Graph, is_read
from stackgraph.graph.values import at, text

_BY_TYPE: Mapping[str, str] = {
    "aws:ec2/eip:Eip": "elastic_ips",
    "aws:ec2/vpc:Vpc": "vpcs",
    "aws:ec2/internetGateway:InternetGateway": "internet_gateways",
    "aws:efs/fileSystem:FileSystem": "efs_file_systems",
}
"""Resources of which an account may have a number in each region."""

_BY_SERVICE: Mapping[str, str] = {
    "application_load_balancer": "application_load_balancers",
    "network_load_balancer": "network_load_balancers",
    "fsx_lustre_125": "fsx_lustre_storage",
    "fsx_lustre_250": "fsx_lustre_storage",
    "fsx_lustre_500": "fsx_lustre_storage",
    "fsx_lustre_1000": "fsx_lustre_storage",
    "fsx_lustre_scratch": "fsx_lustre_scratch_storage",
}
"""Quotas by the services that charges are for."""

_GIB_PER_TIB = 1024


@dataclass(frozen=True)
class Need:
    """How much of a quota the stack itself needs in a region. ``why`` names a need that has no quota here."""

    region: str
    quota: Quota | None
    amount: float
    why: str = ""
    elsewhere: bool = False
    """Whether pods need it only at an alternative."""

    @property
    def cells(self) -> tuple[str, str, str]:
        """The quota, the need, and what a new account has: ``Running On-Demand Inf instances``, ``96 vCPU``, ``0``."""
        if self.quota is None:
            return self.why, f"{self.amount:,g}", ""
        return self.quota.title, f"{self.amount:,g} {self.quota.unit}", f"{self.quota.default:,}"


def needs(graph: Graph, found: Estimate) -> tuple[Need, ...]:
    """Returns the needs, those of instances first. Nodes that replace others during an update are extra."""
    amounts: dict[tuple[str, Quota], float] = defaultdict(float)
    unknown: dict[tuple[str, str], float] = defaultdict(float)
    for charge in (line.charge for line in found.lines if line.charge.amounts[-1]):
        if charge.capacity:
            limit = _of_instance(charge)
            if limit is None:
                why = f"{charge.item}, {charge.capacity.replace('_', ' ')}: no quota known here"
                unknown[charge.region, why] += charge.amounts[-1]
            else:
                amounts[charge.region, limit] += charge.amounts[-1] * instance_types()[charge.item].vcpus
        elif charge.item == "gp3_storage":
            amounts[charge.region, quota("gp3_storage")] += charge.amounts[-1] / _GIB_PER_TIB
    for type_, name in _BY_TYPE.items():
        for resource in graph.of_type(type_):
            if not is_read(resource):
                amounts[known_region(graph, resource), quota(name)] += 1
    counted = [Need(region, limit, round(amount, 2)) for (region, limit), amount in amounts.items()]
    return (*sorted(counted, key=_scarce_first), *(Need(region, None, amount, why) for (region, why), amount in unknown.items()))


def needs_elsewhere(graph: Graph) -> Iterator[Need]:
    """Yields the needs that are larger, or there alone, while pods are at their alternatives."""
    most = {(need.region, need.quota, need.why): need for need in needs(graph, estimated(graph))}
    for resource in graph.of_type(DEPLOYMENT):
        for place in PodSpec(at(resource.inputs, *TEMPLATE)).places[1:]:
            there = moved(graph, resource, place)
            for need in needs(there, estimated(there)):
                key = (need.region, need.quota, need.why)
                most[key] = max(most.get(key, replace(need, amount=0)), replace(need, elsewhere=True), key=lambda one: one.amount)
    yield from (need for need in most.values() if need.elsewhere)


def ample_needs(graph: Graph, found: Estimate) -> tuple[Need, ...]:
    """Returns needs of quotas that are ample in a new account: only an account in long use can be short of them."""
    amounts: dict[tuple[str, Quota], float] = defaultdict(float)
    for charge in (line.charge for line in found.lines):
        if name := _BY_SERVICE.get(charge.item):
            amounts[charge.region, quota(name)] += charge.amounts[-1]
    for cluster in cluster_resources(graph):
        amounts[known_region(graph, cluster), quota("clusters")] += 1
    groups = Counter[tuple[str, str]]()
    for group in node_groups(graph):
        region = known_region(graph, group.resource)
        groups[region, text(group.resource.inputs.get("clusterName"))] += 1
        nodes = quota("nodes_per_node_group")
        amounts[region, nodes] = max(amounts[region, nodes], group.sizes[2] or 0)
    for (region, _), number in groups.items():
        per_cluster = quota("node_groups_per_cluster")
        amounts[region, per_cluster] = max(amounts[region, per_cluster], number)
    return tuple(Need(region, limit, amount) for (region, limit), amount in amounts.items() if amount)


def _scarce_first(need: Need) -> float:
    return -need.amount / max(need.quota.default, 0.1) if need.quota else 0


def _of_instance(charge: Charge) -> Quota | None:
    return quota_of(charge.item, charge.capacity) if charge.capacity and charge.item in instance_types() else None
