"""Plans Karpenter: controller permissions, interruption events, chart values, and the objects of a pool. Pure; no pulumi."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from eks_inference.aws import iam
from eks_inference.place.placement import (
    ARCHITECTURE_LABEL,
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    KARPENTER_POOL_LABEL,
    Placement,
)
from eks_inference.pools import node_plan, plan
from eks_inference.pools.node_spec import ReleaseAmi
from eks_inference.pools.spec import KarpenterPoolSpec, KarpenterSpec
from eks_inference.specs.late import Late
from eks_inference.specs.settings import StackSettings

NAMESPACE = "kube-system"  # Karpenter's install guide: the API server gives service accounts there a priority of their own
SERVICE_ACCOUNT = "karpenter"
CONTROLLER_IMAGE = "public.ecr.aws/karpenter/controller"

INTERRUPTION_EVENTS: Mapping[str, tuple[str, str]] = {
    "health": ("aws.health", "AWS Health Event"),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "reservation": ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
    "spot": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "state-change": ("aws.ec2", "EC2 Instance State-change Notification"),
}
"""EventBridge source and detail type by our rule name. A misspelt detail type never matches any event.

Source: the CloudFormation template in Karpenter's "Getting started", v1.12 to v1.14; older versions lack the reservation event.
"""

# -- permissions -----------------------------------------------------------------------------------------------------------------


def controller_policies(*, cluster: str, settings: StackSettings, queue_name: str) -> dict[str, iam.Document]:
    """Returns permissions of a controller of version 1.11 or newer, by concern; ``instance_profiles_policy`` has the others.

    Karpenter tags everything it creates with the cluster's name and may change only resources with that tag. ARNs have a wildcard
    for the account, because an identity policy reaches no other account. Source: Karpenter v1.14, "CloudFormation" reference,
    which also allows reading zonal shifts; they are off here.
    """
    queue = f"arn:{settings.partition}:sqs:{settings.region}:*:{queue_name}"
    policies = {
        "nodes": _nodes_policy(cluster, settings),
        "discovery": _discovery_policy(cluster, settings),
        "interruption": iam.document(
            iam.allow("ReadQueue", ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"], queue)
        ),
    }
    if settings.kms_key_arn:
        policies["volume-key"] = _volume_key_policy(settings, settings.kms_key_arn)
    return policies


def _tagged(kind: Literal["RequestTag", "ResourceTag"], tags: Mapping[str, str]) -> dict[str, str]:
    """Returns conditions on the tags of a request or of a resource."""
    return {f"aws:{kind}/{key}": value for key, value in tags.items()}


def _nodes_policy(cluster: str, settings: StackSettings) -> iam.Document:
    def ec2(*kinds: str, account: str = "*") -> list[str]:
        return [f"arn:{settings.partition}:ec2:{settings.region}:{account}:{kind}/*" for kind in kinds]

    launch = ["ec2:RunInstances", "ec2:CreateFleet"]
    made = ec2("fleet", "instance", "launch-template", "network-interface", "spot-instances-request", "volume")
    owned, in_pool = {f"kubernetes.io/cluster/{cluster}": "owned"}, {KARPENTER_POOL_LABEL: "*"}
    new = _tagged("RequestTag", {**owned, "eks:eks-cluster-name": cluster})
    new_in_pool = _tagged("RequestTag", in_pool)
    own = {"StringEquals": _tagged("ResourceTag", owned), "StringLike": _tagged("ResourceTag", in_pool)}
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


def instance_profiles_policy(*, cluster: str, settings: StackSettings, node_role_arn: str) -> iam.Document:
    """Returns permissions to create instance profiles with the nodes' role and no other."""
    profiles = f"arn:{settings.partition}:iam::*:instance-profile/*"
    owned = {f"kubernetes.io/cluster/{cluster}": "owned", "topology.kubernetes.io/region": settings.region}
    of_class = {"karpenter.k8s.aws/ec2nodeclass": "*"}
    new = {
        "StringEquals": _tagged("RequestTag", {**owned, "eks:eks-cluster-name": cluster}),
        "StringLike": _tagged("RequestTag", of_class),
    }
    own = {"StringEquals": _tagged("ResourceTag", owned), "StringLike": _tagged("ResourceTag", of_class)}
    return iam.document(
        iam.allow(
            "GiveNodesTheirRole",
            ["iam:PassRole"],
            node_role_arn,
            conditions={"StringEquals": {"iam:PassedToService": iam.ec2_service(settings.partition)}},
        ),
        iam.allow("MakeProfiles", ["iam:CreateInstanceProfile"], profiles, conditions=new),
        iam.allow(
            "TagOwnProfiles",
            ["iam:TagInstanceProfile"],
            profiles,
            conditions={operator: {**tags, **new[operator]} for operator, tags in own.items()},
        ),
        iam.allow(
            "UseOwnProfiles",
            ["iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"],
            profiles,
            conditions=own,
        ),
        iam.allow("ReadProfiles", ["iam:GetInstanceProfile"], profiles),
        # IAM supports no resource or condition for listing.
        iam.allow("ListProfiles", ["iam:ListInstanceProfiles"], "*"),
    )


def _discovery_policy(cluster: str, settings: StackSettings) -> iam.Document:
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
        # The price list has no resources and is available in three regions only.
        iam.allow("ReadPrices", ["pricing:GetProducts"], "*"),
        iam.allow("FindCluster", ["eks:DescribeCluster"], f"{arn}:eks:{settings.region}:*:cluster/{cluster}"),
    )


def _volume_key_policy(settings: StackSettings, key_arn: Late) -> iam.Document:
    """Launching an instance with a volume under a customer key requires that key (EBS user guide, "How EBS encryption works")."""
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
    """Returns the queue policy: these EventBridge rules may send events, and unencrypted access is denied."""
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
    *, cluster: str, queue_name: str, spec: KarpenterSpec, placement: Placement, settings: StackSettings, isolated: bool
) -> dict[str, Any]:
    """Returns our values of the karpenter chart; the user's values are merged over them."""
    wanted = {"nodeRepair": spec.node_repair, "staticCapacity": spec.static_capacity}
    gates = {gate: True for gate, on in wanted.items() if on}
    return {
        "replicas": spec.replicas,
        "serviceAccount": {"name": SERVICE_ACCOUNT},
        "settings": {
            "clusterName": cluster,
            "interruptionQueue": queue_name,
            **({"isolatedVPC": True} if isolated else {}),
            **({"featureGates": gates} if gates else {}),
        },
        "nodeSelector": {"kubernetes.io/os": "linux", **placement.node_selector},
        # The list replaces the chart's own, so its default toleration is repeated.
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
    identity: Mapping[str, Any],
    subnet_ids: Sequence[Any],
    security_group_id: Any,
) -> dict[str, Any]:
    """Returns the ``spec`` of the EC2NodeClass (``karpenter.k8s.aws/v1``). ``identity`` and the ids may be Outputs."""
    if isinstance(spec.ami, ReleaseAmi):
        image = {"alias": plan.karpenter_ami_alias(plan.release_version(spec.ami, spec.instances()[0], kubernetes_version))}
    else:
        image = {"id": spec.ami.id}
    volume = {
        "volumeSize": f"{node_plan.root_volume_gib(spec)}Gi",
        "volumeType": "gp3",
        **({"throughput": throughput} if (throughput := node_plan.paid_mib_s(spec)) else {}),
        **({"iops": iops} if (iops := node_plan.paid_iops(spec)) else {}),
        "encrypted": True,
        "deleteOnTermination": True,
        **({"kmsKeyID": settings.kms_key_arn} if settings.kms_key_arn else {}),
    }
    return {
        "amiFamily": "AL2023",
        "amiSelectorTerms": [image],
        **identity,
        "subnetSelectorTerms": [{"id": subnet_id} for subnet_id in subnet_ids],
        "securityGroupSelectorTerms": [{"id": security_group_id}],
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "rootVolume": True, "ebs": volume}],
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": spec.metadata_hop_limit,
        },
        "tags": {**settings.tags, "Name": name_tag},
        **({"instanceStorePolicy": "RAID0"} if node_plan.has_local_disks(spec) else {}),
        # Karpenter adds its own NodeConfig (NodeClasses, "AL2023").
        **({"userData": plan.node_config(gates)} if (gates := node_plan.feature_gates(spec)) else {}),
        **({"kubelet": kubelet} if (kubelet := spec.kubelet.settings()) else {}),
    }


# Kubernetes name by EC2 name.
_KUBERNETES_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}


def node_pool(spec: KarpenterPoolSpec, *, pool: str) -> dict[str, Any]:
    """Returns the ``spec`` of the NodePool (``karpenter.sh/v1``), which uses the EC2NodeClass of the same name."""
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
    taints = [taint.manifest() for taint in plan.pool_taints(spec)]
    node = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": pool},
        "requirements": [{"key": key, "operator": "In", "values": list(values)} for key, values in requirements],
        "expireAfter": spec.expire_after,
        **({"terminationGracePeriod": spec.termination_grace_period} if spec.termination_grace_period else {}),
        **({"taints": taints} if taints else {}),
    }
    limits = {"nodes": spec.node_limit}
    if spec.replicas is None:
        limits = {"cpu": spec.cpu_limit, "memory": spec.memory_limit, **limits}
        mode = {"disruption": {"consolidationPolicy": spec.consolidation_policy, "consolidateAfter": spec.consolidate_after}}
    else:
        mode = {"replicas": spec.replicas}
    given = {resource: str(limit) for resource, limit in limits.items() if limit is not None}
    return {
        "template": {"metadata": {"labels": plan.pool_labels(spec, pool)}, "spec": node},
        **mode,
        **({"limits": given} if given else {}),
        **({"weight": spec.weight} if spec.weight else {}),
    }
