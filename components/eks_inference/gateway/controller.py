"""Creates AWS Load Balancer Controller with its AWS permissions."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.aws import iam
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import chart_release, in_namespace, namespace_object, on_cluster
from eks_inference.cluster.pod_identity import pod_identity
from eks_inference.component import Component
from eks_inference.gateway import controller_plan as plan
from eks_inference.gateway.controller_plan import controller_policies
from eks_inference.gateway.handle import SERVICE_ACCOUNT
from eks_inference.gateway.spec import LoadBalancerControllerSpec
from eks_inference.kubernetes.merge import beside
from eks_inference.kubernetes.network_policy import DNS, HTTPS, POD_IDENTITY, allow_from, network_policy
from eks_inference.network.handle import Network
from eks_inference.place.placement import Placement
from eks_inference.specs.base import Given


class LoadBalancerController(Component):
    """AWS Load Balancer Controller, which makes load balancers of Ingresses, on the nodes of ``placement`` (the core pool).

    Creates a namespace with Pod Security "restricted", a NetworkPolicy (in: the webhooks; out: DNS, credentials and AWS), the
    role of the controller with the permissions that its project publishes, and one Helm release with two pods, a disruption
    budget and the ingress class ``alb``. ``network`` is the VPC of the cluster.

    The controller ends a load balancer, its target groups and its rules when the last of their Ingresses goes, and only then lets
    the Ingress go: whatever makes an Ingress depends on ``ready``, so that the controller outlives it. Helm neither updates nor
    deletes the chart's CustomResourceDefinitions.

    Of Services of type LoadBalancer it takes only those that name its class. The controller also reads Gateway API where its
    definitions are installed; nothing here installs them.

    Sources: kubernetes-sigs/aws-load-balancer-controller v3.5.0 (chart, docs/install/iam_policy.json).
    """

    ingress_class = plan.INGRESS_CLASS
    service_account = SERVICE_ACCOUNT

    def __init__(
        self,
        name: str,
        spec: Given[LoadBalancerControllerSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        network: Network,
        placement: Placement,
    ) -> None:
        spec = LoadBalancerControllerSpec.of(spec)
        super().__init__("eks-inference:index:LoadBalancerController", name, spec.inputs(), opts)
        settings = cluster.settings
        own_namespace = namespace_object(f"{name}-namespace", spec.namespace, "restricted", cluster=cluster, parent=self)
        policy = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy",
            **network_policy(
                plan.RELEASE,
                spec.namespace,
                selector={},
                ingress=[allow_from(tcp=[plan.WEBHOOK_PORT])],
                egress=[DNS, POD_IDENTITY, HTTPS],
            ),
            opts=in_namespace(cluster, self, own_namespace),
        )
        identity = pod_identity(
            name,
            cluster=cluster,
            namespace=spec.namespace,
            service_account=SERVICE_ACCOUNT,
            description=f"AWS Load Balancer Controller of the EKS cluster {cluster.name}",
            parent=self,
            policies={concern: iam.policy_json(document) for concern, document in controller_policies(settings).items()},
        )
        values = plan.chart_values(
            spec, cluster=cluster.name, vpc_id=network.vpc_id, isolated=network.isolated, placement=placement, settings=settings
        )
        release = chart_release(
            f"{name}-release",
            plan.RELEASE,
            namespace=spec.namespace,
            values=beside(values, spec.values, chart=plan.RELEASE),
            cluster=cluster,
            opts=on_cluster(cluster, self, policy, *identity, *cluster.pods_ready, *placement.ready),
        )
        self.namespace: str = spec.namespace
        self.ready: Sequence[pulumi.Resource] = (release,)
        self.register_outputs({"namespace": spec.namespace, "ingressClass": self.ingress_class})
