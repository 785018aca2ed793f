"""Reads names, owners and status of Kubernetes objects as an API server returns them. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eks_inference.place.placement import Taint
from stackgraph.graph.values import at, items, table, text

Object = Mapping[str, Any]

Seen = Mapping[str, Sequence[Object]]
"""The objects of all namespaces at one moment, by resource as kubectl names it."""


def identity_of(item: Object) -> tuple[str, str]:
    return text(at(item, "metadata", "namespace")), text(at(item, "metadata", "name"))


def name_of(item: Object) -> str:
    return identity_of(item)[1]


def labels_of(item: Object) -> Mapping[str, Any]:
    return table(at(item, "metadata", "labels"))


def annotations_of(item: Object) -> Mapping[str, Any]:
    return table(at(item, "metadata", "annotations"))


def is_leaving(item: Object) -> bool:
    return at(item, "metadata", "deletionTimestamp") is not None


def is_stale(item: Object) -> bool:
    """Whether the object's controller has not yet observed its latest change."""
    generation, seen = at(item, "metadata", "generation"), at(item, "status", "observedGeneration")
    return isinstance(generation, int) and isinstance(seen, int) and seen < generation


def condition_of(item: Object, type_: str) -> Mapping[str, Any] | None:
    """The condition of a type, with ``status`` (``True``, ``False``, ``Unknown``), ``reason`` and ``message``."""
    return next((condition for condition in conditions_of(item) if condition.get("type") == type_), None)


def conditions_of(item: Object) -> Iterator[Mapping[str, Any]]:
    return (condition for condition in items(at(item, "status", "conditions")) if isinstance(condition, Mapping))


def count_of(item: Object, *path: str) -> int:
    """A number in the object's status or spec. 0 when it is missing, because the API omits zeros."""
    value = at(item, *path)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def title_of(item: Object) -> str:
    """``Deployment demo/server``."""
    namespace, name = identity_of(item)
    kind = text(at(item, "kind"))
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def controller_of(item: Object) -> Object | None:
    """The owner reference of the object's controller, with ``kind``, ``name`` and ``uid``, or None."""
    references = items(at(item, "metadata", "ownerReferences"))
    return next((reference for reference in references if at(reference, "controller") is True), None)


def is_controlled_by(item: Object, owner: Object) -> bool:
    """Whether ``owner`` controls the object, by UID: an earlier owner may have had the same name."""
    uid = at(owner, "metadata", "uid")
    return uid is not None and at(controller_of(item), "uid") == uid


# -- pods and nodes --------------------------------------------------------------------------------------------------------------


def is_ready(pod: Object) -> bool:
    condition = condition_of(pod, "Ready")
    return condition is not None and condition.get("status") == "True" and not is_leaving(pod)


def has_ended(pod: Object) -> bool:
    return at(pod, "status", "phase") in ("Succeeded", "Failed")


def node_of(pod: Object) -> str:
    """The node that the pod is bound to, or an empty text."""
    return text(at(pod, "spec", "nodeName"))


def taints_of(node: Object) -> Iterator[Taint]:
    """The taints of a node with effect NoSchedule or NoExecute."""
    for item in items(at(node, "spec", "taints")):
        if (effect := at(item, "effect")) in ("NoSchedule", "NoExecute"):
            yield Taint(text(at(item, "key")), text(at(item, "value")), effect)
