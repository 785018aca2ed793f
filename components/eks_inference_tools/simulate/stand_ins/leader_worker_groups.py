"""What LeaderWorkerSet 0.9 makes of a LeaderWorkerSet, how it updates it, and what it says of it. Pure.

What its webhook puts on pods comes with the StatefulSets' templates here, and where it is another for each pod, a moment after
the pod (``late_labels``). What would be too late by then is not known: exclusive topologies, subgroups, a subdomain per group.

Sources: LeaderWorkerSet v0.9.0 (API, controllers, webhooks).
"""

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference_tools.reading.leader_worker_set import (
    DOMAIN,
    GROUP_INDEX_LABEL,
    GROUP_KEY_LABEL,
    NAME_LABEL,
    REVISION_LABEL,
    WORKER_INDEX_LABEL,
)
from eks_inference_tools.reading.live_objects import identity_of, labels_of, name_of
from eks_inference_tools.simulate.control_plane.api import Object
from eks_inference_tools.simulate.stand_ins.controllers import condition, conditions, owner_reference
from stackgraph.graph.values import at, items, table, text
from stackgraph.problems import Problem, ProblemsFound

_SIZE_ANNOTATION = f"{DOMAIN}/size"
REPLICAS_ANNOTATION = f"{DOMAIN}/replicas"
_LEADER_ANNOTATION = f"{DOMAIN}/leader-name"
_TOPOLOGY_ANNOTATION = f"{DOMAIN}/exclusive-topology"

_SHARED = "Shared"


# -- what a set asks for ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rollout:
    """How many groups there are to be, and how many of them may be away or in addition during an update."""

    replicas: int
    unavailable: int
    surge: int
    partition: int


def rollout_of(lws: Object) -> Rollout:
    """With the defaults of the API; shares are rounded down for what may be away, up for what may be in addition."""
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
    return _number(at(lws, "spec", "replicas"))


def size_of(lws: Object) -> int:
    """Pods of a group, its leader included."""
    return _number(at(lws, "spec", "leaderWorkerTemplate", "size"))


def _number(value: Any) -> int:
    return 1 if value is None else value


def template_of(lws: Object) -> Object:
    """What an update is an update of: the part of the spec that revisions keep."""
    network = at(lws, "spec", "networkConfig") or {"subdomainPolicy": _SHARED}
    return {"leaderWorkerTemplate": at(lws, "spec", "leaderWorkerTemplate"), "networkConfig": network}


def revision_of(template: Mapping[str, Any]) -> str:
    """The key of a template, which pods and StatefulSets made of it carry as a label."""
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def ensure_known(lws: Object) -> None:
    """Raises ``ProblemsFound`` for what this stand-in would get wrong."""
    unknown = {
        f"annotation {_TOPOLOGY_ANNOTATION}": table(at(lws, "metadata", "annotations")).get(_TOPOLOGY_ANNOTATION),
        "subGroupPolicy": at(lws, "spec", "leaderWorkerTemplate", "subGroupPolicy"),
        "subdomainPolicy": at(lws, "spec", "networkConfig", "subdomainPolicy"),
    }
    namespace, name = identity_of(lws)
    problems = [
        Problem(f"the simulation does not know what LeaderWorkerSet {namespace}/{name} asks for by {what}", given=text(value))
        for what, value in unknown.items()
        if value and value != _SHARED
    ]
    if problems:
        raise ProblemsFound(problems)


# -- what is made of it ----------------------------------------------------------------------------------------------------------


def leaders_of(lws: Object, revision: str, *, replicas: int, partition: int) -> Object:
    """The StatefulSet of the leaders: of as many groups, of which those from ``partition`` on have the latest template."""
    name, rollout = name_of(lws), rollout_of(lws)
    template = at(lws, "spec", "leaderWorkerTemplate")
    found = _stateful_set(
        lws,
        name,
        template.get("leaderTemplate") or template["workerTemplate"],
        replicas=replicas,
        labels={NAME_LABEL: name, WORKER_INDEX_LABEL: "0"},
        revision=revision,
        leader="$(LWS_LEADER_NAME)",
        variables=[_field("LWS_LEADER_NAME", "metadata.name")],
        owner=lws,
    )
    found["metadata"]["annotations"] = {REPLICAS_ANNOTATION: str(_replicas(lws))}
    found["spec"]["updateStrategy"] = {
        "type": "RollingUpdate",
        "rollingUpdate": {"partition": partition, "maxUnavailable": max(rollout.unavailable + rollout.surge, 1)},
    }
    return found


def workers_of(lws: Object, leader: Object, template: Mapping[str, Any]) -> Object:
    """The StatefulSet of the workers of one group. ``template`` is the worker template of the leader's own revision."""
    name = name_of(leader)
    found = _stateful_set(
        lws,
        name,
        template,
        replicas=size_of(lws) - 1,
        labels={NAME_LABEL: name_of(lws), **group_labels(leader)},
        revision=labels_of(leader)[REVISION_LABEL],
        leader=name,
        variables=[],
        owner=leader,
    )
    found["spec"]["template"]["metadata"]["annotations"][_LEADER_ANNOTATION] = name
    found["spec"]["ordinals"] = {"start": 1}
    return found


def service_of(lws: Object) -> Object:
    """The headless Service that gives the pods of a set their names."""
    namespace, name = identity_of(lws)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {NAME_LABEL: name},
            "ownerReferences": [owner_reference(lws)],
        },
        "spec": {"clusterIP": "None", "selector": {NAME_LABEL: name}, "publishNotReadyAddresses": True},
    }


def group_labels(leader: Object) -> dict[str, str]:
    """Labels of a group's pods, from its leader's name."""
    namespace, name = identity_of(leader)
    key = hashlib.sha1(f"{namespace}/{name}".encode(), usedforsecurity=False).hexdigest()
    return {GROUP_INDEX_LABEL: str(_ordinal(name)), GROUP_KEY_LABEL: key}


def _stateful_set(
    lws: Object,
    name: str,
    template: Mapping[str, Any],
    *,
    replicas: int,
    labels: Mapping[str, str],
    revision: str,
    leader: str,
    variables: Sequence[Object],
    owner: Object,
) -> Object:
    namespace, service = identity_of(lws)
    pod_labels = {**labels, REVISION_LABEL: revision}
    pod = copy.deepcopy(dict(template["spec"]))
    added = [
        *variables,
        {"name": "LWS_LEADER_ADDRESS", "value": f"{leader}.{service}.{namespace}"},
        {"name": "LWS_GROUP_SIZE", "value": str(size_of(lws))},
        _field("LWS_WORKER_INDEX", f"metadata.labels['{WORKER_INDEX_LABEL}']"),
    ]
    for container in (*(pod.get("initContainers") or ()), *pod["containers"]):
        taken = {variable["name"] for variable in added}
        container["env"] = [*added, *(one for one in container.get("env") or () if one["name"] not in taken)]
    given = table(at(lws, "spec", "leaderWorkerTemplate"))
    kept = ("volumeClaimTemplates", "persistentVolumeClaimRetentionPolicy")
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {key: value for key, value in pod_labels.items() if key != WORKER_INDEX_LABEL},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "serviceName": service,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": dict(labels)},
            "template": {
                "metadata": {
                    "labels": {**table(at(template, "metadata", "labels")), **pod_labels},
                    "annotations": {**table(at(template, "metadata", "annotations")), _SIZE_ANNOTATION: str(size_of(lws))},
                },
                "spec": pod,
            },
            **{key: given[key] for key in kept if given.get(key)},
        },
    }


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def late_labels(pod: Object) -> dict[str, str]:
    """What the webhook would have labelled a pod with when it was made, beyond its StatefulSet's template."""
    if labels_of(pod).get(WORKER_INDEX_LABEL) == "0":
        return group_labels(pod)
    return {WORKER_INDEX_LABEL: str(_ordinal(name_of(pod)))}


def _ordinal(name: str) -> int:
    found = re.search(r"-(\d+)$", name)
    return int(found[1]) if found else -1


# -- updates ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Whether leader and workers of a group are made, all ready, and all of the latest template."""

    ready: bool
    updated: bool
    made: bool = True


def next_step(
    rollout: Rollout, groups: Sequence[Group], partition: int, *, changed: bool = False, rescaled: bool = False
) -> tuple[int, int]:
    """Partition and replicas of the leaders' StatefulSet, from the ``groups`` it has now (surplus ones included).

    ``changed``: the template has just changed. ``rescaled``: the number of groups has.
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
    """Groups in addition as long as they are needed; given back one by one when the last ones come."""
    spare = rollout.surge if unready > rollout.surge else max(unready - rollout.unavailable, 0)
    return rollout.replicas + spare


def _next_partition(rollout: Rollout, groups: Sequence[Group], partition: int) -> int:
    """The next groups from the end, as far as those that may be away allow; those that are away anyway cost nothing."""
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
    """The status. ``made`` is the number of leaders that the StatefulSet has made."""
    rollout = rollout_of(lws)
    generation = lws["metadata"].get("generation", 1)
    counts = {
        "replicas": made,
        "readyReplicas": sum(group.ready for group in groups),
        "updatedReplicas": sum(group.updated for group in groups),
    }
    before = items(at(lws, "status", "conditions"))
    return {
        **{key: count for key, count in counts.items() if count},
        "observedGeneration": generation,
        "hpaPodSelector": f"{NAME_LABEL}={name_of(lws)},{WORKER_INDEX_LABEL}=0",
        "conditions": conditions(before, _conditions(before, rollout, groups), generation),
    }


def _conditions(before: Sequence[Any], rollout: Rollout, groups: Sequence[Group]) -> Iterator[Object]:
    known = {at(one, "type") for one in before}
    available = ("Available", "AllGroupsReady", "All replicas are ready")
    progressing = ("Progressing", "GroupsProgressing", "Replicas are progressing")
    updating = ("UpdateInProgress", "GroupsUpdating", "Rolling Upgrade is in progress")
    kept = groups[: rollout.replicas]  # without those in addition
    if not all(group.updated for group in kept[rollout.partition :] if group.made):
        holding, over = (updating, progressing), (available,)
    elif sum(group.ready for group in kept) == rollout.replicas:
        holding, over = (available,), (progressing, updating)
    else:
        holding, over = (progressing,), (available,)
    for words in holding:
        yield condition(words[0], True, *words[1:])
    for words in over:
        if words[0] in known:
            yield condition(words[0], False, *words[1:])
