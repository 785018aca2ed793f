"""Reads Helm charts and their values from a graph. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stackgraph.graph.describe import CHART_TYPE
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import table, text

V4_CHART_TYPE = "kubernetes:helm.sh/v4:Chart"
CHART_TYPES = (CHART_TYPE, V4_CHART_TYPE)


@dataclass(frozen=True, eq=False)
class Chart:
    """A Helm chart. ``reference`` is the given name, path or URL, ``name`` its last part, ``release`` the name of the release."""

    resource: Resource
    reference: str
    name: str
    release: str
    namespace: str
    version: str
    values: Mapping[str, Any]


def charts(graph: Graph) -> tuple[Chart, ...]:
    """The charts that the graph installs. Leaves out releases that it only reads."""
    return tuple(chart_of(one) for one in graph.resources if one.type in CHART_TYPES and not is_read(one))


def chart_of(resource: Resource) -> Chart:
    """Reads the resource of a Helm chart."""
    inputs = resource.inputs
    return Chart(
        resource=resource,
        reference=text(inputs.get("chart")),
        name=text(inputs.get("chart")).rstrip("/").rpartition("/")[2],
        release=text(inputs.get("name")) or text(resource.name),
        namespace=text(inputs.get("namespace")) or "default",
        version=text(inputs.get("version")),
        values=table(inputs.get("values")),
    )
