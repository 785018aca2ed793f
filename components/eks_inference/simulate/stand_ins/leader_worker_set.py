"""Stands in for the LeaderWorkerSet controller, which cannot be built here: it makes what LeaderWorkerSet 0.9 makes.

As there: one StatefulSet of all leaders and one of each group's workers, whose pods the real StatefulSet controller makes; names,
labels and variables of pods; the headless Service; when workers are made (``startupPolicy``); that a group starts anew with one
of its pods (``restartPolicy``); the update of group after group, by the partition of the leaders' StatefulSet; the status.

Otherwise than there: what its webhook puts on pods comes with the StatefulSets' templates, and where it is another for each pod,
a moment after the pod (the labels of a leader's group, the index of a worker). What would be too late by then is refused:
exclusive topologies, subgroups, a subdomain for each group.

Sources: LeaderWorkerSet v0.9.0 (API, controllers, webhooks), Kubernetes 1.35 (StatefulSet controller).
"""

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from eks_inference.preview.errors import PreviewError, Problem
from eks_inference.preview.values import at, items, table, text
from eks_inference.simulate.api import Api, ApiRefusal, Object
from eks_inference.simulate.stand_ins.controllers import (
    condition,
    conditions,
    is_owned_by,
    owner_reference,
    set_status,
    tell,
)
from eks_inference.simulate.stand_ins.loop import Seen
from eks_inference.verify.expected import LEADER_WORKER_SETS, PODS, SERVICES, STATEFUL_SETS
from eks_inference.verify.observed import count_of, identity_of, is_leaving, labels_of, name_of
from eks_inference.verify.workloads import is_ready

DOMAIN = "leaderworkerset.sigs.k8s.io"
NAME_LABEL = f"{DOMAIN}/name"
GROUP_INDEX_LABEL = f"{DOMAIN}/group-index"
GROUP_KEY_LABEL = f"{DOMAIN}/group-key"
WORKER_INDEX_LABEL = f"{DOMAIN}/worker-index"
REVISION_LABEL = f"{DOMAIN}/template-revision-hash"

_SIZE_ANNOTATION = f"{DOMAIN}/size"
_REPLICAS_ANNOTATION = f"{DOMAIN}/replicas"
_LEADER_ANNOTATION = f"{DOMAIN}/leader-name"
_TOPOLOGY_ANNOTATION = f"{DOMAIN}/exclusive-topology"

_MANAGER = "lws"
_REVISIONS = "controllerrevisions.apps"
_RESTARTING = ("RecreateGroupOnPodRestart", "RecreateGroupAfterStart")


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
    share = int(text(value).removesuffix("%")) * of / 100
    return ceil(share) if up else int(share)


def _replicas(lws: Object) -> int:
    return _number(at(lws, "spec", "replicas"))


def _size(lws: Object) -> int:
    return _number(at(lws, "spec", "leaderWorkerTemplate", "size"))


def _number(value: Any) -> int:
    return 1 if value is None else value


def _template(lws: Object) -> Object:
    """What an update is an update of."""
    network = at(lws, "spec", "networkConfig") or {"subdomainPolicy": "Shared"}
    return {"leaderWorkerTemplate": at(lws, "spec", "leaderWorkerTemplate"), "networkConfig": network}


def _revision_key(template: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def _ensure_known(lws: Object) -> None:
    """Raises ``PreviewError`` for what this stand-in would get wrong."""
    unknown = {
        f"annotation {_TOPOLOGY_ANNOTATION}": table(at(lws, "metadata", "annotations")).get(_TOPOLOGY_ANNOTATION),
        "subGroupPolicy": at(lws, "spec", "leaderWorkerTemplate", "subGroupPolicy"),
        "subdomainPolicy": policy
        if (policy := at(lws, "spec", "networkConfig", "subdomainPolicy")) not in (None, "Shared")
        else None,
    }
    namespace, name = identity_of(lws)
    problems = [
        Problem(f"the simulation does not know what LeaderWorkerSet {namespace}/{name} asks for by {what}", given=text(value))
        for what, value in unknown.items()
        if value
    ]
    if problems:
        raise PreviewError(problems)


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
    found["metadata"]["annotations"] = {_REPLICAS_ANNOTATION: str(_replicas(lws))}
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
        replicas=_size(lws) - 1,
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
        {"name": "LWS_GROUP_SIZE", "value": str(_size(lws))},
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
                    "annotations": {**table(at(template, "metadata", "annotations")), _SIZE_ANNOTATION: str(_size(lws))},
                },
                "spec": pod,
            },
            **{key: given[key] for key in kept if given.get(key)},
        },
    }


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _ordinal(name: str) -> int:
    found = re.search(r"-(\d+)$", name)
    return int(found[1]) if found else -1


# -- updates ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Whether leader and workers of a group are all ready, and all of the latest template."""

    ready: bool
    updated: bool


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
    in_use = rollout.replicas + rollout.surge - running  # of the surge: replicas are given back before the partition moves
    lowest = max(running - done - (rollout.unavailable + rollout.surge - in_use), 0)
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
    counted = groups[rollout.partition : rollout.replicas]
    known = {at(one, "type") for one in before}
    available = ("Available", "AllGroupsReady", "All replicas are ready")
    progressing = ("Progressing", "GroupsProgressing", "Replicas are progressing")
    updating = ("UpdateInProgress", "GroupsUpdating", "Rolling Upgrade is in progress")
    current = groups[: rollout.replicas]
    if not all(group.updated for group in counted):
        holding, over = (updating, progressing), (available,)
    elif len(current) == rollout.replicas and all(group.ready for group in current):
        holding, over = (available,), (progressing, updating)
    else:
        holding, over = (progressing,), (available,)
    for words in holding:
        yield condition(words[0], True, *words[1:])
    for words in over:
        if words[0] in known:
            yield condition(words[0], False, *words[1:])


# -- the controller --------------------------------------------------------------------------------------------------------------


class LeaderWorkerSets:
    """Makes StatefulSets, Service and status of every LeaderWorkerSet."""

    title = "the stand-in of LeaderWorkerSet"
    reads = (LEADER_WORKER_SETS, STATEFUL_SETS, PODS, SERVICES, _REVISIONS)

    def __init__(self) -> None:
        # A pod may come and go between two looks: the workers last seen of each leader, by their uids.
        self._workers: dict[str, set[str]] = {}

    def reconcile(self, seen: Seen, api: Api) -> None:
        for lws in seen[LEADER_WORKER_SETS]:
            if not is_leaving(lws):
                _ensure_known(lws)
                try:
                    _Reconciler(lws, seen, api, self._workers).run()
                except ApiRefusal as refusal:
                    if refusal.status in (404, 409):
                        raise
                    tell(api, lws, "FailedCreate", refusal.message)


class _Reconciler:
    """One step for one LeaderWorkerSet."""

    def __init__(self, lws: Object, seen: Seen, api: Api, known_workers: dict[str, set[str]]) -> None:
        self._lws, self._api, self._known_workers = lws, api, known_workers
        self._namespace, self._name = identity_of(lws)
        self._services = {name_of(item) for item in seen[SERVICES] if identity_of(item)[0] == self._namespace}
        mine = {
            resource: {name_of(item): item for item in seen[resource] if self._is_mine(item)}
            for resource in (STATEFUL_SETS, PODS, _REVISIONS)
        }
        self._sets, self._pods = mine[STATEFUL_SETS], mine[PODS]
        # Those of StatefulSets carry the labels of their pods, too.
        revisions = [item for item in mine[_REVISIONS].values() if is_owned_by(item, lws)]
        self._templates = {labels_of(item).get(REVISION_LABEL, ""): item for item in revisions}
        self._leaders = [pod for pod in self._pods.values() if labels_of(pod).get(WORKER_INDEX_LABEL) == "0"]

    def _is_mine(self, item: Object) -> bool:
        return identity_of(item)[0] == self._namespace and labels_of(item).get(NAME_LABEL) == self._name

    def run(self) -> None:
        leaders = self._sets.get(self._name)
        if leaders is not None and is_leaving(leaders):
            return
        revision = self._revision()
        groups = self._groups(revision, _number(at(leaders, "spec", "replicas"))) if leaders else []
        self._apply_leaders(leaders, revision, groups)
        if self._name not in self._services:
            self._api.create(service_of(self._lws))
        for pod in self._pods.values():
            self._label(pod)
        for leader in self._leaders:
            if not self._restart(leader):
                self._make_workers(leader)
        status = status_of(self._lws, groups, count_of(leaders, "status", "replicas") if leaders else 0)
        set_status(self._api, self._lws, status)
        if leaders and groups and all(group.ready and group.updated for group in groups):
            for key, old in self._templates.items():
                if key != revision:
                    self._api.delete(_REVISIONS, name_of(old), self._namespace)

    def _revision(self) -> str:
        """The latest template's key, under which a ControllerRevision keeps it: groups not yet updated still have their own."""
        template = _template(self._lws)
        key = _revision_key(template)
        if key not in self._templates:
            number = max((count_of(one, "revision") for one in self._templates.values()), default=0) + 1
            revision = {
                "apiVersion": "apps/v1",
                "kind": "ControllerRevision",
                "metadata": {
                    "name": f"{self._name}-{key}-{number}",
                    "namespace": self._namespace,
                    "labels": {NAME_LABEL: self._name, REVISION_LABEL: key},
                    "ownerReferences": [owner_reference(self._lws)],
                },
                "revision": number,
                "data": {"spec": template},
            }
            self._templates[key] = self._api.create(revision)
        return key

    def _groups(self, revision: str, count: int) -> list[Group]:
        return [self._group(f"{self._name}-{index}", revision) for index in range(count)]

    def _group(self, name: str, revision: str) -> Group:
        leader, workers = self._pods.get(name), self._sets.get(name)
        alone = _size(self._lws) == 1
        if leader is None or (workers is None and not alone):
            return Group(ready=False, updated=False)
        parts = [leader] if workers is None or alone else [leader, workers]
        return Group(
            ready=is_ready(leader) and (alone or _is_set_ready(workers or {})),
            updated=all(labels_of(part).get(REVISION_LABEL) == revision for part in parts),
        )

    def _apply_leaders(self, leaders: Object | None, revision: str, groups: Sequence[Group]) -> None:
        rollout = rollout_of(self._lws)
        if leaders is None:
            partition, replicas = rollout.partition, rollout.replicas
        else:
            was = count_of(leaders, "spec", "updateStrategy", "rollingUpdate", "partition")
            partition, replicas = next_step(
                rollout,
                groups,
                was,
                changed=labels_of(leaders).get(REVISION_LABEL) != revision,
                rescaled=at(leaders, "metadata", "annotations", _REPLICAS_ANNOTATION) != str(rollout.replicas),
            )
        wanted = leaders_of(self._lws, revision, replicas=replicas, partition=partition)
        if leaders is None or any(
            at(leaders, *path) != at(wanted, *path)
            for path in (
                ("metadata", "labels", REVISION_LABEL),
                ("metadata", "annotations", _REPLICAS_ANNOTATION),
                ("spec", "replicas"),
                ("spec", "updateStrategy", "rollingUpdate", "partition"),
            )
        ):
            self._api.apply(wanted, manager=_MANAGER)

    def _label(self, pod: Object) -> None:
        is_leader = labels_of(pod).get(WORKER_INDEX_LABEL) == "0"
        wanted = group_labels(pod) if is_leader else {WORKER_INDEX_LABEL: str(_ordinal(name_of(pod)))}
        if not wanted.items() <= labels_of(pod).items():
            self._api.patch(pod, {"metadata": {"labels": wanted}})

    def _restart(self, leader: Object) -> bool:
        """Whether the group of this leader goes: one of its pods has been started anew, or is leaving."""
        uid, name = leader["metadata"]["uid"], name_of(leader)
        workers = self._sets.get(name)
        group = [pod for pod in self._pods.values() if workers and is_owned_by(workers, leader) and is_owned_by(pod, workers)]
        before = self._known_workers.get(uid, set())
        self._known_workers[uid] = {pod["metadata"]["uid"] for pod in group}
        if is_leaving(leader):
            return True
        policy = at(self._lws, "spec", "leaderWorkerTemplate", "restartPolicy") or _RESTARTING[0]
        pods = [leader, *group]
        ended = before - self._known_workers[uid] or any(is_leaving(pod) or _is_restarted(pod) for pod in pods)
        starting = len(pods) < _size(self._lws) or any(at(pod, "status", "phase") == "Pending" for pod in pods)
        if policy not in _RESTARTING or not ended or (policy == _RESTARTING[1] and starting):
            return False
        self._api.delete(PODS, name, self._namespace, propagation="Foreground")
        return True

    def _make_workers(self, leader: Object) -> None:
        waits = at(self._lws, "spec", "startupPolicy") == "LeaderReady" and not is_ready(leader)
        template = self._templates.get(labels_of(leader).get(REVISION_LABEL, ""))
        # An earlier leader's workers must have gone before.
        if _size(self._lws) > 1 and name_of(leader) not in self._sets and template is not None and not waits:
            self._api.create(
                workers_of(self._lws, leader, at(template, "data", "spec", "leaderWorkerTemplate", "workerTemplate"))
            )


def _is_set_ready(workers: Object) -> bool:
    status = table(workers.get("status"))
    all_there = count_of(workers, "spec", "replicas") == count_of(workers, "status", "availableReplicas")
    return all_there and status.get("currentRevision") == status.get("updateRevision")


def _is_restarted(pod: Object) -> bool:
    statuses = (*items(at(pod, "status", "initContainerStatuses")), *items(at(pod, "status", "containerStatuses")))
    return any(at(status, "restartCount") for status in statuses)
