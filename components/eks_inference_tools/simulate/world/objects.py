"""The objects of a recorded graph as an API server would get them, and the order in which Pulumi makes them.

What a graph does not know in full (charts, EKS add-ons, remote components, node groups) is opaque: objects wait for it, and
others of this package stand in for what it brings.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from eks_inference_tools.reading.addons import ADDON_TYPE
from eks_inference_tools.reading.node_groups import NODE_GROUP_TYPE
from eks_inference_tools.reading.pod_templates import group_kind
from eks_inference_tools.simulate.world.placeholders import Placeholders, object_name, secret_data
from stackgraph.graph.describe import is_kubernetes_object, short_component_type
from stackgraph.graph.document import CHART_TYPE, Graph, Resource, is_opaque, is_read
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, joined, text
from stackgraph.problems import Problem, ProblemsFound
from stackgraph.views.manifests import manifest

SKIP_AWAIT = "pulumi.com/skipAwait"

CLUSTER_SCOPED = frozenset(
    (
        "APIService",
        "CSIDriver",
        "CSINode",
        "CertificateSigningRequest",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterTrustBundle",
        "CustomResourceDefinition",
        "DeviceClass",
        "FlowSchema",
        "IPAddress",
        "IngressClass",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "PriorityLevelConfiguration",
        "ResourceSlice",
        "RuntimeClass",
        "ServiceCIDR",
        "StorageClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
        "VolumeAttachment",
        "VolumeAttributesClass",
    )
)
"""Kinds of Kubernetes itself that have no namespace (``kubectl api-resources --namespaced=false``, 1.35)."""


@dataclass(frozen=True)
class ClusterObject:
    """One object as the API server gets it.

    ``manifest`` has apiVersion, kind, metadata.name and, where the kind has one, metadata.namespace. ``after`` holds the URNs of
    the objects and opaque resources that must be there (and ready, unless they skip that) before Pulumi makes this one; deletion
    goes the other way. ``delete_first`` is the option ``deleteBeforeReplace``. ``unsure`` are the paths of the manifest whose
    value only a deployment knows and whose form is not known either: it is guessed there, or left out.
    """

    urn: str
    manifest: dict[str, Any]
    after: frozenset[str]
    title: str
    skip_await: bool = False
    delete_first: bool = False
    unsure: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return self.manifest["kind"]

    @property
    def group(self) -> str:
        """The API group; ``""`` for the core group."""
        return self.manifest["apiVersion"].rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.manifest["metadata"]["name"]

    @property
    def namespace(self) -> str:
        return self.manifest["metadata"].get("namespace", "")


@dataclass(frozen=True)
class Opaque:
    """Something that objects wait for and whose inside the graph does not know.

    ``kind`` is ``chart``, ``add-on``, ``remote`` (a component of a plugin) or ``nodes`` (a managed node group). ``name`` and
    ``namespace`` are those of the Helm release; an add-on has its EKS name. ``after`` is as with objects.
    """

    urn: str
    title: str
    kind: str
    name: str
    namespace: str
    after: frozenset[str]


@dataclass(frozen=True)
class LeftOut:
    """A Kubernetes resource of the graph that no object can be made of here, and why."""

    urn: str
    title: str
    reason: str


def cluster_objects(graph: Graph) -> tuple[ClusterObject, ...]:
    """Every object of the graph that can be given to an API server; each comes after what it waits for.

    Raises ``ProblemsFound`` where two resources make the same object: one control plane cannot hold both.
    """
    found = _objects(graph)
    _refuse_twins(graph, found.values())
    # Sorted, so that the order is the same in every run.
    sorter = TopologicalSorter({urn: sorted(_after(graph, urn)) for urn in sorted(_nodes(graph))})
    return tuple(found[urn] for urn in sorter.static_order() if urn in found)


def opaque_of(graph: Graph) -> tuple[Opaque, ...]:
    """Charts, add-ons, remote components and node groups, in the graph's order."""
    return tuple(_opaque(graph, resource) for resource in graph.resources if _opaque_kind(resource))


def left_out(graph: Graph) -> tuple[LeftOut, ...]:
    """Resources that stand for no whole object, in the graph's order."""
    return tuple(
        LeftOut(resource.urn, _title(resource, manifest(resource)), reason)
        for resource in graph.resources
        if is_kubernetes_object(resource) and (reason := _no_object(resource))
    )


def _objects(graph: Graph) -> dict[str, ClusterObject]:
    placeholders = Placeholders(graph)
    return {
        resource.urn: _object(graph, resource, placeholders)
        for resource in graph.resources
        if is_kubernetes_object(resource) and not _no_object(resource)
    }


def _no_object(resource: Resource) -> str:
    """Why a resource is no object that an API server could be given whole; ``""`` for one that is."""
    kind = resource.type.rpartition(":")[2]
    if kind.endswith("Patch"):
        return "it patches an object that is there already, and a simulated cluster has only what the stack makes"
    if kind.endswith("List") and isinstance(resource.inputs.get("items"), list | tuple):
        return "an API server takes no list: each of its objects needs a resource of its own"
    recorded = manifest(resource)
    if hidden := [key for key, value in recorded.items() if is_token(value) and key not in ("data", "stringData")]:
        return f"its {', '.join(hidden)} is only known to a deployment"
    metadata = recorded.get("metadata")
    named = {"apiVersion": recorded["apiVersion"], "kind": recorded["kind"]}
    named |= {key: at(metadata, key) for key in ("name", "namespace") if at(metadata, key) is not None}
    odd = [key for key, value in named.items() if not isinstance(value, str)]
    return f"its {', '.join(odd)} is no text" if odd else ""


def _object(graph: Graph, resource: Resource, placeholders: Placeholders) -> ClusterObject:
    recorded = manifest(resource)
    if (recorded["apiVersion"], recorded["kind"]) == ("v1", "Secret"):
        secret_data(recorded)
    filled, unsure = placeholders.filled(recorded, resource)
    metadata = filled.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    metadata["name"] = object_name(metadata, resource)
    namespace = metadata.get("namespace") or _default_namespace(graph, resource, filled)
    if namespace:
        metadata["namespace"] = namespace
    filled["metadata"] = metadata
    return ClusterObject(
        urn=resource.urn,
        manifest=filled,
        after=frozenset(_after(graph, resource.urn)),
        title=_title(resource, filled),
        skip_await=text(at(metadata, "annotations", SKIP_AWAIT)) == "true",
        delete_first=resource.options.get("deleteBeforeReplace") is True,
        unsure=unsure,
    )


def _default_namespace(graph: Graph, resource: Resource, filled: Mapping[str, Any]) -> str:
    """What Pulumi takes where a program gives none. Of custom kinds only their schema tells whether they have one."""
    provider = graph.by_urn.get(resource.provider)
    chosen = provider.inputs.get("namespace") if provider else None
    group = text(filled["apiVersion"]).rpartition("/")[0]
    custom = "." in group and not group.endswith(".k8s.io")
    if custom or filled["kind"] in CLUSTER_SCOPED:
        return ""
    return chosen if isinstance(chosen, str) and not is_token(chosen) and chosen else "default"


def _title(resource: Resource, document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    name = text(at(metadata, "name")) or resource.name
    return joined(text(document.get("kind")) or group_kind(resource)[1], joined(at(metadata, "namespace"), name, by="/"))


def _refuse_twins(graph: Graph, objects: Iterable[ClusterObject]) -> None:
    first: dict[tuple[str, str, str, str], ClusterObject] = {}
    problems = []
    for item in objects:
        other = first.setdefault((item.group, item.kind, item.namespace, item.name), item)
        if other is not item:
            problems.append(
                Problem(
                    f"two resources make {item.title}",
                    given=" and ".join(graph.by_urn[urn].name for urn in (other.urn, item.urn)),
                    allowed="one; a simulation plays one cluster",
                )
            )
    if problems:
        raise ProblemsFound(problems)


# -- what is opaque --------------------------------------------------------------------------------------------------------------


def _opaque_kind(resource: Resource) -> str:
    if is_read(resource):
        return ""
    if resource.type == CHART_TYPE or (resource.remote and resource.type.endswith(":Chart")):
        return "chart"
    if is_opaque(resource):
        return "remote"
    return {ADDON_TYPE: "add-on", NODE_GROUP_TYPE: "nodes"}.get(resource.type, "")


def _opaque(graph: Graph, resource: Resource) -> Opaque:
    kind, inputs = _opaque_kind(resource), resource.inputs
    name, namespace = text(inputs.get("name")) or resource.name, ""
    if kind == "chart":
        namespace = text(inputs.get("namespace")) or "default"
        title = f"chart {namespace}/{name}"
    elif kind == "add-on":
        name = text(inputs.get("addonName"))
        title = f"add-on {name}"
    elif kind == "nodes":
        name = text(inputs.get("nodeGroupName")) or resource.name
        title = f"node group {name}"
    else:
        title = f"{short_component_type(resource.type)} {name}"
    return Opaque(resource.urn, title, kind, name, namespace, frozenset(_after(graph, resource.urn)))


# -- order -----------------------------------------------------------------------------------------------------------------------


def _nodes(graph: Graph) -> set[str]:
    return {r.urn for r in graph.resources if _is_node(r)}


def _is_node(resource: Resource) -> bool:
    return bool(_opaque_kind(resource)) or (is_kubernetes_object(resource) and not _no_object(resource))


def _after(graph: Graph, urn: str) -> set[str]:
    """The nearest objects and opaque resources below a resource, through everything else (roles, providers, components)."""
    found: set[str] = set()
    seen = {urn}
    waiting = [urn]
    while waiting:
        for below in _below(graph.by_urn[waiting.pop()]) - seen:
            seen.add(below)
            resource = graph.by_urn.get(below)
            if resource is None:
                continue
            if _is_node(resource):
                found.add(below)
            else:
                waiting.append(below)
    return found


def _below(resource: Resource) -> set[str]:
    """What must be registered before a resource can be: as `GetAllDependencies` of the engine has it, the parent included."""
    named = {*resource.dependencies, *(urn for urns in resource.property_dependencies.values() for urn in urns)}
    deleted_with = resource.options.get("deletedWith")
    return (named | {resource.parent, resource.provider} | ({deleted_with} if deleted_with else set())) - {""}
