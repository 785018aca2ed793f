"""Lets a real API server judge every object of a stack before there is a cluster.

Each object gets a strict server-side dry run, custom resources against their definitions, and so does one pod of each template:
Pod Security, quotas, PriorityClasses and ServiceAccounts judge pods, not what creates them. Objects that others are judged by
(namespaces, quotas, ServiceAccounts) are really created, so the control plane cannot be used for a rollout afterwards.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from eks_inference.catalog import versions
from eks_inference_tools.reading.clusters import REMOTE_CLUSTER_TYPE
from eks_inference_tools.reading.expected import expected_of
from eks_inference_tools.reading.live_objects import condition_of, name_of
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from eks_inference_tools.reading.readiness import unsettled
from eks_inference_tools.reading.releases import chart_of
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal, UnknownKind
from eks_inference_tools.simulate.world.api_objects import ClusterObject, cluster_objects, opaque_of
from eks_inference_tools.simulate.world.schemas import Definition, definitions_for, kubernetes_schemas
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, table, text

# API group and kind of the objects that others are judged by, in the order of their creation.
_FOR_REAL = (
    ("", "Namespace"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("node.k8s.io", "RuntimeClass"),
    ("", "LimitRange"),
    ("", "ResourceQuota"),
    ("", "ServiceAccount"),
)
_DEFINITION = ("apiextensions.k8s.io", "CustomResourceDefinition")

_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_ESTABLISH_SECONDS = 120
_POLL_SECONDS = 0.2

_CLASSES_OF_KUBERNETES = frozenset(("system-cluster-critical", "system-node-critical"))
_GROUPS = {kind: group for group, kind in _FOR_REAL}


@dataclass(frozen=True)
class Refusal:
    """An object, or a pod of one of its templates, that the API server refuses. ``message`` is the server's own.

    ``source`` is the ``file:line`` of the call that creates the object.
    """

    urn: str
    title: str
    reason: str
    message: str
    source: str


@dataclass(frozen=True)
class Admission:
    """The API server's verdict on a stack.

    ``objects`` and ``templates`` count what was judged. ``origins`` counts the accepted objects by the origin of their schema.
    ``unchecked`` lists the objects without a known schema, ``assumed`` the assumptions.
    """

    objects: int
    templates: int
    origins: Mapping[str, int]
    refusals: tuple[Refusal, ...]
    unchecked: tuple[str, ...]
    assumed: tuple[str, ...]


def admit(plane: ControlPlane, graph: Graph) -> Admission:
    """Judges a stack with an unused control plane. Raises ``ProblemsFound`` if the definitions are missing."""
    return _Admitting(plane, graph).admission()


def install_definitions(plane: ControlPlane, objects: Iterable[ClusterObject]) -> tuple[Definition, ...]:
    """Creates the definitions of all custom kinds that the objects use and that are not there, and waits until they are served.

    Kinds that the stack itself defines are left to the stack.
    """
    objects = tuple(objects)
    own = {_defines(item) for item in objects if _kind(item) == _DEFINITION}
    found = definitions_for(objects, plane.toolchain.definitions(), kubernetes_schemas(plane.api))
    installed = tuple(definition for definition in found if definition.kind not in own)
    for definition in installed:
        if not _is_served(plane.api, definition.resource):
            plane.api.apply(definition.manifest)
    _await_definitions(plane, (definition.resource for definition in installed))
    return installed


def _await_definitions(plane: ControlPlane, resources: Iterable[str]) -> None:
    for resource in resources:
        plane.processes.wait_until(
            lambda resource=resource: _is_served(plane.api, resource),
            seconds=_ESTABLISH_SECONDS,
            what=f"the API server serves {resource}",
        )


def _is_served(api: Api, resource: str) -> bool:
    established = condition_of(api.get(_DEFINITIONS, resource) or {}, "Established") or {}
    return established.get("status") == "True" and api.knows(resource)


class _Admitting:
    """Judges one stack with one control plane."""

    def __init__(self, plane: ControlPlane, graph: Graph) -> None:
        self._plane = plane
        self._api = plane.api
        self._graph = graph
        self._objects = cluster_objects(graph)
        self._templates = tuple(_templates(graph, self._objects))
        self._refusals: list[Refusal] = []
        self._origins: dict[tuple[str, str], str] = {}
        self._passed: Counter[str] = Counter()
        self._unchecked: list[str] = []
        self._assumed = [f"{item.title}: {path} is known only after deployment" for item in self._objects for path in item.unsure]

    def admission(self) -> Admission:
        for definition in install_definitions(self._plane, self._objects):
            self._origins[definition.kind] = definition.origin
        # Other objects may be of the kinds that the stack defines.
        for item in self._objects:
            if _kind(item) == _DEFINITION and self._ask(item, dry_run=False):
                self._origins[_defines(item)] = "CRD of the stack"
                _await_definitions(self._plane, (item.name,))
        self._create_missing()
        for kind in _FOR_REAL:
            for item in self._objects:
                if _kind(item) == kind:
                    self._ask(item, dry_run=False)
        for item in self._objects:
            if _kind(item) not in (_DEFINITION, *_FOR_REAL):
                self._ask(item, dry_run=True)
        asked = self._ask_pods()
        return Admission(
            objects=len(self._objects),
            templates=asked,
            origins=dict(self._passed.most_common()),
            refusals=tuple(self._refusals),
            unchecked=tuple(self._unchecked),
            assumed=tuple(self._assumed),
        )

    def _ask(self, item: ClusterObject, *, dry_run: bool) -> bool:
        """Applies an object and returns whether the API server accepts it."""
        try:
            self._api.apply(item.manifest, dry_run=dry_run)
        except UnknownKind as unknown:
            self._unchecked.append(f"{item.title} ({unknown})")
        except ApiRefusal as refusal:
            self._refuse(item.urn, item.title, refusal)
        else:
            self._passed[self._origins.get(_kind(item)) or self._spoken] += 1
            return True
        return False

    def _refuse(self, urn: str, title: str, refusal: ApiRefusal) -> None:
        source = self._graph.by_urn[urn].source
        self._refusals.append(Refusal(urn, title, refusal.reason, refusal.message, source))

    @cached_property
    def _spoken(self) -> str:
        """``Kubernetes 1.35.4``, or the version that a newer server emulates."""
        version = self._api.raw("GET", "/version")
        number = version["gitVersion"].removeprefix("v")
        emulated = f"{version['emulationMajor']}.{version['emulationMinor']}"
        return f"Kubernetes {number}" if number.startswith(f"{emulated}.") else f"Kubernetes {emulated} as {number} speaks it"

    def _create_missing(self) -> None:
        """Creates what add-ons and charts bring: their namespaces; if the catalog lacks a chart, also everything missing."""
        made = {(item.kind, item.namespace, item.name) for item in self._objects if _kind(item) in _FOR_REAL}
        made |= {("Namespace", "", name_of(item)) for item in self._api.list("namespaces")}
        needed = {("Namespace", "", item.namespace) for item in self._objects if item.namespace}
        needed |= {need for template in self._templates for need in _needs(template)}
        of_releases, may_come = set(_namespaces_of_releases(self._graph)), _has_unknown_chart(self._graph)
        for kind, namespace, name in sorted(needed - made, key=lambda one: (one[0] != "Namespace", one)):
            if kind == "Namespace" and name in of_releases:
                self._api.apply(_bare(kind, name))
            elif may_come:
                # A name that is invalid for a chart, too, is refused where it is used.
                with suppress(ApiRefusal):
                    self._api.apply(_bare(kind, name, namespace))
                    self._assumed.append(f"{kind} {name}: not in the stack; a chart may create it")

    # -- pods

    def _ask_pods(self) -> int:
        """Judges one pod of each template whose owner was accepted, and returns how many."""
        refused = {refusal.urn for refusal in self._refusals}
        templates = [template for template in self._templates if template.owner.urn not in refused]
        self._await_controllers({template.namespace for template in templates})
        end = time.monotonic() + _ESTABLISH_SECONDS
        for template in templates:
            while (refusal := self._refusal_of(template)) and self._is_class_new(template, refusal) and time.monotonic() < end:
                time.sleep(_POLL_SECONDS)
            if refusal:
                self._refuse(template.owner.urn, f"a pod of {template.title}", refusal)
        return len(templates)

    def _await_controllers(self, namespaces: Iterable[str]) -> None:
        """Waits for what the controller manager makes of new namespaces and quotas: the account of pods that name none, without
        which they are refused, and the count, without which a quota refuses nothing.
        """
        for namespace in sorted(namespaces):
            self._await(f"the account of pods of {namespace}", partial(self._api.get, "serviceaccounts", "default", namespace))
        self._await("the quotas are counted", lambda: not any(unsettled(item, {}) for item in self._api.list("resourcequotas")))

    def _await(self, what: str, check: Callable[[], object]) -> None:
        self._plane.processes.wait_until(check, seconds=_ESTABLISH_SECONDS, what=what)

    def _is_class_new(self, template: PodTemplate, refusal: ApiRefusal) -> bool:
        """Whether admission, which reads PriorityClasses from a cache, has not seen one yet that is there."""
        name = text(at(template.spec.document, "priorityClassName"))
        is_unseen = refusal.status == 403 and "no PriorityClass with name" in refusal.message
        return is_unseen and self._api.get("priorityclasses.scheduling.k8s.io", name) is not None

    def _refusal_of(self, template: PodTemplate) -> ApiRefusal | None:
        try:
            self._api.create(_pod(template), dry_run=True)
        except ApiRefusal as refusal:
            return refusal
        return None


def _kind(item: ClusterObject) -> tuple[str, str]:
    return item.group, item.kind


def _defines(definition: ClusterObject) -> tuple[str, str]:
    """Returns the group and kind that a stack's own definition defines."""
    spec = definition.manifest.get("spec")
    return text(at(spec, "group")), text(at(spec, "names", "kind"))


# -- what add-ons and charts bring -----------------------------------------------------------------------------------------------


def _namespaces_of_releases(graph: Graph) -> Iterator[str]:
    """Yields the namespaces that add-ons and charts create."""
    for addon in expected_of(graph).addons:
        yield from (namespace for _, namespace, _ in addon.workloads)
    for opaque in opaque_of(graph):
        if opaque.kind == "chart" and graph.by_urn[opaque.urn].inputs.get("createNamespace") is True:
            yield opaque.namespace


def _has_unknown_chart(graph: Graph) -> bool:
    """Whether the stack has a chart or remote component that may create unknown objects."""
    for opaque in opaque_of(graph):
        resource = graph.by_urn[opaque.urn]
        if opaque.kind == "chart" and not _is_in_catalog(chart_of(resource).name):
            return True
        if opaque.kind == "remote" and resource.type != REMOTE_CLUSTER_TYPE:
            return True
    return False


def _is_in_catalog(chart: str) -> bool:
    with suppress(KeyError):
        return bool(versions.chart(chart))
    return False


def _needs(template: PodTemplate) -> Iterator[tuple[str, str, str]]:
    """Yields kind, namespace and name of the objects without which a pod of the template is refused."""
    for kind, key in (("PriorityClass", "priorityClassName"), ("RuntimeClass", "runtimeClassName")):
        name = text(at(template.spec.document, key))
        if name and name not in _CLASSES_OF_KUBERNETES:
            yield kind, "", name
    if template.spec.service_account != "default":
        yield "ServiceAccount", template.namespace, template.spec.service_account


def _bare(kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    """Returns a minimal object that admission accepts."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    body = {"PriorityClass": {"value": 0}, "RuntimeClass": {"handler": "stand-in"}}.get(kind, {})
    group = _GROUPS[kind]
    return {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, "metadata": metadata, **body}


# -- pods ------------------------------------------------------------------------------------------------------------------------


def _templates(graph: Graph, objects: Iterable[ClusterObject]) -> Iterator[PodTemplate]:
    """Yields the pod templates of the objects as sent to the API server. Pods are judged as objects, not as templates."""
    owners = tuple(replace(graph.by_urn[item.urn], inputs=item.manifest) for item in objects)
    for template in pod_templates(Graph(graph.project, graph.stack, owners)):
        if template.kind != "Pod" and isinstance(template.template, Mapping):
            yield template


def _pod(template: PodTemplate) -> dict[str, Any]:
    """Returns the pod that a controller would create from the template."""
    metadata, spec = table(template.template.get("metadata")), table(template.template.get("spec"))
    owner = template.owner.inputs.get("spec")
    claims = [*items(at(owner, "volumeClaimTemplates")), *items(at(owner, "leaderWorkerTemplate", "volumeClaimTemplates"))]
    of_claims = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}}
        for claim in claims
        if (name := at(claim, "metadata", "name"))
    ]
    if of_claims:
        names = {volume["name"] for volume in of_claims}
        spec = {**spec, "volumes": [*(item for item in items(spec.get("volumes")) if at(item, "name") not in names), *of_claims]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "generateName": f"{template.name}-", "namespace": template.namespace},
        "spec": spec,
    }
