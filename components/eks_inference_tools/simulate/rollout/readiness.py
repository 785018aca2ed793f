"""What Pulumi waits for once it has made or changed an object, before it goes on to what depends on it. Pure.

Source: pulumi-kubernetes 4, provider/pkg/await (``awaiters.go`` and a file for each kind) and, for the annotations,
provider/pkg/metadata/overrides.go; for DaemonSets, kstatus of sigs.k8s.io/cli-utils, which the provider asks. Kinds without a
rule (Namespace, HPA, PodDisruptionBudget, custom resources) are ready as soon as the API server has taken them, there and here.
Nothing in a simulation gives addresses to load balancers, so Ingresses and the address of a Service of type LoadBalancer are not
waited for, and neither is the one delay the provider has: ten seconds in which the endpoints of a Service may settle.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from eks_inference_tools.reading.kinds import REPLICA_SETS, STORAGE_CLASSES, VOLUME_CLAIMS
from eks_inference_tools.reading.live_objects import (
    Object,
    Seen,
    annotations_of,
    condition_of,
    count_of,
    identity_of,
    is_controlled_by,
    is_stale,
    name_of,
)
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.simulate.world.objects import SKIP_AWAIT
from stackgraph.graph.values import at, items, text

WAIT_FOR = "pulumi.com/waitFor"

_ENDPOINTS = "endpoints"

_NOT_SEEN = "its controller has not seen the change yet"
_REVISION = "deployment.kubernetes.io/revision"
_PATH = re.compile(r"jsonpath=\{\s*\$?((?:\.[\w-]+)+)\s*\}(?:=(.+))?")


@dataclass(frozen=True)
class Ready:
    """Pulumi goes on."""


@dataclass(frozen=True)
class Waiting:
    """Pulumi waits; ``words`` say for what."""

    words: str


@dataclass(frozen=True)
class Failed:
    """Pulumi waits no longer, and ends with an error."""

    words: str


State = Ready | Waiting | Failed


@dataclass(frozen=True)
class _Rule:
    state: Callable[[Object, Seen], State]
    reads: tuple[str, ...] = ()


def is_awaited(manifest: Object) -> bool:
    """Whether an object may take longer than the API server's answer. It says so by its kind and its annotations."""
    if _annotation(manifest, SKIP_AWAIT) == "true":
        return False
    return bool(_annotation(manifest, WAIT_FOR)) or _kind(manifest) in _RULES


def is_removal_awaited(manifest: Object) -> bool:
    """Whether Pulumi waits until an object is gone. Only with some kinds does its annotation hold for that, too."""
    return _annotation(manifest, SKIP_AWAIT) != "true" or _kind(manifest) not in _SKIPPED_IN_REMOVAL


def reads(manifest: Object) -> tuple[str, ...]:
    """Resources that ``state_of`` looks at beside the object's own."""
    return _RULES[_kind(manifest)].reads if _kind(manifest) in _RULES else ()


def state_of(live: Object, seen: Seen) -> State:
    """How far a live object is. ``seen`` has the resources that ``reads`` names."""
    if not is_awaited(live):
        return Ready()
    if wanted := _annotation(live, WAIT_FOR):
        return _all(_expression(live, one) for one in _expressions(wanted))
    return _RULES[_kind(live)].state(live, seen)


def is_settling(manifest: Object) -> bool:
    """Whether an object takes its time at all, waited for or not."""
    return _kind(manifest) in _RULES or _kind(manifest) in _OPERATED


def settled(live: Object, seen: Seen) -> State:
    """How far a live object is, whether Pulumi waits for it or not. A Service must have endpoints, too."""
    kind = _kind(live)
    if kind in _OPERATED:
        behind = [Waiting(_NOT_SEEN)] if is_stale(live) or at(live, "status", "observedGeneration") is None else []
        return _all([*behind, *(_expression(live, f"condition={one}") for one in _OPERATED[kind])])
    if kind == ("", "Service") and _selects(live) and not any(items(at(one, "addresses")) for one in _subsets(live, seen)):
        return Waiting("no ready pod is behind it")
    return _RULES[kind].state(live, seen)


# -- annotations -----------------------------------------------------------------------------------------------------------------


def _expressions(value: str) -> list[str]:
    """One expression, or several as a JSON list."""
    try:
        found = json.loads(value)
    except ValueError:
        return [value]
    return [text(one) for one in found] if isinstance(found, list) else [value]


def _expression(live: Object, expression: str) -> State:
    """``condition=Type`` or ``condition=Type=Status``, or a plain path as in ``jsonpath={.status.phase}=Running``. Of others only
    Pulumi knows how they are read: they are not waited for.
    """
    if expression.startswith("condition="):
        type_, _, status = expression.removeprefix("condition=").partition("=")
        found = _condition(live, type_)
        if found.get("status") == (status or "True"):
            return Ready()
        return Waiting(_because(f"its condition {type_} is not {status or 'True'}", found))
    if plain := _PATH.fullmatch(expression):
        path, wanted = plain.groups()
        value = at(live, *path[1:].split("."))
        behind = _behind(live)
        if not behind and value is not None and (wanted is None or str(value) == wanted):
            return Ready()
        return Waiting(behind or f"its {path[1:]} is {value}, not {wanted or 'set'}")
    return Ready()


def _all(states: Iterable[State]) -> State:
    return next((one for one in states if not isinstance(one, Ready)), Ready())


# -- kinds -----------------------------------------------------------------------------------------------------------------------


def _deployment(live: Object, seen: Seen) -> State:
    if behind := _behind(live):
        return Waiting(behind)
    revision = _annotation(live, _REVISION)
    new = next(
        (one for one in seen[REPLICA_SETS] if is_controlled_by(one, live) and _annotation(one, _REVISION) == revision), None
    )
    if not revision or new is None:
        return Waiting("there is no ReplicaSet of its newest revision yet")
    ready, wanted = count_of(new, "status", "readyReplicas"), _replicas(new)
    available, progress = _condition(live, "Available"), _condition(live, "Progressing")
    counted = f"{ready} of {_pods(wanted)} of the newest revision {'is' if wanted == 1 else 'are'} ready"
    if ready < wanted:
        return Waiting(_because(counted, progress if progress.get("status") == "False" else {}))
    if available.get("status") != "True":
        return Waiting(_because(f"{counted}, but too few are available", available))
    # The condition's reason tells a rollout that is through from one that goes on; there is none to go on for the first revision.
    if revision != "1" and (progress.get("status"), progress.get("reason")) != ("True", "NewReplicaSetAvailable"):
        return Waiting(_because(f"{counted}, but the rollout is not through", progress))
    names = PodSpec(at(live, "spec", "template", "spec")).claims
    unbound = [
        name_of(claim)
        for claim in seen[VOLUME_CLAIMS]
        if identity_of(claim)[0] == identity_of(live)[0] and name_of(claim) in names and at(claim, "status", "phase") != "Bound"
    ]
    return Waiting(f"its claims are not bound: {', '.join(unbound)}") if unbound else Ready()


def _stateful_set(live: Object, seen: Seen) -> State:
    if behind := _behind(live):
        return Waiting(behind)
    wanted, ready = _replicas(live), count_of(live, "status", "readyReplicas")
    replicas, current = count_of(live, "status", "replicas"), count_of(live, "status", "currentReplicas")
    by_hand = count_of(live, "metadata", "generation") > 1 and at(live, "spec", "updateStrategy", "type") == "OnDelete"
    if not (replicas == ready == wanted) or (current != wanted and not by_hand):
        return Waiting(f"{min(ready, current)} of {_pods(wanted)} of its newest revision ready")
    if not by_hand and at(live, "status", "currentRevision") != at(live, "status", "updateRevision"):
        return Waiting("its rollout is not through")
    return Ready()


def _daemon_set(live: Object, seen: Seen) -> State:
    if behind := _behind(live):
        return Waiting(behind)
    wanted = at(live, "status", "desiredNumberScheduled")
    if wanted is None:
        return Waiting("the DaemonSet controller has not counted its nodes yet")
    for field, what in (
        ("currentNumberScheduled", "made"),
        ("updatedNumberScheduled", "of the newest revision"),
        ("numberAvailable", "available"),
        ("numberReady", "ready"),
    ):
        if (count := count_of(live, "status", field)) < wanted:
            return Waiting(f"{count} of {_pods(wanted)} {what}")
    return Ready()


def _job(live: Object, seen: Seen) -> State:
    failed = _condition(live, "Failed")
    if failed.get("status") == "True":
        return Failed(_because("the Job failed", failed))
    if at(live, "status", "startTime") and _condition(live, "Complete").get("status") == "True":
        return Ready()
    counts = ", ".join(f"{count_of(live, 'status', what)} {what}" for what in ("active", "succeeded", "failed"))
    return Waiting(f"the Job is not complete ({counts})")


def _pod(live: Object, seen: Seen) -> State:
    if at(live, "status", "phase") == "Succeeded":
        return Ready()
    for type_ in ("PodScheduled", "Initialized", "Ready"):
        found = _condition(live, type_)
        if found.get("status") != "True":
            return Waiting(_because(f"its condition {type_} is not True", found))
    return Ready()


def _service(live: Object, seen: Seen) -> State:
    """Endpoints are waited for until none is unready. That there is none at all is no reason to wait, which is the provider's
    way, too: a Service may be made before its pods are.
    """
    if not _selects(live):
        return Ready()
    if not any(identity_of(one) == identity_of(live) for one in seen[_ENDPOINTS]):
        return Waiting("it has no endpoints yet")
    unready = sum(len(items(at(subset, "notReadyAddresses"))) for subset in _subsets(live, seen))
    return Waiting(f"{_pods(unready)} behind it not ready") if unready else Ready()


def _selects(service: Object) -> bool:
    spec = service.get("spec", {})
    return bool(spec.get("selector")) and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName"


def _subsets(service: Object, seen: Seen) -> list[Object]:
    return [
        subset for one in seen[_ENDPOINTS] if identity_of(one) == identity_of(service) for subset in items(one.get("subsets"))
    ]


def _claim(live: Object, seen: Seen) -> State:
    phase = text(at(live, "status", "phase"))
    name = at(live, "spec", "storageClassName")
    class_ = next((one for one in seen[STORAGE_CLASSES] if name_of(one) == name), {})
    # Bound when somebody uses it: that is not waited for.
    late = class_.get("volumeBindingMode") == "WaitForFirstConsumer"
    if phase == "Bound" or (late and phase == "Pending"):
        return Ready()
    without = "" if class_ else f", and there is no class {name}" if name else ", and it names no class"
    return Waiting(f"the claim is {phase or 'new'}, not Bound{without}")


def _volume(live: Object, seen: Seen) -> State:
    phase = text(at(live, "status", "phase"))
    return Ready() if phase in ("Available", "Bound") else Waiting(f"the volume is {phase or 'new'}, not Available")


def _quota(live: Object, seen: Seen) -> State:
    known = at(live, "spec", "hard") == at(live, "status", "hard")
    return Ready() if known else Waiting("the quota controller has not counted it yet")


_RULES: Mapping[tuple[str, str], _Rule] = {
    ("apps", "DaemonSet"): _Rule(_daemon_set),
    ("apps", "Deployment"): _Rule(_deployment, (REPLICA_SETS, VOLUME_CLAIMS)),
    ("apps", "StatefulSet"): _Rule(_stateful_set),
    ("batch", "Job"): _Rule(_job),
    ("", "PersistentVolume"): _Rule(_volume),
    ("", "PersistentVolumeClaim"): _Rule(_claim, (STORAGE_CLASSES,)),
    ("", "Pod"): _Rule(_pod),
    ("", "ResourceQuota"): _Rule(_quota),
    ("", "Service"): _Rule(_service, (_ENDPOINTS,)),
}

# Conditions by which operators say that they are done (KubeRay 1.7, LeaderWorkerSet 0.9).
_OPERATED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): ("Available",),
    ("ray.io", "RayService"): ("Ready", "UpgradeInProgress=False"),
}

# `allowsSkipAwaitWithDelete` in overrides.go.
_SKIPPED_IN_REMOVAL = frozenset(
    [
        ("apps", "DaemonSet"),
        ("apps", "Deployment"),
        ("apps", "StatefulSet"),
        ("batch", "Job"),
        ("", "Namespace"),
        ("", "Pod"),
        ("", "ReplicationController"),
    ]
)


# -- reading ---------------------------------------------------------------------------------------------------------------------


def _kind(item: Object) -> tuple[str, str]:
    return item["apiVersion"].rpartition("/")[0], item["kind"]


def _annotation(item: Object, name: str) -> str:
    return text(annotations_of(item).get(name))


def _condition(item: Object, type_: str) -> Object:
    return condition_of(item, type_) or {}


def _replicas(item: Object) -> int:
    """As many as are asked for; one where nothing is said."""
    return 1 if at(item, "spec", "replicas") is None else count_of(item, "spec", "replicas")


def _behind(live: Object) -> str:
    """Words when its controller has not seen the newest change: its status says nothing then."""
    is_new = _kind(live)[0] == "apps" and at(live, "status", "observedGeneration") is None
    return _NOT_SEEN if is_new or is_stale(live) else ""


def _pods(count: int) -> str:
    return f"{count} pod" if count == 1 else f"{count} pods"


def _because(words: str, found: Object) -> str:
    return f"{words} ([{found.get('reason', '')}] {found['message']})" if found.get("message") else words
