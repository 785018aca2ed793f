"""The permissions of AWS Load Balancer Controller, and those of Elastic Load Balancing on a bucket of logs. Pure; no pulumi.

Source: kubernetes-sigs/aws-load-balancer-controller v3.5.0, docs/install/iam_policy.json and its forms for other partitions.
"""

from eks_inference.aws import iam
from eks_inference.settings import StackSettings

_CLUSTER_TAG = "elbv2.k8s.aws/cluster"
_NEW, _OWN = f"aws:RequestTag/{_CLUSTER_TAG}", f"aws:ResourceTag/{_CLUSTER_TAG}"

_OWN_TAGS = {"Null": {_NEW: "true", _OWN: "false"}}
"""The cluster's tag itself stays."""

_READ_EC2 = (
    "DescribeAccountAttributes",
    "DescribeAddresses",
    "DescribeAvailabilityZones",
    "DescribeCoipPools",
    "DescribeInstances",
    "DescribeInternetGateways",
    "DescribeIpamPools",
    "DescribeNetworkInterfaces",
    "DescribeRouteTables",
    "DescribeSecurityGroups",
    "DescribeSubnets",
    "DescribeTags",
    "DescribeVpcPeeringConnections",
    "DescribeVpcs",
    "GetCoipPoolUsage",
    "GetSecurityGroupsForVpc",
)
_READ_ELB = (
    "CapacityReservation",
    "ListenerAttributes",
    "ListenerCertificates",
    "Listeners",
    "LoadBalancerAttributes",
    "LoadBalancers",
    "Rules",
    "SSLPolicies",
    "Tags",
    "TargetGroupAttributes",
    "TargetGroups",
    "TargetHealth",
    "TrustStores",
)
_BESIDE = (
    "acm:DescribeCertificate",
    "acm:ListCertificates",
    "cognito-idp:DescribeUserPoolClient",
    "iam:GetServerCertificate",
    "iam:ListServerCertificates",
    "shield:CreateProtection",
    "shield:DeleteProtection",
    "shield:DescribeProtection",
    "shield:GetSubscriptionState",
    *(
        f"{waf}:{action}"
        for waf in ("waf-regional", "wafv2")
        for action in ("AssociateWebACL", "DisassociateWebACL", "GetWebACL", "GetWebACLForResource")
    ),
)
_CHANGE_OWN = (
    "DeleteLoadBalancer",
    "DeleteTargetGroup",
    "ModifyCapacityReservation",
    "ModifyIpPools",
    "ModifyListenerAttributes",
    "ModifyLoadBalancerAttributes",
    "ModifyTargetGroup",
    "ModifyTargetGroupAttributes",
    "SetIpAddressType",
    "SetSecurityGroups",
    "SetSubnets",
)
_CHANGE_LISTENERS = (
    "AddListenerCertificates",
    "ModifyListener",
    "ModifyRule",
    "RemoveListenerCertificates",
    "SetRulePriorities",
    "SetWebAcl",
)


def controller_policies(settings: StackSettings) -> dict[str, iam.Document]:
    """Returns the permissions of the controller by concern.

    It tags everything it creates with its cluster, and deletes and changes only what has such a tag; listeners and their rules,
    whose load balancer has one, are the exception.
    """
    return {"discovery": _discovery(), "groups": _security_groups(settings), "balancing": _balancing(settings)}


def _elb(*actions: str) -> list[str]:
    return [f"elasticloadbalancing:{action}" for action in actions]


def _discovery() -> iam.Document:
    service = {"StringEquals": {"iam:AWSServiceName": "elasticloadbalancing.amazonaws.com"}}
    return iam.document(
        iam.allow("MakeServiceLinkedRole", ["iam:CreateServiceLinkedRole"], "*", conditions=service),
        iam.allow("Read", [*(f"ec2:{one}" for one in _READ_EC2), *_elb(*(f"Describe{one}" for one in _READ_ELB))], "*"),
        iam.allow("UseOtherServices", _BESIDE, "*"),
    )


def _security_groups(settings: StackSettings) -> iam.Document:
    groups = f"arn:{settings.partition}:ec2:*:*:security-group/*"
    rules = ["ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress"]
    new = {"StringEquals": {"ec2:CreateAction": "CreateSecurityGroup"}, "Null": {_NEW: "false"}}
    return iam.document(
        iam.allow("OpenGroups", rules, "*"),
        iam.allow("MakeGroups", ["ec2:CreateSecurityGroup"], "*"),
        iam.allow("TagNewGroups", ["ec2:CreateTags"], groups, conditions=new),
        iam.allow("TagOwnGroups", ["ec2:CreateTags", "ec2:DeleteTags"], groups, conditions=_OWN_TAGS),
        iam.allow("ChangeOwnGroups", [*rules, "ec2:DeleteSecurityGroup"], "*", conditions={"Null": {_OWN: "false"}}),
    )


def _balancing(settings: StackSettings) -> iam.Document:
    def arns(*kinds: str) -> list[str]:
        return [f"arn:{settings.partition}:elasticloadbalancing:*:*:{kind}" for kind in kinds]

    tagged = arns("targetgroup/*/*", "loadbalancer/net/*/*", "loadbalancer/app/*/*")
    inside = arns("listener/net/*/*/*", "listener/app/*/*/*", "listener-rule/net/*/*/*", "listener-rule/app/*/*/*")
    made = _elb("CreateTargetGroup", "CreateLoadBalancer")
    while_made = {
        "StringEquals": {"elasticloadbalancing:CreateAction": ["CreateTargetGroup", "CreateLoadBalancer"]},
        "Null": {_NEW: "false"},
    }
    tags = _elb("AddTags", "RemoveTags")
    return iam.document(
        iam.allow("MakeTagged", made, "*", conditions={"Null": {_NEW: "false"}}),
        iam.allow("Listen", _elb("CreateListener", "DeleteListener", "CreateRule", "DeleteRule"), "*"),
        iam.allow("TagOwn", tags, tagged, conditions=_OWN_TAGS),
        iam.allow("TagListeners", tags, inside),
        iam.allow("ChangeOwn", _elb(*_CHANGE_OWN), "*", conditions={"Null": {_OWN: "false"}}),
        iam.allow("TagWhileMaking", _elb("AddTags"), tagged, conditions=while_made),
        iam.allow("Register", _elb("RegisterTargets", "DeregisterTargets"), arns("targetgroup/*/*")),
        iam.allow("ChangeListeners", _elb(*_CHANGE_LISTENERS), "*"),
    )


def log_bucket_policy(bucket_arn: str, account: str) -> iam.Document:
    """Returns the policy of a bucket of access logs: load balancers of the account may write, and nobody without TLS.

    AWS's example has no condition on the writer, and a log that is refused is lost without a word: the account in the path keeps
    others out. Source: Elastic Load Balancing user guide, "Enable access logs for your Application Load Balancer".
    """
    write = {
        "Sid": "Logs",
        "Effect": "Allow",
        "Principal": {"Service": "logdelivery.elasticloadbalancing.amazonaws.com"},
        "Action": "s3:PutObject",
        "Resource": f"{bucket_arn}/AWSLogs/{account}/*",
    }
    return iam.document(write, *iam.tls_only(bucket_arn)["Statement"])
