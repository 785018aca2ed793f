"""What controllers have in common: they own what they make, note a status, and tell what was refused."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from eks_inference_tools.reading.live_objects import identity_of
from eks_inference_tools.simulate.control_plane.api import Api, ApiRefusal, Object
from stackgraph.graph.values import at

SOURCE = "eks-inference stand-in"
"""What events say they come from."""

# Of the five letters that Kubernetes appends to names (apimachinery, util/rand): no vowels, no words.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def owner_reference(owner: Mapping[str, Any]) -> Object:
    """Makes ``owner`` the controller of what carries this: the garbage collector deletes that when the owner is gone."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"].get("uid", ""),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def suffix(*parts: object) -> str:
    """Five letters as Kubernetes appends them to names; the same for the same parts, so that runs can be compared."""
    digest = hashlib.sha256("\n".join(str(part) for part in parts).encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:5])


def condition(type_: str, status: bool, reason: str, message: str) -> Object:
    return {"type": type_, "status": str(status), "reason": reason, "message": message}


def conditions(before: Iterable[Any], now: Iterable[Object], generation: int) -> list[Object]:
    """The conditions ``now`` in place of those ``before`` of the same type; the time is that of the last change of status."""
    known = {at(one, "type"): dict(one) for one in before if isinstance(one, Mapping)}
    for one in now:
        old = known.get(one["type"], {})
        turned = _now() if old.get("status") != one["status"] else old["lastTransitionTime"]
        known[one["type"]] = {**one, "observedGeneration": generation, "lastTransitionTime": turned}
    return list(known.values())


def set_status(api: Api, item: Object, status: Mapping[str, Any]) -> None:
    """Writes the status as a whole, when it is another."""
    if item.get("status") != status:
        api.patch(item, [{"op": "add", "path": "/status", "value": status}], subresource="status", kind="json")


def tell(api: Api, item: Mapping[str, Any], reason: str, message: str) -> None:
    """A warning about an object, as controllers give when they are refused something; once, however often it is repeated."""
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
        if refusal.status not in (403, 404, 409):  # its namespace is leaving, or it is told already
            raise


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
