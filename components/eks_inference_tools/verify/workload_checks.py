"""Checks whether the pods of Deployments, DaemonSets, StatefulSets, LeaderWorkerSets and Jobs are ready, and if not, why."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eks_inference_tools.reading.live_objects import Object, condition_of, count_of, identity_of, is_leaving, is_ready, is_stale
from eks_inference_tools.reading.object_kinds import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    KINDS,
    LEADER_WORKER_SETS,
    LWS_NAME_LABEL,
    PODS,
)
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.verify.observed import Finding, Observed, failed, ok, wait
from stackgraph.graph.values import at, items, table, text
from stackgraph.graph.wording import counted

# Reasons of waiting containers that will not start without a change (kubelet: pkg/kubelet/images, kuberuntime, container).
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
    """Checks one workload; ``wanted`` is its manifest."""
    if is_stale(item):
        return wait("its controller has not observed its latest change", "a running controller", _describe(resource, item))
    if resource == DAEMON_SETS:
        return _daemon_set(item, observed)
    return _job(wanted, item, observed) if resource == JOBS else _replicated(resource, wanted, item, observed)


def pods_of(resource: str, item: Object, observed: Observed) -> list[Object]:
    """Returns the pods of a workload by its selector or, for a Job without one, by the label that Jobs set on pods."""
    namespace, name = identity_of(item)
    selector = at(item, "spec", "selector", "matchLabels")
    if resource == JOBS and not selector:
        selector = {"batch.kubernetes.io/job-name": name}
    if resource == LEADER_WORKER_SETS:
        selector = {LWS_NAME_LABEL: name}
    return observed.selected(PODS, namespace, table(selector))


def pods_finding(count: str, expected: str, pods: Sequence[Object], otherwise: str = "") -> Finding:
    """Explains why too few pods are ready: ``count``, and the problem of the worst pod.

    ``otherwise`` is the next command if no pod has a problem.
    """
    problems = _problems(pods)
    if not problems:
        return wait(count, expected, otherwise)
    return replace(problems[0], found=f"{count}; {problems[0].found}", expected=expected)


def _problems(pods: Iterable[Object]) -> list[Finding]:
    """Returns what keeps pods from being ready; failures come first."""
    found = [finding for pod in pods if (finding := _problem_of(pod)) is not None]
    return sorted(found, key=lambda finding: finding.verdict != "failed")


def _problem_of(pod: Object) -> Finding | None:
    """Returns what keeps a pod from being ready, as reported by scheduler, kubelet and container; None if it is ready or done."""
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
        finding = _container_problem(namespace, name, status, describe)
        if finding is not None:
            return finding
    return wait(f"pod {name} is {phase or 'Pending'}, not ready", "a ready pod", describe)


def _container_statuses(pod: Object) -> Iterator[Any]:
    """Yields the status of containers that are not ready, in start order: init containers first."""
    for status in items(at(pod, "status", "initContainerStatuses")):
        done = at(status, "state", "terminated", "exitCode") == 0
        if not done and at(status, "started") is not True:
            yield status
    for status in items(at(pod, "status", "containerStatuses")):
        if at(status, "ready") is not True:
            yield status


def _container_problem(namespace: str, pod: str, status: Any, describe: str) -> Finding | None:
    container = text(at(status, "name"))
    waiting = at(status, "state", "waiting")
    reason, message = text(at(waiting, "reason")), text(at(waiting, "message"))
    ended = at(status, "state", "terminated") or at(status, "lastState", "terminated")
    restarts = counted(whole(at(status, "restartCount")) or 0, "restart")
    logs = f"kubectl -n {namespace} logs {pod} -c {container}"
    if reason == "CrashLoopBackOff":
        found = f"pod {pod}: container {container} crashes{_ending(ended)}, {restarts}"
        return failed(found, "a running container", f"{logs} --previous")
    if reason in _BROKEN:
        return failed(f"pod {pod}: container {container}: {reason}: {message}", "a running container", describe)
    if reason == "PodInitializing" and at(status, "lastState", "terminated") is None:
        return None  # an init container, or the pod itself, gives the reason
    if reason:
        return wait(f"pod {pod}: container {container}: {reason}", "a running container", describe)
    if at(status, "state", "terminated") is not None:
        return wait(f"pod {pod}: container {container} ended{_ending(ended)}", "a running container", f"{logs} --previous")
    if at(status, "state", "running") is not None:
        since = f" ({restarts}; last ended{_ending(ended)})" if ended else ""
        return wait(f"pod {pod}: container {container} runs, not ready yet{since}", "a ready container", logs)
    return None


def _ending(terminated: Any) -> str:
    """``: OOMKilled, exit code 137``"""
    if not isinstance(terminated, Mapping):
        return ""
    return f": {text(terminated.get('reason')) or 'Error'}, exit code {text(terminated.get('exitCode'))}"


# -- kinds of workloads ----------------------------------------------------------------------------------------------------------


def _replicated(resource: str, wanted: Mapping[str, Any], item: Object, observed: Observed) -> Finding:
    """Checks a Deployment, StatefulSet or LeaderWorkerSet; replicas of the last are groups of pods."""
    current = count_of(item, "spec", "replicas")
    want = _replicas(wanted, current)
    if current < want:
        return failed(f"scaled to {current}", f"{want} replicas", "pulumi up --refresh")
    # A group is ready when all of its pods are (LeaderWorkerSet API, status.readyReplicas).
    counter = "availableReplicas" if resource == DEPLOYMENTS else "readyReplicas"
    ready = min(count_of(item, "status", counter), count_of(item, "status", "updatedReplicas"))
    count = f"{ready} of {want}{' groups' if resource == LEADER_WORKER_SETS else ''} ready"
    if ready >= want:
        return ok(count)
    expected, describe = f"{want} ready", _describe(resource, item)
    if holds(item, "ReplicaFailure"):
        # Quotas and Pod Security reject pods before they exist, so only the Deployment has the reason.
        return failed(f"{count}; {text((condition_of(item, 'ReplicaFailure') or {}).get('message'))}", expected, describe)
    finding = pods_finding(count, expected, pods_of(resource, item, observed), describe)
    progress = condition_of(item, "Progressing") or {}
    if progress.get("reason") == "ProgressDeadlineExceeded":
        return failed(f"{finding.found}; given up: {text(progress.get('message'))}", finding.expected, finding.next)
    return finding


def _daemon_set(item: Object, observed: Observed) -> Finding:
    want = count_of(item, "status", "desiredNumberScheduled")
    ready = min(count_of(item, "status", "numberReady"), count_of(item, "status", "updatedNumberScheduled"))
    if ready >= want:
        return ok(f"{ready} of {want} nodes" if want else "no node needs it yet")
    pods = pods_of(DAEMON_SETS, item, observed)
    return pods_finding(f"{ready} of {want} nodes", f"ready on {want}", pods, _describe(DAEMON_SETS, item))


def _job(wanted: Mapping[str, Any], item: Object, observed: Observed) -> Finding:
    namespace, name = identity_of(item)
    logs = f"kubectl -n {namespace} logs job/{name}"
    if holds(item, "Complete"):
        return ok("complete")
    if holds(item, "Failed"):
        condition = condition_of(item, "Failed") or {}
        return failed(f"failed: {text(condition.get('reason'))}: {text(condition.get('message'))}", "complete", logs)
    if at(item, "spec", "suspend") is True:
        if at(wanted, "spec", "suspend") is True:
            return ok("suspended, as in the stack")
        return failed("suspended", "complete or running", "pulumi up --refresh")
    pods = [pod for pod in pods_of(JOBS, item, observed) if text(at(pod, "status", "phase")) != "Failed"]
    attempts = count_of(item, "status", "failed")
    count = counted(attempts, "failed attempt") if attempts else "not started"
    if count_of(item, "status", "ready") or any(is_ready(pod) for pod in pods):
        return ok("running" + (f" after {count}" if attempts else ""))
    return pods_finding(count, "complete or running", pods, logs if attempts else _describe(JOBS, item))


def _replicas(wanted: Mapping[str, Any], current: int) -> int:
    """Returns the stack's number of replicas or, if an autoscaler decides, the autoscaler's."""
    if "replicas" not in table(at(wanted, "spec")):
        return max(current, 1)
    count = whole(at(wanted, "spec", "replicas"))
    return current if count is None else count


def holds(item: Object, condition: str) -> bool:
    """Whether the object's condition of this type is true."""
    return (condition_of(item, condition) or {}).get("status") == "True"


def _describe(resource: str, item: Object) -> str:
    namespace, name = identity_of(item)
    return f"kubectl -n {namespace} describe {KINDS[resource].lower()} {name}"


# -- pods of no known workload ---------------------------------------------------------------------------------------------------


def other_pods(namespace: str, claimed: Collection[tuple[str, str]], observed: Observed) -> Finding | None:
    """Checks the pods of a namespace that are not in ``claimed``; None if there are none, or all have completed."""
    running = [
        pod
        for pod in observed.all(PODS)
        if (identity := identity_of(pod))[0] == namespace
        and identity not in claimed
        and not is_leaving(pod)
        and text(at(pod, "status", "phase")) != "Succeeded"
    ]
    problems = _problems(running)
    if not problems:
        return ok(f"{len(running)} ready") if running else None
    more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
    return replace(problems[0], found=problems[0].found + more, expected="all pods ready")
