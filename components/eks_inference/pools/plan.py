"""Pure parts of node pools: labels, taints, images, user data, what pods can use of a node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from eks_inference.catalog import amis, versions, zones
from eks_inference.catalog.instances import InstanceType
from eks_inference.faults import Fault, SpecError
from eks_inference.placement import POOL_LABEL, Placement, Taint, place
from eks_inference.pools.ami_spec import ReleaseAmi
from eks_inference.pools.interfaces import efa_count
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec

# The taints AWS uses in its own examples for these devices (EKS user guide; Neuron documentation, "EKS setup").
_ACCELERATOR_TAINTS = {
    "neuron": Taint("aws.amazon.com/neuron", "true", "NoSchedule"),
    "nvidia": Taint("nvidia.com/gpu", "true", "NoSchedule"),
}

# Spelling of the EKS API, enum taintEffect.
_EKS_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}

NODE_POLICIES = (
    "AmazonEKSWorkerNodePolicy",
    # Narrower than ...ReadOnly: pulling images is all a node does with a registry.
    "AmazonEC2ContainerRegistryPullOnly",
    # Session Manager instead of SSH.
    "AmazonSSMManagedInstanceCore",
    # The VPC CNI has no role of its own (cluster domain): its pods, on the host's network, use the node's.
    "AmazonEKS_CNI_Policy",
)
"""Policies of AWS that every node role has. Source: EKS user guide, "Amazon EKS node IAM role"; the source systems' lists."""

_DEFAULT_ROOT_GIB = 100
_DEFAULT_ACCELERATED_ROOT_GIB = 500  # the source systems' size: a Neuron image and a 70B checkpoint do not fit in 100

_MIME_BOUNDARY = "eks-inference-node-config"

# Where driver and runtime read the setting (Neuron documentation, "EKS prerequisites", Trn2 LNC configuration). It must be there
# before the device plugin counts cores: nodeadm-run.service starts the kubelet after cloud-init has run the scripts.
_LOGICAL_CORES_SCRIPT = """\
#!/bin/bash
set -eu
mkdir -p /opt/aws/neuron
printf NEURON_LOGICAL_NC_CONFIG={logical_cores} > /opt/aws/neuron/logical_nc_config
"""


@dataclass(frozen=True)
class Allocatable:
    """What pods can use of one node, before any DaemonSet."""

    cpu_millis: int
    memory_mib: int


@dataclass(frozen=True)
class ClusterFacts:
    """What a node with an image of your own must be told to join. EKS tells its own images by itself."""

    name: str
    endpoint: str
    certificate_authority: str
    """Base64 PEM."""
    service_cidr: str


def pool_labels(spec: ManagedPoolSpec | KarpenterPoolSpec, pool: str) -> dict[str, str]:
    """Labels of the pool's nodes."""
    return {POOL_LABEL: pool, **spec.extra_labels}


def pool_taints(spec: ManagedPoolSpec | KarpenterPoolSpec) -> tuple[Taint, ...]:
    """Taints of the pool's nodes: given ones, or the accelerator's, then the extra ones (each key and effect once)."""
    accelerator = spec.instances()[0].accelerator
    if spec.taints is not None:
        taints = tuple(taint.taint() for taint in spec.taints)
    else:
        taints = (_ACCELERATOR_TAINTS[accelerator],) if accelerator else ()
    extras = tuple(taint.taint() for taint in spec.extra_taints)
    replaced = {(taint.key, taint.effect) for taint in extras}
    return (*(taint for taint in taints if (taint.key, taint.effect) not in replaced), *extras)


def eks_taint(taint: Taint) -> dict[str, str]:
    """The taint in the spelling of the EKS API."""
    return {"key": taint.key, "value": taint.value, "effect": _EKS_EFFECTS[taint.effect]}


def ami_type(instance: InstanceType) -> str:
    """The AMI type of EKS for an instance type, e.g. ``AL2023_x86_64_NEURON``."""
    return amis.ami_type_for(instance).name


def release_version(ami: ReleaseAmi, instance: InstanceType, kubernetes_version: str) -> str:
    """The AMI release of a pool. Raises ``SpecError`` when it is of another Kubernetes minor version than the cluster."""
    release = ami.release_version or versions.ami_release(ami_type(instance), kubernetes_version)
    if not release.startswith(f"{kubernetes_version}."):
        raise SpecError(
            [
                Fault(
                    ("ami", "release_version"),
                    "the release is of another Kubernetes version than the cluster",
                    given=release,
                    allowed=f"{kubernetes_version}.<patch>-<date>",
                    hint="change it together with the cluster's version, or leave it out for the catalog's pin",
                )
            ]
        )
    return release


def neuron_driver(spec: ManagedPoolSpec | KarpenterPoolSpec, instance: InstanceType, kubernetes_version: str) -> str | None:
    """The Neuron driver of the pool's AMI release; None without Neuron devices, with an image of your own, or when unknown."""
    if not instance.neuron or not isinstance(spec.ami, ReleaseAmi):
        return None
    try:
        return versions.neuron_driver(spec.ami.release_version or versions.ami_release(ami_type(instance), kubernetes_version))
    except KeyError:
        return None


def karpenter_ami_alias(release: str) -> str:
    """Karpenter's name of an AMI release: ``al2023@v20260714``. It picks the accelerator's variant by itself."""
    return f"al2023@v{release.rpartition('-')[2]}"


def root_volume_gib(spec: ManagedPoolSpec | KarpenterPoolSpec) -> int:
    """Size of the root disk."""
    if spec.root_volume_gib is not None:
        return spec.root_volume_gib
    return _DEFAULT_ACCELERATED_ROOT_GIB if spec.instances()[0].accelerator else _DEFAULT_ROOT_GIB


def has_local_disks(spec: ManagedPoolSpec | KarpenterPoolSpec) -> bool:
    """Whether any of the pool's instance types has an instance store. nodeadm skips the RAID on those that have none."""
    return any(instance.nvme_gb > 0 for instance in spec.instances())


def user_data(spec: ManagedPoolSpec, *, pool: str, cluster: ClusterFacts | None = None) -> str | None:
    """User data of a managed group's nodes; None when there is nothing to say.

    A MIME document with a NodeConfig of nodeadm and, where the pool sets logical cores, a script before it.

    With an image of EKS the service puts the cluster's facts, labels and taints in front and merges, the later part winning:
    only changes belong here. With an image of your own (``cluster`` given) nothing is added, so everything is said.
    Source: EKS user guide, "Customize managed nodes with launch templates"; awslabs/amazon-eks-ami, nodeadm/doc.
    """
    node: dict[str, Any] = {}
    kubelet: dict[str, Any] = {"config": dict(spec.kubelet)} if spec.kubelet else {}
    if cluster:
        node["cluster"] = {
            "name": cluster.name,
            "apiServerEndpoint": cluster.endpoint,
            "certificateAuthority": cluster.certificate_authority,
            "cidr": cluster.service_cidr,
        }
        labels = ",".join(f"{key}={value}" for key, value in sorted(pool_labels(spec, pool).items()))
        kubelet["flags"] = [f"--node-labels={labels}"]
        taints = [taint.manifest() for taint in pool_taints(spec)]
        if taints:
            kubelet["config"] = {"registerWithTaints": taints, **kubelet.get("config", {})}
    if kubelet:
        node["kubelet"] = kubelet
    if has_local_disks(spec):
        # containerd, pod logs and emptyDir volumes move to the striped local disks.
        node["instance"] = {"localStorage": {"strategy": "RAID0"}}
    parts = [("text/x-shellscript", _LOGICAL_CORES_SCRIPT.format(logical_cores=spec.logical_cores))] if spec.logical_cores else []
    parts += [("application/node.eks.aws", _node_config(node))] if node else []
    return _mime(parts) if parts else None


def _node_config(spec: Mapping[str, Any]) -> str:
    document = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    return yaml.safe_dump(document, sort_keys=False, width=1_000_000)


def _mime(parts: Sequence[tuple[str, str]]) -> str:
    """Parts as (media type, text). No line of block YAML or of our script begins with the boundary's dashes."""
    head = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{_MIME_BOUNDARY}"\n\n'
    body = "".join(f"--{_MIME_BOUNDARY}\nContent-Type: {media_type}\n\n{text}" for media_type, text in parts)
    return f"{head}{body}--{_MIME_BOUNDARY}--\n"


# nodeadm, kubelet/config.go: what it reserves of each slice of a node's millicores, in ten-thousandths; evictionHard.
_CPU_SLICES = ((0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50), (4000, None, 25))
_EVICTION_MIB = 100

# The guest sees less memory than EC2 advertises. Karpenter's setting vmMemoryOverheadPercent, whose default this is, is the only
# published figure; large types lose less in truth.
_GUEST_MEMORY = 0.925


def allocatable(instance: InstanceType) -> Allocatable:
    """What pods can use of a node of this type with the reservations AL2023 makes.

    Memory: the guest's share, less 255 MiB + 11 MiB for each pod the node may hold, less 100 MiB of eviction threshold. CPU: less
    6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest. Agrees with Karpenter's reference of
    instance types, so a request that fits here is one that Karpenter will start a node for.
    """
    millis = instance.vcpus * 1000
    reserved = sum((min(millis, end or millis) - start) * share // 10_000 for start, end, share in _CPU_SLICES if millis > start)
    memory = int(instance.memory_mib * _GUEST_MEMORY - (255 + 11 * instance.max_pods) - _EVICTION_MIB)
    return Allocatable(cpu_millis=millis - reserved, memory_mib=memory)


def subnet_zones(wanted: Sequence[str], available: Sequence[str]) -> tuple[str, ...]:
    """The zones a pool starts nodes in, in the network's order. Raises ``SpecError`` naming zones the network lacks."""
    missing = [zone for zone in wanted if zone not in available]
    if missing:
        given, allowed = ", ".join(missing), ", ".join(dict.fromkeys(available))
        raise SpecError([Fault(("zone_ids",), "the network has no private subnet there", given, allowed)])
    return tuple(dict.fromkeys(zone for zone in available if not wanted or zone in wanted))


def pool_zones(spec: ManagedPoolSpec | KarpenterPoolSpec, available: Sequence[str], region: str) -> tuple[str, ...]:
    """The zones a pool starts nodes in; raises as ``subnet_zones``.

    EFA does not cross zones, so a pool with it has one: that of its ``zone_ids``, or the network's first zone where the catalog
    knows the instance family to be offered. Give ``zone_ids`` where the network may change later: another zone is another group.
    """
    found = subnet_zones(spec.zone_ids, available)
    if not (isinstance(spec, ManagedPoolSpec) and spec.efa):
        return found
    family = spec.instances()[0].family
    offering = zones.zone_ids(region, family) if region in zones.regions() else ()
    return tuple(zone for zone in found if zone in offering)[:1] or found[:1]


def makes_placement_group(spec: ManagedPoolSpec) -> bool:
    """Whether a cluster placement group is made for the pool.

    Not where nodes come out of a reservation: one that was not made in the group has no capacity there, and EC2 answers
    InsufficientInstanceCapacity (terraform-aws-eks#3730).
    """
    return spec.placement == "auto" and spec.efa is not None and not spec.reserved


def placement_of(
    pool: str,
    spec: ManagedPoolSpec | KarpenterPoolSpec,
    instance_type: str | None,
    kubernetes_version: str,
    zone_ids: Sequence[str] = (),
) -> Placement:
    """The placement on one instance type of a pool, all but what must be ready first; raises as ``place``.

    ``zone_ids`` are the zones the pool starts nodes in, once the network is known. Where the pool asks for EFA that the type does
    not offer, the placement has none.
    """
    placement = place(
        pool,
        spec.instances(),
        instance_type,
        taints=pool_taints(spec),
        max_nodes=_max_nodes(spec),
        zone_ids=zone_ids or spec.zone_ids,
    )
    instance = placement.instance_type
    placement = replace(placement, driver=neuron_driver(spec, instance, kubernetes_version))
    if isinstance(spec, KarpenterPoolSpec):
        return replace(placement, spot="spot" in spec.capacity_types)
    if spec.logical_cores:
        instance = replace(instance, cores_per_device=instance.physical_cores_per_device // spec.logical_cores)
    return replace(
        placement,
        instance_type=instance,
        efa_interfaces=_efa_interfaces(spec, instance),
        logical_cores=spec.logical_cores,
        spot=spec.capacity_type == "spot",
        reserved=spec.reserved,
    )


def _max_nodes(spec: ManagedPoolSpec | KarpenterPoolSpec) -> int | None:
    """Karpenter's pools are bounded by their limits only."""
    if isinstance(spec, KarpenterPoolSpec):
        return None
    return spec.autoscaled.max if spec.autoscaled else spec.size


def _efa_interfaces(spec: ManagedPoolSpec, instance: InstanceType) -> int:
    try:
        return efa_count(instance, spec.efa) if spec.efa else 0
    except SpecError:
        return 0
