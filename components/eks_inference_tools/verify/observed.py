"""The state of a cluster at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eks_inference_tools.reading.live_objects import Object, identity_of, labels_of
from eks_inference_tools.verify.verdicts import Finding, unknown
from stackgraph.graph.values import at, table


@dataclass(frozen=True)
class Unreadable:
    """Why a resource could not be listed: the API server does not have it, or forbids it. ``said`` is the server's message."""

    resource: str
    reason: Literal["not installed", "forbidden"]
    said: str = ""

    @property
    def message(self) -> str:
        return f"you may not list {self.resource}" if self.reason == "forbidden" else f"the cluster has no {self.resource}"

    @property
    def next(self) -> str:
        """A command that shows more."""
        if self.reason == "forbidden":
            return f"kubectl auth can-i list {self.resource} --all-namespaces"
        return f"kubectl get crd {self.resource}"


@dataclass(frozen=True)
class ReleaseRecord:
    """Helm's record of the latest revision of a release."""

    status: str
    revision: int


@dataclass(frozen=True)
class Observed:
    """Objects by kubectl's resource name. ``releases`` are by namespace and name; None if they could not be read."""

    server_version: str
    objects: Mapping[str, Sequence[Object]]
    unreadable: Mapping[str, Unreadable] = field(default_factory=dict)
    releases: Mapping[tuple[str, str], ReleaseRecord] | None = field(default_factory=dict)

    def all(self, resource: str) -> Sequence[Object]:
        return self.objects.get(resource, ())

    def gap(self, resource: str) -> Finding | None:
        """Returns the finding for a resource that could not be listed; None if it could."""
        blocked = self.unreadable.get(resource)
        return unknown(blocked.message, blocked.next) if blocked else None

    def find(self, resource: str, namespace: str, name: str) -> Object | None:
        """Returns one object; ``namespace`` is empty for cluster-scoped objects."""
        return next((item for item in self.all(resource) if identity_of(item) == (namespace, name)), None)

    def selected(self, resource: str, namespace: str, selector: Mapping[str, Any]) -> list[Object]:
        """Returns objects of a namespace that match a selector (``matchLabels``); none for an empty selector."""
        wanted = table(selector).items()
        return [
            item
            for item in self.all(resource)
            if wanted and at(item, "metadata", "namespace") == namespace and wanted <= labels_of(item).items()
        ]
