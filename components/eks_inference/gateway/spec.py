"""Specs of what leads endpoints and the web UI out: the gateway, one load balancer with HTTPS, and routes of a Gateway (Gateway
API) that the cluster has.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from eks_inference.kubernetes.network_policy import PRIVATE_RANGES, ranges
from eks_inference.specs.base import ExistingName, ExistingNamespace, Form, Namespace, ResourceName, Spec
from eks_inference.specs.late import Late

WEB_UI = "open-webui"
"""The route of the web UI; every other route has the name of an endpoint, or of a server behind one."""

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
HostName = Annotated[
    str,
    Form(rf"({_LABEL}\.)+{_LABEL}", "a host name in lower case with its domain, such as models.example.com"),
    # Of the first name of a certificate; the others may have more (ACM API, RequestCertificate).
    Field(max_length=64),
]
Path = Annotated[
    str,
    Form(
        r"/|(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)+",
        "a path such as /llama3: it begins with / and ends without, and has letters, digits and . _ ~ -",
    ),
    # A condition of a rule has at most 128 characters, and the controller makes one of the path and /*.
    Field(max_length=126),
]
CertificateArn = Annotated[
    Late,
    Form(
        r"arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/[0-9a-f-]{36}",
        "the ARN of an ACM certificate (arn:aws:acm:<region>:<account>:certificate/<id>)",
    ),
]
WebAclArn = Annotated[
    Late,
    Form(
        r"arn:aws[a-z-]*:wafv2:[a-z0-9-]+:\d{12}:regional/webacl/[\w-]+/[0-9a-f-]{36}",
        "the ARN of a web ACL of the region (arn:aws:wafv2:<region>:<account>:regional/webacl/<name>/<id>)",
    ),
]
HostedZoneId = Annotated[Late, Form(r"Z[A-Z0-9]{1,31}", "the id of a hosted zone of Route 53, such as Z0123456789ABCDEFGHIJ")]
HttpsUrl = Annotated[str, Form(r"https://[^\s/?#@]+(/[^\s]*)?", "an address that begins with https://")]

EVERYWHERE = "0.0.0.0/0"

SslPolicy = Literal[
    "ELBSecurityPolicy-TLS13-1-2-2021-06",
    "ELBSecurityPolicy-TLS13-1-2-Res-2021-06",
    "ELBSecurityPolicy-TLS13-1-3-2021-06",
    "ELBSecurityPolicy-TLS13-1-2-FIPS-2023-04",
    "ELBSecurityPolicy-TLS13-1-2-Res-FIPS-2023-04",
    "ELBSecurityPolicy-TLS13-1-3-FIPS-2023-04",
    "ELBSecurityPolicy-TLS13-1-2-PQ-2025-09",
    "ELBSecurityPolicy-TLS13-1-2-Res-PQ-2025-09",
    "ELBSecurityPolicy-TLS13-1-3-PQ-2025-09",
    "ELBSecurityPolicy-TLS13-1-2-FIPS-PQ-2025-09",
    "ELBSecurityPolicy-TLS13-1-2-Res-FIPS-PQ-2025-09",
    "ELBSecurityPolicy-TLS13-1-3-FIPS-PQ-2025-09",
]
"""TLS 1.2 and 1.3 only, without weak ciphers (Elastic Load Balancing, "Security policies for your Application Load Balancer")."""


class LoadBalancerControllerSpec(Spec):
    """AWS Load Balancer Controller, from its chart. One installation serves a cluster."""

    namespace: Namespace = Field(
        default="aws-load-balancer", description="Namespace of the controller. The component creates it."
    )
    replicas: int = Field(default=2, ge=1, le=3, description="Controller pods. One works; all answer the API server's webhooks.")
    values: dict[str, Any] = Field(
        default_factory=dict,
        description="Values of the aws-load-balancer-controller chart, beside ours; only what is below image or resources "
        "replaces ours.",
    )


class AddressSpec(Spec):
    """Host and path of a route."""

    host: HostName | None = Field(default=None, description="Host name. Default: the gateway's.")
    path: Path | None = Field(
        default=None,
        description="First part of the path, which the load balancer takes away: with /llama3 clients use /llama3/v1. Default: / "
        "for the only route of its host, else / and the route's name. gRPC has paths of its own.",
    )


class RouteSpec(AddressSpec):
    """Where one endpoint, one server behind an endpoint, or the web UI answers."""

    login: bool = Field(
        default=False,
        description="Whether people log in through the gateway's login first. Programs cannot: it is for browsers. An endpoint "
        "that such a route makes asks for no key.",
    )


class LoginSpec(Spec):
    """An OpenID Connect provider at which people log in before the load balancer lets them through.

    The client's secret is the configuration secret ``gatewayClientSecret``.
    """

    issuer: HttpsUrl = Field(
        description="Issuer of the provider, from its .well-known/openid-configuration, like the other addresses."
    )
    authorization_endpoint: HttpsUrl = Field(description="Where browsers are sent.")
    token_endpoint: HttpsUrl = Field(description="Where the load balancer gets tokens.")
    user_info_endpoint: HttpsUrl = Field(description="Where the load balancer asks who the user is.")
    client_id: str = Field(min_length=1, description="Id of the client, whose redirect URI is https://HOST/oauth2/idpresponse.")
    scope: str = Field(
        default="openid", pattern=r"^(\S+ )*openid( \S+)*$", description="Scopes to ask for; openid must be among them."
    )
    session_timeout_seconds: int = Field(default=43200, ge=1, le=604800, description="How long a login holds.")


class AccessLogsSpec(Spec):
    """Access logs of the load balancer in a bucket of their own: a line for each request, without its body."""

    retention_days: int = Field(default=90, ge=1, le=3653, description="Days until S3 deletes a log.")


class GatewaySpec(Spec):
    """One application load balancer with HTTPS in front of endpoints and the web UI. A route to a server makes an endpoint.

    It is internal unless ``public``. Its certificate is given by ARN, or made and validated in a Route 53 zone.
    """

    host: HostName = Field(description="Host name of routes that have none of their own.")
    hosted_zone_id: HostedZoneId | None = Field(
        default=None,
        description="Hosted zone of Route 53 that the hosts are in; gets their records. Absent: make the records yourself.",
    )
    certificate_arn: CertificateArn | None = Field(
        default=None,
        description="ACM certificate for all hosts, in the region of the stack. Absent: one is made, and validated in "
        "hosted_zone_id, which must then be a public zone.",
    )
    routes: dict[ResourceName, RouteSpec] = Field(
        default_factory=dict,
        description="Routes by the name of an endpoint, or of a server, which gets its own endpoint (NAME-endpoint) unless one "
        f"leads to it alone; {WEB_UI} is the web UI. Default: every endpoint, or else every server.",
        max_length=50,
    )
    public: bool = Field(
        default=False, description="Whether the load balancer is on the internet. Each route must then ask who it is."
    )
    source_cidrs: Annotated[tuple[str, ...], AfterValidator(ranges)] = Field(
        default=(),
        max_length=40,  # rules of a security group: 60 by default
        description="IPv4 ranges that may connect. Default: private ranges; of a public one, everywhere.",
    )
    ssl_policy: SslPolicy = Field(
        default="ELBSecurityPolicy-TLS13-1-2-2021-06", description="TLS versions and ciphers that the load balancer accepts."
    )
    idle_timeout_seconds: int = Field(
        default=600,
        ge=1,
        le=4000,
        description="How long a connection may be silent: the longest answer that is not streamed, or wait for a first token.",
    )
    web_acl_arn: WebAclArn | None = Field(default=None, description="AWS WAF web ACL in front. Absent: none.")
    access_logs: AccessLogsSpec | None = Field(default=None, description="Logs of every request. Absent: none.")
    login: LoginSpec | None = Field(
        default=None, description="The provider where people log in, for routes with login. Absent: none."
    )
    ingress_class: ExistingName | None = Field(
        default=None,
        description="Ingress class of the cluster's own AWS Load Balancer Controller. Absent: the stack installs one.",
    )

    @property
    def sources(self) -> tuple[str, ...]:
        """The address ranges that may connect."""
        return self.source_cidrs or ((EVERYWHERE,) if self.public else PRIVATE_RANGES)

    @model_validator(mode="after")
    def _has_a_certificate(self) -> Self:
        if self.certificate_arn is None and self.hosted_zone_id is None:
            raise ValueError("HTTPS needs a certificate: give certificate_arn, or hosted_zone_id, in which one is validated")
        if self.login is None and (asking := [name for name, route in self.routes.items() if route.login]):
            raise ValueError(f"routes {', '.join(asking)} ask for a login: say where, in login")
        return self


class GatewayApiRouteSpec(AddressSpec):
    """Where one endpoint, one server behind an endpoint, or the web UI answers."""

    grpc_host: HostName | None = Field(
        default=None,
        description="Host name of its gRPC, where a server has one (Triton). A Gateway takes one kind of route for a host, so no "
        "route for HTTP may have it. Absent: gRPC has no route.",
    )


class GatewayApiSpec(Spec):
    """Routes of a Gateway that the cluster has, of any class, to endpoints and the web UI. A route to a server makes an endpoint.

    The Gateway, its certificate, and who may connect to it are up to its owner.
    """

    gateway: ExistingName = Field(description="Name of the Gateway.")
    namespace: ExistingNamespace = Field(
        description="Namespace of the Gateway. Its listener must allow routes of the endpoints' namespaces."
    )
    listener: ExistingName | None = Field(
        default=None, description="Listener of the Gateway that the routes are for (sectionName). Absent: all that take them."
    )
    scheme: Literal["https", "http"] = Field(
        default="https", description="The protocol of its listener, used only for the addresses that clients get."
    )
    host: HostName = Field(description="Host name of routes that have none of their own.")
    routes: dict[ResourceName, GatewayApiRouteSpec] = Field(
        default_factory=dict,
        description="Routes by the name of an endpoint, or of a server, which gets its own endpoint (NAME-endpoint) unless one "
        "leads to it alone; open-webui is the web UI. Default: every endpoint, or else every server.",
        max_length=50,
    )
    from_namespaces: tuple[ExistingNamespace, ...] = Field(
        default=(), max_length=10, description="Namespaces of the pods that send its requests: those of its proxies."
    )
    from_cidrs: Annotated[tuple[str, ...], AfterValidator(ranges)] = Field(
        default=(),
        max_length=40,
        description="IPv4 ranges that its requests come from if a load balancer sends them, not pods.",
    )

    @model_validator(mode="after")
    def _gets_in(self) -> Self:
        if not self.from_namespaces and not self.from_cidrs:
            raise ValueError(
                "no client would get in: name the namespaces of the Gateway's proxies in from_namespaces, or the ranges "
                "of its load balancer in from_cidrs"
            )
        return self
