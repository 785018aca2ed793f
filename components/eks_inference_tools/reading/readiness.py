"""What Pulumi waits for after it creates or changes an object, before it proceeds to the resources that depend on it. Pure.

Sources: pulumi-kubernetes 4, provider/pkg/await (``awaiters.go`` and one file per kind); for annotations,
provider/pkg/metadata/overrides.go; for DaemonSets, kstatus of sigs.k8s.io/cli-utils, which the provider calls. Kinds without a
rule there (Namespace, HPA, PodDisruptionBudget, custom resources) are ready as soon as the API server accepts them.

Left out: nothing in a simulation assigns addresses to Services of type LoadBalancer, and to Ingresses only the stand-in of AWS
Load Balancer Controller, so others are not waited for; nor is the provider's fixed delay of ten seconds in which the endpoints
of a Service may settle.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping

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
from eks_inference_tools.reading.object_kinds import REPLICA_SETS, STORAGE_CLASSES, VOLUME_CLAIMS
from eks_inference_tools.reading.pods import PodSpec
from stackgraph.graph.values import at, items, text
from stackgraph.graph.wording import counted

SKIP_AWAIT = "pulumi.com/skipAwait"
WAIT_FOR = "pulumi.com/waitFor"
BALANCER = "alb.ingress.kubernetes.io/"
"""What annotations for AWS Load Balancer Controller begin with."""

_ENDPOINTS = "endpoints"

_NOT_SEEN = "its controller has not seen the change yet"
_REVISION = "deployment.kubernetes.io/revision"
_PATH = re.compile(r"jsonpath=\{\s*\$?((?:\.[\w-]+)+)\s*\}(?:=(.+))?")


class Failed(Exception):
    """Pulumi stops waiting and reports an error."""


def is_awaited(manifest: Object) -> bool:
    """Returns whether Pulumi waits for an object after the API server has accepted it, by its kind and annotations."""
    if _annotation(manifest, SKIP_AWAIT) == "true":
        return False
    return bool(_annotation(manifest, WAIT_FOR)) or _kind(manifest) in _REASONS


def is_removal_awaited(manifest: Object) -> bool:
    """Returns whether Pulumi waits until an object is gone. For some kinds the skip annotation also covers removal."""
    return _annotation(manifest, SKIP_AWAIT) != "true" or _kind(manifest) not in _SKIPPED_IN_REMOVAL


def reads(manifest: Object) -> tuple[str, ...]:
    """Returns the resources that ``waits_for`` and ``unsettled`` need besides the object's own."""
    return _READS.get(_kind(manifest), ())


def waits_for(live: Object, seen: Seen) -> str:
    """Returns what Pulumi waits for, "" if it proceeds. ``seen`` has the resources that ``reads`` names. Raises ``Failed``."""
    if not is_awaited(live):
        return ""
    if wanted := _annotation(live, WAIT_FOR):
        return next((reason for expression in _expressions(wanted) for reason in _unmet(live, expression)), "")
    return next(_by_kind(live, seen), "")


def is_settling(manifest: Object) -> bool:
    """Returns whether an object takes time to reach its desired state, whether or not Pulumi waits for it."""
    return _kind(manifest) in _REASONS or _kind(manifest) in _OPERATED


def unsettled(live: Object, seen: Seen) -> str:
    """Returns why an object has not reached its desired state, "" if it has. A Service must have endpoints. Raises ``Failed``."""
    return next(_unsettled(live, seen), "")


def _unsettled(live: Object, seen: Seen) -> Iterator[str]:
    kind = _kind(live)
    if kind in _OPERATED:
        if is_stale(live) or at(live, "status", "observedGeneration") is None:
            yield _NOT_SEEN
        for condition in _OPERATED[kind]:
            yield from _unmet(live, f"condition={condition}")
        return
    if kind == ("", "Service") and _selects(live) and not any(items(at(subset, "addresses")) for subset in _subsets(live, seen)):
        yield "no ready pod is behind it"
    yield from _by_kind(live, seen)


# -- annotations -----------------------------------------------------------------------------------------------------------------


def _expressions(value: str) -> list[str]:
    """Returns the expressions of an annotation, which holds either one or a JSON list of several."""
    try:
        found = json.loads(value)
    except ValueError:
        return [value]
    return [text(one) for one in found] if isinstance(found, list) else [value]


def _unmet(live: Object, expression: str) -> Iterator[str]:
    """Evaluates ``condition=Type``, ``condition=Type=Status`` or a plain path such as ``jsonpath={.status.phase}=Running``.

    Other expressions count as met: only Pulumi knows how to read them.
    """
    if expression.startswith("condition="):
        type_, _, status = expression.removeprefix("condition=").partition("=")
        found = _condition(live, type_)
        if found.get("status") != (status or "True"):
            yield _because(f"its condition {type_} is not {status or 'True'}", found)
    elif plain := _PATH.fullmatch(expression):
        path, wanted = plain.groups()
        value = at(live, *path[1:].split("."))
        if _is_behind(live):
            yield _NOT_SEEN
        if value is None or wanted not in (None, str(value)):
            yield f"its {path[1:]} is {value}, not {wanted or 'set'}"


# -- kinds: each function yields the reasons to wait, of which the first counts --------------------------------------------------


def _by_kind(live: Object, seen: Seen) -> Iterator[str]:
    if _kind(live)[0] == "apps" and _is_behind(live):
        yield _NOT_SEEN
    yield from _REASONS[_kind(live)](live, seen)


def _deployment(live: Object, seen: Seen) -> Iterator[str]:
    revision = _annotation(live, _REVISION)
    owned = (one for one in seen[REPLICA_SETS] if is_controlled_by(one, live))
    new = next((one for one in owned if _annotation(one, _REVISION) == revision), None)
    if not revision or new is None:
        yield "there is no ReplicaSet of its newest revision yet"
        return
    ready, wanted = count_of(new, "status", "readyReplicas"), _replicas(new)
    available, progress = _condition(live, "Available"), _condition(live, "Progressing")
    so_far = f"{ready} of {counted(wanted, 'pod')} of the newest revision {'is' if wanted == 1 else 'are'} ready"
    if ready < wanted:
        yield _because(so_far, progress if progress.get("status") == "False" else {})
    if available.get("status") != "True":
        yield _because(f"{so_far}, but too few are available", available)
    # The reason tells a completed rollout from one in progress. The first revision has no rollout.
    if revision != "1" and (progress.get("status"), progress.get("reason")) != ("True", "NewReplicaSetAvailable"):
        yield _because(f"{so_far}, but the rollout is not complete", progress)
    names = PodSpec(at(live, "spec", "template", "spec")).claims
    unbound = [
        name_of(claim)
        for claim in seen[VOLUME_CLAIMS]
        if identity_of(claim)[0] == identity_of(live)[0] and name_of(claim) in names and at(claim, "status", "phase") != "Bound"
    ]
    if unbound:
        yield f"its claims are not bound: {', '.join(unbound)}"


def _stateful_set(live: Object, seen: Seen) -> Iterator[str]:
    wanted, ready = _replicas(live), count_of(live, "status", "readyReplicas")
    replicas, current = count_of(live, "status", "replicas"), count_of(live, "status", "currentReplicas")
    by_hand = count_of(live, "metadata", "generation") > 1 and at(live, "spec", "updateStrategy", "type") == "OnDelete"
    if not (replicas == ready == wanted) or (current != wanted and not by_hand):
        yield f"{min(ready, current)} of {counted(wanted, 'pod')} of its newest revision ready"
    if not by_hand and at(live, "status", "currentRevision") != at(live, "status", "updateRevision"):
        yield "its rollout is not complete"


def _daemon_set(live: Object, seen: Seen) -> Iterator[str]:
    if at(live, "status", "desiredNumberScheduled") is None:
        yield "the DaemonSet controller has not counted its nodes yet"
    wanted = count_of(live, "status", "desiredNumberScheduled")
    for field, what in (
        ("currentNumberScheduled", "created"),
        ("updatedNumberScheduled", "of the newest revision"),
        ("numberAvailable", "available"),
        ("numberReady", "ready"),
    ):
        if (count := count_of(live, "status", field)) < wanted:
            yield f"{count} of {counted(wanted, 'pod')} {what}"


def _job(live: Object, seen: Seen) -> Iterator[str]:
    failed = _condition(live, "Failed")
    if failed.get("status") == "True":
        raise Failed(_because("the Job failed", failed))
    if not at(live, "status", "startTime") or _condition(live, "Complete").get("status") != "True":
        counts = ", ".join(f"{count_of(live, 'status', what)} {what}" for what in ("active", "succeeded", "failed"))
        yield f"the Job is not complete ({counts})"


def _pod(live: Object, seen: Seen) -> Iterator[str]:
    if at(live, "status", "phase") != "Succeeded":
        for type_ in ("PodScheduled", "Initialized", "Ready"):
            yield from _unmet(live, f"condition={type_}")


def _service(live: Object, seen: Seen) -> Iterator[str]:
    """Waits until no endpoint is unready. Like the provider, it does not require any: a Service may precede its pods."""
    if not _selects(live):
        return
    if not any(identity_of(one) == identity_of(live) for one in seen[_ENDPOINTS]):
        yield "it has no endpoints yet"
    if unready := sum(len(items(at(subset, "notReadyAddresses"))) for subset in _subsets(live, seen)):
        yield f"{counted(unready, 'pod')} behind it not ready"


def _selects(service: Object) -> bool:
    spec = service.get("spec", {})
    return bool(spec.get("selector")) and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName"


def _subsets(service: Object, seen: Seen) -> list[Object]:
    return [
        subset for one in seen[_ENDPOINTS] if identity_of(one) == identity_of(service) for subset in items(one.get("subsets"))
    ]


def _ingress(live: Object, seen: Seen) -> Iterator[str]:
    """Waits for the address. The provider also waits for endpoints of its Services, which have Pulumi's edges here."""
    has_controller = any(str(key).startswith(BALANCER) for key in annotations_of(live))
    if has_controller and not items(at(live, "status", "loadBalancer", "ingress")):
        yield "it has no address: no load balancer yet"


def _claim(live: Object, seen: Seen) -> Iterator[str]:
    phase = text(at(live, "status", "phase"))
    name = at(live, "spec", "storageClassName")
    class_ = next((one for one in seen[STORAGE_CLASSES] if name_of(one) == name), {})
    # Such a claim is bound when a pod uses it, so Pulumi does not wait for that.
    late = class_.get("volumeBindingMode") == "WaitForFirstConsumer"
    if phase != "Bound" and not (late and phase == "Pending"):
        without = "" if class_ else f", and there is no class {name}" if name else ", and it names no class"
        yield f"the claim is {phase or 'new'}, not Bound{without}"


def _volume(live: Object, seen: Seen) -> Iterator[str]:
    phase = text(at(live, "status", "phase"))
    if phase not in ("Available", "Bound"):
        yield f"the volume is {phase or 'new'}, not Available"


def _quota(live: Object, seen: Seen) -> Iterator[str]:
    if at(live, "spec", "hard") != at(live, "status", "hard"):
        yield "the quota controller has not counted it yet"


_REASONS: Mapping[tuple[str, str], Callable[[Object, Seen], Iterator[str]]] = {
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job,
    ("networking.k8s.io", "Ingress"): _ingress,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "ResourceQuota"): _quota,
    ("", "Service"): _service,
}

_READS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("apps", "Deployment"): (REPLICA_SETS, VOLUME_CLAIMS),
    ("", "PersistentVolumeClaim"): (STORAGE_CLASSES,),
    ("", "Service"): (_ENDPOINTS,),
}

# Conditions with which operators report completion (KubeRay 1.7, LeaderWorkerSet 0.9).
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
    """Returns the replicas asked for, by default one."""
    return 1 if at(item, "spec", "replicas") is None else count_of(item, "spec", "replicas")


def _is_behind(live: Object) -> bool:
    """Returns whether the controller has not seen the newest change, which makes the status meaningless."""
    return is_stale(live) or (_kind(live)[0] == "apps" and at(live, "status", "observedGeneration") is None)


def _because(words: str, found: Object) -> str:
    return f"{words} ([{found.get('reason', '')}] {found['message']})" if found.get("message") else words
