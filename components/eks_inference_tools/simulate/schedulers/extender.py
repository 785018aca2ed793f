"""Stands in for AWS's Neuron scheduler extension, whose program is not public, by answering as an extender of kube-scheduler.

It serves the HTTP API of ``k8s.io/kube-scheduler/extender/v1`` under the two verbs that AWS's manifests name, and allocates only
sets of neighbouring devices (``device_sets``): whole devices, never single NeuronCores. So a simulation proves that the stack's
configuration, Service, RBAC and pods fit together; it proves nothing about AWS's own program.

It keeps no state: every call reads the cluster. An annotation of the pod holds its devices, as AWS's documentation says; its name
is that on real clusters. The name of the node's usage map is from AWS's "Neuron scheduler extension", Troubleshooting.
"""

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.place.placement import INSTANCE_TYPE_LABEL
from eks_inference_tools.reading.live_objects import has_ended, name_of, node_of
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal, Object
from eks_inference_tools.simulate.control_plane.processes import Answer, Request, document
from eks_inference_tools.simulate.world.scheduled_pods import DEVICES_ANNOTATION, allocate, device_sets, shortage
from stackgraph.graph.values import at, items, table, text

USAGE_ANNOTATION = "NEURON_DEV_USAGE_MAP"
"""Annotation of a node: for each device, whether it was in use after the last binding (``true,false``). Never read here."""

_SERVICE_HOST = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)(\.svc(\.cluster\.local)?)?\.?")


class Refused(Exception):
    """The extension cannot do what is asked. The scheduler shows the text on the pod."""


# -- devices of a node -----------------------------------------------------------------------------------------------------------


def devices_asked(pod: Mapping[str, Any]) -> int:
    """Returns how many whole Neuron devices a pod asks for. Raises ``Refused`` if it asks for single NeuronCores."""
    asked = PodSpec(pod.get("spec")).requests
    if asked.get(CORE_RESOURCE):
        raise Refused(f"the stand-in of the Neuron extension allocates {DEVICE_RESOURCE} only, not {CORE_RESOURCE}")
    return int(asked.get(DEVICE_RESOURCE, 0))


def free_devices(shape: InstanceType, pods: Iterable[Mapping[str, Any]]) -> frozenset[int]:
    """Returns the devices of a node that none of its pods hold.

    Pods that were bound without the extension have no annotation: they are assumed to hold the first devices that are left.
    """
    free = set(range(shape.devices))
    unannotated = 0
    for pod in pods:
        if has_ended(pod):
            continue
        ids = text(at(pod, "metadata", "annotations", DEVICES_ANNOTATION)).split(",")
        if all(one.isdecimal() for one in ids):
            free -= set(map(int, ids))
        else:
            unannotated += devices_asked(pod)
    return frozenset(sorted(free)[unannotated:])


# -- the extension ---------------------------------------------------------------------------------------------------------------


class NeuronExtension:
    """Filters nodes and binds pods. ``connect`` returns the API as the extension's own ServiceAccount, or raises ``Refused``."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self.forbidden: dict[str, None] = {}
        """What the API server forbade, each message once: permissions that its ServiceAccount lacks."""

    def filter(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answers ``ExtenderArgs`` with ``ExtenderFilterResult``: the nodes with a free set, and why the others have none."""
        with self._lock:
            try:
                api = self._connect()
                count = devices_asked(table(asked.get("Pod")))
                names = asked.get("NodeNames")
                nodes = items(at(asked.get("Nodes"), "items"))
                if names is not None:
                    nodes = [node for node in api.list("nodes") if name_of(node) in names]
                pods = api.list("pods")
            except (Refused, ApiRefusal) as refusal:
                return self._error(refusal)
        fits, fails, never = [], {}, {}
        for node in nodes:
            name = name_of(node)
            try:
                shape = _shape(node)
                free = free_devices(shape, [pod for pod in pods if node_of(pod) == name])
            except Refused as refusal:
                never[name] = str(refusal)
                continue
            if allocate(free, count, shape) is not None:
                fits.append(node)
            elif device_sets(count, shape):
                fails[name] = shortage(free, count, shape)
            else:
                never[name] = shortage(free, count, shape)
        kept = {"Nodes": {"items": fits}} if names is None else {"NodeNames": [name_of(node) for node in fits]}
        return {**kept, "FailedNodes": fails, "FailedAndUnresolvableNodes": never}

    def bind(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answers ``ExtenderBindingArgs`` with ``ExtenderBindingResult``: annotates the pod and the node, then binds the pod.

        It allocates devices again, because other pods may have been bound since the nodes were filtered.
        """
        with self._lock:
            try:
                self._bind(self._connect(), asked)
            except (Refused, ApiRefusal) as refusal:
                return self._error(refusal)
        return {}

    def answer(self, request: Request) -> Answer:
        """Answers an HTTP request of a scheduler."""
        if request.method != "POST":
            return document(405, {"Error": f"the Neuron extension knows POST, not {request.method}"})
        verbs = {"filter": self.filter, "bind": self.bind}
        verb = verbs.get(request.target.removeprefix("/"))
        if verb is None:
            return document(404, {"Error": f"the Neuron extension knows {' and '.join(verbs)}, not {request.target}"})
        try:
            body = table(json.loads(request.body))
        except ValueError:
            return document(400, {"Error": "the request is not JSON"})
        try:
            return document(200, verb(body))
        except requests.RequestException as error:  # the API server has ended or is about to
            return document(503, {"Error": str(error)})

    def _error(self, refusal: Refused | ApiRefusal) -> dict[str, Any]:
        if isinstance(refusal, ApiRefusal) and refusal.status == 403:
            self.forbidden[refusal.message] = None
        return {"Error": str(refusal)}

    def _bind(self, api: Api, asked: Mapping[str, Any]) -> None:
        namespace, name, node_name = (text(asked.get(key)) for key in ("PodNamespace", "PodName", "Node"))
        pod, node = api.get("pods", name, namespace), api.get("nodes", node_name)
        if pod is None or node is None:
            raise Refused(f"{f'pod {namespace}/{name}' if pod is None else f'node {node_name}'} no longer exists")
        shape, count = _shape(node), devices_asked(pod)
        free = free_devices(shape, api.list("pods", fieldSelector=f"spec.nodeName={node_name}"))
        devices = allocate(free, count, shape)
        if devices is None:
            raise Refused(shortage(free, count, shape))
        api.patch(pod, {"metadata": {"annotations": {DEVICES_ANNOTATION: ",".join(map(str, devices))}}})
        used = ("false" if device in free.difference(devices) else "true" for device in range(shape.devices))
        # AWS's ClusterRole allows patching only the status of a node.
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


# -- its Service -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ServicePort:
    """A port of a Service, as named by host and port of a URL."""

    namespace: str
    name: str
    port: int

    @property
    def title(self) -> str:
        return f"Service {self.namespace}/{self.name} port {self.port}"


def service_of(url: str) -> ServicePort | None:
    """Returns the Service that a URL names by its DNS name; None for any other address."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    found = _SERVICE_HOST.fullmatch(parts.hostname or "")
    return ServicePort(found[2], found[1], port) if found else None


def pod_behind(service: ServicePort, api: Api) -> Object:
    """Returns a ready pod of the extension to which kube-proxy would route. Raises ``Refused`` if there is none."""
    found = api.get("services", service.name, service.namespace)
    port = next((port for port in items(at(found, "spec", "ports")) if at(port, "port") == service.port), None)
    if port is None:
        raise Refused(f"there is no {service.title}")
    name = text(at(port, "name"))
    of_service = f"kubernetes.io/service-name={service.name}"
    for item in api.list("endpointslices.discovery.k8s.io", service.namespace, labelSelector=of_service):
        targets = [at(offered, "port") for offered in items(item.get("ports")) if text(at(offered, "name")) == name]
        for endpoint in items(item.get("endpoints")):
            if targets and at(endpoint, "conditions", "ready") is True:
                pod = api.get("pods", text(at(endpoint, "targetRef", "name")), service.namespace)
                if pod is not None and _listens_at(pod) in (None, text(targets[0])):
                    return pod
    raise Refused(f"no ready pod is behind {service.title}")


def _listens_at(pod: Mapping[str, Any]) -> str | None:
    """Returns the port that a container is told to listen on (``PORT`` in AWS's manifests); None if there is none."""
    variables = (one for container in PodSpec(pod.get("spec")).containers for one in container.environment)
    return next((value for name, value in variables if name == "PORT"), None)
