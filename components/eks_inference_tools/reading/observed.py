"""What a cluster holds, as read at one moment."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from stackgraph.graph.values import at, items, table, text

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Unreadable:
    """Why objects of one resource could not be listed: the API server does not know it, or does not show it.

    ``said`` is what it said.
    """

    resource: str
    reason: Literal["not installed", "forbidden"]
    said: str = ""

    @property
    def message(self) -> str:
        return f"you may not list {self.resource}" if self.reason == "forbidden" else f"there are no {self.resource} here"

    @property
    def next(self) -> str:
        """A command that tells more."""
        if self.reason == "forbidden":
            return f"kubectl auth can-i list {self.resource} --all-namespaces"
        return f"kubectl get crd {self.resource}"


@dataclass(frozen=True)
class ReleaseRecord:
    """What Helm itself noted about the latest revision of a release."""

    status: str
    revision: int


@dataclass(frozen=True)
class Observed:
    """Objects by resource, as kubectl names it. ``releases`` are by namespace and name; None where they could not be read."""

    server_version: str
    objects: Mapping[str, Sequence[Object]]
    unreadable: Mapping[str, Unreadable] = field(default_factory=dict)
    releases: Mapping[tuple[str, str], ReleaseRecord] | None = field(default_factory=dict)

    def all(self, resource: str) -> Sequence[Object]:
        return self.objects.get(resource, ())

    def find(self, resource: str, namespace: str, name: str) -> Object | None:
        """The object of that name; ``namespace`` is empty for objects of the cluster."""
        return next((item for item in self.all(resource) if identity_of(item) == (namespace, name)), None)

    def selected(self, resource: str, namespace: str, selector: Mapping[str, Any]) -> list[Object]:
        """Objects of a namespace whose labels are those of the selector (``matchLabels``); none for an empty selector."""
        wanted = table(selector).items()
        return [
            item
            for item in self.all(resource)
            if wanted and at(item, "metadata", "namespace") == namespace and wanted <= labels_of(item).items()
        ]


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
    """Whether the object's controller has not yet seen its latest change."""
    generation, seen = at(item, "metadata", "generation"), at(item, "status", "observedGeneration")
    return isinstance(generation, int) and isinstance(seen, int) and seen < generation


def condition_of(item: Object, type_: str) -> Mapping[str, Any] | None:
    """The condition of that type, with ``status`` (``True``, ``False``, ``Unknown``), ``reason`` and ``message``."""
    return next((condition for condition in conditions_of(item) if condition.get("type") == type_), None)


def conditions_of(item: Object) -> Iterator[Mapping[str, Any]]:
    for condition in items(at(item, "status", "conditions")):
        if isinstance(condition, Mapping):
            yield condition


def count_of(item: Object, *path: str) -> int:
    """A number of the object's status or spec; 0 where it is left out, as the API does with zeros."""
    value = at(item, *path)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
