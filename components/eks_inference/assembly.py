"""Builds one model server of a stack with what belongs to it, and what leads clients to them: endpoints and the gateway."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypedDict, cast

import pulumi

from eks_inference.cluster.component import ClusterAddons
from eks_inference.endpoints.component import ModelEndpoint
from eks_inference.endpoints.plan import parsed_keys
from eks_inference.faults import SpecError, faults_under
from eks_inference.gateway.component import Gateway, GatewayRoutes
from eks_inference.gateway.controller import LoadBalancerController
from eks_inference.gateway.handle import ExistingLoadBalancerController, Fronted
from eks_inference.images.component import ImageBuild
from eks_inference.images.spec import InClusterImage
from eks_inference.network.handle import Network
from eks_inference.observability.handle import Metrics
from eks_inference.place.placement import Placement
from eks_inference.scaling.component import Autoscaler, Backend, QueriedMetrics, ScaledParts
from eks_inference.serving.component import formerly
from eks_inference.serving.handle import Dependencies, Server, ServerSite
from eks_inference.serving.kinds import kind_of
from eks_inference.serving.shape import ServerSpec
from eks_inference.stack.spec import StackSpec


def deploy_server(
    name: str,
    spec: ServerSpec,
    dependencies: Dependencies,
    *,
    prometheus: QueriedMetrics | None,
    backends: Mapping[str, Backend],
    opts: pulumi.ResourceOptions,
) -> Server:
    """Builds a server. All of its parts are siblings and get ``opts``.

    Without ``prometheus`` the server has neither metrics nor an autoscaler. The keys of ``backends`` are kinds of autoscaler.
    Raises ``SpecError`` as the components do, with paths relative to the server's key.
    """
    choices = (spec.main_pool(), *spec.other_pools())
    placement, *others = (dependencies.pools[choice.pool].placement(choice.instance_type) for choice in choices)
    placement = replace(placement, others=tuple(others))
    image = None
    if isinstance(recipe := spec.image_reference, InClusterImage):
        image = ImageBuild(
            f"{name}-image",
            recipe,
            cluster=dependencies.cluster,
            placement=dependencies.core,
            defaults=spec.image_arguments,
            opts=formerly(opts, spec, "-image"),
        ).reference
    site = ServerSite(placement=placement, image=image)
    server = kind_of(spec).build(name, spec, dependencies, site, opts)
    if prometheus:
        server.scraped_by(f"{name}-metrics", prometheus, formerly(opts, spec, "-metrics"))
        for part, scaler in spec.scalers.items():
            suffix = f"-{part}-autoscaler" if part else "-autoscaler"
            Autoscaler(
                f"{name}{suffix}",
                scaler,
                cluster=dependencies.cluster,
                # Only kinds whose pods belong to Deployments have autoscalers.
                server=cast(ScaledParts, server).scaled[part],
                metrics=prometheus,
                backend=backends[scaler.kind],
                opts=formerly(opts, spec, suffix),
            )
    return server


ONLY_CLIENT = "serving"
"""Name of the client that has the key of the servers, where the secret endpointKeys names none."""


class OnCorePool(TypedDict):
    """Arguments of every component whose pods run on the core pool."""

    cluster: ClusterAddons
    placement: Placement
    opts: pulumi.ResourceOptions


def build_endpoints(
    spec: StackSpec,
    servers: Mapping[str, Server],
    *,
    prometheus: Metrics | None,
    keys: pulumi.Input[str] | None,
    server_key: pulumi.Input[str] | None,
    on_core: OnCorePool,
) -> dict[str, ModelEndpoint]:
    """Builds the addresses of several models, and makes Prometheus scrape them. ``keys`` is the JSON of ``parsed_keys``; without
    it clients use the ``server_key``.

    Raises ``SpecError`` as the component does, with paths from the stack.
    """
    found: dict[str, ModelEndpoint] = {}

    def behind(endpoint: str, api: Literal["openai", "kserve"]) -> dict[str, Server]:
        return {server: servers[server] for server in spec.behind(endpoint) if server in spec.servers_with(api)}

    for name, wanted in spec.endpoints.items():
        with faults_under("endpoints", name):
            found[name] = ModelEndpoint(
                name,
                wanted,
                servers=behind(name, "openai"),
                kserve=behind(name, "kserve"),
                keys=_clients(keys, server_key) if wanted.keys else None,
                server_key=server_key,
                **on_core,
            )
        if prometheus:
            found[name].scraped_by(f"{name}-metrics", prometheus, on_core["opts"])
    return found


def build_gateway(
    spec: StackSpec,
    targets: Mapping[str, Fronted],
    *,
    network: Network,
    client_secret: pulumi.Input[str] | None,
    on_core: OnCorePool,
) -> Gateway | GatewayRoutes | None:
    """Builds the address from outside, if the stack has one, and the controller of its load balancer unless the cluster has one.

    Raises ``SpecError`` as the components do, with paths from the stack.
    """
    targets = {route.target: targets[spec.leading_to(route.target) or route.target] for route in spec.routes}
    if spec.gateway_api:
        with faults_under("gateway_api"):
            options, cluster = on_core["opts"], on_core["cluster"]
            return GatewayRoutes(f"{spec.name}-gateway", spec.gateway_api, options, cluster=cluster, targets=targets)
    if not spec.gateway:
        return None
    controller = (
        ExistingLoadBalancerController(spec.gateway.ingress_class)
        if spec.gateway.ingress_class
        else LoadBalancerController(f"{spec.name}-load-balancers", spec.load_balancer_controller, network=network, **on_core)
    )
    with faults_under("gateway"):
        return Gateway(
            f"{spec.name}-gateway",
            spec.gateway,
            cluster=on_core["cluster"],
            network=network,
            controller=controller,
            targets=targets,
            login_secret=client_secret,
            opts=on_core["opts"],
        )


def _clients(keys: pulumi.Input[str] | None, server_key: pulumi.Input[str] | None) -> pulumi.Output[Mapping[str, str]] | None:
    """The keys of clients, which only a deployment knows: their fault comes without a traceback."""

    def read(secret: str, text: str) -> Mapping[str, str]:
        try:
            return parsed_keys(text)
        except SpecError as error:
            told = "\n".join(fault.render() for fault in error.faults)
            raise pulumi.RunError(f"the secret eks-inference:{secret} cannot be used:\n{told}") from None

    if keys is not None:
        return pulumi.Output.from_input(keys).apply(lambda text: read("endpointKeys", text))
    if server_key is not None:
        return pulumi.Output.from_input(server_key).apply(lambda key: read("servingApiKey", json.dumps({ONLY_CLIENT: key})))
    return None
