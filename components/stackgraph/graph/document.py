"""The recorded graph: one canonical document, which ``preview --format json`` writes and this reads. Tree, manifests, diagrams
and diffs are views of it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from stackgraph.graph.values import Sealed, grouped, mapped
from stackgraph.problems import Problem, ProblemsFound

SCHEMA = 1
STACK_TYPE = "pulumi:pulumi:Stack"
CHART_TYPE = "kubernetes:helm.sh/v3:Release"
PROVIDER_PREFIX = "pulumi:providers:"
RENDERED_TYPES = ("kubernetes:helm.sh/v3:Chart", "kubernetes:kustomize:Directory")
"""Components whose objects the provider renders from files: they have children only if an answer says what it renders."""
STACK_REFERENCE = "pulumi:pulumi:StackReference"


@dataclass(frozen=True)
class Resource:
    """One registered resource.

    ``inputs`` have wire names (camelCase). ``"[secret]"`` stands for a secret, ``"<unknown>"`` for a value that only a deployment
    knows, ``"<name.property>"`` for the output of another resource. ``dependencies``, ``parent`` and ``provider`` are URNs.
    ``options`` holds only values that differ from the default. ``source`` is ``file:line`` of the call that made the resource.
    ``computed`` has the texts of inputs that the program made of outputs and that show none: a hash, the branch that it took.
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
    computed: tuple[str, ...] = ()

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
            **({"computed": list(self.computed)} if self.computed else {}),
        }


Answer = Literal["file", "computed", "placeholder", "unknown"]
UNANSWERED: tuple[Answer, ...] = ("placeholder", "unknown")


@dataclass(frozen=True)
class FunctionCall:
    """A function of a provider that the program called: a data source, a stack reference, a method of a remote component.

    ``answer`` says where the result came from: a file of answers, arguments and facts, a placeholder; or that it stayed unknown.
    ``args`` have wire names, as the inputs of resources. ``source`` is ``file:line`` of the call.
    """

    token: str
    args: Mapping[str, Any]
    answer: Answer
    source: str = ""

    def document(self) -> dict[str, Any]:
        return {"token": self.token, "args": self.args, "answer": self.answer, "source": self.source}

    def key(self) -> str:
        """Equal for equal calls."""
        return json.dumps(self.document(), sort_keys=True)


def build_urn(stack: str, project: str, chain: str, type_: str, name: str) -> str:
    """The URN of a resource. ``chain`` holds the types of its parents, joined by ``$``; empty or the stack's for a root."""
    types = f"{chain}${type_}" if chain and chain != STACK_TYPE else type_
    return f"urn:pulumi:{stack}::{project}::{types}::{name}"


def is_component(resource: Resource) -> bool:
    """Whether the resource is a component whose children the graph knows."""
    return not resource.custom and not resource.remote and resource.type != STACK_TYPE


def is_opaque(resource: Resource) -> bool:
    """Whether the resource is a chart or a remote component, whose contents only a cluster or a plugin knows."""
    return resource.remote or resource.type == CHART_TYPE


def is_read(resource: Resource) -> bool:
    """Whether the program only looks the resource up (``.get``)."""
    return "read" in resource.options


SHAPE = {
    "project": str,
    "stack": str,
    "resources": [
        {
            **dict.fromkeys(("urn", "type", "name", "parent", "provider", "source"), str),
            **dict.fromkeys(("custom", "remote"), bool),
            "inputs": {"*": Any},
            "dependencies": [str],
            "propertyDependencies": {"*": [str]},
            "options": {"*": Any},
            "computed?": [str],
        }
    ],
    "outputs": {"*": Any},
    "opaque": [str],
    "functions": [{"token": str, "args": {"*": Any}, "answer": Answer, "source": str}],
}


@dataclass(frozen=True)
class Graph:
    """What a program registers: ``resources`` sorted by URN, stack ``outputs``, and the ``warnings`` it logged.

    ``functions`` are those of providers that it called.
    """

    project: str
    stack: str
    resources: tuple[Resource, ...]
    outputs: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    functions: tuple[FunctionCall, ...] = ()

    @cached_property
    def by_urn(self) -> Mapping[str, Resource]:
        return {resource.urn: resource for resource in self.resources}

    @cached_property
    def children(self) -> Mapping[str, tuple[Resource, ...]]:
        """Children by the URN of their parent; the roots are under ``""``."""
        found = grouped((resource.parent, resource) for resource in self.resources)
        return {urn: tuple(resources) for urn, resources in found.items()}

    @property
    def opaque(self) -> tuple[Resource, ...]:
        """What the graph cannot see inside: charts, remote components, and what only the provider renders."""
        return tuple(r for r in self.resources if is_opaque(r) or (r.type in RENDERED_TYPES and r.urn not in self.children))

    def of_type(self, type_: str) -> list[Resource]:
        return list(self._by_type.get(type_, ()))

    def named(self, name: str) -> Resource:
        """The resource with that logical name. Raises ``LookupError`` unless there is exactly one."""
        found = [resource for resource in self.resources if resource.name == name]
        if len(found) != 1:
            raise LookupError(f"{len(found)} resources are named {name!r}: {[r.urn for r in found]}")
        return found[0]

    @cached_property
    def _by_type(self) -> Mapping[str, list[Resource]]:
        return grouped((resource.type, resource) for resource in self.resources)

    def document(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "project": self.project,
            "stack": self.stack,
            "resources": [resource.document() for resource in self.resources],
            "outputs": self.outputs,
            "opaque": [resource.urn for resource in self.opaque],
            "functions": [function.document() for function in self.functions],
        }

    def to_json(self) -> str:
        """The document as canonical JSON: equal graphs give equal bytes."""
        return json.dumps(self.document(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


SEAL = "[secret] "
"""Prefix of a string that holds the digest of a secret. Such strings only pass between the processes of one comparison."""


def read_graph(document: Any, shown: str, hint: str = "") -> Graph:
    """The graph of a document. Raises ``ProblemsFound`` where there is none, with its file (``shown``) and how to write one."""
    if not isinstance(document, Mapping) or not isinstance(document.get("resources"), list):
        raise ProblemsFound([Problem("not a recorded graph", file=shown, hint=hint)])
    if document.get("schema") != SCHEMA:
        given = str(document.get("schema"))
        raise ProblemsFound([Problem("unsupported graph schema", file=shown, key="schema", given=given, allowed=str(SCHEMA))])
    try:
        resources = tuple(_resource(item) for item in document["resources"])
        project, stack = str(document["project"]), str(document["stack"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ProblemsFound([Problem(f"a resource without {error}", file=shown)]) from error
    try:
        functions = tuple(_function(item) for item in document.get("functions", ()))
    except (KeyError, TypeError, AttributeError) as error:
        raise ProblemsFound([Problem(f"a function without {error}", file=shown)]) from error
    outputs, warnings = document.get("outputs", {}), document.get("warnings", ())
    if not isinstance(outputs, dict) or not isinstance(warnings, list | tuple):
        raise ProblemsFound([Problem("outputs must be a mapping, and warnings a list", file=shown)])
    return Graph(project, stack, resources, unsealed(outputs), tuple(map(str, warnings)), functions)


def sealed(value: Any) -> Any:
    """The value with the digest of each secret written out."""
    return mapped(value, lambda leaf: f"{SEAL}{leaf.digest}" if isinstance(leaf, Sealed) else leaf)


def unsealed(value: Any) -> Any:
    """The reverse of ``sealed``."""
    return mapped(
        value, lambda leaf: Sealed(leaf.removeprefix(SEAL)) if isinstance(leaf, str) and leaf.startswith(SEAL) else leaf
    )


def _function(item: Mapping[str, Any]) -> FunctionCall:
    if not isinstance(item["args"], dict):
        raise TypeError("args that are a mapping")
    return FunctionCall(str(item["token"]), unsealed(item["args"]), item["answer"], str(item.get("source", "")))


_TYPES = {
    **dict.fromkeys(("urn", "type", "name", "parent", "provider", "source"), str),
    **dict.fromkeys(("custom", "remote"), bool),
    **dict.fromkeys(("inputs", "options", "propertyDependencies"), dict),
    **dict.fromkeys(("dependencies", "computed"), list),
}


def _resource(item: Mapping[str, Any]) -> Resource:
    for key, kind in _TYPES.items():
        if key in item and not isinstance(item[key], kind):
            raise TypeError(f"a {key} that is a {kind.__name__}")
    return Resource(
        urn=item["urn"],
        type=item["type"],
        name=item["name"],
        parent=item.get("parent", ""),
        custom=item.get("custom", True),
        remote=item.get("remote", False),
        provider=item.get("provider", ""),
        inputs=unsealed(item.get("inputs", {})),
        dependencies=tuple(item.get("dependencies", ())),
        property_dependencies={key: tuple(urns) for key, urns in item.get("propertyDependencies", {}).items()},
        options=unsealed(item.get("options", {})),
        source=item.get("source", ""),
        computed=tuple(item.get("computed", ())),
    )
