"""Rules about pools and their surroundings. Ids POO… (any pool), EFA… and KAR… (Karpenter)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from eks_inference.catalog import zones
from eks_inference.faults import SpecError
from eks_inference.place.nodes import (
    DAEMON_PODS,
    DAEMONS_CPU_MILLIS,
    DAEMONS_MEMORY_MIB,
    allocatable,
    amount,
    cpu_millis,
    free_inodes,
    kept_disk_gib,
)
from eks_inference.pools.node_plan import disk_gib
from eks_inference.pools.node_spec import ExistingPlacementGroup, ReleaseAmi
from eks_inference.pools.plan import pool_zones
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec, PoolSpec
from eks_inference.rules import Judgement, Path, not_judged, rule


@dataclass(frozen=True)
class PoolFacts:
    """One pool. ``network_zone_ids`` are the zones with private subnets, or empty when unknown."""

    about: ClassVar[str] = "pools"

    name: str
    spec: PoolSpec
    kubernetes_version: str
    region: str
    network_zone_ids: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    """Names of the model servers that run on it."""

    def at(self, *key: str | int) -> Path:
        """Returns the path of a key of the pool in the stack object."""
        return ("pools", self.name, *key)


@rule(
    "POO001",
    "A pool starts nodes only in zones of the network.",
    fix="choose zones of the network, or give it a private subnet there",
    source="EKS API, CreateNodegroup: subnets belong to the network",
)
def zones_of_the_network(pool: PoolFacts) -> Iterator[Judgement]:
    for position, zone in enumerate(pool.spec.zone_ids):
        if pool.network_zone_ids:
            yield Judgement(
                holds=zone in pool.network_zone_ids,
                path=pool.at("zone_ids", position),
                working=(f"network has private subnets in {', '.join(pool.network_zone_ids)}",),
                message="the network has no private subnet there",
                given=zone,
                allowed=", ".join(pool.network_zone_ids),
            )


@rule(
    "POO002",
    "The zones of a pool offer its instance types.",
    severity="warning",
    fix="choose a zone that offers the family, or another family",
    source="EC2 DescribeInstanceTypeOfferings, copied in catalog/zones.toml",
)
def zones_offer_the_family(pool: PoolFacts) -> Iterator[Judgement]:
    wanted = pool.spec.zone_ids or pool.network_zone_ids
    families = zones.sold_as(pool.spec.instances())
    unknown = [family for family in families if pool.region not in zones.regions() or not zones.says_zones_of(family)]
    if unknown:
        yield not_judged(
            "zones",
            ", ".join(unknown),
            pool.at("zone_ids") if pool.spec.zone_ids else pool.at(),
            why=f"the catalog does not know which zones of {pool.region} offer {', '.join(unknown)}",
            fix="run `aws ec2 describe-instance-type-offerings --location-type availability-zone-id`, and silence this rule",
        )
    for family in sorted({*families}.difference(unknown)):
        offered = zones.zone_ids(pool.region, family)
        found = [zone for zone in wanted if zone in offered]
        yield Judgement(
            holds=not wanted or bool(found),
            path=pool.at("zone_ids") if pool.spec.zone_ids else pool.at(),
            working=(f"{family} in {pool.region}: {', '.join(offered) or 'not offered'}", f"pool: {', '.join(wanted)}"),
            message=f"no zone of pool '{pool.name}' is known to offer {family}",
            given=", ".join(wanted),
            allowed=", ".join(offered) or f"no zone of {pool.region}",
        )


@rule(
    "POO003",
    "The machine image is for the cluster's Kubernetes version.",
    fix="change release_version together with the cluster's version, or omit it to use the catalog's pin",
    source="EKS user guide, managed node group AMI versions: <minor>.<patch>-<date>",
)
def image_of_the_cluster_version(pool: PoolFacts) -> Iterator[Judgement]:
    if not isinstance(pool.spec.ami, ReleaseAmi):
        why = "it is an image of your own, and no catalog knows its Kubernetes version, kubelet and drivers"
        yield not_judged("the machine image", f"pool '{pool.name}'", pool.at("ami"), why=why, fix="try it with one node")
    elif release := pool.spec.ami.release_version:
        minor = ".".join(release.split(".")[:2])
        yield Judgement(
            holds=minor == pool.kubernetes_version,
            path=pool.at("ami", "release_version"),
            working=(f"release {release} is for Kubernetes {minor}; the cluster runs {pool.kubernetes_version}",),
            message="the release is for another Kubernetes version than the cluster's",
            given=release,
            allowed=f"{pool.kubernetes_version}.<patch>-<date>",
        )


@rule(
    "POO004",
    "A pool does not combine a placement group with a capacity reservation, unless the reservation was made in that group.",
    severity="warning",
    fix="omit placement: a pool with a reservation gets no placement group",
    source="EC2 user guide, Capacity Reservations in cluster placement groups; terraform-aws-eks issues 3661 and 3730",
)
def group_or_reservation(pool: PoolFacts) -> Iterator[Judgement]:
    if isinstance(pool.spec, ManagedPoolSpec) and pool.spec.reserved:
        named = pool.spec.placement.name if isinstance(pool.spec.placement, ExistingPlacementGroup) else ""
        group = named if isinstance(named, str) else "one of the same program"
        yield Judgement(
            holds=not group,
            path=pool.at("placement"),
            working=(f"placement group: {group or 'none'}; capacity reservation: given",),
            message="a reservation that was made outside this placement group fails with InsufficientInstanceCapacity",
            given=group,
        )


# EKS API, CreateNodegroup, diskSize: 20 GiB; the kubelet evicts where less than 15 % of them are free.
_SMALLEST_DISK_GIB = 17


@rule(
    "POO005",
    "The kubelet leaves pods room on every node beside its DaemonSets.",
    fix="lower the reservations and thresholds, or raise maxPods; by default AL2023 chooses all of them",
    source="Kubernetes, Reserve Compute Resources for System Daemons; requests of the EKS add-ons that run on every node",
)
def kubelet_leaves_room(pool: PoolFacts) -> Iterator[Judgement]:
    settings = pool.spec.kubelet.settings()
    if not settings:
        return
    smallest = min(pool.spec.instances(), key=lambda instance: (instance.memory_mib, instance.vcpus))
    left = allocatable(smallest, settings)
    # The device plugin is a DaemonSet of its own.
    daemons = DAEMON_PODS + bool(smallest.accelerator)
    for what, there, taken, keys in (
        ("pods", left.pods, daemons, ("maxPods", "podsPerCore")),
        ("millicores of CPU", left.cpu_millis, DAEMONS_CPU_MILLIS, ("kubeReserved", "systemReserved")),
        ("MiB of memory", left.memory_mib, DAEMONS_MEMORY_MIB, ("kubeReserved", "systemReserved", "evictionHard")),
        ("inodes", free_inodes(disk_gib(pool.spec), settings), 0, ("evictionHard",)),
    ):
        given = [key for key in keys if key in settings]
        if given:
            yield Judgement(
                holds=there > taken,
                path=pool.at("kubelet", given[-1]),
                working=(f"{smallest.name}: {there} {what} for pods; DaemonSets of every node take {taken}",),
                message=f"{max(there - taken, 0)} {what} of {smallest.name} remain for pods that are no DaemonSets",
                given=", ".join(f"{key}: {settings[key]}" for key in given),
                allowed=f"more than {taken} {what} for pods",
            )
    disk = disk_gib(pool.spec)
    free = disk - kept_disk_gib(disk, settings)
    if free < _SMALLEST_DISK_GIB and not smallest.accelerator:  # CAP002 judges those of servers
        why = f"{max(free, 0):.0f} of {disk} GiB are left for system and images, less than EKS's default of 20 GiB leaves"
        yield not_judged("disk", f"pool '{pool.name}'", pool.at("kubelet"), why=why, fix="lower what the kubelet keeps")


@rule(
    "POO007",
    "Instance types without on-demand capacity come from a reservation or a capacity block.",
    fix="set capacity_reservation_id; for a capacity block also capacity_type: capacity_block",
    source="AWS Price List and public records of on-demand requests, copied in catalog; EC2 user guide, Capacity Blocks for ML",
)
def scarce_types_are_reserved(pool: PoolFacts) -> Iterator[Judgement]:
    instances = pool.spec.instances()
    scarce = [instance.name for instance in instances if instance.needs_reservation]
    if not scarce:
        return
    reserved = isinstance(pool.spec, ManagedPoolSpec) and pool.spec.reserved
    named = ", ".join(scarce)
    yield Judgement(
        # A pool with other types still starts nodes.
        holds=reserved or len(scarce) < len(instances),
        path=pool.at("capacity_reservation_id"),
        working=(f"{named}: not on demand; reservation: {'given' if reserved else 'none'}",),
        message=f"EC2 has no {named} on demand: the node group would fail to create",
        given="none",
        allowed="the id of a reservation or a capacity block (cr-…)",
    )


@rule(
    "EFA001",
    "Every instance type of a pool with EFA has the requested interfaces.",
    fix="choose an instance type with EFA, request fewer interfaces, or omit efa",
    source="EC2 DescribeInstanceTypes (networkInfo.efaInfo), copied in catalog/instances.toml",
)
def types_have_efa(pool: PoolFacts) -> Iterator[Judgement]:
    if not isinstance(pool.spec, ManagedPoolSpec) or pool.spec.efa is None:
        return
    for position, instance in enumerate(pool.spec.instances()):
        asked = pool.spec.efa.interfaces or instance.efa_interfaces or 1
        yield Judgement(
            holds=0 < asked <= instance.efa_interfaces,
            path=pool.at("instance_types", position),
            working=(f"{instance.name}: {instance.efa_interfaces} EFA interfaces; requested: {asked}",),
            message=f"{instance.name} has {instance.efa_interfaces or 'no'} EFA interfaces",
            given=str(asked),
        )


@rule(
    "POO013",
    "A pool with a capacity reservation starts nodes in the reservation's zone alone.",
    fix="set zone_ids of the pool to the zone of the reservation",
    source="EKS user guide, Managed node groups with capacity reservations: a reservation is in one zone, and so are its subnets",
)
def reservation_in_one_zone(pool: PoolFacts) -> Iterator[Judgement]:
    if isinstance(pool.spec, ManagedPoolSpec) and pool.spec.reserved:
        try:
            found = pool_zones(pool.spec, pool.network_zone_ids, pool.region)
        except SpecError:  # POO001 reports zones outside the network
            return
        reserved, path = pool.spec.capacity_reservation_id or pool.spec.capacity_reservation_group_arn, pool.at("zone_ids")
        group = pool.spec.capacity_reservation_group_arn is not None
        if group and len(found) > 1 and not pool.spec.zone_ids:
            why = "nodes start only in zones where the group has reservations"
            yield not_judged("zones of the group", f"pool '{pool.name}'", path, why=why, fix="set zone_ids of the pool to them")
            return
        yield Judgement(
            holds=len(found) < 2 or group,
            path=path,
            working=(f"reservation: {reserved}; zones of the pool: {', '.join(found) or 'unknown'}",),
            message="nodes outside the reservation's zone do not start, or do not use the reservation",
            given=", ".join(pool.spec.zone_ids) or "all zones of the network",
            allowed="one zone",
        )


@rule(
    "EFA002",
    "Nodes with EFA start in one zone: neither EFA traffic nor a cluster placement group crosses zones.",
    fix="choose one zone",
    source="EC2 user guide, EFA limitations (traffic stays in a subnet's zone) and cluster placement groups",
)
def efa_in_one_zone(pool: PoolFacts) -> Iterator[Judgement]:
    if isinstance(pool.spec, ManagedPoolSpec) and pool.spec.efa is not None:
        yield Judgement(
            holds=len(pool.spec.zone_ids) <= 1,
            path=pool.at("zone_ids"),
            working=(f"zones: {', '.join(pool.spec.zone_ids) or 'not specified, so one is chosen'}",),
            message="nodes with EFA must be in one zone",
            given=", ".join(pool.spec.zone_ids),
            allowed="one zone",
        )


@rule(
    "EFA003",
    "The EFA interfaces of a node do not use up the addresses of the subnet.",
    severity="warning",
    fix="choose the layout hybrid or ip_optimized: efa-only interfaces have no address",
    source="EC2 user guide, EFA interface types",
)
def efa_spares_addresses(pool: PoolFacts) -> Iterator[Judgement]:
    if not isinstance(pool.spec, ManagedPoolSpec) or pool.spec.efa is None:
        return
    instance = pool.spec.instances()[0]
    count = pool.spec.efa.interfaces or instance.efa_interfaces
    if not 0 < count <= instance.efa_interfaces:  # rule EFA001 reports it
        return
    taken = count if pool.spec.efa.layout == "all_efa" else 1
    yield Judgement(
        holds=taken == 1 or count == 1,
        path=pool.at("efa", "layout"),
        working=(f"layout {pool.spec.efa.layout}: {taken} of {count} EFA interfaces of a node use an address",),
        message=f"each node uses {taken} addresses before its first pod",
        given=pool.spec.efa.layout,
        allowed="hybrid, ip_optimized",
    )


@rule(
    "KAR001",
    "A Karpenter pool's limits leave room for one node of each instance type.",
    fix="raise the limit, or omit it",
    source="Karpenter documentation, NodePool spec.limits: Karpenter starts no node that would exceed them",
)
def limits_hold_a_node(pool: PoolFacts) -> Iterator[Judgement]:
    if not isinstance(pool.spec, KarpenterPoolSpec) or pool.spec.replicas is not None:
        return
    instances = pool.spec.instances()
    smallest, largest = (choose(instances, key=lambda instance_type: instance_type.vcpus) for choose in (min, max))
    if pool.spec.cpu_limit:
        limit = cpu_millis(pool.spec.cpu_limit) / 1000
        holds = smallest.vcpus <= limit
        yield Judgement(
            holds=holds and largest.vcpus <= limit,
            path=pool.at("cpu_limit"),
            working=(
                f"limit {limit:g} vCPU; {smallest.name} has {smallest.vcpus}, {largest.name} has {largest.vcpus}",
                f"nodes of {largest.name} at most: {int(limit // largest.vcpus)}",
            ),
            message=f"no node of {largest.name} fits the pool's limit of {limit:g} vCPU",
            given=pool.spec.cpu_limit,
            allowed=f"at least {largest.vcpus}",
            severity="warning" if holds else "error",
        )
    if pool.spec.memory_limit:
        limit_gib = amount(pool.spec.memory_limit) / 1024**3
        holds = smallest.memory_mib / 1024 <= limit_gib
        yield Judgement(
            holds=holds,
            path=pool.at("memory_limit"),
            working=(f"limit {limit_gib:.0f} GiB; {smallest.name} has {smallest.memory_mib // 1024} GiB",),
            message=f"no node fits the pool's limit of {limit_gib:.0f} GiB",
            given=pool.spec.memory_limit,
            allowed=f"at least {smallest.memory_mib // 1024}Gi",
        )


@rule(
    "KAR004",
    "Nodes that Karpenter replaces by age come to an end.",
    severity="warning",
    fix="set termination_grace_period, or expire_after: Never",
    source="Karpenter documentation, Disruption: without terminationGracePeriod, disruption budgets block drains for ever",
)
def nodes_end(pool: PoolFacts) -> Iterator[Judgement]:
    if isinstance(pool.spec, KarpenterPoolSpec) and pool.spec.expire_after != "Never":
        yield Judgement(
            holds=pool.spec.termination_grace_period is not None,
            path=pool.at("termination_grace_period"),
            working=(f"after {pool.spec.expire_after}, then {pool.spec.termination_grace_period or 'any time'} to drain",),
            message="a pod or a disruption budget can hold up the end of an old node for ever",
            given="null",
            allowed="a time such as 2h",
        )


@rule(
    "KAR002",
    "Karpenter does not move model servers to consolidate nodes.",
    severity="warning",
    fix="set consolidation_policy to WhenEmpty",
    source="Karpenter documentation, Disruption; a model server takes minutes to load again",
)
def servers_stay(pool: PoolFacts) -> Iterator[Judgement]:
    if isinstance(pool.spec, KarpenterPoolSpec) and pool.spec.replicas is None and pool.serves:
        yield Judgement(
            holds=pool.spec.consolidation_policy == "WhenEmpty",
            path=pool.at("consolidation_policy"),
            working=(f"{pool.spec.consolidation_policy}; model servers on it: {', '.join(pool.serves)}",),
            message=f"Karpenter may move {', '.join(pool.serves)} to another node at any time",
            given=pool.spec.consolidation_policy,
            allowed="WhenEmpty",
        )


@rule(
    "KAR006",
    "A pool of a fixed number of nodes may have them, and one more while a node is replaced.",
    fix="raise node_limit, or leave it out",
    source="kubernetes-sigs/karpenter v1.14.1, pkg/controllers/static/provisioning and pkg/controllers/disruption/staticdrift.go",
)
def limit_holds_fixed_nodes(pool: PoolFacts) -> Iterator[Judgement]:
    if not isinstance(pool.spec, KarpenterPoolSpec) or pool.spec.replicas is None or pool.spec.node_limit is None:
        return
    nodes, limit = pool.spec.replicas, pool.spec.node_limit
    missing = max(nodes - limit, 0)
    yield Judgement(
        holds=limit > nodes,
        path=pool.at("node_limit"),
        working=(f"replicas: {nodes}; node_limit: {limit}", "an outdated node ends after its successor has started"),
        message=f"{missing} of {nodes} nodes would never start" if missing else "no outdated node would be replaced",
        given=str(limit),
        allowed=f"at least {nodes + 1}",
        severity="error" if missing else "warning",
    )
