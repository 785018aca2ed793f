"""Turns a recorded graph into the objects that an API server gets, in the order in which Pulumi creates them.

What a graph does not know in full (charts, EKS add-ons, remote components, node groups) is opaque: objects wait for it, and other
modules of this package stand in for what it brings.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import Any

from eks_inference.cluster.plan import CREDENTIALS_VARIABLE
from eks_inference_tools.placing.placeholders import Placeholders, object_name, secret_data
from eks_inference_tools.reading.node_groups import NODE_GROUP_TYPE
from eks_inference_tools.reading.object_kinds import group_kind
from eks_inference_tools.reading.pod_templates import pod_templates
from eks_inference_tools.reading.releases import ADDON_TYPE
from stackgraph.graph.describe import is_kubernetes_object, short_component_type
from stackgraph.graph.document import CHART_TYPE, Graph, Resource, is_opaque, is_read
from stackgraph.graph.values import at, is_token, items, joined, table, text
from stackgraph.problems import Problem, ProblemsFound
from stackgraph.views.manifests import manifest

ASSOCIATION_TYPE = "aws:eks/podIdentityAssociation:PodIdentityAssociation"

# EKS user guide, "How EKS Pod Identity works": the address of the agent on every node.
_VARIABLE = {"name": CREDENTIALS_VARIABLE, "value": "http://169.254.170.23/v1/credentials"}

Account = tuple[str, str]
"""Namespace and name of a service account."""


def associated(graph: Graph) -> frozenset[Account]:
    """Returns the service accounts to which the graph gives roles."""
    return frozenset(
        (text(one.inputs.get("namespace")), text(one.inputs.get("serviceAccount"))) for one in graph.of_type(ASSOCIATION_TYPE)
    )


def with_credentials(manifest: Mapping[str, Any], owner: Resource, accounts: frozenset[Account]) -> dict[str, Any]:
    """Returns the manifest of ``owner`` with the variable that EKS adds to pods of these service accounts, in their templates."""
    if not accounts:
        return dict(manifest)
    given = deepcopy(dict(manifest))
    for template in pod_templates(Graph("", "", (replace(owner, inputs=given),))):
        if (template.namespace, template.spec.service_account) in accounts:
            for container in items(at(template.template, "spec", "containers")):
                container["env"] = [*items(container.get("env")), _VARIABLE]
    return given


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
    """One object as it is sent to the API server.

    ``manifest`` has apiVersion, kind, metadata.name and, if the kind is namespaced, metadata.namespace. ``after`` holds the URNs
    of the objects and opaque resources that Pulumi creates (and awaits, unless they skip that) before this one, and deletes after
    it. ``delete_first`` is the option ``deleteBeforeReplace``, ``goes_with`` that of ``deletedWith``. ``unsure`` lists the paths
    of values that are known only after deployment and have no known form: they are guessed or left out.
    """

    urn: str
    manifest: dict[str, Any]
    after: frozenset[str]
    title: str
    delete_first: bool = False
    goes_with: str = ""
    unsure: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return self.manifest["kind"]

    @property
    def group(self) -> str:
        """The API group; ``""`` is the core group."""
        return self.manifest["apiVersion"].rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.manifest["metadata"]["name"]

    @property
    def namespace(self) -> str:
        return self.manifest["metadata"].get("namespace", "")


@dataclass(frozen=True)
class Opaque:
    """A resource that objects wait for and whose contents the graph does not know.

    ``kind`` is ``chart``, ``add-on``, ``remote`` (a component of a plugin) or ``nodes`` (a managed node group). ``name`` and
    ``namespace`` are those of the Helm release; an add-on has its EKS name. ``after`` is as in ``ClusterObject``.
    """

    urn: str
    title: str
    kind: str
    name: str
    namespace: str
    after: frozenset[str]


@dataclass(frozen=True)
class LeftOut:
    """A Kubernetes resource of the graph that cannot become an object, and why."""

    title: str
    reason: str


def cluster_objects(graph: Graph) -> tuple[ClusterObject, ...]:
    """Returns every object of the graph that an API server can be sent; each comes after what it waits for.

    Raises ``ProblemsFound`` if two resources create the same object: one control plane cannot hold both.
    """
    placeholders, accounts = Placeholders(graph), associated(graph)
    resources = [resource for resource in graph.resources if is_kubernetes_object(resource) and not _no_object(resource)]
    found = {resource.urn: _object(graph, resource, placeholders, accounts) for resource in resources}
    _refuse_twins(graph, found.values())
    # Sorted for the same order in every run.
    nodes = sorted({resource.urn for resource in graph.resources if _is_node(resource)})
    sorter = TopologicalSorter({urn: sorted(_after(graph, urn)) for urn in nodes})
    return tuple(found[urn] for urn in sorter.static_order() if urn in found)


def opaque_of(graph: Graph) -> tuple[Opaque, ...]:
    """Returns the charts, add-ons, remote components and node groups in the order of the graph."""
    return tuple(_opaque(graph, resource) for resource in graph.resources if _opaque_kind(resource))


def left_out(graph: Graph) -> tuple[LeftOut, ...]:
    """Returns the resources that cannot become an object, in the order of the graph."""
    return tuple(
        LeftOut(_title(resource, manifest(resource)), reason)
        for resource in graph.resources
        if is_kubernetes_object(resource) and (reason := _no_object(resource))
    )


def _no_object(resource: Resource) -> str:
    """Returns why a resource cannot become an object; ``""`` if it can."""
    kind = resource.type.rpartition(":")[2]
    if kind.endswith("Patch"):
        return "it patches an existing object, and a simulated cluster has only what the stack creates"
    if kind.endswith("List") and isinstance(resource.inputs.get("items"), list | tuple):
        return "an API server accepts no lists: each object needs a resource of its own"
    recorded = manifest(resource)
    if hidden := [key for key, value in recorded.items() if is_token(value) and key not in ("data", "stringData")]:
        return f"its {', '.join(hidden)} is known only after deployment"
    named = {key: recorded[key] for key in ("apiVersion", "kind")}
    named |= {key: value for key in ("name", "namespace") if (value := at(recorded, "metadata", key)) is not None}
    odd = [key for key, value in named.items() if not isinstance(value, str)]
    return f"its {', '.join(odd)} is not a string" if odd else ""


def _object(graph: Graph, resource: Resource, placeholders: Placeholders, accounts: frozenset[Account]) -> ClusterObject:
    recorded = manifest(resource)
    if (recorded["apiVersion"], recorded["kind"]) == ("v1", "Secret"):
        secret_data(recorded)
    filled, unsure = placeholders.filled(recorded, resource)
    metadata = filled["metadata"] = dict(table(filled.get("metadata")))
    metadata["name"] = object_name(metadata, resource)
    if namespace := metadata.get("namespace") or _default_namespace(graph, resource, filled):
        metadata["namespace"] = namespace
    return ClusterObject(
        urn=resource.urn,
        manifest=with_credentials(filled, resource, accounts),
        after=frozenset(_after(graph, resource.urn)),
        title=_title(resource, filled),
        delete_first=resource.options.get("deleteBeforeReplace") is True,
        goes_with=resource.options.get("deletedWith") or "",
        unsure=unsure,
    )


def _default_namespace(graph: Graph, resource: Resource, filled: Mapping[str, Any]) -> str:
    """Returns the namespace that Pulumi defaults to; ``""`` for custom kinds, as only their schema tells the scope."""
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
                    f"two resources create {item.title}",
                    given=" and ".join(graph.by_urn[urn].name for urn in (other.urn, item.urn)),
                    allowed="one resource per object",
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
    name = text(inputs.get({"add-on": "addonName", "nodes": "nodeGroupName"}.get(kind, "name"))) or resource.name
    namespace = (text(inputs.get("namespace")) or "default") if kind == "chart" else ""
    titles = {"remote": short_component_type(resource.type), "nodes": "node group"}
    title = f"{titles.get(kind, kind)} {joined(namespace, name, by='/')}"
    return Opaque(resource.urn, title, kind, name, namespace, frozenset(_after(graph, resource.urn)))


# -- order -----------------------------------------------------------------------------------------------------------------------


def _is_node(resource: Resource) -> bool:
    return bool(_opaque_kind(resource)) or (is_kubernetes_object(resource) and not _no_object(resource))


def _after(graph: Graph, urn: str) -> set[str]:
    """Returns the nearest objects and opaque resources that a resource depends on, directly or through other resources."""
    found: set[str] = set()
    seen = {urn}
    waiting = [urn]
    while waiting:
        for below in _below(graph.by_urn[waiting.pop()]) - seen:
            seen.add(below)
            resource = graph.by_urn.get(below)
            if resource and _is_node(resource):
                found.add(below)
            elif resource:
                waiting.append(below)
    return found


def _below(resource: Resource) -> set[str]:
    """Returns what must be registered before a resource: as in the engine's `GetAllDependencies`, with the parent."""
    named = {*resource.dependencies, *(urn for urns in resource.property_dependencies.values() for urn in urns)}
    return (named | {resource.parent, resource.provider, resource.options.get("deletedWith") or ""}) - {""}
