"""Deployments, DaemonSets, StatefulSets, LeaderWorkerSets and Jobs: are their pods there, and if not, why not."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from eks_inference_tools.reading.kinds import DAEMON_SETS, DEPLOYMENTS, JOBS, KINDS, LEADER_WORKER_SETS, PODS, STATEFUL_SETS
from eks_inference_tools.reading.leader_worker_set import NAME_LABEL
from eks_inference_tools.reading.live_objects import Object, condition_of, count_of, identity_of, is_leaving, is_ready, is_stale
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.verify.observed import Observed
from eks_inference_tools.verify.verdicts import Finding, failed, ok, wait
from stackgraph.graph.values import at, items, table, text

# What a container waits for when it will not start by itself (kubelet: pkg/kubelet/images, kuberuntime, container).
_BROKEN = frozenset(
    (
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    )
)


def workload(resource: str, wanted: Mapping[str, Any], item: Object, observed: Observed) -> Finding:
    """The state of one workload; ``wanted`` is its manifest."""
    if is_stale(item):
        return wait("its latest change is not taken up yet", "a controller at work", _describe(resource, item))
    return _JUDGES[resource](wanted, item, observed)


def pods_of(resource: str, item: Object, observed: Observed) -> list[Object]:
    """The pods of a workload, by its selector; a Job without one of its own has the label that Jobs put on their pods."""
    namespace, name = identity_of(item)
    selector = at(item, "spec", "selector", "matchLabels")
    if resource == JOBS and not selector:
        selector = {"batch.kubernetes.io/job-name": name}
    if resource == LEADER_WORKER_SETS:
        selector = {NAME_LABEL: name}
    return observed.selected(PODS, namespace, table(selector))


def pods_finding(count: str, expected: str, pods: Sequence[Object], otherwise: str = "") -> Finding:
    """Why too few pods are ready: ``count`` and what the most troubled of them says. ``otherwise`` is the next command without
    such a pod.
    """
    troubles = [finding for pod in pods if (finding := trouble_of(pod)) is not None]
    gravest = next((item for item in troubles if item.verdict == "failed"), next(iter(troubles), None))
    if gravest is None:
        return wait(count, expected, otherwise)
    return Finding(gravest.verdict, f"{count}; {gravest.found}", expected, gravest.next)


def trouble_of(pod: Object) -> Finding | None:
    """What keeps a pod from being ready, in the words of scheduler, kubelet and container; None when it is ready or done."""
    phase = text(at(pod, "status", "phase"))
    if is_ready(pod) or is_leaving(pod) or phase == "Succeeded":
        return None
    namespace, name = identity_of(pod)
    describe = f"kubectl -n {namespace} describe pod {name}"
    if phase == "Failed":
        reason = text(at(pod, "status", "reason")) or "its containers ended"
        message = text(at(pod, "status", "message"))
        return failed(f"pod {name} failed: {reason}" + (f": {message}" if message else ""), "a running pod", describe)
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        words = text(scheduled.get("message")) or text(scheduled.get("reason"))
        return wait(f"pod {name} is Pending: {words}", "a node that takes it", describe)
    for status in _container_statuses(pod):
        finding = _container_trouble(namespace, name, status, describe)
        if finding is not None:
            return finding
    return wait(f"pod {name} is {phase or 'Pending'}, not ready", "a ready pod", describe)


def _container_statuses(pod: Object) -> Iterator[Any]:
    """Those that are not as they should be, init containers first: as the kubelet starts them."""
    for status in items(at(pod, "status", "initContainerStatuses")):
        done = at(status, "state", "terminated", "exitCode") == 0
        if not done and at(status, "started") is not True:
            yield status
    for status in items(at(pod, "status", "containerStatuses")):
        if at(status, "ready") is not True:
            yield status


def _container_trouble(namespace: str, pod: str, status: Any, describe: str) -> Finding | None:
    container = text(at(status, "name"))
    waiting = at(status, "state", "waiting")
    reason, message = text(at(waiting, "reason")), text(at(waiting, "message"))
    ended = at(status, "state", "terminated") or at(status, "lastState", "terminated")
    logs = f"kubectl -n {namespace} logs {pod} -c {container}"
    if reason == "CrashLoopBackOff":
        found = f"pod {pod}: container {container} crashes{_ending(ended)}, {_restarts(status)}"
        return failed(found, "a running container", f"{logs} --previous")
    if reason in _BROKEN:
        return failed(f"pod {pod}: container {container}: {reason}: {message}", "a running container", describe)
    if reason == "PodInitializing" and at(status, "lastState", "terminated") is None:
        return None  # an init container, or whatever else holds the pod, says more
    if reason:
        return wait(f"pod {pod}: container {container}: {reason}", "a running container", describe)
    if at(status, "state", "terminated") is not None:
        return wait(f"pod {pod}: container {container} ended{_ending(ended)}", "a running container", f"{logs} --previous")
    if at(status, "state", "running") is not None:
        since = f" ({_restarts(status)}; last ended{_ending(ended)})" if ended else ""
        return wait(f"pod {pod}: container {container} runs, not ready yet{since}", "a ready container", logs)
    return None


def _ending(terminated: Any) -> str:
    """``: OOMKilled, exit code 137``"""
    if not isinstance(terminated, Mapping):
        return ""
    return f": {text(terminated.get('reason')) or 'Error'}, exit code {text(terminated.get('exitCode'))}"


def _restarts(status: Any) -> str:
    count = whole(at(status, "restartCount")) or 0
    return f"{count} restart" if count == 1 else f"{count} restarts"


# -- one kind after the other ----------------------------------------------------------------------------------------------------


def _deployment(wanted: Mapping[str, Any], item: Object, observed: Observed) -> Finding:
    asked = count_of(item, "spec", "replicas")
    want = _replicas(wanted, asked)
    if asked < want:
        return failed(f"scaled to {asked}", f"{want} replicas", "pulumi up --refresh")
    ready = min(count_of(item, "status", "availableReplicas"), count_of(item, "status", "updatedReplicas"))
    count = f"{ready} of {want} ready"
    if ready >= want:
        return ok(count)
    refused = condition_of(item, "ReplicaFailure")
    if refused is not None and refused.get("status") == "True":
        # Quotas and Pod Security speak here: there is no pod to ask.
        return failed(f"{count}; {text(refused.get('message'))}", f"{want} ready", _describe(DEPLOYMENTS, item))
    finding = pods_finding(count, f"{want} ready", pods_of(DEPLOYMENTS, item, observed), _describe(DEPLOYMENTS, item))
    progress = condition_of(item, "Progressing")
    if progress is not None and progress.get("reason") == "ProgressDeadlineExceeded":
        return failed(f"{finding.found}; given up: {text(progress.get('message'))}", finding.expected, finding.next)
    return finding


def _stateful_set(wanted: Mapping[str, Any], item: Object, observed: Observed) -> Finding:
    return _ready_and_updated(STATEFUL_SETS, "", wanted, item, observed)


def _leader_worker_set(wanted: Mapping[str, Any], item: Object, observed: Observed) -> Finding:
    """A group is ready when all of its pods are (LeaderWorkerSet API, status.readyReplicas)."""
    return _ready_and_updated(LEADER_WORKER_SETS, " groups", wanted, item, observed)


def _ready_and_updated(resource: str, what: str, wanted: Mapping[str, Any], item: Object, observed: Observed) -> Finding:
    asked = count_of(item, "spec", "replicas")
    want = _replicas(wanted, asked)
    if asked < want:
        return failed(f"scaled to {asked}", f"{want} replicas", "pulumi up --refresh")
    ready = min(count_of(item, "status", "readyReplicas"), count_of(item, "status", "updatedReplicas"))
    count = f"{ready} of {want}{what} ready"
    if ready >= want:
        return ok(count)
    return pods_finding(count, f"{want} ready", pods_of(resource, item, observed), _describe(resource, item))


def _daemon_set(wanted: Mapping[str, Any], item: Object, observed: Observed) -> Finding:
    want = count_of(item, "status", "desiredNumberScheduled")
    ready = min(count_of(item, "status", "numberReady"), count_of(item, "status", "updatedNumberScheduled"))
    if ready >= want:
        return ok(f"{ready} of {want} nodes" if want else "no node needs it yet")
    pods = pods_of(DAEMON_SETS, item, observed)
    return pods_finding(f"{ready} of {want} nodes", f"ready on {want}", pods, _describe(DAEMON_SETS, item))


def _job(wanted: Mapping[str, Any], item: Object, observed: Observed) -> Finding:
    namespace, name = identity_of(item)
    logs = f"kubectl -n {namespace} logs job/{name}"
    if _holds(item, "Complete"):
        return ok("complete")
    if _holds(item, "Failed"):
        condition = condition_of(item, "Failed") or {}
        return failed(f"failed: {text(condition.get('reason'))}: {text(condition.get('message'))}", "complete", logs)
    if at(item, "spec", "suspend") is True:
        if at(wanted, "spec", "suspend") is True:
            return ok("suspended, as the stack has it")
        return failed("suspended", "complete or running", "pulumi up --refresh")
    pods = [pod for pod in pods_of(JOBS, item, observed) if text(at(pod, "status", "phase")) != "Failed"]
    attempts = count_of(item, "status", "failed")
    count = f"{attempts} failed {'attempt' if attempts == 1 else 'attempts'}" if attempts else "not started"
    if count_of(item, "status", "ready") or any(is_ready(pod) for pod in pods):
        return ok("running" + (f" after {count}" if attempts else ""))
    return pods_finding(count, "complete or running", pods, logs if attempts else _describe(JOBS, item))


def _replicas(wanted: Mapping[str, Any], asked: int) -> int:
    """What the stack asks for; where it leaves the number to an autoscaler, what that one asks for."""
    if "replicas" not in table(at(wanted, "spec")):
        return max(asked, 1)
    count = whole(at(wanted, "spec", "replicas"))
    return asked if count is None else count


def _holds(item: Object, condition: str) -> bool:
    return (condition_of(item, condition) or {}).get("status") == "True"


def _describe(resource: str, item: Object) -> str:
    namespace, name = identity_of(item)
    return f"kubectl -n {namespace} describe {KINDS[resource].lower()} {name}"


_JUDGES: Mapping[str, Callable[[Mapping[str, Any], Object, Observed], Finding]] = {
    DAEMON_SETS: _daemon_set,
    DEPLOYMENTS: _deployment,
    JOBS: _job,
    LEADER_WORKER_SETS: _leader_worker_set,
    STATEFUL_SETS: _stateful_set,
}


# -- pods that no workload above claims ------------------------------------------------------------------------------------------


def strays(namespace: str, claimed: Iterable[tuple[str, str]], observed: Observed) -> list[Object]:
    """Pods of a namespace that belong to none of the workloads that are checked by name: controllers made them."""
    known = set(claimed)
    return [
        pod
        for pod in observed.all(PODS)
        if identity_of(pod)[0] == namespace and identity_of(pod) not in known and not is_leaving(pod)
    ]


def strays_finding(pods: Sequence[Object]) -> Finding | None:
    """None when there are no such pods, or all of them are done."""
    running = [pod for pod in pods if text(at(pod, "status", "phase")) != "Succeeded"]
    troubles = [finding for pod in running if (finding := trouble_of(pod)) is not None]
    if not running:
        return None
    if not troubles:
        return ok(f"{len(running)} ready")
    gravest = next((item for item in troubles if item.verdict == "failed"), troubles[0])
    more = f"; and {len(troubles) - 1} more" if len(troubles) > 1 else ""
    return Finding(gravest.verdict, gravest.found + more, "all pods ready", gravest.next)
