"""Plans a cluster as data: kubeconfig, access entries, IAM documents, add-ons, storage class. Pure; no pulumi."""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any, get_args

from eks_inference.aws import iam
from eks_inference.catalog import versions, zones
from eks_inference.cluster.spec import ClusterAddonsSpec, ClusterSpec, NodeAddon, NodelessAddon
from eks_inference.faults import Fault, SpecError
from eks_inference.kubernetes.merge import beside
from eks_inference.kubernetes.network_policy import PRIVATE_RANGES
from eks_inference.specs.late import Late

EBS_CSI_NAMESPACE = "kube-system"
EBS_CSI_SERVICE_ACCOUNT = "ebs-csi-controller-sa"
STORAGE_CLASS = "gp3"
"""The default storage class."""


# -- kubeconfig -----------------------------------------------------------------------------------------------------------------


def kubeconfig(name: str, endpoint: str, certificate_authority: str, region: str, profile: str | None = None) -> str:
    """Returns a kubeconfig as JSON, which is also YAML, without a credential: the ``aws`` command fetches a token at each use.

    ``certificate_authority`` is base64 PEM, as the EKS API returns it. The profile is an argument, not ``AWS_PROFILE``, because
    keys in the environment take precedence over that variable (AWS CLI user guide, "Configuration and credential precedence").
    """
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"]
    arguments += ["--profile", profile] if profile else []
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
    """Returns the shell command that gives a person the same access."""
    words = ["aws", "eks", "update-kubeconfig", "--region", region, "--name", name, "--alias", name]
    return shlex.join(words + (["--profile", profile] if profile else []))


# -- network --------------------------------------------------------------------------------------------------------------------


def api_cidrs(service_cidr: str, subnets: Sequence[str | None]) -> tuple[str, ...]:
    """Returns where the API server has addresses: that of its Service, and some in the ``subnets`` of the control plane.

    EKS makes its interfaces there and nowhere else, and with each update others at other addresses (EKS user guide, "Subnet
    requirements and considerations"). A subnet without a known range may be anywhere.
    """
    known = [cidr for cidr in subnets if cidr]
    return (f"{IPv4Network(service_cidr)[1]}/32", *known) if len(known) == len(subnets) else PRIVATE_RANGES


def control_plane_zones(zone_ids: Sequence[str]) -> tuple[str, ...]:
    """Returns the zones of the control plane: the first two that accept one; some zones accept only nodes.

    Two are enough, and EKS never changes the set of zones that a control plane was made with (aws/containers-roadmap#2258): with
    all zones of the network, none could be added later.

    Raises ``SpecError`` when fewer than two remain (EKS user guide, "Subnet requirements for clusters").
    """
    usable = tuple(zone for zone in dict.fromkeys(zone_ids) if zone not in zones.refused_by_control_plane())
    if len(usable) < 2:
        fault = Fault(
            (),
            "an EKS control plane needs private subnets in at least two zones",
            given=", ".join(zone_ids) or "none",
            hint=f"EKS accepts no control-plane subnets in {', '.join(sorted(zones.refused_by_control_plane()))}",
        )
        raise SpecError([fault])
    return usable[:2]


# -- access ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AccessEntry:
    """A principal and its permissions in the whole cluster. ``key`` names the resource and depends only on the ARN.

    The place in its list stands for an ARN that only a deployment knows.
    """

    key: str
    principal_arn: Late
    policy: str
    """Name of an EKS access policy (EKS user guide, "Review access policy permissions")."""

    def policy_arn(self, partition: str) -> str:
        return f"arn:{partition}:eks::aws:cluster-access-policy/{self.policy}"


def access_entries(spec: ClusterSpec) -> tuple[AccessEntry, ...]:
    """Returns entries for people and CI. EKS creates those of node groups, and the ``Karpenter`` component that of its nodes."""
    return tuple(
        AccessEntry(_entry_key(arn) if isinstance(arn, str) else f"{who}-{place}", arn, policy)
        for who, policy, principals in (
            ("admin", "AmazonEKSClusterAdminPolicy", spec.admins),
            ("viewer", "AmazonEKSViewPolicy", spec.viewers),
        )
        for place, arn in enumerate(principals)
    )


def _entry_key(arn: str) -> str:
    """The last word is for readers; the digest distinguishes equal names with different paths and accounts."""
    return f"{arn.rpartition('/')[2]}-{hashlib.sha256(arn.encode()).hexdigest()[:6]}"


# -- IAM ------------------------------------------------------------------------------------------------------------------------


EBS_CSI_POLICY = "AmazonEBSCSIDriverPolicyV2"
"""AWS managed policy for volumes and snapshots that the driver itself created, and no others. Unlike the first version, this one
(April 2026) is not under ``service-role/`` (AWS managed policy reference; kubernetes-sigs/aws-ebs-csi-driver#2918)."""


def ebs_csi_key_policy(kms_key_arn: Late) -> iam.Document:
    """Returns the EBS CSI driver's permissions on the key of encrypted volumes, which the AWS managed policy lacks.

    The key policy must allow the use of IAM policies (EKS user guide, "Use Kubernetes volume storage with Amazon EBS").
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
    """An EKS add-on at one version. An empty ``configuration`` means the defaults of EKS."""

    name: str
    version: str
    configuration: Mapping[str, Any]


_VPC_CNI: Mapping[str, Any] = {
    # The schema of the add-on requires text here (EKS user guide, "Configure your cluster for Kubernetes network policies").
    "enableNetworkPolicy": "true",
    "env": {
        # A node reserves prefixes of 16 addresses instead of a whole spare interface: 32 addresses on a new node, where a
        # 48xlarge would reserve about 100, and new pods wait for no EC2 call.
        "ENABLE_PREFIX_DELEGATION": "true",
        "WARM_PREFIX_TARGET": "1",
    },
}

# How addresses are kept ready concerns nothing else.
_FREE_CONFIGURATION = tuple(f"env.{variable}" for variable in _VPC_CNI["env"])


def addons_before_pools(spec: ClusterSpec) -> dict[str, Addon]:
    """Returns the add-ons that nodes need to become ready: pod network, service network, Pod Identity."""
    return _addons(get_args(NodelessAddon), spec, spec.version, {"vpc-cni": _VPC_CNI})


def addons_after_pools(spec: ClusterAddonsSpec, kubernetes_version: str, tags: Mapping[str, Late]) -> dict[str, Addon]:
    """Returns the add-ons that need nodes for their pods. The CSI driver tags every volume and snapshot with ``tags``."""
    # Configured on the driver, not as tagSpecification of the storage class: class parameters are immutable, and a chart may
    # bring its own storage class.
    ebs_csi = {"controller": {"extraVolumeTags": dict(tags)}} if tags else {}
    return _addons(get_args(NodeAddon), spec, kubernetes_version, {"aws-ebs-csi-driver": ebs_csi})


def _addons(
    names: Sequence[Any], spec: ClusterSpec | ClusterAddonsSpec, kubernetes_version: str, ours: Mapping[str, Mapping[str, Any]]
) -> dict[str, Addon]:
    return {
        name: Addon(
            name=name,
            version=spec.addon_versions.get(name) or versions.addon(name, kubernetes_version),
            configuration=beside(
                ours.get(name, {}),
                spec.addon_configuration.get(name, {}),
                key=("addon_configuration", name),
                free=_FREE_CONFIGURATION,
            ),
        )
        for name in names
    }


# -- Pod Identity --------------------------------------------------------------------------------------------------------------

CREDENTIALS_VARIABLE = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
"""The variable by which the SDKs of AWS find the credentials of a pod (EKS user guide, "How EKS Pod Identity works")."""


def credentials_guard(namespace: str, service_account: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the policy and the binding that refuse pods of a service account to which EKS has given no credentials.

    Deployments, StatefulSets, DaemonSets, Jobs and the operators of custom kinds create a refused pod again, with growing
    pauses, as with an exhausted quota. Validating policies see pods as EKS's webhook has left them.
    """
    name = f"pod-identity.{namespace}.{service_account}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "Namespaced"}
    given = f"object.spec.containers.exists(c, has(c.env) && c.env.exists(e, e.name == '{CREDENTIALS_VARIABLE}'))"
    message = (
        "EKS Pod Identity has given this pod no credentials: the association of its service account is not effective yet, or is "
        "gone. The controller of the pod tries again"
    )
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [rule],
            },
            "matchConditions": [
                {"name": "service-account", "expression": f"object.spec.serviceAccountName == '{service_account}'"}
            ],
            "validations": [{"expression": given, "message": message, "reason": "Forbidden"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return policy, binding


# -- storage --------------------------------------------------------------------------------------------------------------------


def storage_class(kms_key_arn: Late | None = None) -> dict[str, Any]:
    """Returns the default StorageClass: encrypted gp3 volumes, created in the zone of the first pod that uses them."""
    parameters = {
        "type": "gp3",
        "encrypted": "true",
        # Volumes have no lost+found directory, so images that require an empty data directory start.
        "csi.storage.k8s.io/fstype": "xfs",
        **({"kmsKeyId": kms_key_arn} if kms_key_arn else {}),
    }
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "ebs.csi.aws.com",
        "parameters": parameters,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
        "reclaimPolicy": "Delete",
    }
