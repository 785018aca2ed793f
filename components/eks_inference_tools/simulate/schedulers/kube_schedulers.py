"""Runs real kube-schedulers in place of a stack's scheduler pods, with their configuration, arguments and ServiceAccounts."""

import contextlib
import json
import os
import re
import secrets
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from urllib.parse import urlsplit

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference_tools.reading.live_objects import controller_of, identity_of, title_of
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.simulate.control_plane.api import Api, Object
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.control_plane.processes import ComponentError, free_port, serving
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

# Does what the kubelet does: restarts a container that ended, and gives one that must end a signal and time to obey. The shell
# outlives the scheduler, so that a scheduler that ends does not count as a failed process of the simulation.
_ENDED, _OBEYED = "the scheduler ended with exit code", "the scheduler ended as it was told"
_CONTAINER = f"""
trap 'kill -TERM "$child"; wait "$child"; echo "{_OBEYED}"; while :; do sleep 60; done' TERM
while :; do "$@" & child=$!; wait "$child"; echo "{_ENDED} $?"; sleep 2; done
"""
_OBEYS_SECONDS = 5
_POLL_SECONDS = 0.05
_PORT_TAKEN = "address already in use"
_LEASE_LOST = "Leaderelection lost"
"""What a scheduler ends with that could not renew its lease for ten seconds. Where it may not, its log says forbidden, too."""

_TOKEN_SECONDS = 24 * 3600

# Inside a quoted value of a log line the message ends at the quote, otherwise at the end of the line.
_FORBIDDEN = re.compile(r"""[^\s:"]+(?: \\?"[^"\\\n]+\\?")? is forbidden: (?:User \\"(?:\\.|[^"\\\n])*|[^\n]*)""")


class Schedulers:
    """Runs a kube-scheduler for every running scheduler pod of the cluster, until the pod is gone or ``close`` is called.

    The scheduler gets the token of its pod's ServiceAccount and the configuration that the ConfigMap holds when the pod starts.
    If it calls the Neuron extension, a stand-in answers; other extenders are left out of its configuration and reported.
    """

    title = "second schedulers and the Neuron extension"
    reads = ("pods",)

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._running: dict[str, str] = {}
        """Names of running processes, by UID of the pod."""
        self._names: dict[str, str] = {}
        """Owners of the pods, by name of every process so far."""
        self._unsimulated: dict[tuple[str, str], Unsimulated] = {}
        self._extensions: dict[ServicePort, tuple[NeuronExtension, str]] = {}
        """Extensions with their URL on loopback."""
        self._servers = contextlib.ExitStack()
        self._apis: dict[str, Api] = {}

    def close(self) -> None:
        """Ends all schedulers. ``complaints`` and ``unsimulated`` stay available as long as the control plane."""
        with contextlib.suppress(ComponentError):  # if the supervisor is gone, so are they
            for name in self._running.values():
                self._plane.processes.stop(name)
        self._servers.close()
        for api in self._apis.values():
            api.close()

    def complaints(self) -> tuple[str, ...]:
        """Returns what the API server forbade a scheduler or the extension, and which schedulers ended: each message once.

        Any of them means that the stack's roles, arguments or configuration are wrong.
        """
        found: dict[str, str] = {}
        # Lists are copies, because the thread of the stand-ins keeps running. A scheduler repeats the messages of its extension.
        for service, (extension, _) in list(self._extensions.items()):
            found |= dict.fromkeys(list(extension.forbidden), service.title)
        for name, owner in list(self._names.items()):
            log = self._plane.processes.log(name)
            found = dict.fromkeys((*forbidden(log), *exits(log)), owner) | found
        return tuple(f"{who}: {sentence}" for sentence, who in found.items())

    def unsimulated(self) -> tuple[Unsimulated, ...]:
        """Returns the schedulers and extenders that take no part."""
        return tuple(dict.fromkeys(list(self._unsimulated.values())))

    def reconcile(self, seen: Seen, api: Api) -> None:
        pods = {at(pod, "metadata", "uid"): pod for pod in seen["pods"] if at(pod, "status", "phase") == "Running"}
        for uid, name in list(self._running.items()):
            if uid not in pods:
                self._end(name)
                del self._running[uid]
            elif _PORT_TAKEN in self._plane.processes.log(name):
                self._plane.processes.stop(name)
                del self._running[uid]
        for uid, pod in pods.items():
            if uid not in self._running:
                self._start(uid, pod, api)

    def _start(self, uid: str, pod: Object, api: Api) -> None:
        namespace, title = pod["metadata"]["namespace"], _owner(pod)
        scheduler = scheduler_of(
            title, PodSpec(pod["spec"]), lambda name: table(at(api.get("configmaps", name, namespace), "data"))
        )
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
        """Ends a scheduler as the kubelet does. Given time, it releases its lease, so that the next need not wait for it."""
        os.kill(self._plane.processes.pid(name), signal.SIGTERM)
        end = time.monotonic() + _OBEYS_SECONDS
        while _OBEYED not in self._plane.processes.log(name) and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        self._plane.processes.stop(name)

    def _extender_urls(self, uid: str, scheduler: SecondScheduler) -> dict[str, str]:
        found: dict[str, str] = {}
        for extender in scheduler.extenders:
            url = text(extender.get("urlPrefix"))
            managed = texts([at(item, "name") for item in items(extender.get("managedResources"))])
            service = service_of(url)
            if not {DEVICE_RESOURCE, CORE_RESOURCE} & set(managed):
                why = "only the Neuron extension has a stand-in: pods are placed without asking this extender"
            elif service is None:
                why = "its URL names no Service: pods are placed without asking it"
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
        """Returns the API as the ServiceAccount of a pod."""
        uid = pod["metadata"]["uid"]
        if uid not in self._apis:
            self._apis[uid] = Api(self._plane.url, _token(pod, self._plane.api), self._plane.certificate)
        return self._apis[uid]


def _token(pod: Object, api: Api) -> str:
    """Requests a token of a pod's ServiceAccount. It is not bound to the pod: the scheduler releases its lease after the pod."""
    account = {"name": at(pod, "spec", "serviceAccountName") or "default", "namespace": pod["metadata"]["namespace"]}
    answer = api.create_sub(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        "token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": _TOKEN_SECONDS}},
    )
    return answer["status"]["token"]


def _owner(pod: Object) -> str:
    """Returns the workload that the pod belongs to, e.g. ``Deployment kube-system/my-scheduler``."""
    namespace, owner = identity_of(pod)[0], controller_of(pod)
    if owner is None:
        return title_of(pod)
    if owner["kind"] == "ReplicaSet":  # named after its Deployment, with a hash
        return f"Deployment {namespace}/{owner['name'].rpartition('-')[0]}"
    return f"{owner['kind']} {namespace}/{owner['name']}"


def exits(log: str) -> Iterator[str]:
    """Yields the exit code and the last log line before it, for each time the scheduler ended.

    A port of this machine that another process took first, and a lease lost because this machine stood still, are no faults of
    the stack: the scheduler starts again.
    """
    for before, line in pairwise(["", *log.splitlines()]):
        if line.startswith(_ENDED) and not any(machine in before for machine in (_PORT_TAKEN, _LEASE_LOST)):
            yield joined(f"{line}:", before)


def forbidden(log: str) -> tuple[str, ...]:
    """Returns what the API server forbade a component according to its log, each message once."""
    return tuple(dict.fromkeys(found.replace('\\"', '"') for found in _FORBIDDEN.findall(log)))
