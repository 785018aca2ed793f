"""Spec of routes of a Gateway (Gateway API) that the cluster has."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from eks_inference.gateway.spec import AddressSpec, HostName
from eks_inference.kubernetes.network_policy import ranges
from eks_inference.spec import Namespace, ResourceName, Spec


class GatewayApiRouteSpec(AddressSpec):
    """Where one endpoint, one server behind an endpoint, or the web UI answers."""

    grpc_host: HostName | None = Field(
        default=None,
        description="Host name of its gRPC, where a server has one (Triton). A Gateway takes one kind of route for a host, so no "
        "route for HTTP may have it. Absent: gRPC has no route.",
    )


class GatewayApiSpec(Spec):
    """Routes of a Gateway that the cluster has, of any class, to endpoints and the web UI. A route to a server makes an endpoint.

    The Gateway, its certificate, and who may connect to it are those of whoever made it.
    """

    gateway: ResourceName = Field(description="Name of the Gateway.")
    namespace: Namespace = Field(
        description="Namespace of the Gateway. Its listener must allow routes of the endpoints' namespaces."
    )
    listener: ResourceName | None = Field(
        default=None, description="Listener of the Gateway that the routes are for (sectionName). Absent: all that take them."
    )
    scheme: Literal["https", "http"] = Field(
        default="https", description="What its listener speaks. Only addresses for clients are made of it."
    )
    host: HostName = Field(description="Host name of routes that have none of their own.")
    routes: dict[ResourceName, GatewayApiRouteSpec] = Field(
        default_factory=dict,
        description="Routes by name of the endpoint, or of the server, which gets an endpoint of its own (NAME-endpoint) unless "
        "one leads to it alone; open-webui is the web UI. Default: every endpoint, or else every server.",
        max_length=50,
    )
    from_namespaces: tuple[Namespace, ...] = Field(
        default=(), max_length=10, description="Namespaces of the pods that send its requests: those of its proxies."
    )
    from_cidrs: Annotated[tuple[str, ...], AfterValidator(ranges)] = Field(
        default=(),
        max_length=40,
        description="IPv4 ranges that its requests come from, where no pods send them (a load balancer).",
    )

    @model_validator(mode="after")
    def _gets_in(self) -> Self:
        if not self.from_namespaces and not self.from_cidrs:
            raise ValueError(
                "nobody would get in: name the namespaces of the Gateway's proxies in from_namespaces, or the ranges "
                "of its load balancer in from_cidrs"
            )
        return self
