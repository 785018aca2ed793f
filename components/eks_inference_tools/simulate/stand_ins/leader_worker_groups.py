"""Builds what LeaderWorkerSet 0.9 makes of a LeaderWorkerSet, plans its rolling updates and works out its status. Pure.

What the webhook adds to pods is in the templates of the StatefulSets here; labels that differ between pods follow a moment after
the pod (``late_labels``). Features for which that is too late are refused: exclusive topologies, subgroups, a subdomain per
group.

Sources: LeaderWorkerSet v0.10.0 (API, controllers, webhooks).
"""

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference_tools.reading.live_objects import condition_of, identity_of, labels_of, name_of
from eks_inference_tools.reading.object_kinds import (
    LWS_DOMAIN,
    LWS_GROUP_INDEX_LABEL,
    LWS_GROUP_KEY_LABEL,
    LWS_NAME_LABEL,
    LWS_REVISION_LABEL,
    LWS_WORKER_INDEX_LABEL,
)
from eks_inference_tools.simulate.control_plane.kubernetes_api import Object
from eks_inference_tools.simulate.stand_ins.loop import condition, conditions, owned
from stackgraph.graph.values import at, table, text
from stackgraph.problems import Problem, ProblemsFound

_SIZE_ANNOTATION = f"{LWS_DOMAIN}/size"
REPLICAS_ANNOTATION = f"{LWS_DOMAIN}/replicas"
_LEADER_ANNOTATION = f"{LWS_DOMAIN}/leader-name"
_TOPOLOGY_ANNOTATION = f"{LWS_DOMAIN}/exclusive-topology"

_SHARED = "Shared"

# Reason and message by type of condition.
_CONDITIONS = {
    "Available": ("AllGroupsReady", "All replicas are ready"),
    "Progressing": ("GroupsProgressing", "Replicas are progressing"),
    "UpdateInProgress": ("GroupsUpdating", "Rolling Upgrade is in progress"),
}


# -- what a set asks for ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rollout:
    """The desired number of groups, and how many may be unavailable or surplus during an update."""

    replicas: int
    unavailable: int
    surge: int
    partition: int


def rollout_of(lws: Object) -> Rollout:
    """Reads the rollout with the defaults of the API. Percentages round down for unavailable groups, up for surplus ones."""
    replicas = _replicas(lws)
    strategy = table(at(lws, "spec", "rolloutStrategy", "rollingUpdateConfiguration"))
    return Rollout(
        replicas=replicas,
        unavailable=_share(strategy.get("maxUnavailable", 1), replicas, up=False),
        surge=min(_share(strategy.get("maxSurge", 0), replicas, up=True), replicas),
        partition=strategy.get("partition", 0),
    )


def _share(value: Any, of: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    hundredfold = int(text(value).removesuffix("%")) * of
    return -(-hundredfold // 100) if up else hundredfold // 100


def _replicas(lws: Object) -> int:
    return _or_one(at(lws, "spec", "replicas"))


def size_of(lws: Object) -> int:
    """Returns the number of pods in a group, its leader included."""
    return _or_one(at(lws, "spec", "leaderWorkerTemplate", "size"))


def _or_one(value: Any) -> int:
    return 1 if value is None else value


def template_of(lws: Object) -> Object:
    """Returns the part of the spec that revisions keep and whose change starts an update."""
    network = at(lws, "spec", "networkConfig") or {"subdomainPolicy": _SHARED}
    return {"leaderWorkerTemplate": at(lws, "spec", "leaderWorkerTemplate"), "networkConfig": network}


def revision_of(template: Mapping[str, Any]) -> str:
    """Returns the key of a template, the label of the pods and StatefulSets made of it."""
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def ensure_known(lws: Object) -> None:
    """Raises ``ProblemsFound`` for features that this stand-in does not model."""
    unknown = {
        f"annotation {_TOPOLOGY_ANNOTATION}": table(at(lws, "metadata", "annotations")).get(_TOPOLOGY_ANNOTATION),
        "subGroupPolicy": at(lws, "spec", "leaderWorkerTemplate", "subGroupPolicy"),
        "subdomainPolicy": at(lws, "spec", "networkConfig", "subdomainPolicy"),
    }
    namespace, name = identity_of(lws)
    problems = [
        Problem(f"the simulation does not support {what} of LeaderWorkerSet {namespace}/{name}", given=text(value))
        for what, value in unknown.items()
        if value and value != _SHARED
    ]
    if problems:
        raise ProblemsFound(problems)


# -- what is made of it ----------------------------------------------------------------------------------------------------------


def leaders_of(lws: Object, revision: str, *, replicas: int, partition: int) -> Object:
    """Returns the StatefulSet of the leaders, one per group. Groups from ``partition`` on get the latest template."""
    rollout, template = rollout_of(lws), at(lws, "spec", "leaderWorkerTemplate")
    labels = {LWS_NAME_LABEL: name_of(lws), LWS_WORKER_INDEX_LABEL: "0"}
    found = _stateful_set(lws, lws, template.get("leaderTemplate") or template["workerTemplate"], revision, labels, replicas)
    found["metadata"]["annotations"] = {REPLICAS_ANNOTATION: str(_replicas(lws))}
    found["spec"]["updateStrategy"] = {
        "type": "RollingUpdate",
        "rollingUpdate": {"partition": partition, "maxUnavailable": max(rollout.unavailable + rollout.surge, 1)},
    }
    return found


def workers_of(lws: Object, leader: Object, template: Mapping[str, Any]) -> Object:
    """Returns the StatefulSet of one group's workers. ``template`` is the worker template of the leader's own revision."""
    labels = {LWS_NAME_LABEL: name_of(lws), **group_labels(leader)}
    found = _stateful_set(lws, leader, template, labels_of(leader)[LWS_REVISION_LABEL], labels, size_of(lws) - 1)
    found["spec"]["template"]["metadata"]["annotations"][_LEADER_ANNOTATION] = name_of(leader)
    found["spec"]["ordinals"] = {"start": 1}
    return found


def service_of(lws: Object) -> Object:
    """Returns the headless Service that gives the pods their DNS names."""
    labels = {LWS_NAME_LABEL: name_of(lws)}
    spec = {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True}
    return owned(lws, "v1", "Service", name_of(lws), labels, spec=spec)


def group_labels(leader: Object) -> dict[str, str]:
    """Returns the labels of a group's pods, which depend on the name of its leader."""
    namespace, name = identity_of(leader)
    key = hashlib.sha1(f"{namespace}/{name}".encode(), usedforsecurity=False).hexdigest()
    return {LWS_GROUP_INDEX_LABEL: str(_ordinal(name)), LWS_GROUP_KEY_LABEL: key}


def _stateful_set(
    lws: Object, owner: Object, template: Mapping[str, Any], revision: str, labels: Mapping[str, str], replicas: int
) -> Object:
    """Returns the StatefulSet of the leaders, which the LeaderWorkerSet owns, or of the workers that a leader owns."""
    namespace, service = identity_of(lws)
    pod_labels = {**labels, LWS_REVISION_LABEL: revision}
    pod = copy.deepcopy(dict(template["spec"]))
    of_leaders = owner is lws
    leader = "$(LWS_LEADER_NAME)" if of_leaders else name_of(owner)
    added = [
        *([_field("LWS_LEADER_NAME", "metadata.name")] if of_leaders else []),
        {"name": "LWS_LEADER_ADDRESS", "value": f"{leader}.{service}.{namespace}"},
        {"name": "LWS_GROUP_SIZE", "value": str(size_of(lws))},
        _field("LWS_WORKER_INDEX", f"metadata.labels['{LWS_WORKER_INDEX_LABEL}']"),
    ]
    taken = {variable["name"] for variable in added}
    for container in (*(pod.get("initContainers") or ()), *pod["containers"]):
        container["env"] = [*added, *(item for item in container.get("env") or () if item["name"] not in taken)]
    given = table(at(lws, "spec", "leaderWorkerTemplate"))
    kept = ("volumeClaimTemplates", "persistentVolumeClaimRetentionPolicy")
    annotations = {**table(at(template, "metadata", "annotations")), _SIZE_ANNOTATION: str(size_of(lws))}
    spec = {
        "serviceName": service,
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": dict(labels)},
        "template": {
            "metadata": {"labels": {**table(at(template, "metadata", "labels")), **pod_labels}, "annotations": annotations},
            "spec": pod,
        },
        **{key: given[key] for key in kept if given.get(key)},
    }
    own_labels = {key: value for key, value in pod_labels.items() if key != LWS_WORKER_INDEX_LABEL}
    return owned(owner, "apps/v1", "StatefulSet", name_of(owner), own_labels, spec=spec)


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def late_labels(pod: Object) -> dict[str, str]:
    """Returns the labels that the webhook would have added to a new pod beyond the template of its StatefulSet."""
    if labels_of(pod).get(LWS_WORKER_INDEX_LABEL) == "0":
        return group_labels(pod)
    return {LWS_WORKER_INDEX_LABEL: str(_ordinal(name_of(pod)))}


def _ordinal(name: str) -> int:
    found = re.search(r"-(\d+)$", name)
    return int(found[1]) if found else -1


# -- updates ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Whether the leader and workers of a group are all ready, all of the latest template, and all created."""

    ready: bool
    updated: bool
    made: bool = True


def next_step(
    rollout: Rollout, groups: Sequence[Group], partition: int, *, changed: bool = False, rescaled: bool = False
) -> tuple[int, int]:
    """Returns the next partition and replicas of the leaders' StatefulSet, given its ``groups`` (surplus ones included).

    ``changed`` says that the template has just changed, ``rescaled`` that the number of groups has.
    """
    running, wanted = len(groups), rollout.replicas
    if changed:
        step = min(wanted, running), wanted if running < wanted else _with_surge(rollout, wanted)
    elif running < wanted:
        step = partition, wanted
    elif partition == 0 and running == wanted:
        step = 0, wanted
    else:
        unready = sum(n >= running or not (groups[n].ready and groups[n].updated) for n in range(wanted))
        lowest = min(partition, wanted + rollout.surge) if rescaled else _next_partition(rollout, groups, partition)
        step = lowest, _with_surge(rollout, unready)
    return max(step[0], rollout.partition), step[1]


def _with_surge(rollout: Rollout, unready: int) -> int:
    """Returns the replicas with surplus groups, which are released one by one as the last groups become ready."""
    spare = rollout.surge if unready > rollout.surge else max(unready - rollout.unavailable, 0)
    return rollout.replicas + spare


def _next_partition(rollout: Rollout, groups: Sequence[Group], partition: int) -> int:
    """Moves the partition down as far as the unavailable groups allow. Groups that are not ready anyway do not count."""
    running = len(groups)
    done = next((n for n, group in enumerate(reversed(groups)) if not (group.ready and group.updated)), running)
    unused = rollout.replicas + rollout.surge - running  # of the surge
    lowest = max(running - done - (rollout.unavailable + rollout.surge - unused), 0)
    found = lowest + sum(not group.ready for group in groups[:lowest])
    for index in range(min(found, running - 1), lowest - 1, -1):
        if groups[index].ready and not groups[index].updated:
            break
        found = index
    return min(found, partition)


# -- status ----------------------------------------------------------------------------------------------------------------------


def status_of(lws: Object, groups: Sequence[Group], made: int) -> Object:
    """Returns the status. ``made`` is the number of leaders that the StatefulSet has created."""
    ready, updated = sum(group.ready for group in groups), sum(group.updated for group in groups)
    counts = {"replicas": made, "readyReplicas": ready, "updatedReplicas": updated}
    return {
        **{key: count for key, count in counts.items() if count},
        "observedGeneration": lws["metadata"].get("generation", 1),
        "hpaPodSelector": f"{LWS_NAME_LABEL}={name_of(lws)},{LWS_WORKER_INDEX_LABEL}=0",
        "conditions": conditions(lws, _conditions(lws, groups)),
    }


def _conditions(lws: Object, groups: Sequence[Group]) -> Iterator[Object]:
    rollout = rollout_of(lws)
    kept = groups[: rollout.replicas]  # without surplus groups
    if not all(group.updated for group in kept[rollout.partition :] if group.made):
        current = {"UpdateInProgress": True, "Progressing": True, "Available": False}
    elif sum(group.ready for group in kept) == rollout.replicas:
        current = {"Available": True, "Progressing": False, "UpdateInProgress": False}
    else:
        current = {"Progressing": True, "Available": False}
    for type_, holds in current.items():
        if holds or condition_of(lws, type_):
            yield condition(type_, holds, *_CONDITIONS[type_])
