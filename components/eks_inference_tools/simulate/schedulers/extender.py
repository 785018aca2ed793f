"""A stand-in for AWS's Neuron scheduler extension, whose program is not public: what an extender of a kube-scheduler answers.

It speaks HTTP as ``k8s.io/kube-scheduler/extender/v1`` says, under the two verbs that AWS's manifests name, and hands out sets of
neighbouring devices only (``device_sets``). So a simulation proves that the stack's configuration, Service, RBAC and pods fit
together; it proves nothing about AWS's own program. It hands out whole devices, never single NeuronCores.

Nothing is remembered, every call reads the cluster. A pod's devices are in its annotation, as AWS's documentation says; pods on
clusters show its name. "Neuron scheduler extension", Troubleshooting, there names the node's map of devices in use.
"""

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import requests

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.placement import INSTANCE_TYPE_LABEL
from eks_inference_tools.reading.live_objects import has_ended, node_of
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.simulate.control_plane.api import ApiRefusal, Object
from eks_inference_tools.simulate.control_plane.loopback import Answer, Request, document
from eks_inference_tools.simulate.world.device_sets import DEVICES_ANNOTATION, allocate, device_sets, shortage
from stackgraph.graph.values import at, items, table, text

USAGE_ANNOTATION = "NEURON_DEV_USAGE_MAP"
"""On a node: for every device whether it was in use when the last pod was bound, ``true,false``. Written, never read."""

FILTER_VERB = "filter"
BIND_VERB = "bind"

_SERVICE_HOST = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)(\.svc(\.cluster\.local)?)?\.?")


class ClusterApi(Protocol):
    """What is needed of ``api.Api``."""

    def get(self, resource: str, name: str, namespace: str = "") -> Object | None: ...
    def list(self, resource: str, namespace: str = "", **query: str) -> list[Object]: ...
    def patch(self, item: Mapping[str, Any], body: Any, *, subresource: str = "", kind: str = "merge") -> Object: ...
    def create_sub(self, item: Mapping[str, Any], subresource: str, body: Mapping[str, Any]) -> Object: ...


class Refused(Exception):
    """The extension cannot do it; the text is for the scheduler, which shows it on the pod."""


# -- devices of a node -----------------------------------------------------------------------------------------------------------


def devices_asked(pod: Mapping[str, Any]) -> int:
    """Whole Neuron devices a pod asks for. Raises ``Refused`` for one that asks for single NeuronCores."""
    asked = PodSpec(pod.get("spec")).requests
    if asked.get(CORE_RESOURCE):
        raise Refused(f"the stand-in of the Neuron extension hands out {DEVICE_RESOURCE} only, not {CORE_RESOURCE}")
    return int(asked.get(DEVICE_RESOURCE, 0))


def free_devices(shape: InstanceType, pods: Iterable[Mapping[str, Any]]) -> frozenset[int]:
    """Devices of a node that no pod on it holds.

    Pods that came past the extension have devices nobody wrote down: they are taken to hold the first that are left.
    """
    free = set(range(shape.devices))
    unwritten = 0
    for pod in pods:
        if has_ended(pod):
            continue
        if written := _written(pod):
            free -= written
        else:
            unwritten += devices_asked(pod)
    return frozenset(sorted(free)[unwritten:])


def _written(pod: Mapping[str, Any]) -> set[int]:
    ids = text(at(pod, "metadata", "annotations", DEVICES_ANNOTATION)).split(",")
    return {int(one) for one in ids} if all(one.isdecimal() for one in ids) else set()


# -- the extension ---------------------------------------------------------------------------------------------------------------


class NeuronExtension:
    """Filters nodes and binds pods. ``connect`` gives the API as the extension's own ServiceAccount, or raises ``Refused``."""

    def __init__(self, connect: Callable[[], ClusterApi]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self.forbidden: dict[str, None] = {}
        """What the API server forbade it, each once: rights its ServiceAccount lacks."""

    def filter(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """``ExtenderArgs`` to ``ExtenderFilterResult``: nodes with a free set, and why the others have none."""
        with self._lock:
            try:
                api = self._connect()
                count = devices_asked(table(asked.get("Pod")))
                names = asked.get("NodeNames")
                nodes = items(at(asked.get("Nodes"), "items"))
                if names is not None:
                    nodes = [node for node in api.list("nodes") if at(node, "metadata", "name") in names]
                pods = api.list("pods")
            except (Refused, ApiRefusal) as refusal:
                return self._error(refusal)
        fits, fails, never = [], {}, {}
        for node in nodes:
            name = text(at(node, "metadata", "name"))
            try:
                shape = _shape(node)
                free = free_devices(shape, _on(name, pods))
            except Refused as refusal:
                never[name] = str(refusal)
                continue
            if allocate(free, count, shape) is not None:
                fits.append(node)
            elif device_sets(count, shape):
                fails[name] = shortage(free, count, shape)
            else:
                never[name] = shortage(free, count, shape)
        kept: dict[str, Any] = (
            {"Nodes": {"items": fits}} if names is None else {"NodeNames": [at(node, "metadata", "name") for node in fits]}
        )
        return {**kept, "FailedNodes": fails, "FailedAndUnresolvableNodes": never}

    def bind(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """``ExtenderBindingArgs`` to ``ExtenderBindingResult``: writes the pod's devices and the node's map, binds the pod.

        The devices are chosen anew: pods may have been bound since the nodes were filtered.
        """
        with self._lock:
            try:
                self._bind(self._connect(), asked)
            except (Refused, ApiRefusal) as refusal:
                return self._error(refusal)
        return {}

    def answer(self, request: Request) -> Answer:
        """Answers a request of a scheduler."""
        if request.method != "POST":
            return document(405, {"Error": f"the Neuron extension knows POST, not {request.method}"})
        verbs = {FILTER_VERB: self.filter, BIND_VERB: self.bind}
        verb = verbs.get(request.target.removeprefix("/"))
        if verb is None:
            return document(404, {"Error": f"the Neuron extension knows {' and '.join(verbs)}, not {request.target}"})
        try:
            body = table(json.loads(request.body))
        except ValueError:
            return document(400, {"Error": "the request is no JSON"})
        try:
            return document(200, verb(body))
        except requests.RequestException as error:  # the API server is gone, or about to go
            return document(503, {"Error": str(error)})

    def _error(self, refusal: Refused | ApiRefusal) -> dict[str, Any]:
        if isinstance(refusal, ApiRefusal) and refusal.status == 403:
            self.forbidden[refusal.message] = None
        return {"Error": str(refusal)}

    def _bind(self, api: ClusterApi, asked: Mapping[str, Any]) -> None:
        namespace, name, node_name = (text(asked.get(key)) for key in ("PodNamespace", "PodName", "Node"))
        pod, node = api.get("pods", name, namespace), api.get("nodes", node_name)
        if pod is None or node is None:
            raise Refused(f"there is no {f'pod {namespace}/{name}' if pod is None else f'node {node_name}'} any more")
        shape, count = _shape(node), devices_asked(pod)
        free = free_devices(shape, api.list("pods", fieldSelector=f"spec.nodeName={node_name}"))
        devices = allocate(free, count, shape)
        if devices is None:
            raise Refused(shortage(free, count, shape))
        api.patch(pod, {"metadata": {"annotations": {DEVICES_ANNOTATION: ",".join(map(str, devices))}}})
        used = ("false" if device in free.difference(devices) else "true" for device in range(shape.devices))
        # Of the two ways to write on a node, the one that AWS's ClusterRole allows.
        api.patch(node, {"metadata": {"annotations": {USAGE_ANNOTATION: ",".join(used)}}}, subresource="status")
        api.create_sub(
            pod,
            "binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "namespace": namespace, "uid": text(asked.get("PodUID"))},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
            },
        )


def _shape(node: Mapping[str, Any]) -> InstanceType:
    name = text(at(node, "metadata", "labels", INSTANCE_TYPE_LABEL))
    if name not in instance_types():
        raise Refused(f"instance type {name or 'unknown'} is not in the catalog")
    return instance_types()[name]


def _on(node: str, pods: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [pod for pod in pods if node_of(pod) == node]


# -- its Service -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ServicePort:
    """A port of a Service, as the host and port of a URL name it."""

    namespace: str
    name: str
    port: int

    @property
    def title(self) -> str:
        return f"Service {self.namespace}/{self.name} port {self.port}"


def service_of(url: str) -> ServicePort | None:
    """The Service a URL names by its DNS name; None for any other address."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    found = _SERVICE_HOST.fullmatch(parts.hostname or "")
    return ServicePort(found[2], found[1], port) if found else None


def pod_behind(service: ServicePort, api: ClusterApi) -> Object:
    """A ready pod of the extension that kube-proxy would send a connection to. Raises ``Refused`` when there is none."""
    found = api.get("services", service.name, service.namespace)
    port = next((port for port in items(at(found, "spec", "ports")) if at(port, "port") == service.port), None)
    if port is None:
        raise Refused(f"there is no {service.title}")
    name = text(at(port, "name"))
    of_service = f"kubernetes.io/service-name={service.name}"
    for one in api.list("endpointslices.discovery.k8s.io", service.namespace, labelSelector=of_service):
        targets = [at(offered, "port") for offered in items(one.get("ports")) if text(at(offered, "name")) == name]
        for endpoint in items(one.get("endpoints")):
            if targets and at(endpoint, "conditions", "ready") is True:
                pod = api.get("pods", text(at(endpoint, "targetRef", "name")), service.namespace)
                if pod is not None and _listens_at(pod) in (None, text(targets[0])):
                    return pod
    raise Refused(f"no ready pod is behind {service.title}")


def _listens_at(pod: Mapping[str, Any]) -> str | None:
    """The port AWS's program is told to listen at (``PORT`` in its manifests); None where no container is told one."""
    variables = (one for container in PodSpec(pod.get("spec")).containers for one in container.environment)
    return next((value for name, value in variables if name == "PORT"), None)
