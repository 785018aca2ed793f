"""A RayService: what KubeRay and Ray Serve say of it, its pods, and the Services that KubeRay makes for it.

Sources: KubeRay 1.7.0, RayServiceStatuses and the names it generates; Ray 2.52.1, ``serve.schema`` (states of applications and
deployments).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.serving.ray_serve.plan import NODE_TYPE_LABEL
from eks_inference_tools.reading.kinds import PODS
from eks_inference_tools.reading.kuberay import CLUSTER_LABEL, GROUP_LABEL, HEAD_GROUP, serve_applications
from eks_inference_tools.reading.live_objects import Object, condition_of, identity_of, is_leaving, is_ready, is_stale
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.verify.observed import Observed
from eks_inference_tools.verify.verdicts import Finding, failed, ok, unknown, wait, worst
from eks_inference_tools.verify.workloads import pods_finding
from stackgraph.graph.values import at, items, table, text

_GONE_WRONG = ("DEPLOY_FAILED", "UNHEALTHY")
# Scaling by itself is what a deployment that serves does.
_DEPLOYMENT_SERVES = ("HEALTHY", "UPSCALING", "DOWNSCALING")
_INITIALIZING = "Initializing"


def ray_service(wanted: Mapping[str, Any], item: Object) -> Finding:
    """Ready, every application of the stack's Serve configuration RUNNING, every deployment HEALTHY."""
    namespace, name = identity_of(item)
    describe = f"kubectl -n {namespace} describe rayservice {name}"
    if is_stale(item):
        return wait("KubeRay has not taken up its latest change", "Ready", describe)
    findings = [_readiness(item, describe), *_applications(wanted, item, describe)]
    upgrade = condition_of(item, "UpgradeInProgress")
    if upgrade is not None and upgrade.get("status") == "True":
        findings.append(wait("an upgrade is in progress", "one cluster", describe))
    verdict = worst(findings)
    if verdict.verdict != "ok":
        return verdict
    return ok(", ".join(finding.found for finding in findings))


def _readiness(item: Object, describe: str) -> Finding:
    """KubeRay's own judgement: the condition Ready, before 1.3 ``serviceStatus`` alone."""
    ready = condition_of(item, "Ready")
    running = at(item, "status", "serviceStatus") == "Running"
    if ready is None and running:
        return ok("Running")
    if ready is None:
        return wait("KubeRay has not judged it yet", "Running", describe)
    if ready.get("status") == "True":
        endpoints = whole(at(item, "status", "numServeEndpoints")) or 0
        return ok(f"Running, {endpoints} serve {'endpoint' if endpoints == 1 else 'endpoints'}")
    reason, message = text(ready.get("reason")), text(ready.get("message"))
    if reason == _INITIALIZING:
        return wait(f"{reason}: {message}", "Running", describe)
    return failed(f"{reason}: {message}", "Running", describe)


def _applications(wanted: Mapping[str, Any], item: Object, describe: str) -> Iterator[Finding]:
    namespace, _ = identity_of(item)
    active = table(at(item, "status", "activeServiceStatus", "applicationStatuses"))
    pending = table(at(item, "status", "pendingServiceStatus", "applicationStatuses"))
    for application, deployments in serve_applications(wanted).items():
        status = active.get(application, pending.get(application))
        state, message = text(at(status, "status")), text(at(status, "message"))
        if state != "RUNNING":
            words = f"application {application} {state or 'is not deployed yet'}" + (f": {message}" if message else "")
            yield _unwell(state, words, f"application {application} RUNNING", namespace, describe)
            continue
        known = table(at(status, "serveDeploymentStatuses"))
        names = tuple(text(at(one, "name")) for one in deployments) or tuple(known)
        states = {name: text(at(known.get(name), "status")) for name in names}
        unwell = {name: state for name, state in states.items() if state not in _DEPLOYMENT_SERVES}
        for name, state in unwell.items():
            said = text(at(known.get(name), "message"))
            words = f"deployment {name} {state or 'is not there'}" + (f": {said}" if said else "")
            yield _unwell(state, words, f"deployment {name} HEALTHY", namespace, describe)
        if not unwell:
            yield ok(", ".join((f"application {application} RUNNING", *(f"{name} {state}" for name, state in states.items()))))


def _unwell(state: str, words: str, expected: str, namespace: str, describe: str) -> Finding:
    if state in _GONE_WRONG:
        logs = f"kubectl -n {namespace} logs -l {NODE_TYPE_LABEL}=worker --tail=100 --prefix"
        return failed(words, expected, logs)
    return wait(words, expected, describe)


# -- pods ------------------------------------------------------------------------------------------------------------------------


def ray_pods(item: Object, observed: Observed) -> list[Object]:
    """The pods of the clusters that a RayService has: the active one, and during an upgrade the next one."""
    namespace, _ = identity_of(item)
    return [
        pod
        for status in ("activeServiceStatus", "pendingServiceStatus")
        if (cluster := at(item, "status", status, "rayClusterName"))
        for pod in observed.selected(PODS, namespace, {CLUSTER_LABEL: cluster})
    ]


def ray_groups(wanted: Mapping[str, Any], item: Object, observed: Observed) -> Iterator[tuple[str, Finding]]:
    """The head and every worker group, each as subject and finding."""
    pods = ray_pods(item, observed)
    namespace, _ = identity_of(item)
    cluster = at(wanted, "spec", "rayClusterConfig")
    groups = [(HEAD_GROUP, "head", 1)]
    for group in items(at(cluster, "workerGroupSpecs")):
        # The autoscaler may take a group down to its minimum, whatever it began with.
        scaled = at(cluster, "enableInTreeAutoscaling") is True
        least = whole(at(group, "minReplicas" if scaled else "replicas"))
        groups.append((text(at(group, "groupName")), f"workers of {text(at(group, 'groupName'))}", 1 if least is None else least))
    for group, subject, least in groups:
        if blocked := observed.unreadable.get(PODS):
            yield subject, unknown(blocked.message, blocked.next)
            continue
        mine = [pod for pod in pods if at(pod, "metadata", "labels", GROUP_LABEL) == group and not is_leaving(pod)]
        yield subject, _group(mine, least, f"kubectl -n {namespace} get pods -l {GROUP_LABEL}={group}")


def _group(pods: list[Object], least: int, listing: str) -> Finding:
    ready = sum(is_ready(pod) for pod in pods)
    count = f"{ready} of {max(least, len(pods))} ready"
    if ready >= max(least, len(pods)):
        return ok(count)
    return pods_finding(count, f"{max(least, len(pods))} ready", pods, listing)
