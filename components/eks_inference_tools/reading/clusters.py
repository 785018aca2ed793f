"""Reads EKS clusters from a graph, divides it among them, and what each ``InferencePlatform`` recorded about itself. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import yaml

from eks_inference.faults import did_you_mean
from eks_inference.rules import NotJudged
from eks_inference_tools.reading.scalars import is_true
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import at, is_token, items, table, text, texts
from stackgraph.problems import Problem, ProblemsFound

CLUSTER_TYPE = "aws:eks/cluster:Cluster"
REMOTE_CLUSTER_TYPE = "eks:index:Cluster"
PLATFORM = "eks-inference:index:InferencePlatform"


@dataclass(frozen=True)
class Cluster:
    """An EKS control plane."""

    urn: str
    name: str
    version: str
    access: str
    """Who can reach its API, in words."""


def clusters(graph: Graph) -> tuple[Cluster, ...]:
    """The clusters that the graph makes. Leaves out clusters that it only reads."""
    return tuple(_cluster(resource) for resource in cluster_resources(graph))


def cluster_resources(graph: Graph) -> tuple[Resource, ...]:
    return tuple(r for r in graph.resources if r.type in (CLUSTER_TYPE, REMOTE_CLUSTER_TYPE) and not is_read(r))


def is_auto(cluster: Resource) -> bool:
    """Whether EKS starts nodes for its pods (Auto Mode)."""
    return is_true(at(cluster.inputs, "autoMode" if cluster.type == REMOTE_CLUSTER_TYPE else "computeConfig", "enabled"))


def public_networks(cluster: Resource) -> tuple[str, ...] | None:
    """The networks from which the public API endpoint is reachable. Empty when it is off, None when that is unknown.

    By default, EKS makes the endpoint public to all networks.
    """
    public = at(_network(cluster), "endpointPublicAccess")
    if is_token(public):
        return None
    return texts(at(_network(cluster), "publicAccessCidrs")) or ("0.0.0.0/0",) if public is None or is_true(public) else ()


def _network(cluster: Resource) -> Any:
    return cluster.inputs if cluster.type == REMOTE_CLUSTER_TYPE else cluster.inputs.get("vpcConfig")


def _cluster(resource: Resource) -> Cluster:
    private, networks = at(_network(resource), "endpointPrivateAccess"), public_networks(resource)
    reach = [*(["private"] if private else []), *([f"public to {', '.join(networks)}"] if networks else [])]
    access = f"endpoint {' and '.join(reach)}" if reach else ""
    return Cluster(
        urn=resource.urn,
        name=text(resource.inputs.get("name")) or text(resource.name),
        version=text(resource.inputs.get("version")),
        access="endpoint access unknown" if networks is None or is_token(private) else access,
    )


# How a graph is divided. Everything that asks what one cluster has looks at one part, so that two clusters in one program are
# judged like two programs. A part has what belongs to its cluster and everything that belongs to none, such as networks, roles
# and buckets outside platforms.

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PROVIDER = "pulumi:providers:kubernetes"
_REACHING = ("kubeconfig", "context", "cluster", "clusterIdentifier")
"""Properties of a Kubernetes provider that say which cluster it reaches."""
_FROM_OUTSIDE = "the cluster of the environment"
"""What default providers reach: the cluster of the machine's own kubeconfig."""


@dataclass(frozen=True)
class Part:
    """One cluster of a graph with everything around it. ``cluster`` is its name, else that of its Kubernetes provider."""

    cluster: str
    graph: Graph


def parts(graph: Graph) -> tuple[Part, ...]:
    """The parts of a graph, one for each cluster: made in the graph, named by its resources, or reached by its providers.

    A graph with at most one cluster is a single part.
    """
    homes = _Homes(graph).found
    clusters = sorted({one for found in homes.values() for one in found})
    if len(clusters) < 2:
        return (Part(_shown(clusters[0], graph) if clusters else "", graph),)
    return tuple(
        Part(
            _shown(cluster, graph),
            replace(graph, resources=tuple(r for r in graph.resources if cluster in homes.get(r.urn, (cluster,)))),
        )
        for cluster in clusters
    )


def part_of(graph: Graph, cluster: str | None) -> Graph:
    """The part of the named cluster, for what looks at one cluster. ``cluster`` may be None when there is only one.

    Raises ``ProblemsFound`` when there are several clusters and none is named, or none has the name.
    """
    found = parts(graph)
    named = [part.graph for part in found if cluster in (None, part.cluster)]
    if len(named) == 1:
        return named[0]
    names = sorted(part.cluster for part in found if part.cluster)
    message = f"the program has {len(found)} clusters: name one" if cluster is None else "the program has no such cluster"
    if len(named) > 1 and cluster:
        message = f"the program has {len(named)} clusters of this name, and they cannot be told apart"
    hint = did_you_mean(cluster or "", names)
    raise ProblemsFound([Problem(message, key="--cluster", given=cluster or "", allowed=", ".join(names), hint=hint)])


def _shown(cluster: str, graph: Graph) -> str:
    resource = graph.by_urn.get(cluster)
    return text(resource.inputs.get("name")) or text(resource.name) if resource else cluster


class _Homes:
    """Finds the clusters of resources: the URN of a cluster or of its provider, or its name when it is made elsewhere."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made: Mapping[str, Resource] = {resource.urn: resource for resource in cluster_resources(graph)}
        named = {one.urn: self._named(one) for one in graph.resources if one.package != "kubernetes" and not one.is_provider}
        named |= {urn: urn for urn in self.made}
        elsewhere = sorted({one for one in named.values() if one} - self.made.keys())
        reached = {resource.urn: self._reached(resource, elsewhere) for resource in graph.resources if resource.type == _PROVIDER}
        objects = {resource.urn: resource.provider for resource in graph.resources if resource.package == "kubernetes"}
        reached |= {provider: provider or _FROM_OUTSIDE for provider in objects.values() if provider not in reached}
        self._join(set(named.values()) - {""}, reached)
        unknown = sorted(one for one in set(reached.values()) if one not in self.made and one not in elsewhere)
        self.found: dict[str, tuple[str, ...]] = {urn: (reached[provider],) for urn, provider in objects.items()}
        self.found |= {urn: (cluster,) for urn, cluster in reached.items() if urn in graph.by_urn}
        for urn, cluster in named.items():
            # Any of the providers that nobody can tell may reach a cluster that is made elsewhere.
            if cluster:
                lone = cluster in elsewhere and cluster not in reached.values()
                self.found[urn] = tuple(unknown) if lone and unknown else (cluster,)
        # What else an InferencePlatform made, such as its network, belongs to its cluster, and so does its budget.
        for platform in graph.of_type(PLATFORM):
            inside = self._inside(platform.urn)
            for cluster in inside & self.made.keys():
                self.found |= dict.fromkeys(inside - self.found.keys(), (cluster,))

    def _inside(self, urn: str) -> set[str]:
        found, left = set[str](), [urn]
        while left:
            found.add(one := left.pop())
            left += [child.urn for child in self.graph.children.get(one, ()) if child.urn not in found]
        return found

    def _named(self, resource: Resource) -> str:
        """The cluster that an EKS resource names. Empty when it names none, or one that only a deployment knows."""
        if not resource.type.startswith(("aws:eks/", "eks:")) or resource.urn in self.made:
            return ""
        # Remote components of pulumi-eks take the cluster itself.
        given = (*resource.property_dependencies.get("clusterName", ()), at(resource.inputs, "cluster", "resource"))
        if urn := next((urn for urn in given if urn in self.made), ""):
            return urn
        name = text(resource.inputs.get("clusterName"))
        candidates = [urn for urn, one in self.made.items() if _shown(urn, self.graph) == name]
        near = [urn for urn in candidates if self._region(self.made[urn]) == self._region(resource)]
        return "" if is_token(name) else next(iter((*near, *candidates)), name)

    def _region(self, resource: Resource) -> str:
        provider = self.graph.by_urn.get(resource.provider)
        return text(provider.inputs.get("region")) if provider else ""

    def _reached(self, provider: Resource, elsewhere: list[str]) -> str:
        """The cluster that a provider reaches: made in the graph, named in its settings, else known by these settings."""
        urns = {urn for key in _REACHING for urn in provider.property_dependencies.get(key, ()) if urn in self.made}
        if len(urns) == 1:
            return urns.pop()
        if provider.is_default_provider:
            return _FROM_OUTSIDE
        said = set(_names(provider))
        names = {**{name: name for name in elsewhere}, **{_shown(urn, self.graph): urn for urn in self.made}}
        named = [cluster for name, cluster in names.items() if name in said]
        if len(named) == 1:
            return named[0]
        known = any(_settings(provider)) and not any(map(is_token, _settings(provider)))
        same = (resource for resource in self.graph.of_type(_PROVIDER) if _settings(resource) == _settings(provider))
        return next(same, provider).urn if known else provider.urn

    @staticmethod
    def _join(clusters: set[str], reached: dict[str, str]) -> None:
        """Joins the only cluster without a provider with the only provider without a cluster."""
        lonely = clusters - set(reached.values())
        unknown = set(reached.values()) - clusters
        if len(lonely) == 1 and len(unknown) == 1:
            (cluster,), (provider,) = lonely, unknown
            reached |= {urn: cluster for urn, one in reached.items() if one == provider}


def _settings(provider: Resource) -> list[str]:
    return [text(provider.inputs.get(key)) for key in _REACHING]


def _names(provider: Resource) -> Iterator[str]:
    """The names of clusters in the settings of a provider. Contexts of EKS are names or ARNs."""
    kubeconfig = provider.inputs.get("kubeconfig")
    try:
        # JSON is YAML; a path of a file is a text.
        document = yaml.load(kubeconfig, Loader=_Loader) if isinstance(kubeconfig, str) else None
    except (yaml.YAMLError, RecursionError, ValueError):
        document = None
    words = [word for user in items(at(document, "users")) for word in texts(at(user, "user", "exec", "args"))]
    given = [
        *(text(provider.inputs.get(key)) for key in ("clusterIdentifier", "cluster", "context")),
        text(at(document, "current-context")),
        *(following for word, following in pairwise(words) if word in ("--cluster-name", "-i")),
    ]
    return (one.rpartition(":cluster/")[2] for one in given if one)


def not_judged(graph: Graph) -> Iterator[NotJudged]:
    """Yields what platforms could not judge of their servers, with their URN."""
    for platform in graph.of_type(PLATFORM):
        for each in map(table, items(platform.inputs.get("notJudged"))):
            path = tuple(int(key) if isinstance(key, float) else key for key in items(each.get("path")))
            what = tuple(map(text, items(each.get("what"))))
            yield NotJudged(path, what, text(each.get("of")), text(each.get("why")), text(each.get("fix")), platform.urn)
