"""Stands in for the LeaderWorkerSet controller 0.9, which cannot be built here.

As there (``leader_worker_groups``): one StatefulSet of all leaders and one of each group's workers, whose pods the real
controller of StatefulSets makes; the headless Service; when workers are made (``startupPolicy``); that a group starts anew with
one of its pods (``restartPolicy``); the update of group after group, by the partition of the leaders' StatefulSet; the status.

Sources: LeaderWorkerSet v0.9.0 (controllers), Kubernetes 1.35 (StatefulSet controller).
"""

from collections.abc import Sequence

from eks_inference_tools.reading.kinds import LEADER_WORKER_SETS, PODS, SERVICES, STATEFUL_SETS
from eks_inference_tools.reading.leader_worker_set import NAME_LABEL, REVISION_LABEL, WORKER_INDEX_LABEL
from eks_inference_tools.reading.live_objects import (
    count_of,
    identity_of,
    is_controlled_by,
    is_leaving,
    is_ready,
    labels_of,
    name_of,
)
from eks_inference_tools.simulate.control_plane.api import Api, ApiRefusal, Object
from eks_inference_tools.simulate.stand_ins.controllers import owner_reference, set_status, tell
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
from eks_inference_tools.simulate.stand_ins.loop import Seen
from stackgraph.graph.values import at, items, table

_MANAGER = "lws"
_REVISIONS = "controllerrevisions.apps"
_AFTER_START = "RecreateGroupAfterStart"
_RESTARTING = (None, "RecreateGroupOnPodRestart", _AFTER_START)


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
                ensure_known(lws)
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
        revisions = [item for item in mine[_REVISIONS].values() if is_controlled_by(item, lws)]
        self._templates = {labels_of(item).get(REVISION_LABEL, ""): item for item in revisions}
        self._leaders = [pod for pod in self._pods.values() if labels_of(pod).get(WORKER_INDEX_LABEL) == "0"]

    def _is_mine(self, item: Object) -> bool:
        return identity_of(item)[0] == self._namespace and labels_of(item).get(NAME_LABEL) == self._name

    def run(self) -> None:
        leaders = self._sets.get(self._name)
        if leaders is not None and is_leaving(leaders):
            return
        revision = self._revision()
        groups = self._groups(revision, count_of(leaders, "spec", "replicas")) if leaders else []
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
        template = template_of(self._lws)
        key = revision_of(template)
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
        alone = size_of(self._lws) == 1
        if leader is None or (workers is None and not alone):
            return Group(ready=False, updated=False, made=False)
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
                rescaled=at(leaders, "metadata", "annotations", REPLICAS_ANNOTATION) != str(rollout.replicas),
            )
        wanted = leaders_of(self._lws, revision, replicas=replicas, partition=partition)
        if leaders is None or any(
            at(leaders, *path) != at(wanted, *path)
            for path in (
                ("metadata", "labels", REVISION_LABEL),
                ("metadata", "annotations", REPLICAS_ANNOTATION),
                ("spec", "replicas"),
                ("spec", "updateStrategy", "rollingUpdate", "partition"),
            )
        ):
            self._api.apply(wanted, manager=_MANAGER)

    def _label(self, pod: Object) -> None:
        wanted = late_labels(pod)
        if not wanted.items() <= labels_of(pod).items():
            self._api.patch(pod, {"metadata": {"labels": wanted}})

    def _restart(self, leader: Object) -> bool:
        """Whether the group of this leader goes: one of its pods has been started anew, or is leaving."""
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
        template = self._templates.get(labels_of(leader).get(REVISION_LABEL, ""))
        # An earlier leader's workers must have gone before.
        if size_of(self._lws) > 1 and name_of(leader) not in self._sets and template is not None and not waits:
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
