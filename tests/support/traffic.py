"""Evaluates NetworkPolicies by the rules of the Kubernetes documentation, as far as our manifests use them."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eks_inference.kubernetes.network_policy import NAMESPACE_LABEL
from stackgraph.graph.document import Graph

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Pod:
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outside:
    address: str


def policies_of(graph: Graph) -> list[Manifest]:
    return [resource.inputs for resource in graph.of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")]


def passes(policies: Sequence[Manifest], source: Pod | Outside, target: Pod | Outside, port: int, protocol: str = "TCP") -> bool:
    """Returns whether the policies allow a connection, both out of the source and into the target."""
    out = not isinstance(source, Pod) or _open(policies, "Egress", source, target, port, protocol)
    return out and (not isinstance(target, Pod) or _open(policies, "Ingress", target, source, port, protocol))


def _open(policies: Sequence[Manifest], way: str, pod: Pod, peer: Pod | Outside, port: int, protocol: str) -> bool:
    mine = [
        policy["spec"]
        for policy in policies
        if way in policy["spec"]["policyTypes"]
        and policy["metadata"]["namespace"] == pod.namespace
        and _selects(policy["spec"]["podSelector"], pod.labels)
    ]
    side = "to" if way == "Egress" else "from"
    rules = [rule for spec in mine for rule in spec.get(way.lower(), ())]
    return not mine or any(
        _port_meets(rule, port, protocol) and (side not in rule or any(_peer_meets(p, peer, pod.namespace) for p in rule[side]))
        for rule in rules
    )


def _port_meets(rule: Manifest, port: int, protocol: str) -> bool:
    return "ports" not in rule or {"protocol": protocol, "port": port} in rule["ports"]


def _peer_meets(peer: Manifest, found: Pod | Outside, own_namespace: str) -> bool:
    if "ipBlock" in peer:
        if isinstance(found, Pod):
            return False
        address = ipaddress.ip_address(found.address)
        blocks = [peer["ipBlock"]["cidr"], *peer["ipBlock"].get("except", ())]
        inside = [address in ipaddress.ip_network(block) for block in blocks]
        return inside[0] and not any(inside[1:])
    if isinstance(found, Outside):
        return False
    if "namespaceSelector" in peer:
        if not _selects(peer["namespaceSelector"], {NAMESPACE_LABEL: found.namespace, **found.namespace_labels}):
            return False
    elif found.namespace != own_namespace:
        return False
    return _selects(peer.get("podSelector", {}), found.labels)


def _selects(selector: Manifest, labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}
    return selector.get("matchLabels", {}).items() <= labels.items()
