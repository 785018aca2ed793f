"""Checks a RayService: the status from KubeRay and Ray Serve, and its pods.

Sources: KubeRay 1.7.0, RayServiceStatuses and the names it generates; Ray 2.52.1, ``serve.schema`` (states of applications and
deployments).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.place.nodes import amount
from eks_inference.serving.ray_serve.plan import NODE_TYPE_LABEL
from eks_inference_tools.reading.live_objects import Object, condition_of, identity_of, is_leaving, is_ready, is_stale
from eks_inference_tools.reading.object_kinds import PODS, RAY_CLUSTER_LABEL, RAY_GROUP_LABEL, RAY_HEAD_GROUP, serve_deployments
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.verify.observed import Finding, Observed, failed, ok, wait, worst
from eks_inference_tools.verify.workload_checks import holds, pods_finding
from stackgraph.graph.values import at, items, table, text
from stackgraph.graph.wording import counted

_BROKEN = ("DEPLOY_FAILED", "UNHEALTHY")
# A serving deployment may scale at any time.
_SERVING = ("HEALTHY", "UPSCALING", "DOWNSCALING")


def ray_service(wanted: Mapping[str, Any], item: Object) -> Finding:
    """Whether it is Ready, every application of the Serve configuration RUNNING and every deployment HEALTHY."""
    namespace, name = identity_of(item)
    describe = f"kubectl -n {namespace} describe rayservice {name}"
    if is_stale(item):
        return wait("KubeRay has not observed its latest change", "Ready", describe)
    findings = [_readiness(item, describe), *_applications(wanted, item, describe)]
    if holds(item, "UpgradeInProgress"):
        findings.append(wait("an upgrade is in progress", "one cluster", describe))
    finding = worst(findings)
    return finding if finding.verdict != "ok" else ok(", ".join(finding.found for finding in findings))


def _readiness(item: Object, describe: str) -> Finding:
    """KubeRay's status: the condition Ready; before KubeRay 1.3, only ``serviceStatus``."""
    ready = condition_of(item, "Ready")
    if ready is None:
        running = at(item, "status", "serviceStatus") == "Running"
        return ok("Running") if running else wait("KubeRay has not reported a status yet", "Running", describe)
    if ready.get("status") == "True":
        return ok(f"Running, {counted(whole(at(item, 'status', 'numServeEndpoints')) or 0, 'serve endpoint')}")
    reason = text(ready.get("reason"))
    judge = wait if reason == "Initializing" else failed
    return judge(f"{reason}: {text(ready.get('message'))}", "Running", describe)


def _applications(wanted: Mapping[str, Any], item: Object, describe: str) -> Iterator[Finding]:
    namespace, _ = identity_of(item)
    active = table(at(item, "status", "activeServiceStatus", "applicationStatuses"))
    pending = table(at(item, "status", "pendingServiceStatus", "applicationStatuses"))
    for application, deployments in serve_deployments(wanted).items():
        status = active.get(application, pending.get(application))
        state, message = text(at(status, "status")), text(at(status, "message"))
        if state != "RUNNING":
            words = f"application {application} {state or 'is not deployed yet'}" + (f": {message}" if message else "")
            yield _not_serving(state, words, f"application {application} RUNNING", namespace, describe)
            continue
        known = table(at(status, "serveDeploymentStatuses"))
        names = tuple(text(at(deployment, "name")) for deployment in deployments) or tuple(known)
        states = {name: text(at(known.get(name), "status")) for name in names}
        not_serving = {name: state for name, state in states.items() if state not in _SERVING}
        for name, state in not_serving.items():
            said = text(at(known.get(name), "message"))
            words = f"deployment {name} {state or 'is not there'}" + (f": {said}" if said else "")
            yield _not_serving(state, words, f"deployment {name} HEALTHY", namespace, describe)
        if not not_serving:
            yield ok(", ".join((f"application {application} RUNNING", *(f"{name} {state}" for name, state in states.items()))))


def _not_serving(state: str, words: str, expected: str, namespace: str, describe: str) -> Finding:
    if state in _BROKEN:
        logs = f"kubectl -n {namespace} logs -l {NODE_TYPE_LABEL}=worker --tail=100 --prefix"
        return failed(words, expected, logs)
    return wait(words, expected, describe)


# -- pods ------------------------------------------------------------------------------------------------------------------------


def ray_pods(item: Object, observed: Observed) -> list[Object]:
    """Returns the pods of a RayService's clusters: the active one and, during an upgrade, the pending one."""
    namespace, _ = identity_of(item)
    return [
        pod
        for status in ("activeServiceStatus", "pendingServiceStatus")
        if (cluster := at(item, "status", status, "rayClusterName"))
        for pod in observed.selected(PODS, namespace, {RAY_CLUSTER_LABEL: cluster})
    ]


def ray_groups(wanted: Mapping[str, Any], item: Object, observed: Observed) -> Iterator[tuple[str, Finding]]:
    """Yields subject and finding of the head and of every worker group."""
    pods = ray_pods(item, observed)
    namespace, _ = identity_of(item)
    cluster = at(wanted, "spec", "rayClusterConfig")
    groups = [(RAY_HEAD_GROUP, "head", 1)]
    for group in items(at(cluster, "workerGroupSpecs")):
        # The autoscaler may shrink a group to its minimum, below the initial size.
        scaled = at(cluster, "enableInTreeAutoscaling") is True
        least = whole(at(group, "minReplicas" if scaled else "replicas"))
        name = text(at(group, "groupName"))
        groups.append((name, f"workers of {name}", 1 if least is None else least))
    for group, subject, least in groups:
        mine = [pod for pod in pods if at(pod, "metadata", "labels", RAY_GROUP_LABEL) == group and not is_leaving(pod)]
        listing = f"kubectl -n {namespace} get pods -l {RAY_GROUP_LABEL}={group}"
        finding = observed.gap(PODS) or _group(mine, max(least, len(mine)), listing)
        yield subject, worst([finding, *_drift(item, group, mine)])


def _drift(item: Object, group: str, pods: list[Object]) -> Iterator[Finding]:
    """Yields a failure if pods differ from their service: with upgradeStrategy None KubeRay changes nothing that runs."""
    if at(item, "spec", "upgradeStrategy", "type") != "None":
        return
    namespace, name = identity_of(item)
    cluster = at(item, "spec", "rayClusterConfig")
    workers = {text(at(item, "groupName")): item for item in items(at(cluster, "workerGroupSpecs"))}
    template = at(at(cluster, "headGroupSpec") if group == RAY_HEAD_GROUP else workers.get(group), "template", "spec")
    for pod in pods:
        if differing := sorted(set(_differences(template, at(pod, "spec")))):
            _, pod_name = identity_of(pod)
            found = f"pod {pod_name} runs with other settings than the service's: {', '.join(differing)}"
            replace = f"kubectl -n {namespace} delete raycluster -l ray.io/originated-from-cr-name={name}"
            yield failed(found, "the settings of the service, which take a new Ray cluster", replace)


def _differences(template: Any, pod: Any) -> Iterator[str]:
    """Yields what of a template a pod does not have. What KubeRay and admission add to it is none."""
    running = {text(at(item, "name")): item for item in items(at(pod, "containers"))}
    for wanted in items(at(template, "containers")):
        container = running.get(text(at(wanted, "name")), {})
        if at(container, "image") != at(wanted, "image"):
            yield "image"
        for kind in ("requests", "limits"):
            for resource, quantity in table(at(wanted, "resources", kind)).items():
                if not _same(quantity, at(container, "resources", kind, resource)):
                    yield f"{kind} of {resource}"
        environment = {text(at(item, "name")): at(item, "value") for item in items(at(container, "env"))}
        for variable in items(at(wanted, "env")):
            if "value" in table(variable) and environment.get(text(at(variable, "name"))) != at(variable, "value"):
                yield f"variable {text(at(variable, 'name'))}"
    volumes = {text(at(item, "name")): at(item, "configMap", "name") for item in items(at(pod, "volumes"))}
    for volume in items(at(template, "volumes")):
        if (config := at(volume, "configMap", "name")) and volumes.get(text(at(volume, "name"))) != config:
            yield f"volume {text(at(volume, 'name'))}"


def _same(wanted: Any, given: Any) -> bool:
    """Whether two quantities are equal: the API server writes ``0.5`` as ``500m``."""
    try:
        return amount(str(wanted)) == amount(str(given))
    except ValueError:
        return wanted == given


def _group(pods: list[Object], want: int, listing: str) -> Finding:
    ready = sum(is_ready(pod) for pod in pods)
    count = f"{ready} of {want} ready"
    return ok(count) if ready >= want else pods_finding(count, f"{want} ready", pods, listing)
