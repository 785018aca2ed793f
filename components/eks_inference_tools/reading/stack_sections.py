"""Builds the sections that views show beside the resources of a stack: clusters, capacity, workloads, models, endpoints."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eks_inference_tools.reading.cluster_words import (
    NodeCapacity,
    asks,
    cluster_version,
    label,
    node_capacity,
    node_kind,
    node_traits,
    nodes,
    selected_nodes,
)
from eks_inference_tools.reading.clusters import Cluster, clusters, parts
from eks_inference_tools.reading.endpoints import Endpoint, endpoints
from eks_inference_tools.reading.served_models import ModelFact, Workload, models, requested, workloads
from stackgraph.domain import Cell, Form, Listing, Part, Row, Section
from stackgraph.graph.document import Graph
from stackgraph.graph.values import joined
from stackgraph.graph.wording import GAP


@dataclass(frozen=True)
class Overview:
    """What a platform engineer looks for in a graph."""

    clusters: tuple[Cluster, ...]
    capacity: tuple[NodeCapacity, ...]
    workloads: tuple[Workload, ...]
    models: tuple[ModelFact, ...]
    endpoints: tuple[Endpoint, ...]


def overview_of(graph: Graph) -> Overview:
    """The overview of a graph. Accepts values that are secret, unknown or of an unexpected type."""
    graphs = [part.graph for part in parts(graph)]
    running = tuple(workload for each in graphs for workload in workloads(each))
    return Overview(
        clusters=clusters(graph),
        capacity=tuple({one.urn: one for each in graphs for one in node_capacity(each)}.values()),
        workloads=running,
        models=tuple(models(graph, running)),
        endpoints=tuple({endpoint.urn: endpoint for each in graphs for endpoint in endpoints(each)}.values()),
    )


def sections(graph: Graph) -> Iterator[Section]:
    """The sections of a graph, in the order in which views show them."""
    facts = overview_of(graph)
    yield _clusters(facts.clusters)
    yield _capacity(facts.capacity)
    yield _workloads(facts.workloads)
    yield _models(facts.models)
    yield _endpoints(facts.endpoints)


def _clusters(clusters: Sequence[Cluster]) -> Section:
    listed = [Row((cluster.name, joined(cluster_version(cluster), cluster.access, by=", "))) for cluster in clusters]
    rows = [(_name(cluster.name, cluster.urn), _cell(cluster_version(cluster)), _cell(cluster.access)) for cluster in clusters]
    return Section("Clusters", [Listing((), listed)], ("Cluster", "Version", "API"), rows)


def _capacity(capacity: Sequence[NodeCapacity]) -> Section:
    listed, rows = [], []
    for pool in capacity:
        labels = [label(key, value) for key, value in pool.labels.items()]
        details = {"": node_traits(pool), "labels": labels, "taints": pool.taints}
        listed.append(Row((pool.name, nodes(pool), node_kind(pool)), details))
        whole_labels = ("=".join(part for part in pair if part) for pair in pool.labels.items())
        rows.append(
            (
                _name(pool.name, pool.urn, node_kind(pool)),
                _cell(nodes(pool)),
                _cell(*node_traits(pool), form="line"),
                (Part(tuple(whole_labels), "chip"), Part(pool.taints, "warning chip")),
            )
        )
    columns = ("Pool", "Nodes", "Each", "Labels and taints")
    return Section("Capacity", [Listing(("POOL", "NODES", "KIND"), listed)], columns, rows)


def _workloads(workloads: tuple[Workload, ...]) -> Section:
    listed, rows = [], []
    for workload in workloads:
        details = {"": workload.images, "on": selected_nodes(workload)}
        listed.append(Row((workload.title, workload.replicas, ", ".join(asks(workload))), details))
        name = joined(workload.namespace, workload.name, by="/")
        rows.append(
            (
                _name(name, workload.urn, joined(workload.kind, workload.part, by=", ")),
                _cell(workload.replicas),
                _cell(*asks(workload), form="line"),
                (Part(workload.images, "code"), Part(selected_nodes(workload), "chip")),
            )
        )
    amounts = ", ".join(f"{amount} {resource}" for resource, amount in requested(workloads).items())
    columns = ("Workload", "Pods", "Requests per pod", "Images and required nodes")
    listings = [Listing(("WORKLOAD", "PODS", "REQUESTS PER POD"), listed)]
    return Section("Workloads", listings, columns, rows, ("initial total", amounts))


def _models(models: Sequence[ModelFact]) -> Section:
    listed, rows = [], []
    for fact in models:
        settings = tuple(joined(key, value) for key, value in fact.settings.items())
        listed.append(Row((fact.model, joined(fact.owner, fact.owner_type, by=GAP)), {"": settings}))
        served_by = (Part((fact.owner,)), Part((fact.owner_type,), "note"))
        rows.append((_cell(fact.model, form="strong"), served_by, _cell(*settings, form="chip")))
    return Section("Models", [Listing(("MODEL", "SERVED BY"), listed)], ("Model", "Served by", "Settings"), rows)


def _endpoints(endpoints: Sequence[Endpoint]) -> Section:
    rows = []
    for endpoint in endpoints:
        reach = _cell("outside the cluster", form="warning") if endpoint.outside else _cell("pods only")
        name = _name(joined(endpoint.namespace, endpoint.name, by="/"), endpoint.urn, endpoint.kind)
        rows.append((name, _cell(endpoint.type), _cell(*endpoint.ports, *endpoint.hosts, form="line"), reach))
    outside = _listed(endpoint for endpoint in endpoints if endpoint.outside)
    inside = _listed(endpoint for endpoint in endpoints if not endpoint.outside)
    listings = [
        Listing(("REACHABLE FROM OUTSIDE THE CLUSTER", "TYPE", "PORTS"), outside, "warning"),
        Listing(("REACHABLE BY PODS ONLY", "TYPE", "PORTS"), inside),
    ]
    return Section("Endpoints", listings, ("Endpoint", "Type", "Ports", "Reachable from"), rows)


def _listed(endpoints: Iterable[Endpoint]) -> list[Row]:
    return [
        Row(
            (
                joined(endpoint.kind, joined(endpoint.namespace, endpoint.name, by="/")),
                endpoint.type,
                ", ".join((*endpoint.ports, *endpoint.hosts)),
            )
        )
        for endpoint in endpoints
    ]


def _name(name: str, urn: str, kind: str = "") -> Cell:
    """The first cell of a row: the name of a resource, with its kind below."""
    return (Part((name,), urn=urn), Part((kind,), "note"))


def _cell(*texts: str, form: Form = "text") -> Cell:
    return (Part(texts, form),)
