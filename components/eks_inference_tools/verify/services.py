"""Services and what answers behind them, volume claims and storage classes."""

from collections.abc import Mapping
from typing import Any

from eks_inference_tools.reading.kinds import ENDPOINT_SLICES, PODS, STORAGE_CLASSES
from eks_inference_tools.reading.live_objects import Object, annotations_of, identity_of, is_ready, name_of
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.verify.observed import Observed
from eks_inference_tools.verify.verdicts import Finding, failed, ok, unknown, wait
from stackgraph.graph.values import at, items, table, text

_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def service(wanted: Mapping[str, Any], item: Object, observed: Observed) -> Finding:
    """The ports of the stack, and at least one pod that answers behind them."""
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
    return _endpoints(item, observed)


def _endpoints(item: Object, observed: Observed) -> Finding:
    namespace, name = identity_of(item)
    if blocked := observed.unreadable.get(ENDPOINT_SLICES):
        return unknown(blocked.message, blocked.next)
    slices = observed.selected(ENDPOINT_SLICES, namespace, {"kubernetes.io/service-name": name})
    # An endpoint that does not say whether it is ready is (EndpointConditions of the API).
    ready = {
        address
        for slice_ in slices
        for endpoint in items(at(slice_, "endpoints"))
        if at(endpoint, "conditions", "ready") is not False
        for address in items(at(endpoint, "addresses"))
    }
    if ready:
        return ok(f"{len(ready)} {'endpoint' if len(ready) == 1 else 'endpoints'}")
    selector = table(at(item, "spec", "selector"))
    pods = observed.selected(PODS, namespace, selector)
    labels = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    listing = f"kubectl -n {namespace} get pods -l {labels}"
    if pods and all(text(at(pod, "status", "phase")) == "Succeeded" for pod in pods):
        return ok("its pods have done their work")
    if any(is_ready(pod) for pod in pods):
        found = "no endpoint although its pods are ready: they may lack the port it names"
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
    if provisioner != stacks:
        return failed(f"made by {provisioner}", stacks, "pulumi up --refresh")
    return ok(provisioner)


def default_storage_class(wanted: str, observed: Observed) -> Finding:
    """The stack's default class is the only one: of two, Kubernetes takes the newer."""
    classes = observed.all(STORAGE_CLASSES)
    defaults = sorted(name_of(item) for item in classes if annotations_of(item).get(_DEFAULT_CLASS) == "true")
    if defaults == [wanted]:
        return ok(wanted)
    others = [name for name in defaults if name != wanted]
    take_away = f"kubectl annotate storageclass {' '.join(others)} {_DEFAULT_CLASS}-" if others else "pulumi up --refresh"
    return failed(", ".join(defaults) or "none", f"{wanted} and no other", take_away)


def is_default_class(manifest: Mapping[str, Any]) -> bool:
    return table(at(manifest, "metadata", "annotations")).get(_DEFAULT_CLASS) == "true"


def namespace(item: Object) -> Finding:
    phase = text(at(item, "status", "phase"))
    if phase == "Terminating":
        return failed("it is being deleted", "Active", f"kubectl describe namespace {name_of(item)}")
    return ok(phase or "there")
