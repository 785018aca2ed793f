"""Every object of a stack, judged by a real API server before there is a cluster.

A strict server-side dry run of each object, custom resources against their definitions, and of one pod of each template: Pod
Security, quotas, PriorityClasses and ServiceAccounts judge pods, not what makes them. What others are judged by (namespaces,
quotas, ServiceAccounts) is made for real, so the control plane is of no use for a rollout afterwards.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eks_inference.catalog import versions
from eks_inference_tools.reading.charts import chart_of
from eks_inference_tools.reading.clusters import REMOTE_CLUSTER_TYPE
from eks_inference_tools.reading.expected import expected_of
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from eks_inference_tools.simulate.control_plane.api import Api, ApiRefusal, UnknownKind
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.world.objects import ClusterObject, cluster_objects, opaque_of
from eks_inference_tools.simulate.world.schemas import Definition, definitions_for, kubernetes_schemas
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, table, text

# By API group and kind, what others are judged by, in the order in which it is made.
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
_ESTABLISH_SECONDS = 30
# Admission reads what was just made from caches, and a quota counts once the controller manager has seen it.
_SETTLE_SECONDS = 5
_POLL_SECONDS = 0.2

_NOT_SEEN_YET = ("status unknown for quota", "no PriorityClass with name", "error looking up service account", "RuntimeClass")

_CLASSES_OF_KUBERNETES = frozenset(("system-cluster-critical", "system-node-critical"))
_GROUPS = {kind: group for group, kind in _FOR_REAL}


@dataclass(frozen=True)
class Refusal:
    """An object, or a pod of one of its templates, that the API server refuses, in the server's words.

    ``source`` is ``file:line`` of the call that makes the object.
    """

    urn: str
    title: str
    reason: str
    message: str
    source: str


@dataclass(frozen=True)
class Admission:
    """What the API server says of a stack.

    ``objects`` and ``templates`` count what was asked, ``origins`` the objects that passed, by whose schema they were judged.
    ``unchecked`` names what no schema is known of, ``assumed`` what was taken for granted.
    """

    objects: int
    templates: int
    origins: Mapping[str, int]
    refusals: tuple[Refusal, ...]
    unchecked: tuple[str, ...]
    assumed: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        return not self.refusals


def admit(plane: ControlPlane, graph: Graph) -> Admission:
    """Asks a control plane that nothing else has been done with. Raises ``ProblemsFound`` where there is nothing to ask with."""
    return _Admitting(plane, graph).admission()


def install_definitions(plane: ControlPlane, objects: Iterable[ClusterObject]) -> tuple[Definition, ...]:
    """Makes the definitions of every custom kind that the objects use, and waits until the API server serves them.

    A stack's own definition of a kind is left to the stack.
    """
    objects = tuple(objects)
    own = {_defines(item) for item in objects if _kind(item) == _DEFINITION}
    found = definitions_for(objects, plane.toolchain.definitions(), kubernetes_schemas(plane.api))
    installed = tuple(definition for definition in found if definition.kind not in own)
    for definition in installed:
        plane.api.apply(definition.manifest)
    _await_definitions(plane, (definition.resource for definition in installed))
    return installed


def _await_definitions(plane: ControlPlane, resources: Iterable[str]) -> None:
    for resource in resources:
        plane.processes.wait_until(
            lambda resource=resource: _is_established(plane.api, resource) and plane.api.knows(resource),
            seconds=_ESTABLISH_SECONDS,
            what=f"the API server serves {resource}",
        )


def _is_established(api: Api, name: str) -> bool:
    conditions = items(at(api.get(_DEFINITIONS, name) or {}, "status", "conditions"))
    return any(at(one, "type") == "Established" and at(one, "status") == "True" for one in conditions)


class _Admitting:
    """One stack before one control plane."""

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
        self._assumed = [f"{item.title}: {path} is only known to a deployment" for item in self._objects for path in item.unsure]

    def admission(self) -> Admission:
        for definition in install_definitions(self._plane, self._objects):
            self._origins[definition.kind] = definition.origin
        self._define(item for item in self._objects if _kind(item) == _DEFINITION)
        self._make_what_others_bring()
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
        """Whether the object is taken."""
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
        """``Kubernetes 1.35.4``, or the version that a newer server speaks."""
        version = self._api.raw("GET", "/version")
        number = version["gitVersion"].removeprefix("v")
        emulated = f"{version['emulationMajor']}.{version['emulationMinor']}"
        return f"Kubernetes {number}" if number.startswith(f"{emulated}.") else f"Kubernetes {emulated} as {number} speaks it"

    # -- what the stack's objects are judged by

    def _define(self, definitions: Iterable[ClusterObject]) -> None:
        """Definitions of the stack's own: other objects may be of the kinds they define."""
        for item in definitions:
            if self._ask(item, dry_run=False):
                self._origins[_defines(item)] = "CRD of the stack"
                _await_definitions(self._plane, (item.name,))

    def _make_what_others_bring(self) -> None:
        """Namespaces of add-ons and charts; and where a chart is one that the catalog does not know, whatever is missing."""
        made = {(*_kind(item), item.namespace, item.name) for item in self._objects}
        known = set(_namespaces_of_releases(self._graph))
        there = {text(at(one, "metadata", "name")) for one in self._api.list("namespaces")}
        used = {item.namespace for item in self._objects if item.namespace} - there
        missing = {("Namespace", "", name) for name in used if ("", "Namespace", "", name) not in made}
        for _, _, name in sorted(missing):
            if name in known:
                self._api.apply(_bare("Namespace", name))
        if not _has_unknown_chart(self._graph):
            return
        missing = {one for one in missing if one[2] not in known}
        for template in self._templates:
            missing |= {one for one in _needs(template) if (_GROUPS[one[0]], *one) not in made}
        for kind, namespace, name in sorted(missing, key=lambda one: (one[0] != "Namespace", one)):
            # A name that no chart could use either is refused where it is used.
            with suppress(ApiRefusal):
                self._api.apply(_bare(kind, name, namespace))
                self._assumed.append(f"{kind} {name}: not of the stack; a chart may bring it")

    # -- pods

    def _ask_pods(self) -> int:
        """One pod of each template of an object that was not refused itself. Says how many."""
        refused = {refusal.urn for refusal in self._refusals}
        waiting = [one for one in self._templates if one.owner.urn not in refused]
        asked, end = len(waiting), time.monotonic() + _SETTLE_SECONDS
        while waiting:
            answers = [(one, self._ask_pod(one)) for one in waiting]
            over = time.monotonic() > end
            waiting = [one for one, refusal in answers if refusal and _may_pass(refusal) and not over]
            for one, refusal in answers:
                if refusal and one not in waiting:
                    self._refuse(one.owner.urn, f"a pod of {one.title}", refusal)
            if waiting:
                time.sleep(_POLL_SECONDS)
        return asked

    def _ask_pod(self, template: PodTemplate) -> ApiRefusal | None:
        try:
            self._api.create(_pod(template), dry_run=True)
        except ApiRefusal as refusal:
            return refusal
        return None


def _kind(item: ClusterObject) -> tuple[str, str]:
    return item.group, item.kind


def _defines(definition: ClusterObject) -> tuple[str, str]:
    """Group and kind that a stack's own definition is of."""
    spec = definition.manifest.get("spec")
    return text(at(spec, "group")), text(at(spec, "names", "kind"))


# -- what others bring -----------------------------------------------------------------------------------------------------------


def _namespaces_of_releases(graph: Graph) -> Iterator[str]:
    """Namespaces that add-ons and charts make."""
    for addon in expected_of(graph).addons:
        yield from (namespace for _, namespace, _ in addon.workloads)
    for opaque in opaque_of(graph):
        if opaque.kind == "chart" and graph.by_urn[opaque.urn].inputs.get("createNamespace") is True:
            yield opaque.namespace


def _has_unknown_chart(graph: Graph) -> bool:
    """Whether something of the stack may bring what nothing here knows of."""
    for opaque in opaque_of(graph):
        resource = graph.by_urn[opaque.urn]
        if opaque.kind == "chart" and not _is_in_catalog(chart_of(resource).name):
            return True
        if opaque.kind == "remote" and resource.type != REMOTE_CLUSTER_TYPE:
            return True
    return False


def _is_in_catalog(chart: str) -> bool:
    try:
        versions.chart(chart)
    except KeyError:
        return False
    return True


def _needs(template: PodTemplate) -> Iterator[tuple[str, str, str]]:
    """What a pod of the template is refused without: kind, namespace, name."""
    for kind, key in (("PriorityClass", "priorityClassName"), ("RuntimeClass", "runtimeClassName")):
        name = text(at(template.spec.document, key))
        if name and name not in _CLASSES_OF_KUBERNETES:
            yield kind, "", name
    if template.spec.service_account != "default":
        yield "ServiceAccount", template.namespace, template.spec.service_account


def _bare(kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    """The least of an object that admission asks for."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    body = {"PriorityClass": {"value": 0}, "RuntimeClass": {"handler": "stand-in"}}.get(kind, {})
    group = _GROUPS[kind]
    return {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, "metadata": metadata, **body}


# -- pods ------------------------------------------------------------------------------------------------------------------------


def _templates(graph: Graph, objects: Iterable[ClusterObject]) -> Iterator[PodTemplate]:
    """The pod templates of the objects as the API server gets them. A Pod is its own template, and is asked as itself."""
    owners = tuple(replace(graph.by_urn[item.urn], inputs=item.manifest) for item in objects)
    for template in pod_templates(Graph(graph.project, graph.stack, owners)):
        if template.kind != "Pod" and isinstance(template.template, Mapping):
            yield template


def _pod(template: PodTemplate) -> dict[str, Any]:
    """A pod as a controller would make it of the template."""
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
        spec = {**spec, "volumes": [*(one for one in items(spec.get("volumes")) if at(one, "name") not in names), *of_claims]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "generateName": f"{template.name}-", "namespace": template.namespace},
        "spec": spec,
    }


def _may_pass(refusal: ApiRefusal) -> bool:
    """Whether the refusal may be of something that was only just made."""
    return refusal.status == 403 and any(words in refusal.message for words in _NOT_SEEN_YET)
