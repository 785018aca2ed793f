"""Finds a stack's second schedulers by their pods and ConfigMaps, and runs real kube-schedulers in place of those pods, with
their configuration, arguments and ServiceAccounts.

The rewritten configuration differs only in addresses: of the API server, of the extenders, and of the scheduler itself.
"""

import contextlib
import json
import os
import re
import secrets
import shlex
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import yaml

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference_tools.reading.live_objects import controller_of, identity_of, title_of
from eks_inference_tools.reading.object_kinds import group_kind
from eks_inference_tools.reading.pod_templates import pod_templates
from eks_inference_tools.reading.pods import Container, PodSpec
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, Object
from eks_inference_tools.simulate.control_plane.processes import ComponentError, free_port, serving
from eks_inference_tools.simulate.schedulers.extender import NeuronExtension, ServicePort, pod_behind, service_of
from eks_inference_tools.simulate.stand_ins.loop import Seen
from eks_inference_tools.simulate.world.unsimulated import Unsimulated
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, is_token, items, joined, table, text, texts, unique

PROGRAM = "kube-scheduler"
_DEFAULT = "default-scheduler"

_SHELLS = ("ash", "bash", "dash", "sh")
CONFIG_FLAG = "config"

# Flags with addresses and paths of the pod. A simulation sets its own, or the configuration does.
_PLACES = frozenset(
    (
        "authentication-kubeconfig",
        "authorization-kubeconfig",
        "bind-address",
        "cert-dir",
        "client-ca-file",
        "kubeconfig",
        "master",
        "secure-port",
        "tls-cert-file",
        "tls-private-key-file",
    )
)

# Does what the kubelet does: restarts a container that ended, and gives one that must end a signal and time to obey. The shell
# outlives the scheduler, so that a scheduler that ends does not count as a failed process of the simulation.
_ENDED, _OBEYED = "the scheduler ended with exit code", "the scheduler ended as it was told"
_CONTAINER = f"""
trap 'kill -TERM "$child"; wait "$child"; echo "{_OBEYED}"; while :; do sleep 60; done' TERM
while :; do "$@" & child=$!; wait "$child"; echo "{_ENDED} $?"; sleep 2; done
"""
_OBEYS_SECONDS = 30
"""What a pod has by default (Kubernetes API, terminationGracePeriodSeconds)."""
_POLL_SECONDS = 0.05
_PORT_TAKEN = "address already in use"
_LEASE_LOST = "Leaderelection lost"
"""What a scheduler ends with that could not renew its lease for ten seconds. Where it may not, its log says forbidden, too."""

_TOKEN_SECONDS = 24 * 3600

# Inside a quoted value of a log line the message ends at the quote, otherwise at the end of the line.
_FORBIDDEN = re.compile(r"""[^\s:"]+(?: \\?"[^"\\\n]+\\?")? is forbidden: (?:User \\"(?:\\.|[^"\\\n])*|[^\n]*)""")


@dataclass(frozen=True)
class SecondScheduler:
    """A kube-scheduler with a configuration of the stack's own. ``arguments`` are its flags without addresses and paths."""

    arguments: tuple[str, ...]
    configuration: Mapping[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """The values of ``schedulerName`` that it serves."""
        return texts([at(profile, "schedulerName") for profile in items(self.configuration.get("profiles"))]) or (_DEFAULT,)

    @property
    def extenders(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(table(item) for item in items(self.configuration.get("extenders")))


class _Unreadable(Exception):
    """A pod runs kube-scheduler in a way that cannot be simulated."""


Data = Callable[[str], Mapping[str, Any] | None]
"""Returns ``data`` of a ConfigMap by its name; None if there is none."""


def second_schedulers(graph: Graph) -> tuple[SecondScheduler | Unsimulated, ...]:
    """Returns the schedulers that pods of the graph run, and an ``Unsimulated`` for each that pods name but none run."""
    config_maps: defaultdict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for resource in graph.resources:
        if is_kubernetes_object(resource) and group_kind(resource)[1] == "ConfigMap":
            namespace, name = identity_of(resource.inputs)
            config_maps[namespace or "default"][name] = table(resource.inputs.get("data"))
    templates = tuple(pod_templates(graph))
    read = (scheduler_of(pods.title, pods.spec, config_maps[pods.namespace].get) for pods in templates)
    found = [scheduler for scheduler in read if scheduler]
    known = {_DEFAULT, *(name for one in found if isinstance(one, SecondScheduler) for name in one.names)}
    why = "nothing in the graph runs it (a chart may bring it): pods that name it wait here"
    named = unique(pods.spec.scheduler for pods in templates)
    return (*found, *(Unsimulated(f"scheduler {name}", why) for name in named if name not in known))


def scheduler_of(title: str, spec: PodSpec, data: Data) -> SecondScheduler | Unsimulated | None:
    """Returns the scheduler that a pod runs; None if it runs none. ``title`` names the pod's owner."""
    for container in spec.containers:
        words = None if container.first else _words(container)
        if words is None:
            continue
        try:
            flags = tuple(_flags(words))
            path = next((value for flag, value in flags if flag == CONFIG_FLAG), "")
            if not path:
                raise _Unreadable(f"{PROGRAM} runs without --config")
            return SecondScheduler(
                arguments=tuple(f"--{flag}={value}" for flag, value in flags if flag not in (CONFIG_FLAG, *_PLACES)),
                configuration=_configuration(spec, container, path, data),
            )
        except _Unreadable as unreadable:
            return Unsimulated(title, str(unreadable))
    return None


def rewritten(scheduler: SecondScheduler, kubeconfig: str, extender_urls: Mapping[str, str]) -> dict[str, Any]:
    """Returns the scheduler's configuration with the addresses of the API server and of the extenders on loopback.

    ``extender_urls`` maps ``urlPrefix`` to the URL on loopback. Other extenders are left out, because nothing would answer.
    """
    found = dict(scheduler.configuration)
    found["clientConnection"] = {**table(found.get("clientConnection")), "kubeconfig": kubeconfig}
    if scheduler.extenders:
        found["extenders"] = [
            {**{key: value for key, value in one.items() if key != "tlsConfig"}, "urlPrefix": extender_urls[one["urlPrefix"]]}
            for one in scheduler.extenders
            if text(one.get("urlPrefix")) in extender_urls
        ]
    return found


def _words(container: Container) -> Sequence[str] | None:
    """Returns the arguments of kube-scheduler on a container's command line; None if the container runs another program."""
    words = list(container.command)
    if len(words) > 2 and _base_name(words[0]) in _SHELLS and words[1] == "-c":
        try:
            words = shlex.split(words[2])
        except ValueError:
            return None
        words = words[1:] if words[:1] == ["exec"] else words
        return words[1:] if words and _base_name(words[0]) == PROGRAM else None
    if words and _base_name(words[0]) == PROGRAM:
        return words[1:]
    image = container.image.partition("@")[0]
    runs_image = not container.has_own_command and _base_name(image).partition(":")[0] == PROGRAM
    return words if runs_image else None


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields names and values of flags, written ``--name=value``, ``--name value`` or ``--name`` (true)."""
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("-"):
            raise _Unreadable(f"the argument {word!r} of {PROGRAM} is not a flag")
        name, sign, value = word.lstrip("-").partition("=")
        if not sign:
            value = waiting.pop(0) if waiting and not waiting[0].startswith("-") else "true"
        yield name, value


def _configuration(spec: PodSpec, container: Container, path: str, data: Data) -> Mapping[str, Any]:
    """Returns the KubeSchedulerConfiguration at a path in the container. Raises ``_Unreadable``."""
    config_map, content = _mounted_file(spec, container, path, data)
    if is_token(content):
        raise _Unreadable(f"the content of ConfigMap {config_map}, {path} is not known before it is deployed")
    try:
        found = yaml.safe_load(content)
    except yaml.YAMLError:
        found = None
    if at(found, "kind") != "KubeSchedulerConfiguration":
        raise _Unreadable(f"ConfigMap {config_map}, {path} has no KubeSchedulerConfiguration")
    return table(found)


def _mounted_file(spec: PodSpec, container: Container, path: str, data: Data) -> tuple[str, str]:
    """Returns the ConfigMap that provides a file of the container, and the file's content."""
    for mount in items(at(container.document, "volumeMounts")):
        folder = text(at(mount, "mountPath")).rstrip("/")
        if path != folder and not path.startswith(f"{folder}/"):
            continue
        inside = "/".join(part for part in (text(at(mount, "subPath")), path[len(folder) + 1 :]) if part)
        volume = next((volume for volume in spec.volumes if at(volume, "name") == at(mount, "name")), None)
        projected = [at(source, "configMap") for source in items(at(volume, "projected", "sources"))]
        for source in (at(volume, "configMap"), *projected):
            name = text(at(source, "name"))
            keys = {text(at(item, "path")): text(at(item, "key")) for item in items(at(source, "items"))}
            key = keys.get(inside, "") if keys else inside
            found = (data(name) if name else None) or {}
            if key in found:
                return name, str(found[key])
    raise _Unreadable(f"--config={path} is in no ConfigMap that the pod mounts")


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
