"""Rules about devices (KAR008, DRA…), root disks and image pulls onto them (POO009 to POO011), and kubelets (POO015)."""

from collections.abc import Iterator

from eks_inference.catalog import versions
from eks_inference.catalog.claim_drivers import Driver, driver, published
from eks_inference.catalog.instances import FAST_IMAGE_PULL, GP3, InstanceType
from eks_inference.catalog.tables import version_numbers
from eks_inference.faults import SpecError
from eks_inference.pools.node_plan import root_volume_gib, root_volume_iops, root_volume_mib_s
from eks_inference.pools.node_spec import ReleaseAmi, period_seconds
from eks_inference.pools.plan import ami_type, release_version
from eks_inference.pools.rules import PoolFacts
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec
from eks_inference.rules import Judgement, not_judged, rule


def drivers_of(pool: PoolFacts) -> Iterator[Driver]:
    """Yields the drivers that offer what the pool's nodes have."""
    accelerator = pool.spec.instances()[0].accelerator
    if accelerator:
        yield driver(accelerator)
    if isinstance(pool.spec, ManagedPoolSpec) and pool.spec.efa:
        yield driver("efa")


@rule(
    "KAR008",
    "Karpenter counts the GPUs of a pool's instance types.",
    fix="use a managed pool, or instance types with whole GPUs",
    source="aws/karpenter-provider-aws#8368; v1.14.1, pkg/providers/instancetype/types.go: EC2 says 0 GPUs where it sells parts",
)
def karpenter_counts_gpus(pool: PoolFacts) -> Iterator[Judgement]:
    if isinstance(pool.spec, KarpenterPoolSpec):
        parts = [instance.name for instance in pool.spec.instances() if instance.partitioned]
        yield Judgement(
            holds=not parts,
            path=pool.at("instance_types" if pool.spec.instance_types else "instance_families"),
            working=(f"of {len(pool.spec.instances())} types, {len(parts)} have a part of a GPU",),
            message="Karpenter takes these for types without a GPU and starts none for a pod that asks for one",
            given=", ".join(parts),
            severity=None if len(parts) == len(pool.spec.instances()) else "warning",
        )


@rule(
    "DRA001",
    "The cluster's Kubernetes version has claims of devices, and the drivers support it.",
    fix="move to a newer Kubernetes version, or let the device plugin offer the devices (devices: plugin)",
    source="EKS user guide, Manage hardware devices: DRA from Kubernetes 1.34; documents of each driver (catalog/claims.toml)",
    about="pools whose devices are claimed",
)
def control_plane_has_claims(pool: PoolFacts) -> Iterator[Judgement]:
    for one in drivers_of(pool) if pool.spec.claimed else ():
        yield Judgement(
            holds=version_numbers(pool.kubernetes_version) >= version_numbers(one.kubernetes),
            path=pool.at("devices"),
            working=(
                f"driver {one.driver} is for Kubernetes {one.kubernetes} or newer; the cluster runs {pool.kubernetes_version}",
            ),
            message=f"driver {one.driver} does not run on Kubernetes {pool.kubernetes_version}",
            given=pool.kubernetes_version,
            allowed=f"{one.kubernetes} or newer",
        )


@rule(
    "DRA002",
    "The nodes' Kubernetes release is one that the drivers work with.",
    fix="take a newer AMI release, or omit it to use the catalog's pin",
    source="EKS user guide, Manage Neuron devices; kubernetes/kubernetes#133920 (kubelets before 1.34.2)",
    about="pools whose devices are claimed",
)
def nodes_work_with_drivers(pool: PoolFacts) -> Iterator[Judgement]:
    needed = [one for one in drivers_of(pool) if one.nodes] if pool.spec.claimed else []
    for one in needed:
        ami = pool.spec.ami
        what = f"the Kubernetes release of the nodes of pool '{pool.name}'"
        if not isinstance(ami, ReleaseAmi):
            why, fix = "the machine image does not tell it", f"make sure that it is {one.nodes} or newer"
            yield not_judged("the release of nodes", pool.name, pool.at("ami"), why=why, fix=fix)
            continue
        try:
            release = release_version(ami, pool.spec.instances()[0], pool.kubernetes_version).partition("-")[0]
        except SpecError:  # POO003 and the component report these
            continue
        yield Judgement(
            holds=version_numbers(release) >= version_numbers(one.nodes),
            path=pool.at("ami", "release_version"),
            working=(f"driver {one.driver} needs nodes of {one.nodes} or newer; {what}: {release}",),
            message=f"driver {one.driver} does not work on nodes of Kubernetes {release}",
            given=release,
            allowed=f"{one.nodes} or newer",
        )


@rule(
    "DRA003",
    "A pool whose devices are claimed has nodes whatever pods ask for.",
    fix="use a managed pool or replicas, or let the device plugin offer the devices (devices: plugin)",
    source="EKS user guide, Manage Neuron devices: Karpenter with static capacity only; Karpenter 1.15, DRA (alpha): nodes for "
    "claims of GPUs and EFA interfaces with settings.enableDRA; the catalog pins 1.14",
    about="pools whose devices are claimed",
)
def nodes_stand(pool: PoolFacts) -> Iterator[Judgement]:
    if pool.spec.claimed:
        follows = isinstance(pool.spec, KarpenterPoolSpec) and pool.spec.replicas is None
        yield Judgement(
            holds=not follows,
            path=pool.at("devices"),
            working=(f"kind: {pool.spec.kind}; nodes {'follow the pods' if follows else 'do not follow the pods'}",),
            message="Karpenter starts no node for a pod with claims, and the pod stays Pending",
            given="claims",
            allowed="plugin",
        )


@rule(
    "DRA004",
    "It is sure that the driver serves the instance type.",
    severity="warning",
    fix="try one node first, or let the device plugin offer the devices (devices: plugin)",
    source="EKS user guide, Manage Neuron devices; Neuron documentation, DRA; tests that catalog/claims.toml names",
    about="pools whose devices are claimed",
)
def driver_serves_type(pool: PoolFacts) -> Iterator[Judgement]:
    for instance in pool.spec.instances() if pool.spec.claimed else ():
        known = published(instance)
        if instance.neuron:
            doubt = known.doubt if known else "the catalog does not say what the driver publishes for it"
            yield Judgement(
                holds=not doubt,
                path=pool.at("devices"),
                working=(f"{instance.name}: {doubt or 'documented'}",),
                message=f"whether the driver serves {instance.name} is not known: {doubt}",
                given=instance.name,
            )


@rule(
    "POO015",
    "The kubelet starts: what it grants critical pods at shutdown is within the whole.",
    fix="set both periods",
    source="awslabs/amazon-eks-ami#2390: AL2023 sets 2m30s and 30s from Kubernetes 1.34 on, and a pool's settings replace one by "
    "one; Kubernetes, pkg/kubelet/apis/config/validation",
    about="managed pools with one of the periods",
)
def shutdown_has_time_for_critical_pods(pool: PoolFacts) -> Iterator[Judgement]:
    kubelet = pool.spec.kubelet if isinstance(pool.spec, ManagedPoolSpec) else None
    if kubelet and (kubelet.shutdownGracePeriod or kubelet.shutdownGracePeriodCriticalPods):
        ours = ("2m30s", "30s") if version_numbers(pool.kubernetes_version) >= (1, 34) else ("0", "0")
        whole, part = kubelet.shutdownGracePeriod or ours[0], kubelet.shutdownGracePeriodCriticalPods or ours[1]
        given = "shutdownGracePeriod" if kubelet.shutdownGracePeriod else "shutdownGracePeriodCriticalPods"
        yield Judgement(
            holds=period_seconds(part) <= period_seconds(whole),
            path=pool.at("kubelet", given),
            working=(f"shutdownGracePeriod {whole}, shutdownGracePeriodCriticalPods {part}; of the image: {' and '.join(ours)}",),
            message=f"the kubelet does not start: critical pods have {part} of {whole}",
            given=kubelet.shutdownGracePeriod or part,
        )


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
        fastest = max(pool.spec.instances(), key=lambda instance: instance.ebs_mib_s)
        yield Judgement(
            holds=throughput <= fastest.ebs_mib_s,
            path=pool.at("root_volume_mib_s"),
            working=(f"{fastest.name} reaches {fastest.ebs_mib_s} MiB/s to all volumes together; disk: {throughput} MiB/s",),
            message=f"the disk costs {throughput} MiB/s, and {fastest.name} uses only {fastest.ebs_mib_s}",
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
    smallest = min(pool.spec.instances(), key=lambda instance: (instance.vcpus, instance.memory_mib))
    yield _nodes_are_large_enough(pool, smallest, released)
    on_root_disk = released is not None and released < FAST_IMAGE_PULL.first_local
    if slow := [instance for instance in pool.spec.instances() if on_root_disk or not instance.nvme_gb]:
        slowest = min(slow, key=lambda instance_type: instance_type.ebs_mib_s)
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
    """Returns the day of the pool's AMI release; None for a custom image."""
    if not isinstance(pool.spec.ami, ReleaseAmi):
        return None
    pinned = versions.ami_release(ami_type(pool.spec.instances()[0]), pool.kubernetes_version)
    return (pool.spec.ami.release_version or pinned).rpartition("-")[2]


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
