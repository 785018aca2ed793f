"""Plans AWS Load Balancer Controller: the values of its chart. Pure; no pulumi.

Sources: kubernetes-sigs/aws-load-balancer-controller v3.5.0, helm/aws-load-balancer-controller (values, templates).
"""

from typing import Any

from eks_inference.gateway.handle import SERVICE_ACCOUNT
from eks_inference.gateway.spec import LoadBalancerControllerSpec
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER
from eks_inference.placement import Placement
from eks_inference.settings import StackSettings

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
