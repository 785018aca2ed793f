"""Real kube-schedulers in the place of the pods that run them: a stack's own configuration, arguments and ServiceAccounts."""

import contextlib
import json
import os
import re
import secrets
import signal
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference_tools.reading.live_objects import controller_of, identity_of, title_of
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.simulate.control_plane.api import Api, Object
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.control_plane.loopback import serving
from eks_inference_tools.simulate.control_plane.processes import ComponentError, free_port
from eks_inference_tools.simulate.schedulers.extender import NeuronExtension, ServicePort, pod_behind, service_of
from eks_inference_tools.simulate.schedulers.second_schedulers import (
    CONFIG_FLAG,
    PROGRAM,
    SecondScheduler,
    rewritten,
    scheduler_of,
)
from eks_inference_tools.simulate.stand_ins.loop import Seen
from eks_inference_tools.simulate.world.unsimulated import Unsimulated
from stackgraph.graph.values import at, items, joined, table, text, texts

# The kubelet's part: a container that ended is started again, and one that shall end gets a signal and time to obey. Until it is
# stopped the shell stays, so that to those who watch the simulation's processes a scheduler that ends is no fault of theirs.
_ENDED, _OBEYED = "the scheduler ended with exit code", "the scheduler ended as it was told"
_CONTAINER = f"""
trap 'kill -TERM "$child"; wait "$child"; echo "{_OBEYED}"; while :; do sleep 60; done' TERM
while :; do "$@" & child=$!; wait "$child"; echo "{_ENDED} $?"; sleep 2; done
"""
_OBEYS_SECONDS = 5
_POLL_SECONDS = 0.05
_PORT_TAKEN = "address already in use"

_TOKEN_SECONDS = 24 * 3600

# In a quoted value of a log line the sentence ends at the quote, else with the line.
_FORBIDDEN = re.compile(r"""[^\s:"]+(?: \\?"[^"\\\n]+\\?")? is forbidden: (?:User \\"(?:\\.|[^"\\\n])*|[^\n]*)""")


class Schedulers:
    """Runs a kube-scheduler for every running pod of the cluster that is one, and ends it when the pod is gone.

    So a stack's scheduler works from when its pod does, with the token of its ServiceAccount and the configuration that its
    ConfigMap then has. A context: leaving it ends what runs. It stands in for the containers of those pods, and for the Neuron
    extension that they ask; extenders of other makers are left out of the configuration and told.
    """

    title = "second schedulers and the Neuron extension"
    reads = ("pods",)

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._running: dict[str, str] = {}
        """Names of processes by the UIDs of their pods."""
        self._names: dict[str, str] = {}
        """What made their pods, by the names of all processes that there were."""
        self._unsimulated: dict[tuple[str, str], Unsimulated] = {}
        self._extensions: dict[ServicePort, tuple[NeuronExtension, str]] = {}
        """With their addresses on loopback."""
        self._servers = contextlib.ExitStack()
        self._apis: dict[str, Api] = {}

    def __enter__(self) -> "Schedulers":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends what runs. ``complaints`` and ``unsimulated`` can be asked until the control plane is gone."""
        with contextlib.suppress(ComponentError):  # without their supervisor, they are gone
            for name in self._running.values():
                self._plane.processes.stop(name)
        self._servers.close()
        for api in self._apis.values():
            api.close()

    def complaints(self) -> tuple[str, ...]:
        """What the API server forbade a scheduler or the extension, and schedulers that ended: each sentence once.

        Nothing of it should be there: the stack's roles, arguments or configuration are wrong.
        """
        found: dict[str, str] = {}
        # Copies: the stand-ins' thread goes on. A scheduler repeats what its extension says.
        for service, (extension, _) in list(self._extensions.items()):
            found |= dict.fromkeys(list(extension.forbidden), service.title)
        for name, maker in list(self._names.items()):
            log = self._plane.processes.log(name)
            found = dict.fromkeys((*forbidden(log), *_exits(log)), maker) | found
        return tuple(f"{who}: {sentence}" for sentence, who in found.items())

    def unsimulated(self) -> tuple[Unsimulated, ...]:
        """What does not take part."""
        return tuple(dict.fromkeys(list(self._unsimulated.values())))

    def reconcile(self, seen: Seen, api: Api) -> None:
        pods = {at(pod, "metadata", "uid"): pod for pod in seen["pods"] if at(pod, "status", "phase") == "Running"}
        for uid, name in list(self._running.items()):
            if uid not in pods:
                self._end(name)
                del self._running[uid]
            elif _PORT_TAKEN in self._plane.processes.log(name):  # a port that was free may be taken a moment later
                self._plane.processes.stop(name)
                del self._running[uid], self._names[name]
        for uid, pod in pods.items():
            if uid not in self._running:
                self._start(uid, pod, api)

    def _start(self, uid: str, pod: Object, api: Api) -> None:
        namespace, title = pod["metadata"]["namespace"], _maker(pod)

        def data(name: str) -> Mapping[str, Any] | None:
            found = api.get("configmaps", name, namespace)
            return None if found is None else table(found.get("data"))

        scheduler = scheduler_of(title, namespace, PodSpec(pod["spec"]), data)
        if isinstance(scheduler, Unsimulated):
            self._unsimulated[uid, ""] = scheduler
        elif scheduler is not None:
            self._unsimulated.pop((uid, ""), None)
            urls = self._extender_urls(uid, scheduler)
            kubeconfig = self._plane.kubeconfig_of(_token(pod, api))
            name = f"{pod['metadata']['name']}-{secrets.token_hex(4)}"
            configuration = self._plane.processes.folder / f"{name}.json"
            configuration.write_text(json.dumps(rewritten(scheduler, str(kubeconfig), urls)))
            self._plane.processes.start(
                name,
                [
                    "/bin/sh",
                    "-c",
                    _CONTAINER,
                    name,
                    self._plane.toolchain.path(PROGRAM),
                    f"--{CONFIG_FLAG}={configuration}",
                    *scheduler.arguments,
                    "--bind-address=127.0.0.1",
                    f"--secure-port={free_port()}",
                    f"--authentication-kubeconfig={kubeconfig}",
                    f"--authorization-kubeconfig={kubeconfig}",
                    *([f"--emulated-version={self._plane.version}"] if self._plane.version else []),
                ],
            )
            self._running[uid] = name
            self._names[name] = title

    def _end(self, name: str) -> None:
        """As the kubelet ends a container: a scheduler that is told gives up its lease, so that the next need not wait for it."""
        os.kill(self._plane.processes.pid(name), signal.SIGTERM)
        end = time.monotonic() + _OBEYS_SECONDS
        while _OBEYED not in self._plane.processes.log(name) and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        self._plane.processes.stop(name)

    def _extender_urls(self, uid: str, scheduler: SecondScheduler) -> dict[str, str]:
        found: dict[str, str] = {}
        for extender in scheduler.extenders:
            url = text(extender.get("urlPrefix"))
            managed = texts([at(one, "name") for one in items(extender.get("managedResources"))])
            service = service_of(url)
            if not {DEVICE_RESOURCE, CORE_RESOURCE} & set(managed):
                why = "only the Neuron extension is stood in for: pods are placed without asking this one"
            elif service is None:
                why = "its address is not that of a Service: pods are placed without asking it"
            else:
                found[url] = self._extension_url(service) + urlsplit(url).path
                continue
            self._unsimulated[uid, url] = Unsimulated(f"extender {url} of {joined(*scheduler.names, by=', ')}", why)
        return found

    def _extension_url(self, service: ServicePort) -> str:
        if service not in self._extensions:
            extension = NeuronExtension(lambda: self._api_of(pod_behind(service, self._plane.api)))
            port = self._servers.enter_context(serving(extension.answer))
            self._extensions[service] = (extension, f"http://127.0.0.1:{port}")
        return self._extensions[service][1]

    def _api_of(self, pod: Object) -> Api:
        """The API as the ServiceAccount of a pod."""
        uid = pod["metadata"]["uid"]
        if uid not in self._apis:
            self._apis[uid] = Api(self._plane.url, _token(pod, self._plane.api), self._plane.certificate)
        return self._apis[uid]


def _token(pod: Object, api: Api) -> str:
    """A token of a pod's ServiceAccount. The kubelet's would end with the pod, before the scheduler could give up its lease."""
    account = {"name": at(pod, "spec", "serviceAccountName") or "default", "namespace": pod["metadata"]["namespace"]}
    answer = api.create_sub(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        "token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": _TOKEN_SECONDS}},
    )
    return answer["status"]["token"]


def _maker(pod: Object) -> str:
    """``Deployment kube-system/my-scheduler``: what a person wrote to get the pod."""
    namespace, owner = identity_of(pod)[0], controller_of(pod)
    if owner is None:
        return title_of(pod)
    if owner["kind"] == "ReplicaSet":  # named after its Deployment, with a hash
        return f"Deployment {namespace}/{owner['name'].rpartition('-')[0]}"
    return f"{owner['kind']} {namespace}/{owner['name']}"


def _exits(log: str) -> Iterator[str]:
    """What the scheduler said last, each time it ended."""
    lines = log.splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith(_ENDED):
            yield joined(f"{line}:", before)


def forbidden(log: str) -> tuple[str, ...]:
    """What the API server forbade a component, by its log: each sentence once."""
    return tuple(dict.fromkeys(found.replace('\\"', '"') for found in _FORBIDDEN.findall(log)))
