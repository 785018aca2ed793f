"""Renders the Kubernetes objects of a graph as YAML documents."""

from collections.abc import Mapping
from typing import Any

import yaml

from stackgraph.graph.describe import is_kubernetes_object, short_component_type
from stackgraph.graph.document import CHART_TYPE, Graph, Resource, is_opaque, is_read
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import at, plain, redacted, text

_WIDTH = 1_000_000  # folding would split strings that people search for
_FIRST_KEYS = ("apiVersion", "kind", "metadata", "name", "namespace", "type")


def render_manifests(graph: Graph) -> str:
    """Every Kubernetes object of the graph, ordered by cluster, namespace, kind and name. Objects without namespace come first.

    A comment above each object names its components, its logical name and its source line. Secrets read ``[secret]``, including
    the data of a Secret that a program passes as plain text; outputs of other resources read ``<name.property>``. Charts are
    comments with their values, since only a cluster knows their contents.
    """
    structure = Structure(graph)
    shown = sorted((graph.by_urn[urn] for urn in structure.parent), key=lambda resource: _place(graph, resource))
    documents = [_comment(structure, r) + _yaml(manifest(r)) for r in shown if is_kubernetes_object(r)]
    documents += [_chart(structure, r) for r in shown if is_opaque(r) and r.package == "kubernetes" and not is_read(r)]
    return "".join(f"---\n{document}" for document in documents)


def manifest(resource: Resource) -> dict[str, Any]:
    """The object as sent to the cluster's API, with secrets hidden."""
    found = redacted(resource.type, plain(resource.inputs))
    group_version, _, kind = resource.type.removeprefix("kubernetes:").rpartition(":")
    found.setdefault("apiVersion", group_version.removeprefix("core/"))
    found.setdefault("kind", kind.removesuffix("Patch"))
    return found


def _place(graph: Graph, resource: Resource) -> tuple[str, ...]:
    provider = graph.by_urn.get(resource.provider)
    metadata = resource.inputs.get("metadata")
    found = (
        at(metadata, "namespace") or resource.inputs.get("namespace"),
        resource.type.rpartition(":")[2],
        at(metadata, "name"),
    )
    return (provider.name if provider else "", *(text(part) for part in found), resource.name, resource.urn)


def _comment(structure: Structure, resource: Resource) -> str:
    chain = [text(structure.graph.by_urn[urn].name) for urn in structure.above(resource.urn)]
    source = f"  ({text(resource.source)})" if resource.source else ""
    patch = "  patches an existing object" if resource.type.endswith("Patch") else ""
    return f"# {' / '.join(chain)}{source}{patch}\n"


def _chart(structure: Structure, resource: Resource) -> str:
    inputs = redacted(resource.type, plain(resource.inputs))
    title = f"A remote component ({short_component_type(resource.type)}): only its plugin knows what it creates."
    if resource.type == CHART_TYPE:
        title = "A chart: only a cluster knows what it creates."
        inputs = {
            key: inputs[key] for key in ("chart", "version", "repositoryOpts", "namespace", "name", "values") if key in inputs
        }
    body = _yaml(inputs) if inputs else ""
    return _comment(structure, resource) + "".join(f"# {line}".rstrip() + "\n" for line in (title, *body.splitlines()))


# -- YAML ------------------------------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Block style for multi-line strings, no aliases. In pure Python: the C dumper formats some strings differently."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    # The emitter itself quotes what a block cannot hold (spaces before a line break, control characters), but it turns Unicode's
    # other line breaks into spaces unless they are escaped.
    style = '"' if any(letter in value for letter in "\x85\u2028\u2029") else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def _yaml(value: Mapping[str, Any]) -> str:
    return yaml.dump(_ordered(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=False)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value, key=key_rank)}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


def key_rank(key: str) -> tuple[int, str]:
    """A sort key for the keys of a manifest: those that people look for first, then the others by alphabet."""
    return (_FIRST_KEYS.index(key) if key in _FIRST_KEYS else len(_FIRST_KEYS), key)
