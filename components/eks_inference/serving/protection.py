"""Plans the NetworkPolicies and device quotas of all model servers. Pure; no pulumi.

Source: Kubernetes documentation, "Resource Quotas".
"""

from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.kubernetes.network_policy import (
    DNS,
    EVERY_NAMESPACE,
    HTTPS,
    POD_IDENTITY,
    Rule,
    addresses,
    allow_from,
    allow_to,
    namespace,
    namespaces_labelled,
    network_policy,
)
from eks_inference.serving.shape import ServerSpec


def egress(spec: ServerSpec) -> list[Rule]:
    """Returns where the pods of a server may connect: DNS, EKS Pod Identity, and over HTTPS what downloads need (Hub, S3)."""
    return [DNS, POD_IDENTITY, *over_https(spec)]


def over_https(spec: ServerSpec) -> list[Rule]:
    """Returns where they may connect over HTTPS."""
    if spec.egress is None:
        return [HTTPS]
    return [allow_to(*map(addresses, spec.egress), tcp=[443])] if spec.egress else []


def closed(server: str, space: str) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the NetworkPolicy that denies all traffic that no other policy allows."""
    return network_policy(f"{server}-closed", space, selector={}, ingress=(), egress=())


def server_policies(
    name: str, spec: ServerSpec, labels: Mapping[str, str], *, api: Sequence[int], metrics: int
) -> dict[str, dict[str, Any]]:
    """Returns the NetworkPolicies of a namespace by role. They open the ``api`` ports to clients, ``metrics`` to Prometheus."""
    space = spec.namespace_of(name)
    return {
        "closed": closed(name, space),
        "server": network_policy(
            name,
            space,
            selector=labels,
            ingress=[
                *(from_clients(spec.client_namespaces, port) for port in api),
                *from_prometheus(spec.metrics_namespaces, metrics),
            ],
            egress=egress(spec),
        ),
    }


def from_clients(client_namespaces: Mapping[str, str], port: int) -> Rule:
    """Returns the ingress rule of the API: from namespaces with these labels, or without labels from all namespaces."""
    return allow_from(namespaces_labelled(client_namespaces) if client_namespaces else EVERY_NAMESPACE, tcp=[port])


def from_prometheus(metrics_namespaces: Sequence[str], port: int) -> list[Rule]:
    """Returns the ingress rules of the metrics; none when no namespace reads them."""
    return [allow_from(*(namespace(each) for each in metrics_namespaces), tcp=[port])] if metrics_namespaces else []


def device_quota(space: str, hard: Mapping[str, int]) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the ResourceQuota that limits the devices of all pods in the namespace together."""
    return {
        "metadata": {"name": "accelerators", "namespace": space},
        "spec": {"hard": {resource: str(devices) for resource, devices in hard.items()}},
    }
