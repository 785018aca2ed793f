"""What can be worked out about a cluster without one: kubeconfig, access entries, IAM documents, add-ons, storage class."""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from eks_inference.aws import iam
from eks_inference.catalog import versions, zones
from eks_inference.cluster.spec import ClusterAddonsSpec, ClusterSpec, NodeAddon, NodelessAddon
from eks_inference.faults import Fault, SpecError
from eks_inference.merge import merged

EBS_CSI_NAMESPACE = "kube-system"
EBS_CSI_SERVICE_ACCOUNT = "ebs-csi-controller-sa"
STORAGE_CLASS = "gp3"
"""The default storage class."""


# -- kubeconfig -----------------------------------------------------------------------------------------------------------------


def kubeconfig(name: str, endpoint: str, certificate_authority: str, region: str, profile: str | None = None) -> str:
    """A kubeconfig as JSON text, which is YAML too. It holds no credential: the ``aws`` command fetches a token at each use.

    ``certificate_authority`` is base64 PEM, as the EKS API gives it. The profile is an argument, not ``AWS_PROFILE``: keys in the
    environment win over that variable (AWS CLI user guide, "Configuration and credential precedence").
    """
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"]
    if profile:
        arguments += ["--profile", profile]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": endpoint, "certificate-authority-data": certificate_authority}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
        "users": [
            {
                "name": name,
                "user": {
                    "exec": {
                        "apiVersion": "client.authentication.k8s.io/v1beta1",
                        "command": "aws",
                        "args": arguments,
                        "interactiveMode": "IfAvailable",
                    }
                },
            }
        ],
    }
    return json.dumps(document, indent=2)


def kubeconfig_command(name: str, region: str, profile: str | None = None) -> str:
    """The line a person types to get the same access."""
    words = ["aws", "eks", "update-kubeconfig", "--region", region, "--name", name, "--alias", name]
    return shlex.join(words + (["--profile", profile] if profile else []))


# -- network --------------------------------------------------------------------------------------------------------------------


def control_plane_zones(zone_ids: Sequence[str]) -> tuple[str, ...]:
    """The zones among these that the control plane may use: some take nodes but no control plane.

    Raises ``SpecError`` when fewer than two are left (EKS user guide, "Subnet requirements for clusters").
    """
    usable = tuple(zone for zone in dict.fromkeys(zone_ids) if zone not in zones.refused_by_control_plane())
    if len(usable) < 2:
        fault = Fault(
            (),
            "an EKS control plane needs private subnets in two zones or more",
            given=", ".join(zone_ids) or "none",
            hint=f"EKS takes no control-plane subnets in {', '.join(sorted(zones.refused_by_control_plane()))}",
        )
        raise SpecError([fault])
    return usable


# -- access ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AccessEntry:
    """One principal and what it may do in the whole cluster. ``key`` names the resource: the same for the same ARN, wherever it
    stands in a list."""

    key: str
    principal_arn: str
    policy: str
    """Name of the EKS access policy (EKS user guide, "Review access policy permissions")."""

    def policy_arn(self, partition: str) -> str:
        return f"arn:{partition}:eks::aws:cluster-access-policy/{self.policy}"


def access_entries(spec: ClusterSpec) -> tuple[AccessEntry, ...]:
    """Entries of people and CI. Nodes are not among them: EKS makes theirs with a managed node group, Karpenter its own."""
    admins = (AccessEntry(_principal_key(arn), arn, "AmazonEKSClusterAdminPolicy") for arn in spec.admins)
    viewers = (AccessEntry(_principal_key(arn), arn, "AmazonEKSViewPolicy") for arn in spec.viewers)
    return (*admins, *viewers)


def _principal_key(arn: str) -> str:
    # The last word is for readers; the digest keeps apart equal names of different paths and accounts.
    return f"{arn.rpartition('/')[2]}-{hashlib.sha256(arn.encode()).hexdigest()[:6]}"


# -- IAM ------------------------------------------------------------------------------------------------------------------------


def service_trust_policy() -> iam.Document:
    """Who may assume the control plane's role (EKS user guide, "Amazon EKS cluster IAM role"); one name in every partition."""
    return iam.document(
        {
            "Sid": "ControlPlane",
            "Effect": "Allow",
            "Principal": {"Service": "eks.amazonaws.com"},
            "Action": ["sts:AssumeRole", "sts:TagSession"],
        }
    )


def ebs_csi_policy_arn(partition: str) -> str:
    """The AWS policy of the EBS CSI driver: volumes and snapshots that the driver itself made, no others.

    The second version (April 2026) is not under ``service-role/`` as the first was (AWS managed policy reference,
    AmazonEBSCSIDriverPolicyV2; kubernetes-sigs/aws-ebs-csi-driver#2918).
    """
    return iam.managed_policy_arn("AmazonEBSCSIDriverPolicyV2", partition)


def ebs_csi_key_policy(kms_key_arn: str) -> iam.Document:
    """What the EBS CSI driver may do with the key of encrypted volumes; the AWS policy says nothing of keys.

    The key's own policy must let the account's IAM policies count (EKS user guide, "Use Kubernetes volume storage with Amazon
    EBS").
    """
    use = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
    for_aws = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    return iam.document(
        iam.allow("GrantKeyToVolumes", ["kms:CreateGrant", "kms:ListGrants", "kms:RevokeGrant"], kms_key_arn, conditions=for_aws),
        iam.allow("UseKey", use, kms_key_arn),
    )


# -- add-ons --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Addon:
    """One EKS add-on at one version; ``configuration`` is empty for EKS's own defaults."""

    name: str
    version: str
    configuration: Mapping[str, Any]

    @property
    def configuration_values(self) -> str | None:
        """The text EKS takes, the same for the same content."""
        return json.dumps(self.configuration, sort_keys=True) if self.configuration else None


def addons_before_pools(spec: ClusterSpec) -> dict[NodelessAddon, Addon]:
    """What nodes need to become ready: pod network, service network, pod identity."""
    names: tuple[NodelessAddon, ...] = get_args(NodelessAddon)
    ours = {"vpc-cni": _vpc_cni()}
    return {
        name: Addon(
            name=name,
            version=spec.addon_versions.get(name) or versions.addon(name, spec.version),
            configuration=merged(ours.get(name, {}), spec.addon_configuration.get(name, {})),
        )
        for name in names
    }


def addons_after_pools(spec: ClusterAddonsSpec, kubernetes_version: str, tags: Mapping[str, str]) -> dict[NodeAddon, Addon]:
    """What has pods of its own and therefore needs nodes first. ``tags`` reach every volume and snapshot the CSI driver makes."""
    names: tuple[NodeAddon, ...] = get_args(NodeAddon)
    ours = {"aws-ebs-csi-driver": _ebs_csi(tags)}
    return {
        name: Addon(
            name=name,
            version=spec.addon_versions.get(name) or versions.addon(name, kubernetes_version),
            configuration=merged(ours.get(name, {}), spec.addon_configuration.get(name, {})),
        )
        for name in names
    }


def _vpc_cni() -> dict[str, Any]:
    return {
        # The add-on's schema wants a text here (EKS user guide, "Configure your cluster for Kubernetes network policies").
        "enableNetworkPolicy": "true",
        "env": {
            # A node holds prefixes of 16 addresses instead of a whole spare interface: 32 addresses on a fresh node where a
            # 48xlarge would take about 100, and new pods wait for no EC2 call.
            "ENABLE_PREFIX_DELEGATION": "true",
            "WARM_PREFIX_TARGET": "1",
        },
    }


def _ebs_csi(tags: Mapping[str, str]) -> dict[str, Any]:
    # On the driver, not as tagSpecification of the storage class: class parameters cannot be changed, and a chart may bring a
    # storage class of its own.
    return {"controller": {"extraVolumeTags": dict(tags)}} if tags else {}


# -- storage --------------------------------------------------------------------------------------------------------------------


def storage_class(kms_key_arn: str | None = None) -> dict[str, Any]:
    """The default storage class: encrypted gp3 volumes, made in the zone of the pod that first wants them."""
    parameters = {
        "type": "gp3",
        "encrypted": "true",
        # No lost+found directory at the root of a volume: images that insist on an empty data directory start.
        "csi.storage.k8s.io/fstype": "xfs",
    }
    if kms_key_arn:
        parameters["kmsKeyId"] = kms_key_arn
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "ebs.csi.aws.com",
        "parameters": parameters,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
        "reclaimPolicy": "Delete",
    }
