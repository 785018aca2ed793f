"""What a change does to what pods need beside their nodes: values of their environment, and disks. Pure."""

from collections.abc import Iterator
from typing import Any

from eks_inference_tools.reading.kinds import group_kind, name_of, namespace_of, title_of
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from eks_inference_tools.reading.rollouts import surges
from eks_inference_tools.reading.scalars import quantity, whole
from stackgraph.diff.domain import Danger, Weight
from stackgraph.diff.graphs import ResourceChange, StackDiff
from stackgraph.graph.values import at, grouped, items, table, text

_VALUES = {"configMapRef": "ConfigMap", "configMapKeyRef": "ConfigMap", "secretRef": "Secret", "secretKeyRef": "Secret"}
_STORED = ("spec", "resources", "requests", "storage")


def needs(diff: StackDiff) -> Iterator[Danger]:
    """Values that no pod reads before it restarts, or that pods still ask for; disks that stay as they are, or with one pod."""
    if diff.head is None:
        return
    objects = {(group_kind(resource)[1], namespace_of(resource), name_of(resource)): resource for resource in diff.head.resources}
    using = grouped(
        ((kind, pods.given_namespace, name), pods)
        for pods in pod_templates(diff.head)
        if diff.by_urn[pods.urn].kind in ("same", "dependencies")
        for kind, name in _in_environment(pods)
    )
    for change in diff.changes:
        kind, subject = group_kind(change.resource)[1], title_of(change.resource)
        key = (kind, namespace_of(change.resource), name_of(change.resource))
        if asking := using.get(key, ()) if change.before else ():
            gone = key not in objects and not change.resource.options.get("retainOnDelete")
            changed = any(one.path[0] in ("data", "stringData", "binaryData") for one in change.properties)
            told = asking if gone else [one for one in asking if changed and not _reloaded(one, key[2])]
            pods = told[0].title + (f" and {len(told) - 1} more" if told[1:] else "") if told else ""
            if gone:
                what = f"{subject} is deleted, and pods of {pods} ask for it: none of them starts again"
                yield Danger("deleted", what, change.urn, Weight.DELETED)
            elif told:
                what = f"{subject}: the pods of {pods} keep the old values until they restart"
                yield Danger("without-effect", what, change.urn, Weight.REFUSED, subject)
        elif kind == "PersistentVolumeClaim" and change.kind == "update" and change.before:
            name = at(change.resource.inputs, "spec", "storageClassName")
            old, new = (quantity(at(resource.inputs, *_STORED)) for resource in (change.before, change.resource))
            class_ = objects.get(("StorageClass", "", text(name)))
            if old and new and new > old and class_ and not class_.inputs.get("allowVolumeExpansion"):
                what = f"{subject}: its class {name} lets no claim grow, and the API server refuses"
                yield Danger("refused", what, change.urn, Weight.REFUSED, subject)
        elif kind == "Deployment" and (held := _held(change, objects)):
            what = f"{subject} may wait for ever, and `pulumi up` fail: its new pod starts while the old one holds {held}"
            yield Danger("claim-held", what, change.urn, Weight.UNSURE, subject, avoid=f"{subject}: strategy Recreate")


def _in_environment(pods: PodTemplate) -> set[tuple[str, str]]:
    """Kind and name of each ConfigMap and Secret that the variables of containers come from."""
    documents = [container.document for container in pods.containers]
    sources = [
        one for each in documents for one in (*items(at(each, "envFrom")), *(at(e, "valueFrom") for e in items(at(each, "env"))))
    ]
    found = ((kind, at(source, key)) for source in sources for key, kind in _VALUES.items())
    return {(kind, text(at(one, "name"))) for kind, one in found if one and not at(one, "optional")}


def _reloaded(pods: PodTemplate, name: str) -> bool:
    """Whether Stakater's Reloader restarts the pods when these values change (its README, Annotations)."""
    given = {**table(at(pods.template, "metadata", "annotations")), **table(at(pods.owner.inputs, "metadata", "annotations"))}
    return any(
        "reloader.stakater.com/" in key and (value == "true" or name in map(str.strip, text(value).split(",")))
        for key, value in given.items()
    )


def _held(change: ResourceChange, objects: Any) -> str:
    """A disk of one node (Kubernetes, Persistent Volumes, access modes), which the pods of an update need at once."""
    spec = change.resource.inputs.get("spec")
    for item in items(at(spec, "template", "spec", "volumes")) if surges(change, whole(at(spec, "replicas")) or 1) else ():
        name = text(at(item, "persistentVolumeClaim", "claimName"))
        claim = objects.get(("PersistentVolumeClaim", namespace_of(change.resource), name))
        if claim and at(claim.inputs, "spec", "accessModes") in (["ReadWriteOnce"], ["ReadWriteOncePod"]):
            return f"the disk of {title_of(claim)}, which goes with no pod to another node"
    return ""
