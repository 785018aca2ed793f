"""What changes in the terms of a platform engineer: clusters, nodes, accelerators, models, images, replicas."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eks_inference_tools.reading.clusters import Cluster
from eks_inference_tools.reading.facts import Facts, ModelFact, NodeCapacity, facts_of
from eks_inference_tools.reading.workloads import Workload, requested
from stackgraph.diff.graphs import StackDiff
from stackgraph.graph.document import Graph
from stackgraph.graph.values import joined
from stackgraph.views.phrases import node_traits, nodes


@dataclass(frozen=True)
class FactRow:
    """One fact before and after; empty where it is not there."""

    about: str
    before: str
    after: str


def fact_rows(diff: StackDiff) -> tuple[FactRow, ...]:
    """The facts that differ; of a stack that is new, those that it has."""
    before, after = (_facts(graph) for graph in (diff.base, diff.head))
    found = (FactRow(about, before.get(about, ""), after.get(about, "")) for about in {**after, **before})
    order = [*after, *before]
    return tuple(sorted((row for row in found if row.before != row.after), key=lambda row: order.index(row.about)))


def _facts(graph: Graph | None) -> Mapping[str, str]:
    if graph is None:
        return {}
    facts = facts_of(graph)
    return dict(_texts(facts))


def _texts(facts: Facts) -> Iterator[tuple[str, str]]:
    for cluster in facts.clusters:
        yield f"cluster {cluster.name}", _cluster(cluster)
    for capacity in facts.capacity:
        yield f"nodes {capacity.name}", _nodes(capacity)
    for resource, amount in requested(facts.workloads).items():
        yield f"{resource} asked for", str(amount)
    for model in facts.models:
        yield f"model of {model.owner}", _model(model)
    for workload in facts.workloads:
        if workload.accelerators:
            yield workload.title, _workload(workload)


def _cluster(cluster: Cluster) -> str:
    return joined(f"Kubernetes {cluster.version}" if cluster.version else "", cluster.access, by=", ")


def _nodes(capacity: NodeCapacity) -> str:
    return joined(nodes(capacity), *node_traits(capacity), by=", ")


def _model(model: ModelFact) -> str:
    return joined(model.model, *(f"{key} {value}" for key, value in model.settings.items()), by=", ")


def _workload(workload: Workload) -> str:
    asks = (f"{amount} {resource.rpartition('/')[2]}" for resource, amount in workload.accelerators.items())
    return joined(f"{workload.replicas or '?'} × ({', '.join(asks)})", *workload.images, by=", ")
