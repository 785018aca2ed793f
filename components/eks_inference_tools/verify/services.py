"""Checks Services and their endpoints, volume claims, storage classes and namespaces."""

from collections.abc import Mapping
from typing import Any

from eks_inference_tools.reading.kinds import DEFAULT_CLASS, ENDPOINT_SLICES, PODS, STORAGE_CLASSES, is_default_class
from eks_inference_tools.reading.live_objects import Object, identity_of, is_ready, name_of
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.verify.observed import Finding, Observed, failed, ok, wait
from stackgraph.graph.values import at, items, table, text
from stackgraph.graph.wording import counted


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
