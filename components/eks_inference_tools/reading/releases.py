"""Reads Helm charts with their values, and EKS add-ons with their configuration and workloads, from a graph. Pure."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from stackgraph.graph.describe import CHART_TYPE
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import is_token, table, text

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
    return tuple(chart_of(resource) for resource in graph.resources if resource.type in CHART_TYPES and not is_read(resource))


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


ADDON_TYPE = "aws:eks/addon:Addon"


@dataclass(frozen=True, eq=False)
class Addon:
    """An EKS add-on."""

    resource: Resource

    @property
    def name(self) -> str:
        return text(self.resource.inputs.get("addonName"))

    @property
    def version(self) -> str:
        return text(self.resource.inputs.get("addonVersion"))

    @cached_property
    def configuration(self) -> Mapping[str, Any]:
        """Its ``configurationValues``. Empty when they are missing, unknown or not JSON."""
        values = self.resource.inputs.get("configurationValues")
        if not isinstance(values, str) or is_token(values):
            return {}
        try:
            return table(json.loads(values))
        except json.JSONDecodeError:
            return {}

    @property
    def runs(self) -> Mapping[str, Any] | None:
        """Its row of ``addons.toml``: namespace and names of its workloads. None when there is no row."""
        return _rows().get(self.name)


def addons(graph: Graph) -> tuple[Addon, ...]:
    """The add-ons that the graph installs."""
    return tuple(Addon(resource) for resource in graph.of_type(ADDON_TYPE) if not is_read(resource))


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    return table(tomllib.loads(files("eks_inference_tools.reading").joinpath("addons.toml").read_text("utf-8")))
