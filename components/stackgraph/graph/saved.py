"""Graphs as documents, to be read again: those that `preview --format json` writes, with or without what tells secrets apart."""

from collections.abc import Mapping
from typing import Any

from stackgraph.graph.document import SCHEMA, Graph, Resource
from stackgraph.graph.tokens import Sealed
from stackgraph.problems import Problem, ProblemsFound

SEAL = "[secret] "
"""Begins a text that stands for a secret, with its digest behind: only between the processes of one comparison."""


def read_graph(document: Any, shown: str, hint: str = "") -> Graph:
    """The graph of a document. Raises ``ProblemsFound`` for what is none, with ``shown`` for its file and how to write one."""
    if not isinstance(document, Mapping) or not isinstance(document.get("resources"), list):
        raise ProblemsFound([Problem("this is no recorded graph", file=shown, hint=hint)])
    if document.get("schema") != SCHEMA:
        given = str(document.get("schema"))
        raise ProblemsFound([Problem("a graph of another schema", file=shown, key="schema", given=given, allowed=str(SCHEMA))])
    try:
        resources = tuple(_resource(item) for item in document["resources"])
        project, stack = str(document["project"]), str(document["stack"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ProblemsFound([Problem(f"a resource without {error}", file=shown)]) from error
    return Graph(project, stack, resources, unsealed(document.get("outputs", {})), tuple(document.get("warnings", ())))


def sealed(value: Any) -> Any:
    """The value with digests written out behind what stands for secrets."""
    if isinstance(value, Mapping):
        return {key: sealed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sealed(item) for item in value]
    return f"{SEAL}{value.digest}" if isinstance(value, Sealed) else value


def unsealed(value: Any) -> Any:
    """The value with ``[secret]`` in place of what ``sealed`` wrote."""
    if isinstance(value, Mapping):
        return {key: unsealed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unsealed(item) for item in value]
    return Sealed(value.removeprefix(SEAL)) if isinstance(value, str) and value.startswith(SEAL) else value


def holds_seals(value: Any) -> bool:
    """Whether anything in the value tells secrets apart."""
    if isinstance(value, Mapping):
        return any(map(holds_seals, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_seals, value))
    return isinstance(value, Sealed)


def _resource(item: Mapping[str, Any]) -> Resource:
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
    )
