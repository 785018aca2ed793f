"""What is done with one object of a stack as Pulumi's provider does it, and when that is over.

Source: pulumi-kubernetes 4, provider/pkg/await/await.go (``Creation``, ``Update``, ``Deletion``).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from eks_inference_tools.reading.kinds import PODS, VOLUME_CLAIMS, VOLUMES
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
from eks_inference_tools.simulate.control_plane.api import Api, ApiRefusal, UnknownKind
from eks_inference_tools.simulate.rollout.readiness import (
    Ready,
    State,
    Waiting,
    is_awaited,
    is_removal_awaited,
    reads,
    settled,
    state_of,
)
from eks_inference_tools.simulate.world.footprint import STANDS_IN_FOR_LABEL
from stackgraph.graph.values import at, items, text

_LEFT_BEHIND = (PODS, VOLUME_CLAIMS, VOLUMES)


class NotYet(Exception):
    """It cannot be begun now, but perhaps later."""


class Operation(Protocol):
    """Begun once, and then looked at until its state is ``Ready``; at once over if it is not awaited."""

    @property
    def is_awaited(self) -> bool: ...

    def begin(self, api: Api) -> None:
        """Raises ``NotYet`` or ``ApiRefusal``."""
        ...

    def reads(self, api: Api) -> Iterable[str]:
        """The resources that ``state`` looks at."""
        ...

    def state(self, api: Api, seen: Seen) -> State: ...


@dataclass(frozen=True)
class OfObject:
    """An operation on the object of a manifest."""

    manifest: Object

    def reads(self, api: Api) -> Iterable[str]:
        return (api.resource_of(self.manifest), *reads(self.manifest))


class Creation(OfObject):
    """Over when Pulumi goes on to what depends on the object."""

    @property
    def is_awaited(self) -> bool:
        return is_awaited(self.manifest)

    def begin(self, api: Api) -> None:
        """The provider creates and does not apply: what is there already is an error. It tries again, though, while a namespace
        or a definition is missing.
        """
        try:
            if api.get(*_place(api, self.manifest)) is not None:
                raise ApiRefusal(409, "AlreadyExists", f"{title_of(self.manifest)} is there already")
            api.apply(self.manifest)
        except UnknownKind as unknown:
            raise NotYet(f"the API server knows no {unknown}") from None
        except ApiRefusal as refusal:
            if refusal.status == 404:
                raise NotYet(refusal.message) from None
            raise

    def state(self, api: Api, seen: Seen) -> State:
        live = _live(api, self.manifest, seen)
        return Waiting("it is gone again") if live is None else state_of(live, seen)


class Update(Creation):
    """A change in place."""

    def begin(self, api: Api) -> None:
        """Applied without force: the provider leaves a field to whoever else has set it, and fails."""
        if api.get(*_place(api, self.manifest)) is None:
            raise ApiRefusal(404, "NotFound", f"{title_of(self.manifest)} is not there any more")
        api.patch(self.manifest, self.manifest, kind="apply")


class Settling(OfObject):
    """Nothing is done to the object; over when it is as it should be, whether Pulumi waits for that or not."""

    is_awaited = True

    def begin(self, api: Api) -> None:
        """It is there already."""

    def state(self, api: Api, seen: Seen) -> State:
        live = _live(api, self.manifest, seen)
        return Waiting("it is not there") if live is None else settled(live, seen)


class Removal(OfObject):
    """Over when the object is gone, with all that it owns."""

    @property
    def is_awaited(self) -> bool:
        return is_removal_awaited(self.manifest)

    def begin(self, api: Api) -> None:
        if _is_known(api, self.manifest):
            api.delete(*_place(api, self.manifest), propagation="Foreground")

    def reads(self, api: Api) -> Iterable[str]:
        return (api.resource_of(self.manifest),) if _is_known(api, self.manifest) else ()

    def state(self, api: Api, seen: Seen) -> State:
        live = _live(api, self.manifest, seen) if _is_known(api, self.manifest) else None
        if live is None:
            return Ready()
        said = [text(one.get("message")) for one in conditions_of(live) if one.get("status") == "True"]
        held = items(at(live, "metadata", "finalizers")) or items(at(live, "spec", "finalizers"))
        return Waiting("; ".join([f"it is not gone yet, held by {', '.join(held) or 'nothing'}", *filter(None, said)]))


class NothingLeft:
    """Over when no pod, claim or volume is left but those of stand-ins."""

    is_awaited = True

    def begin(self, api: Api) -> None:
        """Nothing is to be done but to look."""

    def reads(self, api: Api) -> Iterable[str]:
        return _LEFT_BEHIND

    def state(self, api: Api, seen: Seen) -> State:
        left = [
            title_of(item) for resource in _LEFT_BEHIND for item in seen[resource] if STANDS_IN_FOR_LABEL not in labels_of(item)
        ]
        return Waiting(f"there are still {', '.join(left)}") if left else Ready()


class EveryPod:
    """Over when every pod is ready or has ended."""

    is_awaited = True

    def begin(self, api: Api) -> None:
        """Nothing is to be done but to look."""

    def reads(self, api: Api) -> Iterable[str]:
        return (PODS,)

    def state(self, api: Api, seen: Seen) -> State:
        moving = [title_of(pod) for pod in seen[PODS] if is_leaving(pod) or not (has_ended(pod) or is_ready(pod))]
        return Waiting(f"not ready: {', '.join(moving)}") if moving else Ready()


def _is_known(api: Api, manifest: Object) -> bool:
    try:
        api.resource_of(manifest)
    except UnknownKind:
        return False
    return True


def _place(api: Api, manifest: Object) -> tuple[str, str, str]:
    """Resource, name and namespace of an object. Raises ``UnknownKind``."""
    namespace = (text(at(manifest, "metadata", "namespace")) or "default") if api.is_namespaced(manifest) else ""
    return api.resource_of(manifest), manifest["metadata"]["name"], namespace


def _live(api: Api, manifest: Object, seen: Seen) -> Object | None:
    resource, name, namespace = _place(api, manifest)
    return next((item for item in seen[resource] if identity_of(item) == (namespace, name)), None)
