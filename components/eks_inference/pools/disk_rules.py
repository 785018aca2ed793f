"""Rules about the root disks of pools and image pulls onto them. Ids POO009 to POO011."""

from collections.abc import Iterator

from eks_inference.catalog import versions
from eks_inference.catalog.disks import FAST_IMAGE_PULL, GP3
from eks_inference.catalog.instances import InstanceType
from eks_inference.pools.ami_spec import ReleaseAmi
from eks_inference.pools.disks import root_volume_gib, root_volume_iops, root_volume_mib_s
from eks_inference.pools.facts import PoolFacts
from eks_inference.pools.plan import ami_type
from eks_inference.rules import Judgement, not_judged, rule


@rule(
    "POO009",
    "Size, operations and throughput of the root disk go together.",
    fix="lower root_volume_mib_s, raise root_volume_iops (or leave it out), or raise root_volume_gib",
    source=GP3.source,
)
def disk_is_one_that_exists(pool: PoolFacts) -> Iterator[Judgement]:
    gib, iops, throughput = root_volume_gib(pool.spec), root_volume_iops(pool.spec), root_volume_mib_s(pool.spec)
    needed, most = throughput * GP3.iops_per_mib_s, gib * GP3.iops_per_gib
    yield Judgement(
        holds=needed <= iops <= most,
        path=pool.at("root_volume_iops"),
        working=(
            f"{throughput} MiB/s x {GP3.iops_per_mib_s} = {needed} operations a second at least",
            f"{gib} GiB x {GP3.iops_per_gib} = {most} at most; disk: {iops}",
        ),
        message=f"EC2 makes no gp3 disk of {gib} GiB with {throughput} MiB/s and {iops} operations a second",
        given=str(iops),
        allowed=f"{needed} to {most}",
    )


@rule(
    "POO010",
    "The nodes of a pool can use the throughput of their root disk.",
    severity="warning",
    fix="lower root_volume_mib_s, or choose a larger instance type",
    source="EC2 DescribeInstanceTypes (EbsOptimizedInfo), copied in catalog/instances.toml",
)
def nodes_use_the_disk(pool: PoolFacts) -> Iterator[Judgement]:
    throughput = root_volume_mib_s(pool.spec)
    if throughput > GP3.least_mib_s:
        fastest = max(pool.spec.instances(), key=lambda one: one.ebs_mib_s)
        yield Judgement(
            holds=throughput <= fastest.ebs_mib_s,
            path=pool.at("root_volume_mib_s"),
            working=(f"{fastest.name} reaches {fastest.ebs_mib_s} MiB/s to all volumes together; disk: {throughput} MiB/s",),
            message=f"the disk costs {throughput} MiB/s, of which {fastest.name} uses {fastest.ebs_mib_s}",
            given=str(throughput),
            allowed=f"at most {fastest.ebs_mib_s}",
        )


@rule(
    "POO011",
    "Parallel image pulls have an effect, and the right one.",
    severity="warning",
    fix="raise root_volume_mib_s, take larger nodes or a newer AMI release, or leave fast_image_pull out",
    source=f"{FAST_IMAGE_PULL.source}; issue 2710",
)
def parallel_pulls_help(pool: PoolFacts) -> Iterator[Judgement]:
    if not pool.spec.fast_image_pull:
        return
    released = _released(pool)
    if released is None:
        yield not_judged(
            "parallel image pulls",
            pool.name,
            pool.at("ami"),
            why="a custom image may be older than the feature gate",
            fix=f"build it from a release of {FAST_IMAGE_PULL.first} or later",
        )
    else:
        yield _release_has_it(pool, released)
    smallest = min(pool.spec.instances(), key=lambda one: (one.vcpus, one.memory_mib))
    yield _nodes_are_large_enough(pool, smallest, released)
    if slow := [one for one in pool.spec.instances() if _unpacks_on_the_root_disk(one, released)]:
        slowest = min(slow, key=lambda one: one.ebs_mib_s)
        throughput = min(root_volume_mib_s(pool.spec), slowest.ebs_mib_s)
        yield Judgement(
            holds=throughput >= FAST_IMAGE_PULL.mib_s,
            path=pool.at("root_volume_mib_s"),
            working=(f"root disk of {slowest.name}: {throughput} MiB/s; parallel pulls need {FAST_IMAGE_PULL.mib_s}",),
            message=f"at {throughput} MiB/s a parallel pull may take longer than a plain one",
            given=f"{throughput} MiB/s",
            allowed=f"at least {FAST_IMAGE_PULL.mib_s} MiB/s",
        )


def _released(pool: PoolFacts) -> str | None:
    """Returns the day of the pool's AMI release; None for a custom image, or where the catalog pins no release."""
    if not isinstance(pool.spec.ami, ReleaseAmi):
        return None
    try:
        pinned = versions.ami_release(ami_type(pool.spec.instances()[0]), pool.kubernetes_version)
    except KeyError:
        pinned = None
    release = pool.spec.ami.release_version or pinned
    return release.rpartition("-")[2] if release else None


def _release_has_it(pool: PoolFacts, released: str) -> Judgement:
    broken = released in FAST_IMAGE_PULL.broken
    return Judgement(
        holds=released >= FAST_IMAGE_PULL.first and not broken,
        path=pool.at("ami", "release_version"),
        working=(f"AMI release of {released}; feature gate since {FAST_IMAGE_PULL.first}",),
        message="nodes of this release do not join the cluster with parallel image pulls"
        if broken
        else "nodes of this release ignore fast_image_pull",
        given=released,
        allowed=f"{FAST_IMAGE_PULL.first} or later, except {', '.join(FAST_IMAGE_PULL.broken)}",
        severity="error" if broken else None,
    )


def _nodes_are_large_enough(pool: PoolFacts, smallest: InstanceType, released: str | None) -> Judgement:
    gate = FAST_IMAGE_PULL
    older = released is not None and released < gate.smaller_first
    vcpus, memory = (gate.smaller_vcpus, gate.smaller_memory_mib) if older else (gate.vcpus, gate.memory_mib)
    return Judgement(
        holds=smallest.vcpus >= vcpus and smallest.memory_mib >= memory,
        path=pool.at("fast_image_pull"),
        working=(f"{smallest.name}: {smallest.vcpus} vCPU, {smallest.memory_mib} MiB; needed: {vcpus} vCPU, {memory} MiB",),
        message=f"nodes of {smallest.name} ignore fast_image_pull",
        given=f"{smallest.vcpus} vCPU",
        allowed=f"at least {vcpus} vCPU and {memory // 1024} GiB",
    )


def _unpacks_on_the_root_disk(instance: InstanceType, released: str | None) -> bool:
    return not instance.nvme_gb or (released is not None and released < FAST_IMAGE_PULL.first_local)
