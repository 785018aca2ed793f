"""What a pool must keep to, whatever runs on it. Numbers POO… (any pool), EFA… and KAR… (Karpenter)."""

from collections.abc import Iterator

from eks_inference.catalog import zones
from eks_inference.kubernetes.quantity import amount, cpu_millis
from eks_inference.pools.ami_spec import ReleaseAmi
from eks_inference.pools.facts import PoolFacts
from eks_inference.pools.interfaces import efa_count
from eks_inference.pools.spec import ExistingPlacementGroup, KarpenterPoolSpec, ManagedPoolSpec
from eks_inference.rules import Judgement, rule


@rule(
    "POO001",
    "A pool starts nodes in zones of the network only.",
    fix="name zones of the network, or add the zone to network.zone_ids",
    source="EKS API, CreateNodegroup: subnets are the network's",
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
    source="EC2 DescribeInstanceTypeOfferings, as catalog/zones.toml keeps it",
)
def zones_offer_the_family(pool: PoolFacts) -> Iterator[Judgement]:
    if pool.region not in zones.regions():
        return
    wanted = pool.spec.zone_ids or pool.network_zone_ids
    for family in sorted({instance.family for instance in pool.spec.instances()}):
        offered = zones.zone_ids(pool.region, family)
        found = [zone for zone in wanted if zone in offered]
        yield Judgement(
            holds=not wanted or bool(found),
            path=pool.at("zone_ids") if pool.spec.zone_ids else pool.path,
            working=(f"{family} in {pool.region}: {', '.join(offered) or 'not offered'}", f"pool: {', '.join(wanted)}"),
            message=f"no zone of pool '{pool.name}' is known to offer {family}",
            given=", ".join(wanted),
            allowed=", ".join(offered) or f"no zone of {pool.region}",
        )


@rule(
    "POO003",
    "The machine image is of the cluster's Kubernetes version.",
    fix="change release_version together with the cluster's version, or leave it out for the catalog's pin",
    source="EKS user guide, managed node group AMI versions: <minor>.<patch>-<date>",
)
def image_of_the_cluster_version(pool: PoolFacts) -> Iterator[Judgement]:
    release = pool.spec.ami.release_version if isinstance(pool.spec.ami, ReleaseAmi) else None
    if release:
        minor = ".".join(release.split(".")[:2])
        yield Judgement(
            holds=minor == pool.kubernetes_version,
            path=pool.at("ami", "release_version"),
            working=(f"release {release} is of Kubernetes {minor}; the cluster is of {pool.kubernetes_version}",),
            message="the release is of another Kubernetes version than the cluster",
            given=release,
            allowed=f"{pool.kubernetes_version}.<patch>-<date>",
        )


@rule(
    "POO004",
    "A placement group and a capacity reservation are not named together, unless the reservation was made in that group.",
    severity="warning",
    fix="leave placement out: a pool with a reservation makes no group",
    source="EC2 user guide, Capacity Reservations in cluster placement groups; terraform-aws-eks issues 3661 and 3730",
)
def group_or_reservation(pool: PoolFacts) -> Iterator[Judgement]:
    if isinstance(pool.spec, ManagedPoolSpec) and pool.spec.reserved:
        existing = isinstance(pool.spec.placement, ExistingPlacementGroup)
        group = pool.spec.placement.name if isinstance(pool.spec.placement, ExistingPlacementGroup) else "none"
        yield Judgement(
            holds=not existing,
            path=pool.at("placement"),
            working=(f"placement group: {group}; capacity reservation: given",),
            message="a reservation that was not made in this placement group ends in InsufficientInstanceCapacity",
            given=group,
        )


@rule(
    "EFA001",
    "Every instance type of a pool with EFA has the interfaces asked for.",
    fix="choose an instance type with EFA, ask for fewer interfaces, or leave efa out",
    source="EC2 DescribeInstanceTypes (networkInfo.efaInfo), as catalog/instances.toml keeps it",
)
def types_have_efa(pool: PoolFacts) -> Iterator[Judgement]:
    if not isinstance(pool.spec, ManagedPoolSpec) or pool.spec.efa is None:
        return
    for position, instance in enumerate(pool.spec.instances()):
        asked = pool.spec.efa.interfaces or instance.efa_interfaces or 1
        yield Judgement(
            holds=0 < asked <= instance.efa_interfaces,
            path=pool.at("instance_types", position),
            working=(f"{instance.name}: {instance.efa_interfaces} EFA interfaces; asked for: {asked}",),
            message=f"{instance.name} has {instance.efa_interfaces or 'no'} EFA interfaces",
            given=str(asked),
        )


@rule(
    "EFA002",
    "Nodes with EFA start in one zone: EFA traffic does not leave it, and a cluster placement group spans one.",
    fix="name one zone",
    source="EC2 user guide, EFA limitations (traffic stays in a subnet's zone) and cluster placement groups",
)
def efa_in_one_zone(pool: PoolFacts) -> Iterator[Judgement]:
    if isinstance(pool.spec, ManagedPoolSpec) and pool.spec.efa is not None:
        yield Judgement(
            holds=len(pool.spec.zone_ids) <= 1,
            path=pool.at("zone_ids"),
            working=(f"zones named: {', '.join(pool.spec.zone_ids) or 'none, so one is chosen'}",),
            message="nodes with EFA have to be in one zone",
            given=", ".join(pool.spec.zone_ids),
            allowed="one zone",
        )


@rule(
    "EFA003",
    "Interfaces of one node with an address of their own do not use up the subnet.",
    severity="warning",
    fix="choose the layout hybrid or ip_optimized: efa-only interfaces take no address",
    source="EC2 user guide, EFA interface types",
)
def efa_spares_addresses(pool: PoolFacts) -> Iterator[Judgement]:
    if not isinstance(pool.spec, ManagedPoolSpec) or pool.spec.efa is None:
        return
    instance = pool.spec.instances()[0]
    if not 0 < (pool.spec.efa.interfaces or instance.efa_interfaces) <= instance.efa_interfaces:
        return
    count = efa_count(instance, pool.spec.efa)
    taken = count if pool.spec.efa.layout == "all_efa" else 1
    yield Judgement(
        holds=taken == 1 or count == 1,
        path=pool.at("efa", "layout"),
        working=(f"layout {pool.spec.efa.layout}: {taken} of {count} EFA interfaces of a node take an address",),
        message=f"each node takes {taken} addresses before its first pod",
        given=pool.spec.efa.layout,
        allowed="hybrid, ip_optimized",
    )


@rule(
    "KAR001",
    "The limits of a Karpenter pool leave room for one node of each of its instance types.",
    fix="raise the limit, or leave it out",
    source="Karpenter documentation, NodePool spec.limits: no node starts that would exceed them",
)
def limits_hold_a_node(pool: PoolFacts) -> Iterator[Judgement]:
    if not isinstance(pool.spec, KarpenterPoolSpec):
        return
    instances = pool.spec.instances()
    smallest, largest = (choose(instances, key=lambda one: one.vcpus) for choose in (min, max))
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
    "KAR002",
    "Karpenter does not move model servers for the sake of fuller nodes.",
    severity="warning",
    fix="set consolidation_policy to WhenEmpty",
    source="Karpenter documentation, Disruption; a model server takes minutes to load again",
)
def servers_stay(pool: PoolFacts) -> Iterator[Judgement]:
    if isinstance(pool.spec, KarpenterPoolSpec) and pool.serves:
        yield Judgement(
            holds=pool.spec.consolidation_policy == "WhenEmpty",
            path=pool.at("consolidation_policy"),
            working=(f"{pool.spec.consolidation_policy}; model servers on it: {', '.join(pool.serves)}",),
            message=f"Karpenter may move {', '.join(pool.serves)} to another node at any time",
            given=pool.spec.consolidation_policy,
            allowed="WhenEmpty",
        )
