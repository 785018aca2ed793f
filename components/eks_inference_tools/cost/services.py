"""Charges of what is neither a node nor a volume: control planes, network, file systems, logs. Pure."""

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from eks_inference.catalog import versions
from eks_inference_tools.cost.nodes import Volume, volume_charges
from eks_inference_tools.cost.price_book import ByUse, Charge, Found, Part, Uncounted
from eks_inference_tools.placing.placeholders import known_region
from eks_inference_tools.reading.calendar import today
from eks_inference_tools.reading.clusters import CLUSTER_TYPE, REMOTE_CLUSTER_TYPE
from eks_inference_tools.reading.kinds import group_kind, title_of
from eks_inference_tools.reading.scalars import whole
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import at, is_token, items, text

_PACKAGES = ("aws", "aws-native", "awsx", "eks")
"""Packages whose resources AWS may bill."""

_LUSTRE = "fsx_lustre"

_INGRESS_GROUP = "alb.ingress.kubernetes.io/group.name"


def service_charges(graph: Graph) -> Found:
    """Yields what the resources of a graph cost by themselves. Leaves out those that the program only reads."""
    for resource in graph.resources:
        if is_read(resource) or (not resource.custom and not resource.remote):
            continue
        region = known_region(graph, resource)
        if by_hand := _COUNTED.get(resource.type):
            yield from by_hand(resource, region)
        elif resource.package in _PACKAGES:
            yield from _billed(resource, region)


@cache
def _types() -> Mapping[str, Any]:
    return tomllib.loads(resources.files("eks_inference_tools.cost").joinpath("billed.toml").read_text("utf-8"))


def _billed(resource: Resource, region: str) -> Found:
    types, urn, name = _types(), resource.urn, text(resource.name)
    hourly, by_use = types["by_the_hour"].get(resource.type), types["by_use"].get(resource.type)
    if hourly:
        yield _one(hourly["part"], hourly["service"], resource, region)
    for service in by_use["services"] if by_use else ():
        yield ByUse(by_use["part"], name, service, region, urn)
    if not (hourly or by_use or resource.type.startswith(tuple(types["free"]["prefixes"]))):
        yield Uncounted(name, f"{resource.type} has no price here", urn)


def _one(part: Part, service: str, resource: Resource, region: str, amount: float = 1) -> Charge:
    return Charge(part, text(resource.name), "", service, region, resource.urn, (amount, amount, amount))


# -- resources whose price depends on their properties ---------------------------------------------------------------------------


def _control_plane(cluster: Resource, region: str) -> Found:
    version = text(cluster.inputs.get("version"))
    try:
        extended = today() > versions.support(version).standard
    except KeyError:
        yield Uncounted(text(cluster.name), "the end of standard support of its version is not known", cluster.urn)
        extended = False
    yield _one("control plane", "eks_extended" if extended else "eks_standard", cluster, region)


def _endpoint(endpoint: Resource, region: str) -> Found:
    name, kind, subnets = text(endpoint.name), text(endpoint.inputs.get("vpcEndpointType")), endpoint.inputs.get("subnetIds")
    if kind in ("", "Gateway"):
        return
    if kind != "Interface":
        yield Uncounted(name, f"endpoints of type {kind} have no price here", endpoint.urn)
    elif is_token(subnets):
        yield Uncounted(name, "the number of its zones is unknown", endpoint.urn)
    else:
        yield _one("network", "vpc_endpoint", endpoint, region, len(items(subnets)) or 1)
        yield ByUse("network", name, "vpc_endpoint_data", region, endpoint.urn)


def _file_system(system: Resource, region: str) -> Found:
    if text(system.inputs.get("throughputMode")) not in ("", "bursting", "elastic"):
        yield Uncounted(text(system.name), "its provisioned throughput has no price here", system.urn)
    yield from _billed(system, region)


def _lustre(system: Resource, region: str) -> Found:
    inputs, size = system.inputs, whole(system.inputs.get("storageCapacity"))
    throughput = whole(inputs.get("perUnitStorageThroughput"))
    tier = "scratch" if text(inputs.get("deploymentType")).startswith("SCRATCH") else throughput
    if size is None or text(inputs.get("storageType") or "SSD") != "SSD" or tier not in ("scratch", 125, 250, 500, 1000):
        yield Uncounted(text(system.name), "its size, its throughput or its kind of storage has no price here", system.urn)
    else:
        yield _one("storage", f"{_LUSTRE}_{tier}", system, region, size)


def _instance(instance: Resource, region: str) -> Found:
    name, type_ = text(instance.name), text(instance.inputs.get("instanceType"))
    if not type_ or is_token(type_):
        yield Uncounted(name, "its instance type is unknown", instance.urn)
    else:
        yield Charge("nodes", name, type_, type_, region, instance.urn, (1, 1, 1), "on_demand")
        yield Uncounted(f"disks of {name}", "only those of nodes are counted", instance.urn)


def _volume(volume: Resource, region: str) -> Found:
    inputs, size = volume.inputs, whole(volume.inputs.get("size"))
    kind = Volume(size, text(inputs.get("type")) or "gp2", whole(inputs.get("iops")) or 0, whole(inputs.get("throughput")) or 0)
    yield from volume_charges(text(volume.name), "volume", volume.urn, region, kind, (1, 1, 1))


def _load_balancer_resource(balancer: Resource, region: str) -> Found:
    kind = text(balancer.inputs.get("loadBalancerType")) or "application"
    if kind in ("application", "network"):
        yield _one("network", f"{kind}_load_balancer", balancer, region)
    else:
        yield Uncounted(text(balancer.name), f"load balancers of type {kind} have no price here", balancer.urn)


_COUNTED: Mapping[str, Callable[[Resource, str], Found]] = {
    CLUSTER_TYPE: _control_plane,
    REMOTE_CLUSTER_TYPE: _control_plane,
    "aws:ebs/volume:Volume": _volume,
    "aws:ec2/instance:Instance": _instance,
    "aws:ec2/vpcEndpoint:VpcEndpoint": _endpoint,
    "aws:efs/fileSystem:FileSystem": _file_system,
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre,
    "aws:lb/loadBalancer:LoadBalancer": _load_balancer_resource,
}


def load_balancers(graph: Graph) -> Found:
    """Yields the load balancers that a controller makes for Services and Ingresses of one cluster.

    Ingresses of one group share a load balancer (AWS Load Balancer Controller, ``alb.ingress.kubernetes.io/group.name``).
    """
    region, groups = known_region(graph, None), set[str]()
    for resource in filter(is_kubernetes_object, graph.resources):
        group = text(at(resource.inputs, "metadata", "annotations", _INGRESS_GROUP))
        if not group or group not in groups:
            yield from _load_balancer(resource, region)
        if group:
            groups.add(group)


def _load_balancer(resource: Resource, region: str) -> Found:
    group, kind = group_kind(resource)
    if (group, kind) == ("core", "Service") and at(resource.inputs, "spec", "type") == "LoadBalancer":
        yield Charge("network", title_of(resource), "", "network_load_balancer", region, resource.urn, (1, 1, 1))
    elif (group, kind) == ("networking.k8s.io", "Ingress"):
        name = at(resource.inputs, "spec", "ingressClassName")
        if is_token(name) or text(name) == "alb":
            yield Charge("network", title_of(resource), "", "application_load_balancer", region, resource.urn, (1, 1, 1))
        else:
            yield Uncounted(title_of(resource), f"its ingress class '{text(name)}' may make a load balancer", resource.urn)
