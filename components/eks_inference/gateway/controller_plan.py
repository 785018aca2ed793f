"""Plans AWS Load Balancer Controller: its chart's values, its permissions, and Elastic Load Balancing's on a log bucket. Pure;
no pulumi.

Sources: kubernetes-sigs/aws-load-balancer-controller v3.5.0, helm/aws-load-balancer-controller (values, templates).
"""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from eks_inference.aws import iam
from eks_inference.gateway.handle import SERVICE_ACCOUNT
from eks_inference.gateway.spec import LoadBalancerControllerSpec
from eks_inference.kubernetes.workloads import RESTRICTED_CONTAINER
from eks_inference.place.placement import Placement
from eks_inference.specs.settings import StackSettings

RELEASE = "aws-load-balancer-controller"
INGRESS_CLASS = "alb"
WEBHOOK_PORT = 9443
IMAGE = "public.ecr.aws/eks/aws-load-balancer-controller"

_USER = 65534  # the group that the chart gives to the files of the pod


def chart_values(
    spec: LoadBalancerControllerSpec, *, cluster: str, vpc_id: Any, isolated: bool, placement: Placement, settings: StackSettings
) -> dict[str, Any]:
    """Returns our values of the chart; the user's values are merged over them. ``vpc_id`` may be unknown until deployed."""
    return {
        "clusterName": cluster,
        # Otherwise it asks the instance metadata service, which pods do not reach.
        "region": settings.region,
        "vpcId": vpc_id,
        "replicaCount": spec.replicas,
        "podDisruptionBudget": {"maxUnavailable": 1},
        "serviceAccount": {"name": SERVICE_ACCOUNT},
        "image": {"repository": settings.image(IMAGE), "pullPolicy": "IfNotPresent"},
        "ingressClass": INGRESS_CLASS,
        "defaultTargetType": "ip",
        # By default it takes every new Service of type LoadBalancer, and none can be made while it is away.
        "enableServiceMutatorWebhook": False,
        # Otherwise each update of the chart makes another certificate, which running pods do not have yet.
        "keepTLSSecret": True,
        # Classic WAF and Shield Advanced: the gateway has neither.
        "enableWaf": False,
        # It asks AWS WAF about every load balancer, and without an answer goes no further.
        "enableWafv2": not isolated,
        "enableShield": False,
        "defaultTags": dict(settings.tags),
        **placement.scheduling(),
        "podSecurityContext": {"fsGroup": _USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True, "runAsNonRoot": True},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    }


_CLUSTER_TAG = "elbv2.k8s.aws/cluster"
_NEW, _OWN = f"aws:RequestTag/{_CLUSTER_TAG}", f"aws:ResourceTag/{_CLUSTER_TAG}"

_OWN_TAGS = {"Null": {_NEW: "true", _OWN: "false"}}
"""The cluster's tag itself stays."""

_ACTIONS: Mapping[str, Any] = tomllib.loads(files("eks_inference.gateway").joinpath("controller_actions.toml").read_text("utf-8"))


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
        iam.allow("Read", [*_ACTIONS["read_ec2"], *_ACTIONS["read_elb"]], "*"),
        iam.allow("UseOtherServices", _ACTIONS["beside"], "*"),
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
        iam.allow("ChangeOwn", _ACTIONS["change_own"], "*", conditions={"Null": {_OWN: "false"}}),
        iam.allow("TagWhileMaking", _elb("AddTags"), tagged, conditions=while_made),
        iam.allow("Register", _elb("RegisterTargets", "DeregisterTargets"), arns("targetgroup/*/*")),
        iam.allow("ChangeListeners", _ACTIONS["change_listeners"], "*"),
    )


def log_bucket_policy(bucket_arn: str, account: str) -> iam.Document:
    """Returns the policy of an access-log bucket: the account's load balancers may write, and every request needs TLS.

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
