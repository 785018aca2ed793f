"""Renders Kubernetes NetworkPolicies as plain data, and says where requests enter: ports of model servers' pods, and ports of
Services that lead out of the cluster. Pure; no pulumi.

A pod that a policy selects accepts, in the policy's directions, only the traffic that some policy allows. On EKS the VPC CNI
enforces policies (``enableNetworkPolicy``, on in every cluster of this library), starting a few seconds after the pod; a cluster
without enforcement ignores them. Traffic from a pod's own node, such as probes, is always allowed.

The VPC CNI checks egress before it translates a Service address into a pod address. It adds the Service address to a rule only
when the Service's *own selector* matches the rule's labels. Select egress peers by labels that their Service also selects, or by
namespace.

Typical use, ``resource = NetworkPolicy(name, **network_policy(...), opts=...)``::

    network_policy(
        "web", "chat", selector={"app": "web"},
        ingress=[allow_from(EVERY_NAMESPACE, tcp=[8080])],
        egress=[DNS, allow_to(namespace("vllm"), tcp=[8000])],
    )

Sources: Kubernetes documentation, "Network Policies"; EKS user guide, "Limit pod traffic with Kubernetes network policies" and
"Learn how EKS Pod Identity grants pods access" (the agent's address); aws/amazon-network-policy-controller-k8s, issue 224.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference.specs.base import distinct

Peer = dict[str, Any]
"""An element of ``from`` or ``to``."""

Rule = dict[str, Any]
"""An element of ``ingress`` (from ``allow_from``) or ``egress`` (from ``allow_to``)."""

POD_IDENTITY_ADDRESS = "169.254.170.23"
"""The address at which the EKS Pod Identity agent of each node serves credentials, on port 80."""

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""The API server sets this label on every namespace, to its name."""

PRIVATE_RANGES = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")
"""Addresses that are not on the internet (RFC 1918, RFC 6598)."""

EVERY_NAMESPACE: Peer = {"namespaceSelector": {}}
"""All pods of the cluster and nothing outside it."""


def ranges(cidrs: tuple[str, ...]) -> tuple[str, ...]:
    """The ranges, if each is an IPv4 range and none is there twice."""
    for cidr in distinct(cidrs):
        try:
            ipaddress.IPv4Network(cidr)
        except ValueError as error:
            raise ValueError(f"'{cidr}' is not an IPv4 range: {error}") from None
    return cidrs


def namespace(name: str) -> Peer:
    """Selects all pods of a namespace."""
    return namespaces_labelled({NAMESPACE_LABEL: name})


def namespaces_labelled(labels: Mapping[str, str]) -> Peer:
    """Selects all pods of the namespaces with these labels."""
    return {"namespaceSelector": {"matchLabels": dict(labels)}}


def pods(labels: Mapping[str, str], *, of: str | None = None) -> Peer:
    """Selects pods with these labels (all when empty) in the policy's own namespace or in the namespace ``of``."""
    peer: Peer = {"podSelector": {"matchLabels": dict(labels)} if labels else {}}
    return peer | namespace(of) if of else peer


def addresses(cidr: str, *, but: Sequence[str] = ()) -> Peer:
    """Selects the addresses of a block, except those of the blocks ``but`` inside it."""
    return {"ipBlock": {"cidr": cidr, **({"except": list(but)} if but else {})}}


def allow_from(*peers: Peer, tcp: Sequence[int] = (), udp: Sequence[int] = ()) -> Rule:
    """Returns an ingress rule: traffic from these peers (default: anyone) to these ports of the pod (default: all)."""
    return _rule("from", peers, tcp, udp)


def allow_to(*peers: Peer, tcp: Sequence[int] = (), udp: Sequence[int] = ()) -> Rule:
    """Returns an egress rule: traffic to these peers (default: anyone) at these of their ports (default: all)."""
    return _rule("to", peers, tcp, udp)


def network_policy(
    name: str,
    namespace: str,
    *,
    selector: Mapping[str, str],
    ingress: Sequence[Rule] | None,
    egress: Sequence[Rule] | None,
) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of a NetworkPolicy for the pods that match ``selector`` (empty: all in the namespace).

    ``None`` leaves a direction unrestricted; an empty sequence denies all traffic in it.
    """
    directions = {"ingress": ingress, "egress": egress}
    closed = {direction: list(rules) for direction, rules in directions.items() if rules is not None}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": dict(selector)} if selector else {},
            "policyTypes": [direction.capitalize() for direction in closed],
            **closed,
        },
    }


def _rule(side: str, peers: Sequence[Peer], tcp: Sequence[int], udp: Sequence[int]) -> Rule:
    ports = [{"protocol": "TCP", "port": port} for port in tcp] + [{"protocol": "UDP", "port": port} for port in udp]
    return {**({side: list(peers)} if peers else {}), **({"ports": ports} if ports else {})}


DNS: Rule = allow_to(pods({"k8s-app": "kube-dns"}, of="kube-system"), tcp=[53], udp=[53])
"""Egress to the cluster's CoreDNS."""

POD_IDENTITY: Rule = allow_to(addresses(f"{POD_IDENTITY_ADDRESS}/32"), tcp=[80])
"""Egress to the EKS Pod Identity agent."""

HTTPS: Rule = allow_to(addresses("0.0.0.0/0"), tcp=[443])
"""Egress over HTTPS to any address: the Hugging Face Hub, S3, ECR and the Kubernetes API server."""


def api_server(cidrs: Sequence[str]) -> Rule:
    """Returns egress to the Kubernetes API server, at the ``api_cidrs`` of a cluster."""
    return allow_to(*map(addresses, cidrs), tcp=[443])


@dataclass(frozen=True)
class Front:
    """A port of a model server's pods, to which an endpoint's proxy sends requests."""

    labels: Mapping[str, str]
    """Labels of the pods."""
    pod_port: int
    grpc: bool = False
    tells_load: bool = False
    """Whether each pod tells at the same port, ``/metrics``, vLLM's metrics of its load."""


@dataclass(frozen=True)
class Door:
    """A port of a Service that a load balancer sends requests to, past the Service and straight to its pods.

    Only what closes paths and asks its clients by itself has one: all paths are led to it.
    """

    service: str
    port: int
    """Port of the Service."""
    labels: Mapping[str, str]
    """Labels of the pods behind the Service."""
    pod_port: int
    health: str
    """Path that answers with 200 while the pod is ready; over gRPC one that answers with a status of ``healthy``."""
    healthy: str = "200"
    api: str = ""
    """Path of the API for clients, ``/v1``; empty: ``/``."""
    grpc: str = ""
    """Name of the gRPC service, if it is one. Clients cannot change its paths, so no route has its own path before them."""
    drain_seconds: int = 0
    """How long a terminating pod goes on with the requests it has."""


GATED = {"elbv2.k8s.aws/pod-readiness-gate-inject": "enabled"}
"""Label of a namespace whose new pods are ready only once their load balancer has found them healthy (AWS Load Balancer
Controller, "Pod readiness gate"). Pods that start before the load balancer knows their Service have no such gate."""
