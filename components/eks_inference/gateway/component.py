"""Creates what leads endpoints and the web UI out: one address with HTTPS, with a bucket for its access logs, or routes of a
Gateway (Gateway API) that the cluster has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from eks_inference.aws import iam, naming
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import Component, carried, rendered
from eks_inference.faults import Fault, SpecError
from eks_inference.gateway import plan
from eks_inference.gateway.controller_plan import log_bucket_policy
from eks_inference.gateway.handle import Fronted, LoadBalancers
from eks_inference.gateway.hosts import host_records, validated_certificate
from eks_inference.gateway.plan import Route, entrance, hosts, name_faults, routes, target_faults
from eks_inference.gateway.spec import AccessLogsSpec, GatewayApiSpec, GatewaySpec
from eks_inference.kubernetes.network_policy import Peer, addresses
from eks_inference.kubernetes.secrets import SecretRef
from eks_inference.kubernetes.workloads import permission
from eks_inference.network.handle import Network, Subnet
from eks_inference.serving.component import Secret
from eks_inference.specs.base import Given
from eks_inference.specs.settings import StackSettings

_BUCKET_NAME = 63
"""Longest name of a bucket."""

_BALANCER_SECONDS = 600
"""An application load balancer takes minutes, and the controller tries again where it had no permission yet."""

_MIN_ZONES = 2
"""Elastic Load Balancing user guide, "Subnets for your load balancer"."""


def log_bucket(
    name: str, spec: AccessLogsSpec, *, account: pulumi.Output[str], settings: StackSettings, parent: pulumi.Resource
) -> tuple[pulumi.Output[str], list[pulumi.Resource]]:
    """Creates a private bucket for access logs. Returns its name, and what must exist before the first log.

    S3's own keys encrypt it: Elastic Load Balancing can write to no bucket with a KMS key.
    """
    kept = settings.retain or None
    bucket = aws.s3.Bucket(
        naming.within(_BUCKET_NAME, name),
        force_destroy=not (settings.protect or settings.retain),
        tags={**settings.tags, "Name": name},
        opts=pulumi.ResourceOptions(parent=parent, protect=settings.protect or None, retain_on_delete=kept),
    )
    options = pulumi.ResourceOptions(parent=parent, retain_on_delete=kept)
    private = aws.s3.BucketPublicAccessBlock(
        f"{name}-private",
        bucket=bucket.bucket,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=options,
    )
    policy = aws.s3.BucketPolicy(
        f"{name}-delivery",
        bucket=bucket.bucket,
        policy=pulumi.Output.all(bucket.arn, account).apply(lambda known: iam.policy_json(log_bucket_policy(*known))),
        # S3 refuses two changes of one bucket's access at the same time (OperationAborted).
        opts=pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=[private])),
    )
    aws.s3.BucketLifecycleConfiguration(
        f"{name}-retention",
        bucket=bucket.bucket,
        rules=[{"id": "retention", "status": "Enabled", "filter": {}, "expiration": {"days": spec.retention_days}}],
        opts=options,
    )
    return bucket.bucket, [policy]


class Gateway(Component):
    """One application load balancer with HTTPS in front of ``targets``: endpoints (``ModelEndpoint``), and the web UI.

    ``name`` is the name of the group of Ingresses that share the load balancer: a DNS label. For each route the component builds
    an Ingress in the namespace of its target (for gRPC of Triton another one), and a NetworkPolicy that lets the load balancer
    in. It builds the load balancer's security group, a rule that lets it reach the pods, and where the spec says so a
    certificate with its proof, DNS records, and a bucket of access logs. The controller makes the load balancer.

    A model server has no route of its own: of its paths some ask for no key, and an endpoint leads out the others.

    The load balancer sends requests straight to pods that are ready, in the order of their arrival. Between load balancer and
    pods there is no encryption. It waits ``idle_timeout_seconds`` for the next byte of an answer, so a stream may last as long as
    it flows. A terminating pod gets no new requests and finishes its current ones. With ``behind_load_balancer`` in its spec, an
    endpoint waits for the load balancer when it starts and when it ends.

    It is in ``network``'s public subnets where the spec says ``public``, else in ``network.load_balancer_subnets``, which hold
    nothing else, or without those in the private ones. The NetworkPolicies admit the addresses of these subnets: in the private
    ones, those of pods too.

    ``addresses`` has the address of each target. ``login_secret`` is the secret of the login's client. A ``SecretRef`` names a
    Secret in the namespace of each route with login, with the keys clientID and clientSecret.

    Raises ``SpecError`` for routes without a target, and for a public route to a target with neither keys nor
    login. The rules about gateways judge the rest in a stack file.

    Sources: kubernetes-sigs/aws-load-balancer-controller v3.5.0; Elastic Load Balancing user guide.
    """

    def __init__(
        self,
        name: str,
        spec: Given[GatewaySpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        network: Network,
        controller: LoadBalancers,
        targets: Mapping[str, Fronted],
        login_secret: Secret = None,
    ) -> None:
        spec = GatewaySpec.of(spec)
        found = routes(spec, list(targets))
        subnets = _subnets(spec, network)
        names_begin = "names of Ingresses and of their group begin with this"
        if faults := [*name_faults(name, names_begin), *_faults(spec, found, targets, login_secret), *_unknown_ranges(subnets)]:
            raise SpecError(faults)
        super().__init__("eks-inference:index:Gateway", name, spec.inputs(), opts)
        self._name, self._spec, self._cluster, self._controller = name, spec, cluster, controller
        self._login_secret = login_secret
        settings = cluster.settings
        group, opened = self._security_group(network, [targets[route.target] for route in found])
        certificate, zone = spec.certificate_arn, spec.hosted_zone_id
        if certificate is None:
            certificate = validated_certificate(name, hosts(found), zone or "", settings=settings, parent=self)
        bucket: pulumi.Input[str] = ""
        before: list[pulumi.Resource] = [*opened, *controller.ready]
        if spec.access_logs:
            bucket, logs = log_bucket(f"{name}-logs", spec.access_logs, account=group.owner_id, settings=settings, parent=self)
            before += logs
        self._shared = plan.balancer_annotations(
            name,
            spec,
            certificate_arn=certificate,
            subnets=pulumi.Output.all(*(subnet.id for subnet in subnets)).apply(",".join),
            security_group=group.id,
            attributes=pulumi.Output.from_input(bucket).apply(lambda known: plan.attributes(spec, known)),
        )
        senders = [addresses(cidr) for cidr in sorted(subnet.cidr for subnet in subnets if subnet.cidr)]
        ingresses = {route: self._route(route, targets[route.target], senders, before) for route in found}
        made = [ingress for each in ingresses.values() for ingress in each]
        first = {route.host: each[0] for route, each in reversed(ingresses.items())}
        records: dict[str, aws.route53.Record] = {}
        if zone is not None:
            balancers = {host: first[host].status.load_balancer.ingress[0].hostname for host in hosts(found)}
            records = host_records(name, balancers, zone, parent=self)
        self.ready: Sequence[pulumi.Resource] = (*made, *records.values())
        self.addresses: Mapping[str, pulumi.Output[str]] = {
            route.target: carried(
                f"{route.url}{targets[route.target].doors[0].api}",
                [*ingresses[route], *([records[route.host]] if records else [])],
            )
            for route in found
        }
        self.register_outputs({"addresses": self.addresses})

    def _security_group(
        self, network: Network, targets: Sequence[Fronted]
    ) -> tuple[aws.ec2.SecurityGroup, list[pulumi.Resource]]:
        """Creates the load balancer's group. Returns it, and what lets it reach the pods."""
        name, settings, cluster = self._name, self._cluster.settings, self._cluster
        ports = sorted({door.pod_port for target in targets for door in target.doors})
        group = aws.ec2.SecurityGroup(
            f"{name}-security-group",
            vpc_id=network.vpc_id,
            description=f"Load balancer of the gateway {name}",
            ingress=plan.from_clients(self._spec),
            egress=plan.to_pods(self._spec, ports, cluster.security_group_id),
            tags={**settings.tags, "Name": name},
            opts=pulumi.ResourceOptions(parent=self),
        )
        opened = [
            aws.vpc.SecurityGroupIngressRule(
                f"{name}-to-pods-{port}",
                security_group_id=cluster.security_group_id,
                referenced_security_group_id=group.id,
                ip_protocol="tcp",
                from_port=port,
                to_port=port,
                description=f"Load balancer of the gateway {name}",
                tags={**settings.tags, "Name": f"{name}-to-pods"},
                opts=pulumi.ResourceOptions(parent=self),
            )
            for port in ports
        ]
        return group, [group, *opened]

    def _route(
        self, route: Route, target: Fronted, senders: Sequence[Peer], before: Sequence[pulumi.Resource]
    ) -> list[k8s.networking.v1.Ingress]:
        name, cluster = f"{self._name}-{route.target}", self._cluster
        options = on_cluster(cluster, self, *target.ready)
        entrance = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy", **plan.entrance(self._name, target.namespace, target.doors, senders), opts=options
        )
        login, readable = self._login(name, target, options) if route.login else ({}, [])
        after = [entrance, *target.ready, *before, *readable]
        timeouts = pulumi.CustomTimeouts(create=f"{_BALANCER_SECONDS}s", delete=f"{_BALANCER_SECONDS}s")
        return [
            k8s.networking.v1.Ingress(
                f"{name}-grpc" if door.grpc else name,
                **plan.ingress(
                    self._name,
                    route,
                    door,
                    namespace=target.namespace,
                    shared=self._shared,
                    ingress_class=self._controller.ingress_class,
                    login=login,
                ),
                opts=on_cluster(cluster, self, *after, timeouts=timeouts),
            )
            for door in target.doors
        ]

    def _login(
        self, name: str, target: Fronted, options: pulumi.ResourceOptions
    ) -> tuple[Mapping[str, Any], list[pulumi.Resource]]:
        """Creates the Secret of the login's client, where it is ours, and lets the controller read it.

        Returns the annotations, whose Secret may have an unknown name, and what must exist before the Ingress.
        """
        login, given, made = self._spec.login, self._login_secret, list[pulumi.Resource]()
        assert login is not None
        assert given is not None
        secret: pulumi.Input[str] = plan.LOGIN_SECRET
        if isinstance(given, SecretRef):
            secret = given.name
        else:
            made.append(
                k8s.core.v1.Secret(
                    f"{name}-login",
                    metadata={"name": secret, "namespace": target.namespace},
                    string_data={"clientID": login.client_id, "clientSecret": pulumi.Output.secret(given)},
                    opts=options,
                )
            )
        reads, bound = permission(
            f"{self._name}-login",
            target.namespace,
            "secrets",
            ("get", "list", "watch"),
            account=self._controller.service_account,
            of=self._controller.namespace,
            names=[secret],
        )
        role = k8s.rbac.v1.Role(f"{name}-login-role", **reads, opts=options)
        binding = k8s.rbac.v1.RoleBinding(f"{name}-login-binding", **bound, opts=options)
        annotations = plan.login_annotations(login, secret)
        return {key: rendered(_text, value) for key, value in annotations.items()}, [*made, role, binding]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _subnets(spec: GatewaySpec, network: Network) -> Sequence[Subnet]:
    return network.public_subnets if spec.public else network.load_balancer_subnets or network.private_subnets


def _faults(spec: GatewaySpec, found: Sequence[Route], targets: Mapping[str, Fronted], login_secret: Secret) -> list[Fault]:
    faults = target_faults(spec.routes, found, targets)
    for route in found if spec.public else ():
        target = targets.get(route.target)
        if target and not target.authenticates and not route.login:
            message = f"anyone on the internet could use {route.target}: it asks for no key, and its route for no login"
            hint = "say keys: true of the endpoint, set login on the route, or leave public out"
            faults.append(Fault(("public",), message, given="true", hint=hint))
    if spec.login and login_secret is None and any(route.login for route in found):
        hint = "give login_secret; in a stack file: pulumi config set --secret eks-inference:gatewayClientSecret"
        faults.append(Fault(("login", "client_id"), "the secret of this client is missing", spec.login.client_id, hint=hint))
    return faults


def _unknown_ranges(subnets: Sequence[Subnet]) -> list[Fault]:
    hint = "give each subnet its cidr beside its id: NetworkPolicies admit the load balancer by its addresses"
    if not subnets:
        return [Fault(("public",), "the network has no such subnets", hint="name public subnets, or leave public out")]
    if len({subnet.zone_id for subnet in subnets}) < _MIN_ZONES:
        return [Fault((), "a load balancer needs subnets in two zones", ", ".join(subnet.zone_id for subnet in subnets))]
    return [Fault((), "the addresses of a subnet of the load balancer are not known", hint=hint)][
        : any(not subnet.cidr for subnet in subnets)
    ]


class GatewayRoutes(Component):
    """Routes from one of the cluster's Gateways, of any Gateway API class, to ``targets``: endpoints (``ModelEndpoint``) and
    the web UI.

    ``name`` is the name of the routes: a DNS label. For each target the component builds an HTTPRoute in its namespace (for
    gRPC of Triton a GRPCRoute too, where the spec names a host for it), and a NetworkPolicy that lets the Gateway's requests in.
    It makes nothing in AWS. The Gateway has to be there, and its listener has to allow routes of these namespaces
    (``allowedRoutes``).

    Requests have no time limit: a stream lasts as long as it flows. Limits of the Gateway itself, such as for silent
    connections, are its owner's. Routes authenticate no client: endpoints do, by their keys.

    ``addresses`` has the address of each target: with ``scheme`` and host of the spec, on the scheme's own port.

    Raises ``SpecError`` for routes without a target.

    Source: kubernetes-sigs/gateway-api v1.6.3.
    """

    def __init__(
        self,
        name: str,
        spec: Given[GatewayApiSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        targets: Mapping[str, Fronted],
    ) -> None:
        spec = GatewayApiSpec.of(spec)
        found = routes(spec, list(targets))
        if faults := [*name_faults(name, "names of routes begin with this"), *target_faults(spec.routes, found, targets)]:
            raise SpecError(faults)
        super().__init__("eks-inference:index:GatewayRoutes", name, spec.inputs(), opts)
        self._name, self._spec, self._cluster = name, spec, cluster
        made = {route: self._route(route, targets[route.target]) for route in found}
        self.ready: Sequence[pulumi.Resource] = tuple(resource for each in made.values() for resource in each)
        self.addresses: Mapping[str, pulumi.Output[str]] = {
            route.target: carried(f"{route.url}{targets[route.target].doors[0].api}", made[route]) for route in found
        }
        self.register_outputs({"addresses": self.addresses})

    def _route(self, route: Route, target: Fronted) -> list[pulumi.Resource]:
        name, cluster, space = f"{self._name}-{route.target}", self._cluster, target.namespace
        doors = [door for door in target.doors if plan.is_routed(route, door)]
        policy = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy",
            **entrance(self._name, space, doors, [*plan.senders(self._spec)]),
            opts=on_cluster(cluster, self, *target.ready),
        )
        return [
            k8s.apiextensions.CustomResource(
                f"{name}-grpc" if door.grpc else name,
                api_version=plan.GATEWAY_API_VERSION,
                **plan.route_manifest(self._name, self._spec, route, door, namespace=space),
                opts=on_cluster(cluster, self, policy, *target.ready),
            )
            for door in doors
        ]
