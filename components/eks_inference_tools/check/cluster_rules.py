"""Rules EKS… about what a cluster needs for the resources that refer to it, about its region and the network of its nodes; and
NET006: images in a network without a route to the internet.

Add-ons and authentication are known only of clusters that the graph makes.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from eks_inference.catalog import versions
from eks_inference.catalog.zones import region_of_zone
from eks_inference.rules import Judgement, not_judged, rule
from eks_inference_tools.reading.calendar import today
from eks_inference_tools.reading.clusters import REMOTE_CLUSTER_TYPE, is_auto
from eks_inference_tools.reading.graph_facts import GraphFacts, walk
from eks_inference_tools.reading.machines import SUBNET_TYPE
from eks_inference_tools.reading.node_groups import NODE_GROUP_TYPE
from eks_inference_tools.reading.node_pools import NODE_CLASS_TYPE
from eks_inference_tools.reading.releases import addons
from eks_inference_tools.reading.scalars import is_true
from stackgraph.graph.describe import short_type
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import at, grouped, is_token, items, table, text, texts
from stackgraph.graph.wording import counted

_AGENT = "eks-pod-identity-agent"
_MONITOR = "eks-node-monitoring-agent"


@rule(
    "EKS001",
    "A cluster whose pods get roles by Pod Identity runs the agent for it.",
    fix=f"install the add-on {_AGENT} on the cluster",
    source="EKS user guide, Set up the Amazon EKS Pod Identity Agent; Auto Mode contains it",
)
def agent_of_pod_identity(facts: GraphFacts) -> Iterator[Judgement]:
    found = _installed(facts, _AGENT)
    associations = facts.graph.of_type("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    if not facts.clusters and not found:
        # Components of ours ask the handle of the cluster, and tell what it does not say.
        above = Structure(facts.graph).above
        parents = {resource.urn: [facts.graph.by_urn[urn].package for urn in above(resource.urn)] for resource in associations}
        associations = [association for association in associations if "eks-inference" not in parents[association.urn]]
        if not associations:
            return
        unknown = not_judged(
            "the agent of Pod Identity",
            text(associations[0].inputs.get("clusterName")) or "the cluster",
            (),
            why=f"the program does not make the cluster, which may or may not have the add-on {_AGENT}",
            fix=f"ask `aws eks list-addons`, and install {_AGENT} where it is missing",
        )
        yield replace(unknown, resource=associations[0].urn)
        return
    for association in associations:
        account = f"{text(association.inputs.get('namespace'))}/{text(association.inputs.get('serviceAccount'))}"
        yield Judgement(
            holds=bool(found),
            path=(),
            working=(f"{association.name}: {account} gets its role from {', '.join(found) or 'nothing: there is no agent'}",),
            message=f"{association.name} gives {account} a role, but its cluster has no add-on {_AGENT}: its pods get no role",
            given="no agent",
            allowed=_AGENT,
            resource=association.urn,
        )


def _installed(facts: GraphFacts, wanted: str) -> list[str]:
    """What brings an add-on, in words. One whose name is unknown may be it; Auto Mode has both agents."""
    installed = [*(addon.resource for addon in addons(facts.graph)), *facts.graph.of_type("eks:index:Addon")]
    found = [resource.name for resource in installed if (name := resource.inputs.get("addonName")) == wanted or is_token(name)]
    found += [f"chart {chart.resource.name}" for chart in facts.charts if chart.name == wanted]
    return found + [f"Auto Mode of {cluster.name}" for cluster in facts.clusters if is_auto(cluster)]


@rule(
    "EKS002",
    "A cluster with access entries authenticates by them.",
    fix="set the authentication mode to API_AND_CONFIG_MAP or API; it cannot be changed back",
    source="EKS user guide, Change authentication mode; EKS API, CreateAccessConfigRequest: CONFIG_MAP is the default",
)
def access_entries_are_read(facts: GraphFacts) -> Iterator[Judgement]:
    modes = {cluster.urn: _authentication_mode(cluster) for cluster in facts.clusters}
    if len(modes) != 1 or any(map(is_token, modes.values())):
        return
    ((urn, mode),) = modes.items()
    cluster = facts.graph.by_urn[urn]
    entries = [(one, f"{short_type(one.type)} {one.name}") for type_ in _ENTRIES for one in facts.graph.of_type(type_)]
    entries += [(cluster, f"its access entry {text(key)}") for key in table(cluster.inputs.get("accessEntries"))]
    for entry, title in entries:
        if is_read(entry):
            continue
        yield Judgement(
            holds=mode.startswith("API"),
            path=(),
            working=(f"{title}: cluster {cluster.name} authenticates by {mode or 'CONFIG_MAP (the default)'}",),
            message=f"EKS refuses {title}: the authentication mode of cluster {cluster.name} is CONFIG_MAP",
            given=mode or "no authentication mode",
            allowed="API_AND_CONFIG_MAP, API",
            resource=entry.urn,
        )


_ENTRIES = ("aws:eks/accessEntry:AccessEntry", "aws:eks/accessPolicyAssociation:AccessPolicyAssociation")


def _authentication_mode(cluster: Resource) -> str:
    """Its authentication mode. Empty when it has none; Auto Mode needs access entries, and EKS refuses it otherwise."""
    given = cluster.inputs if cluster.type == REMOTE_CLUSTER_TYPE else cluster.inputs.get("accessConfig")
    return text(at(given, "authenticationMode")) or ("API (Auto Mode)" if is_auto(cluster) else "")


@rule(
    "EKS005",
    "A cluster that repairs nodes runs the agent that sees failed accelerators.",
    severity="warning",
    fix=f"install the add-on {_MONITOR} on the cluster, or turn node repair off",
    source="EKS user guide, Automatically repair nodes: the condition AcceleratedHardwareReady comes from the agent",
)
def repair_sees_accelerators(facts: GraphFacts) -> Iterator[Judgement]:
    found = _installed(facts, _MONITOR)
    repaired = [one for one in facts.graph.of_type(NODE_GROUP_TYPE) if is_true(at(one.inputs, "nodeRepairConfig", "enabled"))]
    repaired += [chart.resource for chart in facts.charts if is_true(at(chart.values, "settings", "featureGates", "nodeRepair"))]
    for resource in repaired if facts.clusters else ():
        yield Judgement(
            holds=bool(found),
            path=(),
            working=(f"{resource.name} repairs nodes; agent: {', '.join(found) or 'none'}",),
            message=f"{resource.name} repairs nodes, but nothing reports failed accelerators: there is no add-on {_MONITOR}",
            given="no agent",
            allowed=_MONITOR,
            resource=resource.urn,
        )


@rule(
    "EKS003",
    "A region that is given twice is the same region.",
    fix="give settings, zones and provider the same region",
    source="AWS provider, region; StackSettings.region, from which zones, kubeconfig and endpoints follow",
)
def one_region(facts: GraphFacts) -> Iterator[Judgement]:
    subnets = [resource for resource in facts.graph.of_type(SUBNET_TYPE) if not is_read(resource)]
    found = grouped(((one.property_dependencies.get("vpcId"), one.provider, _region_of_zone(one)), one) for one in subnets)
    for (_, _, other), inside in found.items():
        what = f"{counted(len(inside), 'subnet')} ({', '.join(one.name for one in inside[:2])}{', …' if inside[2:] else ''})"
        yield from _same(inside[0], _region_of(inside[0], facts), other, what, "zones")
    for resource in filter(_is_of_eks, facts.graph.resources):
        urns = [urn for key in ("clusterName", "subnetIds") for urn in resource.property_dependencies.get(key, ())]
        others = [facts.graph.by_urn[urn] for urn in urns if urn in facts.graph.by_urn]
        for region, other in {_region_of(other, facts): other for other in others}.items():
            yield from _same(resource, _region_of(resource, facts), region, resource.name, other.name)
    regions_of_cluster = {_region_of(resource, facts) for resource in facts.graph.resources if _is_of_eks(resource)} - {""}
    for provider in facts.graph.of_type("pulumi:providers:kubernetes") if len(regions_of_cluster) == 1 else ():
        (region,) = regions_of_cluster
        asked = _region_of_token(provider.inputs.get("kubeconfig"))
        yield from _same(provider, region, asked, f"the cluster of provider {provider.name}", "kubeconfig")


def _same(resource: Resource, region: str, other: str, what: str, whose: str) -> Iterator[Judgement]:
    if region and other:
        yield Judgement(
            holds=region == other,
            path=(),
            working=(f"{what}: AWS provider for {region}; {whose} of {other}",),
            message=f"the AWS provider makes {what} in {region}, with {whose} of {other}",
            given=other,
            allowed=region,
            resource=resource.urn,
        )


def _is_of_eks(resource: Resource) -> bool:
    return resource.type.startswith("aws:eks/") and not is_read(resource)


def _region_of(resource: Resource, facts: GraphFacts) -> str:
    """The region of a resource: its own, else its provider's. Empty when unknown."""
    provider = facts.graph.by_urn.get(resource.provider)
    region = text(resource.inputs.get("region")) or (text(provider.inputs.get("region")) if provider else "")
    return "" if is_token(region) else region


def _region_of_zone(subnet: Resource) -> str:
    """The region of a subnet's zone: us-west-2a by its name, usw2-az4 by the catalog. Empty when it is unknown."""
    name, id_ = (text(subnet.inputs.get(key)) for key in ("availabilityZone", "availabilityZoneId"))
    if named := re.fullmatch(r"([a-z]{2}(?:-[a-z]+)+-\d)[a-z]", name):
        return named[1]
    return region_of_zone(id_)


def _region_of_token(kubeconfig: Any) -> str:
    """The region of which a kubeconfig in JSON asks for a token. Empty when it asks for none, or is no JSON."""
    try:
        users = items(at(json.loads(text(kubeconfig) or "{}"), "users"))
    except (ValueError, RecursionError):
        return ""
    words = [word for user in users for word in texts(at(user, "user", "exec", "args"))]
    found = {following for word, following in pairwise(words) if word == "--region"}
    return found.pop() if len(found) == 1 else ""


_NOTICE_DAYS = 60
_PER_HOUR = "0.10 USD an hour in standard support, 0.60 in extended support (Amazon EKS, Pricing)"


@rule(
    "EKS004",
    f"The Kubernetes version is in standard support for the next {_NOTICE_DAYS} days.",
    severity="warning",
    fix="update the cluster one minor version at a time; then the node groups, add-ons and schedulers",
    source="EKS user guide, Kubernetes versions; Amazon EKS pricing",
)
def version_is_supported(facts: GraphFacts) -> Iterator[Judgement]:
    version = facts.kubernetes_version
    try:
        support = versions.support(version)
    except KeyError:
        return
    days = (support.standard - today()).days
    message = f"standard support of Kubernetes {version} {'ended' if days < 0 else 'ends'} on {support.standard}"
    yield Judgement(
        holds=days >= _NOTICE_DAYS,
        path=(),
        working=(f"{message}, extended support on {support.extended}; the control plane costs {_PER_HOUR}",),
        message=f"{message}; from then on the control plane costs six times as much",
        given=version,
        resource=facts.clusters[0].urn,
    )


_VPC_TYPE = "aws:ec2/vpc:Vpc"


@rule(
    "EKS006",
    "Nodes are in the VPC of their cluster.",
    fix="pass the pool the network that the cluster was made in",
    source="EKS API, CreateNodegroup: subnets; EKS user guide, VPC and subnet requirements: nodes are in the cluster's VPC",
)
def nodes_are_in_the_vpc(facts: GraphFacts) -> Iterator[Judgement]:
    if len(facts.clusters) != 1:
        return
    graph = facts.graph
    expected = _vpcs(graph, facts.clusters[0])
    for nodes in (resource for type_ in (NODE_GROUP_TYPE, NODE_CLASS_TYPE) for resource in graph.of_type(type_)):
        found = _vpcs(graph, nodes)
        # What the program does not make is not known to be the same, or another.
        if found and expected:
            theirs, ours = (", ".join(sorted(graph.by_urn[urn].name for urn in urns)) for urns in (found, expected))
            yield Judgement(
                holds=found == expected,
                path=(),
                working=(f"{nodes.name}: {theirs}; cluster {facts.clusters[0].name}: {ours}",),
                message=f"{nodes.name} starts nodes in another VPC than the cluster's: they never join",
                given=theirs,
                allowed=ours,
                resource=nodes.urn,
            )


def _vpcs(graph: Graph, resource: Resource) -> set[str]:
    """Returns the VPCs that a resource names, or that its subnets are in, among those that the program makes."""
    named = {urn for urns in resource.property_dependencies.values() for urn in urns}
    named |= {
        urn
        for subnet in (graph.by_urn[one] for one in named if one in graph.by_urn)
        if subnet.type == SUBNET_TYPE
        for urn in subnet.property_dependencies.get("vpcId", ())
    }
    return {urn for urn in named if urn in graph.by_urn and graph.by_urn[urn].type == _VPC_TYPE}


# A registry that is not listed may be in reach of the VPC.
_PUBLIC = ("docker.io", "gcr.io", "ghcr.io", "mcr.microsoft.com", "nvcr.io", "public.ecr.aws", "quay.io", "registry.k8s.io")

_ROUTES_OUT = ("carrierGatewayId", "coreNetworkArn", "localGatewayId", "natGatewayId", "networkInterfaceId", "transitGatewayId")
"""Targets of a default route of private subnets, besides peering, which is not transitive."""

_ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"


@rule(
    "NET006",
    "In a network without internet, images come from a registry within its reach.",
    fix="copy the images into ECR of the region or another registry in reach, and name it in mirrors",
    source="Amazon ECR user guide, interface VPC endpoints: private repositories of the region; without a host, an image is on "
    "docker.io (distribution/reference)",
)
def images_are_in_reach(facts: GraphFacts) -> Iterator[Judgement]:
    if not _cut_off(facts):
        return
    regions = {
        part[2] for one in facts.graph.of_type(_ENDPOINT) if len(part := text(one.inputs.get("serviceName")).split(".")) > 3
    }
    found = {image: (title, pod.urn) for pod, container, title in facts.containers if (image := container.image)}
    for chart in facts.charts:
        for path, value in walk(chart.values):
            if path[-1] == "repository":
                registry = text(at(chart.values, *path[:-1], "registry"))
                image = f"{registry}/{text(value)}" if registry else text(value)
                found.setdefault(image, (f"chart {chart.resource.name}: {'.'.join(path[:-1])}", chart.resource.urn))
    for image, (title, urn) in sorted(found.items()):
        host = _registry(image)
        where = "in another region" if ".dkr.ecr." in host else "on the internet"
        elsewhere = ".dkr.ecr." in host and not any(f".dkr.ecr.{region}." in host for region in regions)
        yield Judgement(
            holds=host not in _PUBLIC and not elsewhere,
            path=(),
            working=(f"{title}: {image}",),
            message=f"{title}: {host} is {where}, and the nodes have no way there",
            given=image,
            resource=urn,
        )


def _registry(image: str) -> str:
    """The first part of a path is a host if it has a dot or a port (distribution/reference); ``nginx:1.27`` is only a name."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"


def _cut_off(facts: GraphFacts) -> bool:
    """Whether the program makes the network of the cluster, and its nodes have no way to the internet."""
    graph = facts.graph
    inside = {vpc.urn for vpc in graph.of_type("aws:ec2/vpc:Vpc") if not is_read(vpc)}
    inside &= {urn for cluster in facts.clusters for urn in _needs(graph, cluster)}
    if not inside:
        return False

    def within(type_: str) -> Iterator[Resource]:
        return (resource for resource in graph.of_type(type_) if inside & _needs(graph, resource))

    tables = within("aws:ec2/routeTable:RouteTable")
    routes = [
        *(route.inputs for route in within("aws:ec2/route:Route")),
        *(route for table in tables for route in items(table.inputs.get("routes"))),
    ]
    public = any(at(subnet.inputs, "mapPublicIpOnLaunch") for subnet in within("aws:ec2/subnet:Subnet"))
    return not public and not any(at(route, way) for route in routes for way in _ROUTES_OUT)


def _needs(graph: Graph, resource: Resource) -> set[str]:
    """The URNs of everything that a resource depends on."""
    found: set[str] = set()
    todo = [resource]
    while todo:
        one = todo.pop()
        new = {*one.dependencies, *(urn for urns in one.property_dependencies.values() for urn in urns)} - found
        found |= new
        todo += [graph.by_urn[urn] for urn in new if urn in graph.by_urn]
    return found
