"""Stands in for the LeaderWorkerSet controller 0.9, which cannot be built here.

Modelled (``leader_worker_groups``): one StatefulSet of all leaders and one of each group's workers, whose pods the real
StatefulSet controller creates; the headless Service; when workers are created (``startupPolicy``); the restart of a group
together with one of its pods (``restartPolicy``); rolling updates by the partition of the leaders' StatefulSet; the status.

Sources: LeaderWorkerSet v0.10.0 (controllers), Kubernetes 1.35 (StatefulSet controller).
"""

from collections.abc import Sequence

from eks_inference_tools.reading.live_objects import (
    count_of,
    identity_of,
    is_controlled_by,
    is_leaving,
    is_ready,
    labels_of,
    name_of,
)
from eks_inference_tools.reading.object_kinds import (
    LEADER_WORKER_SETS,
    LWS_NAME_LABEL,
    LWS_REVISION_LABEL,
    LWS_WORKER_INDEX_LABEL,
    PODS,
    SERVICES,
    STATEFUL_SETS,
)
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, Object
from eks_inference_tools.simulate.stand_ins.leader_worker_groups import (
    REPLICAS_ANNOTATION,
    Group,
    ensure_known,
    late_labels,
    leaders_of,
    next_step,
    revision_of,
    rollout_of,
    service_of,
    size_of,
    status_of,
    template_of,
    workers_of,
)
from eks_inference_tools.simulate.stand_ins.loop import Seen, controller_revision, set_status, telling
from stackgraph.graph.values import at, items

_MANAGER = "lws"
# What decides whether the leaders' StatefulSet is up to date.
_REVISION = ("metadata", "labels", LWS_REVISION_LABEL)
_REPLICAS = ("metadata", "annotations", REPLICAS_ANNOTATION)
_PARTITION = ("spec", "updateStrategy", "rollingUpdate", "partition")
_REVISIONS = "controllerrevisions.apps"
_AFTER_START = "RecreateGroupAfterStart"
_RESTARTING = (None, "RecreateGroupOnPodRestart", _AFTER_START)


class LeaderWorkerSets:
    """Creates the StatefulSets and the Service of every LeaderWorkerSet and writes its status."""

    title = "the stand-in of LeaderWorkerSet"
    reads = (LEADER_WORKER_SETS, STATEFUL_SETS, PODS, SERVICES, _REVISIONS)

    def __init__(self) -> None:
        # The uids of the workers last seen of each leader's uid: a pod may restart between two rounds.
        self._workers: dict[str, set[str]] = {}

    def reconcile(self, seen: Seen, api: Api) -> None:
        for lws in seen[LEADER_WORKER_SETS]:
            if not is_leaving(lws):
                ensure_known(lws)
                with telling(api, lws, "FailedCreate"):
                    _Reconciler(lws, seen, api, self._workers).run()


class _Reconciler:
    """One reconciliation of one LeaderWorkerSet."""

    def __init__(self, lws: Object, seen: Seen, api: Api, known_workers: dict[str, set[str]]) -> None:
        self._lws, self._api, self._known_workers = lws, api, known_workers
        self._namespace, self._name = identity_of(lws)
        self._services = {name_of(item) for item in seen[SERVICES] if identity_of(item)[0] == self._namespace}
        mine = {
            resource: {
                name_of(item): item
                for item in seen[resource]
                if identity_of(item)[0] == self._namespace and labels_of(item).get(LWS_NAME_LABEL) == self._name
            }
            for resource in (STATEFUL_SETS, PODS, _REVISIONS)
        }
        self._sets, self._pods = mine[STATEFUL_SETS], mine[PODS]
        # The revisions of StatefulSets have the labels of their pods, too.
        revisions = [item for item in mine[_REVISIONS].values() if is_controlled_by(item, lws)]
        self._templates = {labels_of(item).get(LWS_REVISION_LABEL, ""): item for item in revisions}
        self._leaders = [pod for pod in self._pods.values() if labels_of(pod).get(LWS_WORKER_INDEX_LABEL) == "0"]

    def run(self) -> None:
        leaders = self._sets.get(self._name)
        if leaders is not None and is_leaving(leaders):
            return
        revision = self._revision()
        count = count_of(leaders, "spec", "replicas") if leaders else 0
        groups = [self._group(f"{self._name}-{index}", revision) for index in range(count)]
        self._apply_leaders(leaders, revision, groups)
        if self._name not in self._services:
            self._api.create(service_of(self._lws))
        for pod in self._pods.values():
            labels = late_labels(pod)
            if not labels.items() <= labels_of(pod).items():
                self._api.patch(pod, {"metadata": {"labels": labels}})
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
        """Returns the key of the latest template and saves it in a ControllerRevision: outdated groups still need theirs."""
        template = template_of(self._lws)
        key = revision_of(template)
        if key not in self._templates:
            number = max((count_of(template, "revision") for template in self._templates.values()), default=0) + 1
            name, labels = f"{self._name}-{key}-{number}", {LWS_NAME_LABEL: self._name, LWS_REVISION_LABEL: key}
            revision = controller_revision(self._lws, name, labels, number, {"spec": template})
            self._templates[key] = self._api.create(revision)
        return key

    def _group(self, name: str, revision: str) -> Group:
        leader, workers = self._pods.get(name), self._sets.get(name)
        alone = size_of(self._lws) == 1
        if leader is None or (workers is None and not alone):
            return Group(ready=False, updated=False, made=False)
        parts = [leader] if workers is None or alone else [leader, workers]
        return Group(
            ready=is_ready(leader) and (alone or _is_set_ready(workers or {})),
            updated=all(labels_of(part).get(LWS_REVISION_LABEL) == revision for part in parts),
        )

    def _apply_leaders(self, leaders: Object | None, revision: str, groups: Sequence[Group]) -> None:
        rollout = rollout_of(self._lws)
        partition, replicas = rollout.partition, rollout.replicas
        if leaders:
            changed = labels_of(leaders).get(LWS_REVISION_LABEL) != revision
            rescaled = at(leaders, *_REPLICAS) != str(rollout.replicas)
            partition, replicas = next_step(rollout, groups, count_of(leaders, *_PARTITION), changed=changed, rescaled=rescaled)
        wanted = leaders_of(self._lws, revision, replicas=replicas, partition=partition)
        if any(at(leaders, *path) != at(wanted, *path) for path in (_REVISION, _REPLICAS, ("spec", "replicas"), _PARTITION)):
            self._api.apply(wanted, manager=_MANAGER)

    def _restart(self, leader: Object) -> bool:
        """Deletes the group of this leader if one of its pods restarted or is being deleted. Returns whether the group goes."""
        uid, name = leader["metadata"]["uid"], name_of(leader)
        workers = self._sets.get(name)
        group = [
            pod for pod in self._pods.values() if workers and is_controlled_by(workers, leader) and is_controlled_by(pod, workers)
        ]
        before = self._known_workers.get(uid, set())
        self._known_workers[uid] = {pod["metadata"]["uid"] for pod in group}
        if is_leaving(leader):
            return True
        policy = at(self._lws, "spec", "leaderWorkerTemplate", "restartPolicy")
        pods = [leader, *group]
        ended = before - self._known_workers[uid] or any(is_leaving(pod) or _is_restarted(pod) for pod in pods)
        starting = len(pods) < size_of(self._lws) or any(at(pod, "status", "phase") == "Pending" for pod in pods)
        if policy not in _RESTARTING or not ended or (policy == _AFTER_START and starting):
            return False
        self._api.delete(PODS, name, self._namespace, propagation="Foreground")
        return True

    def _make_workers(self, leader: Object) -> None:
        waits = at(self._lws, "spec", "startupPolicy") == "LeaderReady" and not is_ready(leader)
        template = self._templates.get(labels_of(leader).get(LWS_REVISION_LABEL, ""))
        # The workers of an earlier leader must be gone.
        if size_of(self._lws) > 1 and name_of(leader) not in self._sets and template is not None and not waits:
            of_workers = at(template, "data", "spec", "leaderWorkerTemplate", "workerTemplate")
            self._api.create(workers_of(self._lws, leader, of_workers))


def _is_set_ready(workers: Object) -> bool:
    all_there = count_of(workers, "spec", "replicas") == count_of(workers, "status", "availableReplicas")
    return all_there and at(workers, "status", "currentRevision") == at(workers, "status", "updateRevision")


def _is_restarted(pod: Object) -> bool:
    statuses = (*items(at(pod, "status", "initContainerStatuses")), *items(at(pod, "status", "containerStatuses")))
    return any(at(status, "restartCount") for status in statuses)
