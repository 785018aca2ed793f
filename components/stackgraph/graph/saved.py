"""Reads saved graphs, as ``preview --format json`` writes them, and writes and reads the digests of secrets in a document."""

from collections.abc import Mapping
from typing import Any

from stackgraph.graph.document import SCHEMA, FunctionCall, Graph, Resource
from stackgraph.graph.values import Sealed, mapped
from stackgraph.problems import Problem, ProblemsFound

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
