"""Kubernetes NetworkPolicies as plain data: who may talk to which pods. Pure functions; no pulumi.

A pod that a policy selects is closed in the policy's directions except for what any policy opens. On EKS the VPC CNI enforces
them (``enableNetworkPolicy``, on in every cluster of this library), from some seconds after a pod's start; a cluster that does
not enforce them ignores them. What comes from a pod's own node, probes above all, is always let in.

The VPC CNI looks at egress before a Service's address is turned into a pod's. It adds that address to a rule when the Service's
*own selector* meets the rule's labels: name the peers of egress by labels that the Service in front of them selects by, or by
their namespace.

Typical use, ``resource = NetworkPolicy(name, **network_policy(...), opts=...)``::

    network_policy(
        "web", "chat", selector={"app": "web"},
        ingress=[allow_from(EVERY_NAMESPACE, tcp=[8080])],
        egress=[DNS, allow_to(namespace("vllm"), tcp=[8000])],
    )

Sources: Kubernetes documentation, "Network Policies"; EKS user guide, "Limit pod traffic with Kubernetes network policies" and
"Learn how EKS Pod Identity grants pods access" (the agent's address); aws/amazon-network-policy-controller-k8s, issue 224.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Peer = dict[str, Any]
"""One element of ``from`` or ``to``."""

Rule = dict[str, Any]
"""One element of ``ingress`` (made by ``allow_from``) or ``egress`` (made by ``allow_to``)."""

POD_IDENTITY_ADDRESS = "169.254.170.23"
"""Where the EKS Pod Identity agent of each node hands out credentials, on port 80."""

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""The API server puts it on every namespace."""

EVERY_NAMESPACE: Peer = {"namespaceSelector": {}}
"""All pods of the cluster, nothing outside."""


def namespace(name: str) -> Peer:
    """All pods of a namespace."""
    return namespaces_labelled({NAMESPACE_LABEL: name})


def namespaces_labelled(labels: Mapping[str, str]) -> Peer:
    """All pods of the namespaces that carry these labels."""
    return {"namespaceSelector": {"matchLabels": dict(labels)}}


def pods(labels: Mapping[str, str], *, of: str | None = None) -> Peer:
    """Pods with these labels (all when empty) in the policy's own namespace, or in the namespace ``of``."""
    peer: Peer = {"podSelector": {"matchLabels": dict(labels)} if labels else {}}
    return peer | namespace(of) if of else peer


def addresses(cidr: str, *, but: Sequence[str] = ()) -> Peer:
    """Addresses of a block, without the blocks ``but`` inside it."""
    return {"ipBlock": {"cidr": cidr, **({"except": list(but)} if but else {})}}


def allow_from(*peers: Peer, tcp: Sequence[int] = (), udp: Sequence[int] = ()) -> Rule:
    """An ingress rule: these peers (anybody when none is given) may reach these ports (all when none is given)."""
    return _rule("from", peers, tcp, udp)


def allow_to(*peers: Peer, tcp: Sequence[int] = (), udp: Sequence[int] = ()) -> Rule:
    """An egress rule: these peers (anybody when none is given) may be reached at these ports (all when none is given)."""
    return _rule("to", peers, tcp, udp)


def network_policy(
    name: str,
    namespace: str,
    *,
    selector: Mapping[str, str],
    ingress: Sequence[Rule] | None,
    egress: Sequence[Rule] | None,
) -> dict[str, Any]:
    """``metadata`` and ``spec`` of a NetworkPolicy for the pods that ``selector`` names (every pod of the namespace when empty).

    A direction given as ``None`` stays open; an empty sequence closes it.
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
"""Egress: names, from the cluster's own CoreDNS."""

POD_IDENTITY: Rule = allow_to(addresses(f"{POD_IDENTITY_ADDRESS}/32"), tcp=[80])
"""Egress: credentials by EKS Pod Identity."""

HTTPS: Rule = allow_to(addresses("0.0.0.0/0"), tcp=[443])
"""Egress: HTTPS to anywhere: the Hugging Face Hub, S3, ECR, and the Kubernetes API server."""
