"""Vectors of the rules about pools."""

from typing import Any

from eks_inference.pools.rules import PoolFacts
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec
from vectors import Vector


def managed(facts: dict[str, Any] | None = None, **spec: Any) -> PoolFacts:
    """Returns a valid managed pool with EFA, with changes."""
    good = {"instance_types": ["trn2.48xlarge"], "size": 1, "zone_ids": ["use2-az3"], "efa": {}}
    pool = ManagedPoolSpec.model_validate({**good, **spec})
    return PoolFacts("di", pool, "1.35", "us-east-2", **{"network_zone_ids": ("use2-az3", "use2-az1"), **(facts or {})})


def inf2(**spec: Any) -> PoolFacts:
    """Returns a managed pool whose images are on the root disk, with changes."""
    pool = ManagedPoolSpec.model_validate({"instance_types": ["inf2.8xlarge"], "size": 1, **spec})
    return PoolFacts("inf2", pool, "1.35", "us-west-2")


def karpenter(serves: tuple[str, ...] = (), **spec: Any) -> PoolFacts:
    """Returns a valid Karpenter pool, with changes."""
    pool = KarpenterPoolSpec.model_validate({"kind": "karpenter", "instance_families": ["inf2"], **spec})
    return PoolFacts("inf2", pool, "1.35", "us-west-2", serves=serves)


def claimed(version: str = "1.35", **spec: Any) -> PoolFacts:
    """Returns a managed Trn2 pool whose devices are claimed, with changes."""
    pool = managed(devices="claims", **spec)
    return PoolFacts(pool.name, pool.spec, version, pool.region, pool.network_zone_ids)


VECTORS = {
    "DRA001": Vector(claimed, lambda: claimed("1.33"), "driver neuron.aws.com does not run on Kubernetes 1.33"),
    "DRA002": Vector(
        lambda: claimed("1.34"),
        lambda: claimed("1.34", ami={"kind": "release", "release_version": "1.34.1-20251112"}),
        "does not work on nodes of Kubernetes 1.34.1",
    ),
    "DRA003": Vector(
        lambda: karpenter(devices="claims", replicas=1),
        lambda: karpenter(devices="claims"),
        "Karpenter starts no node for a pod with claims",
    ),
    "DRA004": Vector(claimed, lambda: inf2(devices="claims"), "whether the driver serves inf2.8xlarge is not known: the EKS"),
    "POO001": Vector(managed, lambda: managed(zone_ids=["use2-az2"]), "no private subnet there"),
    "POO002": Vector(managed, lambda: managed(instance_types=["trn1.32xlarge"], zone_ids=["use2-az1"]), "known to offer trn1"),
    "POO003": Vector(
        lambda: managed(ami={"kind": "release", "release_version": "1.35.6-20260714"}),
        lambda: managed(ami={"kind": "release", "release_version": "1.34.2-20251217"}),
        "another Kubernetes version",
    ),
    "POO013": Vector(
        lambda: managed(capacity_reservation_id="cr-0123456789abcdef0"),
        lambda: managed(capacity_reservation_id="cr-0123456789abcdef0", zone_ids=["use2-az1", "use2-az3"], efa=None),
        "nodes outside the reservation's zone",
    ),
    "POO004": Vector(
        lambda: managed(capacity_reservation_id="cr-0123456789abcdef0"),
        lambda: managed(capacity_reservation_id="cr-0123456789abcdef0", placement={"name": "mine"}),
        "InsufficientInstanceCapacity",
    ),
    "POO005": Vector(
        lambda: managed(kubelet={"maxPods": 6, "systemReserved": {"cpu": "1"}, "evictionHard": {"memory.available": "5%"}}),
        lambda: managed(kubelet={"maxPods": 5}),
        "0 pods of trn2.48xlarge remain",
    ),
    "POO007": Vector(
        lambda: managed(capacity_reservation_id="cr-0123456789abcdef0"),
        managed,
        "EC2 has no trn2.48xlarge on demand",
    ),
    "POO015": Vector(
        lambda: inf2(kubelet={"shutdownGracePeriod": "30s"}),
        lambda: inf2(kubelet={"shutdownGracePeriod": "10s"}),
        "the kubelet does not start: critical pods have 30s of 10s",
    ),
    "POO009": Vector(
        lambda: inf2(root_volume_gib=30, root_volume_mib_s=2000),
        lambda: inf2(root_volume_mib_s=1000, root_volume_iops=3999),
        "no gp3 disk of 500 GiB with 1000 MiB/s and 3999 operations a second",
    ),
    "POO010": Vector(
        lambda: inf2(root_volume_mib_s=1192),
        lambda: inf2(root_volume_mib_s=1193),
        "costs 1193 MiB/s, and inf2.8xlarge uses only 1192",
    ),
    "POO011": Vector(
        lambda: inf2(fast_image_pull=True),
        lambda: inf2(fast_image_pull=True, root_volume_mib_s=599),
        "at 599 MiB/s a parallel pull may take longer than a plain one",
    ),
    "EFA001": Vector(managed, lambda: managed(instance_types=["inf2.48xlarge"]), "inf2.48xlarge has no EFA interfaces"),
    "EFA002": Vector(managed, lambda: managed(zone_ids=["use2-az3", "use2-az1"]), "must be in one zone"),
    "EFA003": Vector(managed, lambda: managed(efa={"layout": "all_efa"}), "uses 16 addresses before its first pod"),
    "KAR001": Vector(karpenter, lambda: karpenter(cpu_limit="2"), "no node of inf2.48xlarge fits the pool's limit of 2 vCPU"),
    "KAR008": Vector(
        lambda: karpenter(instance_families=["g6"]), lambda: karpenter(instance_families=["g6f"]), "types without a GPU"
    ),
    "KAR004": Vector(karpenter, lambda: karpenter(termination_grace_period=None), "can hold up the end of an old node for ever"),
    "KAR006": Vector(
        lambda: karpenter(replicas=2, node_limit=3), lambda: karpenter(replicas=2, node_limit=1), "1 of 2 nodes would never start"
    ),
    "KAR002": Vector(
        lambda: karpenter(("llama",)),
        lambda: karpenter(("llama",), consolidation_policy="WhenEmptyOrUnderutilized"),
        "may move llama to another node",
    ),
}
