"""The recorded graph: one canonical document of which tree, manifests, diagrams and diffs are views."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

SCHEMA = 1
STACK_TYPE = "pulumi:pulumi:Stack"
CHART_TYPE = "kubernetes:helm.sh/v3:Release"
PROVIDER_PREFIX = "pulumi:providers:"


@dataclass(frozen=True)
class Resource:
    """One registered resource.

    ``inputs`` have wire names (camelCase); ``"[secret]"`` stands for a secret, ``"<unknown>"`` for a value that only a deployment
    knows, ``"<name.property>"`` for the output of another resource. ``dependencies``, ``parent`` and ``provider`` are URNs.
    ``options`` holds only what differs from the default. ``source`` is ``file:line`` of the call that made it.
    """

    urn: str
    type: str
    name: str
    parent: str = ""
    custom: bool = True
    remote: bool = False
    provider: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    dependencies: tuple[str, ...] = ()
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def is_provider(self) -> bool:
        return self.type.startswith(PROVIDER_PREFIX)

    @property
    def is_default_provider(self) -> bool:
        return self.is_provider and self.name.startswith("default")

    @property
    def package(self) -> str:
        return self.type.split(":", 1)[0]

    def document(self) -> dict[str, Any]:
        return {
            "urn": self.urn,
            "type": self.type,
            "name": self.name,
            "parent": self.parent,
            "custom": self.custom,
            "remote": self.remote,
            "provider": self.provider,
            "inputs": self.inputs,
            "dependencies": list(self.dependencies),
            "propertyDependencies": {key: list(urns) for key, urns in sorted(self.property_dependencies.items())},
            "options": self.options,
            "source": self.source,
        }


def is_component(resource: Resource) -> bool:
    """A component whose inside the graph knows."""
    return not resource.custom and not resource.remote and resource.type != STACK_TYPE


def is_opaque(resource: Resource) -> bool:
    """A chart or remote component: the graph does not know its inside (``Graph.opaque``)."""
    return resource.remote or resource.type == CHART_TYPE


def is_read(resource: Resource) -> bool:
    """A resource that the program only looks up (``.get``)."""
    return "read" in resource.options


@dataclass(frozen=True)
class Graph:
    """What a program registers: ``resources`` sorted by URN, stack ``outputs``, and warnings the program logged."""

    project: str
    stack: str
    resources: tuple[Resource, ...]
    outputs: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @cached_property
    def by_urn(self) -> Mapping[str, Resource]:
        return {resource.urn: resource for resource in self.resources}

    @cached_property
    def children(self) -> Mapping[str, tuple[Resource, ...]]:
        """Children by the URN of their parent; ``""`` holds the roots."""
        found: dict[str, list[Resource]] = {}
        for resource in self.resources:
            found.setdefault(resource.parent, []).append(resource)
        return {urn: tuple(resources) for urn, resources in found.items()}

    @property
    def opaque(self) -> tuple[Resource, ...]:
        """Charts and remote components: what is inside them is only known to a plugin or a cluster."""
        return tuple(filter(is_opaque, self.resources))

    def of_type(self, type_: str) -> list[Resource]:
        return [resource for resource in self.resources if resource.type == type_]

    def named(self, name: str) -> Resource:
        """The one resource of that logical name; ``LookupError`` when there is none or more than one."""
        found = [resource for resource in self.resources if resource.name == name]
        if len(found) != 1:
            raise LookupError(f"{len(found)} resources are named {name!r}: {[r.urn for r in found]}")
        return found[0]

    def document(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "project": self.project,
            "stack": self.stack,
            "resources": [resource.document() for resource in self.resources],
            "outputs": self.outputs,
            "opaque": [resource.urn for resource in self.opaque],
        }

    def to_json(self) -> str:
        """Canonical text: equal graphs give equal bytes."""
        return json.dumps(self.document(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
