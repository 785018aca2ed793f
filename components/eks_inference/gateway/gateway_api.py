"""Creates routes of a Gateway (Gateway API) that the cluster has, to endpoints and the web UI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import Component
from eks_inference.faults import SpecError
from eks_inference.gateway import gateway_api_plan as plan
from eks_inference.gateway.gateway_api_spec import GatewayApiSpec
from eks_inference.gateway.handle import Fronted
from eks_inference.gateway.plan import entrance
from eks_inference.gateway.routes import Route, name_faults, routes, target_faults
from eks_inference.outputs import carried
from eks_inference.spec import Given


class GatewayRoutes(Component):
    """Routes of a Gateway that the cluster has, of any class of Gateway API, to ``targets``: endpoints (``ModelEndpoint``) and
    the web UI.

    ``name`` is the name of the routes: a DNS label. For each target the component builds an HTTPRoute in its namespace (for
    gRPC of Triton a GRPCRoute too, where the spec names a host for it), and a NetworkPolicy that lets the Gateway's requests in.
    It makes nothing in AWS. The Gateway has to be there, and its listener has to allow routes of these namespaces
    (``allowedRoutes``).

    Requests have no time limit: a stream lasts as long as it flows. Limits of the Gateway itself, such as for silent
    connections, are its owner's. A route asks nobody who they are: endpoints do, by their keys.

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
        self.ready: Sequence[pulumi.Resource] = tuple(one for each in made.values() for one in each)
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
                api_version=plan.API_VERSION,
                **plan.route_manifest(self._name, self._spec, route, door, namespace=space),
                opts=on_cluster(cluster, self, policy, *target.ready),
            )
            for door in doors
        ]
