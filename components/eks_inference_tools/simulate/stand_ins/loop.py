"""Runs the stand-ins of controllers that cannot run here: KubeRay, LeaderWorkerSet, Karpenter, device plugins, EBS,
load balancers.
"""

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import requests

from eks_inference_tools.reading.live_objects import conditions_of, identity_of
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal, Object
from eks_inference_tools.simulate.control_plane.processes import ComponentError
from stackgraph.problems import Problem

ROUND_SECONDS = 0.25

Seen = Mapping[str, list[Object]]
"""The objects of the cluster by resource, listed at the start of a round."""


class StandIn(Protocol):
    """Stands in for a controller. ``title`` names both; ``reads`` lists the resources that it reads."""

    @property
    def title(self) -> str: ...

    @property
    def reads(self) -> tuple[str, ...]: ...

    def reconcile(self, seen: Seen, api: Api) -> None:
        """Takes one step towards the desired state, once per round. It may raise an ``ApiRefusal`` that ``is_race``."""
        ...


class StandIns:
    """A context that runs stand-ins in a thread, one after another."""

    def __init__(self, api: Api, stand_ins: Iterable[StandIn]) -> None:
        self._api = api
        self._stand_ins = tuple(stand_ins)
        self._reads = tuple(dict.fromkeys(resource for stand_in in self._stand_ins for resource in stand_in.reads))
        self._end = threading.Event()
        self._error: BaseException | None = None
        self._failed = ""
        self._thread = threading.Thread(target=self._run, name="stand-ins", daemon=True)

    def __enter__(self) -> "StandIns":
        if self._stand_ins:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def ensure_alive(self) -> None:
        """Raises ``ComponentError`` if a stand-in failed: none of them runs any more."""
        if self._error is not None:
            raise ComponentError([Problem(f"{self._failed} failed: {self._error}")]) from self._error

    def _run(self) -> None:
        while not self._end.wait(ROUND_SECONDS):
            try:
                self._failed = "reading the cluster for the stand-ins"
                seen = {resource: self._api.list(resource) for resource in self._reads}
                for stand_in in self._stand_ins:
                    self._failed = stand_in.title
                    try:
                        stand_in.reconcile(seen, self._api)
                    except ApiRefusal as refusal:
                        if not refusal.is_race:
                            raise
            except requests.RequestException as error:
                # Whoever watches the processes reports why the API server is gone.
                self._failed, self._error = "the connection to the API server", error
                return
            except Exception as error:
                self._error = error
                return


SOURCE = "eks-inference stand-in"
"""The source component of the events."""

# The alphabet of the suffixes that Kubernetes appends to names (apimachinery, util/rand): without vowels, so without words.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def owned(owner: Mapping[str, Any], api_version: str, kind: str, name: str, labels: Mapping[str, Any], **fields: Any) -> Object:
    """Returns an object in the namespace of its controller ``owner``. The garbage collector deletes it after the owner."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"].get("uid", ""),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {"name": name, "namespace": identity_of(owner)[0], "labels": dict(labels), "ownerReferences": [reference]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def controller_revision(
    owner: Mapping[str, Any], name: str, labels: Mapping[str, Any], number: int, data: Mapping[str, Any]
) -> Object:
    """Returns the object in which controllers keep earlier states of what they manage."""
    return owned(owner, "apps/v1", "ControllerRevision", name, labels, revision=number, data=dict(data))


def suffix(*parts: object) -> str:
    """Returns five letters like those that Kubernetes appends to names; the same for the same parts, so runs can be compared."""
    digest = hashlib.sha256("\n".join(str(part) for part in parts).encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:5])


def condition(type_: str, status: bool, reason: str, message: str) -> Object:
    return {"type": type_, "status": str(status), "reason": reason, "message": message}


def conditions(item: Object, now: Iterable[Object]) -> list[Object]:
    """Returns the conditions of an object with ``now`` merged in by type. Transition times are those of the last change."""
    known = {one.get("type"): dict(one) for one in conditions_of(item)}
    generation = item["metadata"].get("generation", 1)
    for one in now:
        old = known.get(one["type"], {})
        turned = _now() if old.get("status") != one["status"] else old["lastTransitionTime"]
        known[one["type"]] = {**one, "observedGeneration": generation, "lastTransitionTime": turned}
    return list(known.values())


def set_status(api: Api, item: Object, status: Mapping[str, Any]) -> None:
    """Replaces the status if it changed."""
    if item.get("status") != status:
        api.patch(item, [{"op": "add", "path": "/status", "value": status}], subresource="status", kind="json")


def tell(api: Api, item: Mapping[str, Any], reason: str, message: str) -> None:
    """Creates a warning event about an object, like a controller whose request was refused; only once if repeated."""
    namespace, name = identity_of(item)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{suffix(item['kind'], reason, message)}", "namespace": namespace},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": SOURCE},
        "involvedObject": {
            "apiVersion": item["apiVersion"],
            "kind": item["kind"],
            "name": name,
            "namespace": namespace,
            "uid": item["metadata"].get("uid", ""),
        },
        "firstTimestamp": _now(),
        "lastTimestamp": _now(),
        "count": 1,
    }
    try:
        api.create(event)
    except ApiRefusal as refusal:
        if refusal.status != 403 and not refusal.is_race:  # the namespace is terminating, or the event exists
            raise


@contextmanager
def telling(api: Api, item: Mapping[str, Any], reason: str) -> Iterator[None]:
    """Turns a refusal by the API server into an event about ``item``. Races pass, to be retried in the next round."""
    try:
        yield
    except ApiRefusal as refusal:
        if refusal.is_race:
            raise
        tell(api, item, reason, refusal.message)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
