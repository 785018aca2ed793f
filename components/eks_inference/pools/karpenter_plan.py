"""Pure parts of Karpenter: the controller's permissions, what interrupts nodes, its two kinds of object, its chart's values."""

from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.aws import iam
from eks_inference.placement import (
    ARCHITECTURE_LABEL,
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    KARPENTER_POOL_LABEL,
    Placement,
)
from eks_inference.pools import plan
from eks_inference.pools.ami_spec import ReleaseAmi
from eks_inference.pools.spec import KarpenterPoolSpec
from eks_inference.settings import StackSettings

NAMESPACE = "kube-system"  # Karpenter's install guide: the API server has a priority of its own for service accounts there
SERVICE_ACCOUNT = "karpenter"
CONTROLLER_IMAGE = "public.ecr.aws/karpenter/controller"

INTERRUPTION_EVENTS: Mapping[str, tuple[str, str]] = {
    "health": ("aws.health", "AWS Health Event"),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "reservation": ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
    "spot": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "state-change": ("aws.ec2", "EC2 Instance State-change Notification"),
}
"""EventBridge source and detail type by our name of the rule; a detail type off by one letter never matches.

Source: the CloudFormation template of Karpenter's "Getting started", v1.12 to v1.14; older ones lack the reservation event.
"""

# -- permissions -----------------------------------------------------------------------------------------------------------------


def controller_policies(
    *, cluster: str, settings: StackSettings, queue_name: str, account_id: str = "*"
) -> dict[str, iam.Document]:
    """Permissions of a controller of 1.11 or newer that are known before anything exists, one document a concern.

    ``instance_profiles_policy`` is the rest. What Karpenter makes it tags with the cluster's name, and it may only touch what has
    that tag. ``account_id`` may stay a wildcard: an identity policy reaches no other account. Source: Karpenter v1.14,
    "CloudFormation" reference, which also grants reading of zonal shifts; they are off here.
    """
    policies = {
        "nodes": _nodes_policy(cluster, settings),
        "discovery": _discovery_policy(cluster, settings, account_id),
        "interruption": _interruption_policy(settings, queue_name, account_id),
    }
    if settings.kms_key_arn:
        policies["volume-key"] = _volume_key_policy(settings, settings.kms_key_arn)
    return policies


def _owned(cluster: str, kind: str) -> dict[str, str]:
    """Condition keys and values that say: tagged as this cluster's own. ``kind`` is ``ResourceTag`` or ``RequestTag``."""
    return {f"aws:{kind}/kubernetes.io/cluster/{cluster}": "owned"}


def _nodes_policy(cluster: str, settings: StackSettings) -> iam.Document:
    def ec2(*kinds: str, account: str = "*") -> list[str]:
        return [f"arn:{settings.partition}:ec2:{settings.region}:{account}:{kind}/*" for kind in kinds]

    launch = ["ec2:RunInstances", "ec2:CreateFleet"]
    made = ec2("fleet", "instance", "launch-template", "network-interface", "spot-instances-request", "volume")
    new = {**_owned(cluster, "RequestTag"), "aws:RequestTag/eks:eks-cluster-name": cluster}
    new_in_pool = {f"aws:RequestTag/{KARPENTER_POOL_LABEL}": "*"}
    own = {
        "StringEquals": _owned(cluster, "ResourceTag"),
        "StringLike": {f"aws:ResourceTag/{KARPENTER_POOL_LABEL}": "*"},
    }
    return iam.document(
        iam.allow(
            "LaunchFromWhatExists",
            launch,
            ec2("image", "snapshot", account="") + ec2("capacity-reservation", "placement-group", "security-group", "subnet"),
        ),
        iam.allow("LaunchFromOwnTemplates", launch, ec2("launch-template"), conditions=own),
        iam.allow(
            "MakeTagged",
            [*launch, "ec2:CreateLaunchTemplate"],
            made,
            conditions={"StringEquals": new, "StringLike": new_in_pool},
        ),
        iam.allow(
            "TagWhileMaking",
            ["ec2:CreateTags"],
            made,
            conditions={
                "StringEquals": {**new, "ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]},
                "StringLike": new_in_pool,
            },
        ),
        iam.allow(
            "TagOwnInstances",
            ["ec2:CreateTags"],
            ec2("instance"),
            conditions={
                **own,
                "StringEqualsIfExists": {"aws:RequestTag/eks:eks-cluster-name": cluster},
                "ForAllValues:StringEquals": {"aws:TagKeys": ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"]},
            },
        ),
        iam.allow(
            "RemoveOwn",
            ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            ec2("instance", "launch-template"),
            conditions=own,
        ),
    )


def instance_profiles_policy(*, cluster: str, settings: StackSettings, node_role_arn: str, account_id: str = "*") -> iam.Document:
    """What lets the controller wrap the nodes' role, and no other, into instance profiles of its own."""
    profiles = f"arn:{settings.partition}:iam::{account_id}:instance-profile/*"

    def tagged(kind: str) -> dict[str, str]:
        return {**_owned(cluster, kind), f"aws:{kind}/topology.kubernetes.io/region": settings.region}

    def of_class(kind: str) -> dict[str, str]:
        return {f"aws:{kind}/karpenter.k8s.aws/ec2nodeclass": "*"}

    new = {**tagged("RequestTag"), "aws:RequestTag/eks:eks-cluster-name": cluster}
    own = {"StringEquals": tagged("ResourceTag"), "StringLike": of_class("ResourceTag")}
    return iam.document(
        iam.allow(
            "GiveNodesTheirRole",
            ["iam:PassRole"],
            node_role_arn,
            conditions={"StringEquals": {"iam:PassedToService": iam.ec2_service(settings.partition)}},
        ),
        iam.allow(
            "MakeProfiles",
            ["iam:CreateInstanceProfile"],
            profiles,
            conditions={"StringEquals": new, "StringLike": of_class("RequestTag")},
        ),
        iam.allow(
            "TagOwnProfiles",
            ["iam:TagInstanceProfile"],
            profiles,
            conditions={
                "StringEquals": {**own["StringEquals"], **new},
                "StringLike": {**own["StringLike"], **of_class("RequestTag")},
            },
        ),
        iam.allow(
            "UseOwnProfiles",
            ["iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"],
            profiles,
            conditions=own,
        ),
        iam.allow("ReadProfiles", ["iam:GetInstanceProfile"], profiles),
        # IAM knows no resource or condition for listing.
        iam.allow("ListProfiles", ["iam:ListInstanceProfiles"], "*"),
    )


def _discovery_policy(cluster: str, settings: StackSettings, account_id: str) -> iam.Document:
    described = (
        "CapacityReservations",
        "Images",
        "InstanceStatus",
        "InstanceTypeOfferings",
        "InstanceTypes",
        "Instances",
        "LaunchTemplates",
        "PlacementGroups",
        "SecurityGroups",
        "SpotPriceHistory",
        "Subnets",
    )
    arn = f"arn:{settings.partition}"
    return iam.document(
        iam.allow(
            "DescribeInRegion",
            [f"ec2:Describe{what}" for what in described],
            "*",
            conditions={"StringEquals": {"aws:RequestedRegion": settings.region}},
        ),
        iam.allow("FindImages", ["ssm:GetParameter"], f"{arn}:ssm:{settings.region}::parameter/aws/service/*"),
        # The price list has no resources; it answers in three regions only.
        iam.allow("ReadPrices", ["pricing:GetProducts"], "*"),
        iam.allow("FindCluster", ["eks:DescribeCluster"], f"{arn}:eks:{settings.region}:{account_id}:cluster/{cluster}"),
    )


def _interruption_policy(settings: StackSettings, queue_name: str, account_id: str) -> iam.Document:
    queue = f"arn:{settings.partition}:sqs:{settings.region}:{account_id}:{queue_name}"
    return iam.document(iam.allow("ReadQueue", ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"], queue))


def _volume_key_policy(settings: StackSettings, key_arn: str) -> iam.Document:
    """Who launches an instance with a volume under a customer key needs the key (EBS user guide, "How EBS encryption works")."""
    through_ec2 = {"kms:ViaService": f"ec2.{settings.region}.{iam.dns_suffix(settings.partition)}"}
    return iam.document(
        iam.allow(
            "UseVolumeKey",
            ["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"],
            key_arn,
            conditions={"StringEquals": through_ec2},
        ),
        iam.allow(
            "LendVolumeKey",
            ["kms:CreateGrant"],
            key_arn,
            conditions={"StringEquals": through_ec2, "Bool": {"kms:GrantIsForAWSResource": "true"}},
        ),
    )


def queue_policy(queue_arn: str, rule_arns: Sequence[str]) -> iam.Document:
    """Lets these rules of EventBridge put events into the interruption queue, and nobody speak to it unencrypted."""
    send = {
        "Sid": "EventsIn",
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": list(rule_arns)}},
    }
    plain_text = {
        "Sid": "EncryptedOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sqs:*",
        "Resource": queue_arn,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return iam.document(send, plain_text)


# -- the controller's chart ------------------------------------------------------------------------------------------------------


def chart_values(
    *, cluster: str, queue_name: str, replicas: int, placement: Placement, settings: StackSettings
) -> dict[str, Any]:
    """Values of the karpenter chart, before the user's own."""
    return {
        "replicas": replicas,
        "serviceAccount": {"name": SERVICE_ACCOUNT},
        "settings": {"clusterName": cluster, "interruptionQueue": queue_name},
        "nodeSelector": {"kubernetes.io/os": "linux", **placement.node_selector},
        # A list replaces the chart's, so its own toleration is repeated.
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}, *placement.tolerations()],
        "controller": {
            "image": {"repository": settings.image(CONTROLLER_IMAGE)},
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        },
    }


# -- objects of a pool -----------------------------------------------------------------------------------------------------------


def node_class(
    spec: KarpenterPoolSpec,
    *,
    settings: StackSettings,
    name_tag: str,
    kubernetes_version: str,
    role: Any,
    subnet_ids: Sequence[Any],
    security_group_id: Any,
) -> dict[str, Any]:
    """``spec`` of the EC2NodeClass (``karpenter.k8s.aws/v1``). ``role`` and the ids are only put in place, never looked at."""
    volume: dict[str, Any] = {
        "volumeSize": f"{plan.root_volume_gib(spec)}Gi",
        "volumeType": "gp3",
        "encrypted": True,
        "deleteOnTermination": True,
    }
    if settings.kms_key_arn:
        volume["kmsKeyID"] = settings.kms_key_arn
    found: dict[str, Any] = {
        "amiFamily": "AL2023",
        "amiSelectorTerms": [_ami_term(spec, kubernetes_version)],
        "role": role,
        "subnetSelectorTerms": [{"id": subnet_id} for subnet_id in subnet_ids],
        "securityGroupSelectorTerms": [{"id": security_group_id}],
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "rootVolume": True, "ebs": volume}],
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": spec.metadata_hop_limit,
        },
        "tags": {**settings.tags, "Name": name_tag},
    }
    if plan.has_local_disks(spec):
        found["instanceStorePolicy"] = "RAID0"
    if spec.kubelet:
        found["kubelet"] = dict(spec.kubelet)
    return found


def _ami_term(spec: KarpenterPoolSpec, kubernetes_version: str) -> dict[str, str]:
    if isinstance(spec.ami, ReleaseAmi):
        release = plan.release_version(spec.ami, spec.instances()[0], kubernetes_version)
        return {"alias": plan.karpenter_ami_alias(release)}
    return {"id": spec.ami.id}


# Kubernetes and EC2 name the same architectures differently.
_KUBERNETES_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}


def node_pool(spec: KarpenterPoolSpec, *, pool: str) -> dict[str, Any]:
    """``spec`` of the NodePool (``karpenter.sh/v1``), which uses the EC2NodeClass of the same name."""
    choice = (
        (INSTANCE_TYPE_LABEL, spec.instance_types)
        if spec.instance_types
        else ("karpenter.k8s.aws/instance-family", spec.instance_families)
    )
    architecture = _KUBERNETES_ARCHITECTURES[spec.instances()[0].architecture]
    requirements = (
        choice,
        (ARCHITECTURE_LABEL, (architecture,)),
        ("kubernetes.io/os", ("linux",)),
        (CAPACITY_TYPE_LABEL, tuple(capacity.replace("_", "-") for capacity in spec.capacity_types)),
    )
    node: dict[str, Any] = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": pool},
        "requirements": [{"key": key, "operator": "In", "values": list(values)} for key, values in requirements],
        "expireAfter": spec.expire_after,
    }
    taints = [taint.manifest() for taint in plan.pool_taints(spec)]
    if taints:
        node["taints"] = taints
    found: dict[str, Any] = {
        "template": {"metadata": {"labels": plan.pool_labels(spec, pool)}, "spec": node},
        "disruption": {"consolidationPolicy": spec.consolidation_policy, "consolidateAfter": spec.consolidate_after},
    }
    limits = {"cpu": spec.cpu_limit, "memory": spec.memory_limit}
    if any(limits.values()):
        found["limits"] = {resource: limit for resource, limit in limits.items() if limit}
    if spec.weight is not None:
        found["weight"] = spec.weight
    return found
