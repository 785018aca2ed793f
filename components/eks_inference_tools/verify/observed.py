"""What a cluster holds, as read at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eks_inference_tools.reading.live_objects import Object, identity_of, labels_of
from stackgraph.graph.values import at, table


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
