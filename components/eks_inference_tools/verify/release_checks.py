"""Checks Helm releases and EKS add-ons, each with its workloads."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from eks_inference_tools.reading.expected import ExpectedAddon, ExpectedRelease
from eks_inference_tools.reading.live_objects import Object, annotations_of, identity_of, is_ready, labels_of, name_of
from eks_inference_tools.reading.object_kinds import (
    DEFAULT_CLASS,
    ENDPOINT_SLICES,
    KINDS,
    PODS,
    STORAGE_CLASSES,
    WORKLOADS,
    is_default_class,
    subject_of,
)
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.verify.observed import Finding, Observed, failed, ok, unknown, wait, worst
from eks_inference_tools.verify.workload_checks import workload
from stackgraph.graph.values import at, items, table, text
from stackgraph.graph.wording import counted

_IN_PROGRESS = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")


def release(wanted: ExpectedRelease, observed: Observed) -> Finding:
    """Checks Helm's record, the chart version, and every workload that Helm annotated as part of this release."""
    made = list(release_workloads(wanted, observed))
    findings = [_recorded(wanted, made, observed), *_chart(wanted, made)]
    findings += [gap for kind in WORKLOADS if (gap := observed.gap(kind))]
    return worst([*findings, *(_part(resource, item, observed) for resource, item in made)])


def release_workloads(wanted: ExpectedRelease, observed: Observed) -> Iterator[tuple[str, Object]]:
    """Yields workloads with the annotations that Helm sets on all objects of a release."""
    mark = {"meta.helm.sh/release-name": wanted.name, "meta.helm.sh/release-namespace": wanted.namespace}
    for resource in WORKLOADS:
        for item in observed.all(resource):
            if mark.items() <= annotations_of(item).items():
                yield resource, item


def _recorded(wanted: ExpectedRelease, made: list[tuple[str, Object]], observed: Observed) -> Finding:
    history = f"helm -n {wanted.namespace} history {wanted.name}"
    if observed.releases is None:
        found = "its record is a Secret you may not read"
        return ok(found) if made else unknown(found, history)
    record = observed.releases.get((wanted.namespace, wanted.name))
    if record is None:
        return failed("not installed", f"{wanted.chart} {wanted.version}", "pulumi up --refresh")
    if record.status == "deployed":
        return ok(f"deployed, revision {record.revision}")
    found = f"revision {record.revision} is {record.status}"
    return wait(found, "deployed", history) if record.status in _IN_PROGRESS else failed(found, "deployed", history)


def _chart(wanted: ExpectedRelease, made: list[tuple[str, Object]]) -> Iterator[Finding]:
    """Checks the version in the label ``helm.sh/chart``, a convention of charts. Subcharts have their own name in it."""
    for resource, item in made:
        name, _, version = text(labels_of(item).get("helm.sh/chart")).rpartition(f"{wanted.chart}-")
        # Labels cannot contain a plus sign, so Helm's convention replaces it by an underscore.
        if not name and version[:1].isdigit() and version != wanted.version.replace("+", "_"):
            found = f"{KINDS[resource]} {name_of(item)} has chart version {version}"
            yield failed(found, wanted.version, f"helm -n {wanted.namespace} history {wanted.name}")


def addon(wanted: ExpectedAddon, cluster: str, observed: Observed) -> Finding:
    """Checks the workloads that an add-on is known to run."""
    findings = []
    for resource, namespace, name in wanted.workloads:
        if gap := observed.gap(resource):
            findings.append(gap)
        elif item := observed.find(resource, namespace, name):
            findings.append(_part(resource, item, observed))
        else:
            describe = f"aws eks describe-addon --cluster-name {cluster} --addon-name {wanted.name}"
            findings.append(failed(f"there is no {subject_of(resource, namespace, name)}", "the add-on's workloads", describe))
    return worst(findings)


def _part(resource: str, item: Object, observed: Observed) -> Finding:
    state = workload(resource, item, item, observed)
    return replace(state, found=f"{KINDS[resource]} {name_of(item)} {state.found}")


def addon_workloads(wanted: ExpectedAddon, observed: Observed) -> Iterator[tuple[str, Object]]:
    for resource, namespace, name in wanted.workloads:
        if (item := observed.find(resource, namespace, name)) is not None:
            yield resource, item


def service(wanted: Mapping[str, Any], item: Object, observed: Observed) -> Finding:
    """Whether the Service has the stack's ports and at least one ready endpoint."""
    namespace, name = identity_of(item)
    describe = f"kubectl -n {namespace} describe service {name}"
    have = {whole(at(port, "port")) for port in items(at(item, "spec", "ports"))}
    missing = [text(at(port, "port")) for port in items(at(wanted, "spec", "ports")) if whole(at(port, "port")) not in have]
    if missing:
        return failed(f"without port {', '.join(missing)}", "the ports of the stack", "pulumi up --refresh")
    if at(item, "spec", "type") == "LoadBalancer" and not items(at(item, "status", "loadBalancer", "ingress")):
        return wait("its load balancer has no address yet", "an address", describe)
    if at(item, "spec", "type") == "ExternalName" or not at(item, "spec", "selector"):
        return ok("there; it selects no pods")
    return observed.gap(ENDPOINT_SLICES) or _endpoints(item, observed)


def _endpoints(item: Object, observed: Observed) -> Finding:
    namespace, name = identity_of(item)
    slices = observed.selected(ENDPOINT_SLICES, namespace, {"kubernetes.io/service-name": name})
    # An endpoint without a readiness condition counts as ready (EndpointConditions in the API).
    ready = {
        address
        for slice_ in slices
        for endpoint in items(at(slice_, "endpoints"))
        if at(endpoint, "conditions", "ready") is not False
        for address in items(at(endpoint, "addresses"))
    }
    if ready:
        return ok(counted(len(ready), "endpoint"))
    selector = table(at(item, "spec", "selector"))
    pods = observed.selected(PODS, namespace, selector)
    labels = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    listing = f"kubectl -n {namespace} get pods -l {labels}"
    if pods and all(text(at(pod, "status", "phase")) == "Succeeded" for pod in pods):
        return ok("its pods have completed")
    if any(is_ready(pod) for pod in pods):
        found = "no endpoint although its pods are ready: they may lack the named port"
        return failed(found, "at least one endpoint", f"kubectl -n {namespace} describe service {name}")
    why = f"none of its {len(pods)} pods is ready" if pods else "no pod has its labels"
    return wait(f"no endpoint: {why}", "at least one endpoint", listing)


def volume_claim(item: Object) -> Finding:
    namespace, name = identity_of(item)
    phase = text(at(item, "status", "phase"))
    describe = f"kubectl -n {namespace} describe pvc {name}"
    if phase == "Bound":
        return ok(f"Bound, {text(at(item, 'status', 'capacity', 'storage'))}")
    if phase == "Lost":
        return failed("Lost: its volume is gone", "Bound", describe)
    return wait(f"{phase or 'Pending'}: no volume yet; it may wait for its first pod", "Bound", describe)


def storage_class(wanted: Mapping[str, Any], item: Object) -> Finding:
    provisioner, stacks = text(item.get("provisioner")), text(wanted.get("provisioner"))
    return ok(provisioner) if provisioner == stacks else failed(f"provisioner {provisioner}", stacks, "pulumi up --refresh")


def default_storage_class(wanted: str, observed: Observed) -> Finding:
    """Whether the stack's default class is the only default: Kubernetes would choose the newest of several."""
    classes = observed.all(STORAGE_CLASSES)
    defaults = sorted(name_of(item) for item in classes if is_default_class(item))
    if defaults == [wanted]:
        return ok(wanted)
    others = " ".join(name for name in defaults if name != wanted)
    remedy = f"kubectl annotate storageclass {others} {DEFAULT_CLASS}-" if others else "pulumi up --refresh"
    return failed(", ".join(defaults) or "none", f"{wanted} and no other", remedy)


def namespace(item: Object) -> Finding:
    phase = text(at(item, "status", "phase"))
    if phase == "Terminating":
        return failed("it is being deleted", "Active", f"kubectl describe namespace {name_of(item)}")
    return ok(phase or "there")
