"""Operations of Pulumi's Kubernetes provider on one object: what each does, and when it is complete.

Source: pulumi-kubernetes 4, provider/pkg/await/await.go (``Creation``, ``Update``, ``Deletion``).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL
from eks_inference_tools.reading.live_objects import (
    Object,
    Seen,
    conditions_of,
    has_ended,
    identity_of,
    is_leaving,
    is_ready,
    labels_of,
    title_of,
)
from eks_inference_tools.reading.object_kinds import PODS, VOLUME_CLAIMS, VOLUMES
from eks_inference_tools.reading.readiness import is_awaited, is_removal_awaited, reads, unsettled, waits_for
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal, UnknownKind
from stackgraph.graph.values import at, items, text


class NotYet(Exception):
    """The operation cannot begin now, but may be able to later."""


class Operation(Protocol):
    """Begins once and is then polled until it waits for nothing. Without ``is_awaited`` it is complete as soon as it begins."""

    @property
    def is_awaited(self) -> bool:
        return True

    def begin(self, api: Api) -> None:
        """Makes the change, if there is one. Raises ``NotYet`` or ``ApiRefusal``."""

    def reads(self, api: Api) -> Iterable[str]:
        """Returns the resources that ``waits_for`` needs in ``seen``."""
        ...

    def waits_for(self, api: Api, seen: Seen) -> str:
        """Returns what the operation waits for, "" once it is complete. Raises ``Failed``."""
        ...


@dataclass(frozen=True)
class OfObject(Operation):
    """An operation on the object of a manifest."""

    manifest: Object

    def reads(self, api: Api) -> Iterable[str]:
        return (api.resource_of(self.manifest), *reads(self.manifest))

    def _address(self, api: Api) -> tuple[str, str, str]:
        """Returns resource, name and namespace. Raises ``UnknownKind``."""
        metadata = self.manifest["metadata"]
        namespace = (text(metadata.get("namespace")) or "default") if api.is_namespaced(self.manifest) else ""
        return api.resource_of(self.manifest), metadata["name"], namespace

    def _live(self, api: Api, seen: Seen) -> Object | None:
        resource, name, namespace = self._address(api)
        return next((item for item in seen[resource] if identity_of(item) == (namespace, name)), None)


class Creation(OfObject):
    """Complete when Pulumi proceeds to the resources that depend on the object."""

    @property
    def is_awaited(self) -> bool:
        return is_awaited(self.manifest)

    def begin(self, api: Api) -> None:
        """Creates the object, which must not exist: the provider creates and does not apply. Like the provider, it retries
        (``NotYet``) while a namespace or a definition is missing.
        """
        try:
            if api.get(*self._address(api)) is not None:
                raise ApiRefusal(409, "AlreadyExists", f"{title_of(self.manifest)} already exists")
            api.apply(self.manifest)
        except UnknownKind as unknown:
            raise NotYet(f"the API server knows no {unknown}") from None
        except ApiRefusal as refusal:
            if refusal.status == 404:
                raise NotYet(refusal.message) from None
            raise

    def waits_for(self, api: Api, seen: Seen) -> str:
        live = self._live(api, seen)
        return "it is gone again" if live is None else waits_for(live, seen)


class Update(Creation):
    """A change in place."""

    def begin(self, api: Api) -> None:
        """Applies the manifest without force: like the provider, it fails on a field that another manager owns."""
        try:
            there = api.get(*self._address(api))
        except UnknownKind as unknown:
            raise ApiRefusal(404, "NotFound", f"the API server knows no {unknown}") from None
        if there is None:
            raise ApiRefusal(404, "NotFound", f"{title_of(self.manifest)} no longer exists")
        api.patch(self.manifest, self.manifest, kind="apply")


class Settling(OfObject):
    """Changes nothing. Complete when the object has reached its desired state, whether or not Pulumi waits for that."""

    def waits_for(self, api: Api, seen: Seen) -> str:
        live = self._live(api, seen)
        return "it does not exist" if live is None else unsettled(live, seen)


class Removal(OfObject):
    """Complete when the object and everything it owns are gone."""

    @property
    def is_awaited(self) -> bool:
        return is_removal_awaited(self.manifest)

    def begin(self, api: Api) -> None:
        if self._is_known(api):
            api.delete(*self._address(api), propagation="Foreground")

    def reads(self, api: Api) -> Iterable[str]:
        return (api.resource_of(self.manifest),) if self._is_known(api) else ()

    def waits_for(self, api: Api, seen: Seen) -> str:
        live = self._live(api, seen) if self._is_known(api) else None
        if live is None:
            return ""
        messages = [text(one.get("message")) for one in conditions_of(live) if one.get("status") == "True"]
        finalizers = items(at(live, "metadata", "finalizers")) or items(at(live, "spec", "finalizers"))
        held = ", ".join(finalizers) or "nothing"
        return "; ".join([f"it is not gone yet, held by {held}", *filter(None, messages)])

    def _is_known(self, api: Api) -> bool:
        """Returns False once the definition of a custom resource is gone: its objects are gone with it."""
        try:
            api.resource_of(self.manifest)
        except UnknownKind:
            return False
        return True


@dataclass(frozen=True)
class Until(Operation):
    """Changes nothing. Complete when ``holds`` is true of every object of the ``resources``; ``words`` describe the others."""

    resources: tuple[str, ...]
    holds: Callable[[Object], bool]
    words: str

    def reads(self, api: Api) -> Iterable[str]:
        return self.resources

    def waits_for(self, api: Api, seen: Seen) -> str:
        others = [title_of(item) for resource in self.resources for item in seen[resource] if not self.holds(item)]
        return f"{self.words}: {', '.join(others)}" if others else ""


NOTHING_LEFT = Until((PODS, VOLUME_CLAIMS, VOLUMES), lambda item: STANDS_IN_FOR_LABEL in labels_of(item), "still there")
"""Waits until no pod, claim or volume is left except those of stand-ins."""

EVERY_POD = Until((PODS,), lambda pod: not is_leaving(pod) and (has_ended(pod) or is_ready(pod)), "not ready")
"""Waits until every pod is ready or has ended."""
