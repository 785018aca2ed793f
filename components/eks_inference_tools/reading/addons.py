"""Reads EKS add-ons from a graph: configuration, and the workloads that the catalog lists for them. Pure."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import table, text

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
    return tuple(Addon(one) for one in graph.of_type(ADDON_TYPE) if not is_read(one))


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    return table(tomllib.loads(files("eks_inference_tools.reading").joinpath("addons.toml").read_text("utf-8")))
