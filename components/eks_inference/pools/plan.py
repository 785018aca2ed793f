"""Plans node pools: labels, taints, images, user data, zones, placements. Pure; no pulumi."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from eks_inference.catalog import instances, versions, zones
from eks_inference.catalog.instances import InstanceType
from eks_inference.faults import Fault, SpecError
from eks_inference.place.placement import CLAIMS, DEVICES_LABEL, POOL_LABEL, Placement, Taint, place
from eks_inference.pools import node_plan
from eks_inference.pools.node_plan import efa_count
from eks_inference.pools.node_spec import ReleaseAmi
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec, PoolSpec

# The taints of AWS's own examples (EKS user guide; Neuron documentation, "EKS setup").
_ACCELERATOR_TAINTS = {
    "neuron": Taint("aws.amazon.com/neuron", "true", "NoSchedule"),
    "nvidia": Taint("nvidia.com/gpu", "true", "NoSchedule"),
}

EKS_TAINT_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
"""Taint effects as the EKS API spells them (enum taintEffect)."""

NODE_POLICIES = (
    "AmazonEKSWorkerNodePolicy",
    # Narrower than ...ReadOnly: nodes only pull images.
    "AmazonEC2ContainerRegistryPullOnly",
    # Session Manager instead of SSH.
    "AmazonSSMManagedInstanceCore",
    # The VPC CNI has no role of its own (see cluster/): its pods are on the host network and use the node's role.
    "AmazonEKS_CNI_Policy",
)
"""AWS managed policies of every node role. Source: EKS user guide, "Amazon EKS node IAM role"; the source systems' lists."""

_MIME_BOUNDARY = "eks-inference-node-config"

# Driver and runtime read the setting from this file (Neuron documentation, "EKS prerequisites", Trn2 LNC configuration). It must
# exist before the device plugin counts cores: nodeadm-run.service starts the kubelet after cloud-init has run the scripts.
_LOGICAL_CORES_SCRIPT = """\
#!/bin/bash
set -eu
mkdir -p /opt/aws/neuron
printf NEURON_LOGICAL_NC_CONFIG={logical_cores} > /opt/aws/neuron/logical_nc_config
"""


@dataclass(frozen=True)
class ClusterFacts:
    """Facts of the cluster that nodes with a custom image need in order to join; EKS adds them for its own images."""

    name: str
    endpoint: str
    certificate_authority: str
    """Base64 PEM."""
    service_cidr: str


def pool_labels(spec: PoolSpec, pool: str) -> dict[str, str]:
    """Returns the labels of the pool's nodes."""
    return {POOL_LABEL: pool, **({DEVICES_LABEL: CLAIMS} if spec.claimed else {}), **spec.extra_labels}


def pool_taints(spec: PoolSpec) -> tuple[Taint, ...]:
    """Returns the taints of the pool's nodes: the specified or default ones, then extra ones, which replace equal keys."""
    accelerator = spec.instances()[0].accelerator
    if spec.taints is not None:
        taints = tuple(taint.taint() for taint in spec.taints)
    else:
        taints = (_ACCELERATOR_TAINTS[accelerator],) if accelerator else ()
    extras = tuple(taint.taint() for taint in spec.extra_taints)
    replaced = {(taint.key, taint.effect) for taint in extras}
    return (*(taint for taint in taints if (taint.key, taint.effect) not in replaced), *extras)


def ami_type(instance: InstanceType) -> str:
    """Returns the EKS AMI type for an instance type, e.g. ``AL2023_x86_64_NEURON``."""
    return instances.ami_type_for(instance).name


def release_version(ami: ReleaseAmi, instance: InstanceType, kubernetes_version: str) -> str:
    """Returns the AMI release of a pool. Raises ``SpecError`` when its Kubernetes minor version is not the cluster's."""
    release = ami.release_version or versions.ami_release(ami_type(instance), kubernetes_version)
    if not release.startswith(f"{kubernetes_version}."):
        raise SpecError(
            [
                Fault(
                    ("ami", "release_version"),
                    "the release is for another Kubernetes version than the cluster's",
                    given=release,
                    allowed=f"{kubernetes_version}.<patch>-<date>",
                    hint="change it together with the cluster's version, or omit it to use the catalog's pin",
                )
            ]
        )
    return release


def device_driver(spec: PoolSpec, instance: InstanceType, kubernetes_version: str) -> str | None:
    """Returns the driver of devices in the pool's AMI release; None without devices, with a custom image, or when unknown."""
    if not instance.accelerator or not isinstance(spec.ami, ReleaseAmi):
        return None
    driver = versions.neuron_driver if instance.neuron else versions.nvidia_driver
    try:
        return driver(spec.ami.release_version or versions.ami_release(ami_type(instance), kubernetes_version))
    except KeyError:
        return None


def karpenter_ami_alias(release: str) -> str:
    """Returns Karpenter's alias of an AMI release, e.g. ``al2023@v20260714``; Karpenter picks the accelerator's variant."""
    return f"al2023@v{release.rpartition('-')[2]}"


def user_data(spec: ManagedPoolSpec, *, pool: str, cluster: ClusterFacts | None = None) -> str | None:
    """Returns the user data of a managed group's nodes, or None when it would be empty.

    User data is a MIME document with a NodeConfig for nodeadm, after a script where the pool sets logical cores.

    For EKS images, EKS prepends its own part with the cluster's facts, labels and taints; later parts win, so the document
    contains only changes. For custom images (``cluster`` given), EKS adds nothing, so the document contains everything.
    Source: EKS user guide, "Customize managed nodes with launch templates"; awslabs/amazon-eks-ami, nodeadm/doc.
    """
    node: dict[str, Any] = {}
    config = spec.kubelet.settings()
    kubelet: dict[str, Any] = {"config": config} if config else {}
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
    if node_plan.has_local_disks(spec):
        # Puts containerd, pod logs and emptyDir volumes on the striped local disks.
        node["instance"] = {"localStorage": {"strategy": "RAID0"}}
    node |= node_plan.feature_gates(spec)
    parts = [("text/x-shellscript", _LOGICAL_CORES_SCRIPT.format(logical_cores=spec.logical_cores))] if spec.logical_cores else []
    if node:
        parts.append(("application/node.eks.aws", node_config(node)))
    return _mime(parts) if parts else None


def node_config(spec: Mapping[str, Any]) -> str:
    """Returns a NodeConfig of nodeadm as YAML."""
    document = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": dict(spec)}
    return yaml.safe_dump(document, sort_keys=False, width=1_000_000)


def _mime(parts: Sequence[tuple[str, str]]) -> str:
    """Joins parts of (media type, text). No line of block YAML or of our script begins with the boundary's dashes."""
    head = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{_MIME_BOUNDARY}"\n\n'
    body = "".join(f"--{_MIME_BOUNDARY}\nContent-Type: {media_type}\n\n{text}" for media_type, text in parts)
    return f"{head}{body}--{_MIME_BOUNDARY}--\n"


def pool_zones(spec: PoolSpec, available: Sequence[str], region: str) -> tuple[str, ...]:
    """Returns the zones a pool starts nodes in, in the network's order. Raises ``SpecError`` listing zones the network lacks.

    Another zone means another managed node group, and one with accelerators is deleted before its successor starts. Without
    ``zone_ids`` such a group has those of the network's first two zones that offer the instance family according to the catalog,
    or else the first zone that does, so that it stays when the network gets another zone. EFA does not cross zones, so a pool
    with EFA has one zone: the one in ``zone_ids``, or the network's first zone that offers the family.
    """
    missing = [zone for zone in spec.zone_ids if zone not in available]
    if missing:
        given, allowed = ", ".join(missing), ", ".join(dict.fromkeys(available))
        raise SpecError([Fault(("zone_ids",), "the network has no private subnet there", given, allowed)])
    found = tuple(dict.fromkeys(zone for zone in available if not spec.zone_ids or zone in spec.zone_ids))
    if not isinstance(spec, ManagedPoolSpec):
        return found
    instance = spec.instances()[0]
    known = zones.zone_ids(region, instance.name) if region in zones.regions() else ()
    offering = tuple(zone for zone in found if zone in known)
    if spec.efa:
        return offering[:1] or found[:1]
    if spec.zone_ids or not instance.accelerator:
        return found
    return tuple(zone for zone in offering if zone in found[:2]) or offering[:1] or found[:2]


def makes_placement_group(spec: ManagedPoolSpec) -> bool:
    """Returns whether the pool gets a new cluster placement group.

    A pool with a reservation does not: a reservation that was made outside the group has no capacity in it, and EC2 returns
    InsufficientInstanceCapacity (terraform-aws-eks#3730).
    """
    return spec.placement == "auto" and spec.efa is not None and not spec.reserved


def placement_of(
    pool: str,
    spec: PoolSpec,
    instance_type: str | None,
    kubernetes_version: str,
    zone_ids: Sequence[str] = (),
    ready: Sequence[Any] = (),
) -> Placement:
    """Returns the placement on one instance type of a pool. Raises like ``place``.

    ``zone_ids`` are the zones the pool starts nodes in, once the network is known; ``ready`` are the resources of the pool, if
    any exist. The placement has no EFA interfaces where the instance type does not offer those of the spec.
    """
    placement = place(
        pool,
        spec.instances(),
        instance_type,
        taints=pool_taints(spec),
        max_nodes=spec.max_nodes if isinstance(spec, ManagedPoolSpec) else spec.replicas,
        zone_ids=zone_ids or spec.zone_ids,
        ready=ready,
    )
    instance = placement.instance_type
    driver = device_driver(spec, instance, kubernetes_version)
    placement = replace(
        placement,
        devices=spec.devices,
        driver=driver,
        kubelet=spec.kubelet.settings(),
        disk_mib_s=node_plan.image_disk_mib_s(spec, instance),
    )
    if isinstance(spec, KarpenterPoolSpec):
        return replace(placement, spot="spot" in spec.capacity_types)
    if spec.logical_cores:
        instance = replace(instance, cores_per_device=instance.physical_cores_per_device // spec.logical_cores)
    try:
        efa_interfaces = efa_count(instance, spec.efa) if spec.efa else 0
    except SpecError:
        efa_interfaces = 0
    return replace(
        placement,
        instance_type=instance,
        efa_interfaces=efa_interfaces,
        logical_cores=spec.logical_cores,
        spot=spec.capacity_type == "spot",
        reserved=spec.reserved,
    )
