"""Second schedulers of a stack: real kube-schedulers with the stack's own configuration, arguments and ServiceAccounts.

Only what a loopback needs is changed: where the API server and the extenders are, and where the scheduler itself listens.
"""

import contextlib
import json
import os
import re
import secrets
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import yaml

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference_tools.reading.workloads import group_kind, pod_templates
from eks_inference_tools.simulate.control_plane.api import Api, Object
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.control_plane.loopback import serving
from eks_inference_tools.simulate.control_plane.processes import ComponentError, free_port
from eks_inference_tools.simulate.schedulers.extender import NeuronExtension, ServicePort, pod_behind, service_of
from eks_inference_tools.simulate.stand_ins.loop import Seen
from eks_inference_tools.simulate.world.unsimulated import Unsimulated
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, joined, table, text, texts

PROGRAM = "kube-scheduler"
_DEFAULT = "default-scheduler"

_SHELLS = ("ash", "bash", "dash", "sh")
_CONFIG_FLAG = "config"

# Flags that say where something is: other than in a pod, or the configuration says it.
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


@dataclass(frozen=True)
class SecondScheduler:
    """A container that runs kube-scheduler with a configuration of the stack's own.

    ``arguments`` are its flags without those that name places; ``configuration`` is its KubeSchedulerConfiguration, from a file
    of ``config_map``.
    """

    title: str
    namespace: str
    service_account: str
    config_map: str
    arguments: tuple[str, ...]
    configuration: Mapping[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """What pods write in ``schedulerName``."""
        return texts([at(profile, "schedulerName") for profile in items(self.configuration.get("profiles"))]) or (_DEFAULT,)

    @property
    def extenders(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(table(one) for one in items(self.configuration.get("extenders")))


class _Unreadable(Exception):
    """A pod runs kube-scheduler in a way that cannot be followed."""


# -- reading, pure ---------------------------------------------------------------------------------------------------------------

Data = Callable[[str], Mapping[str, Any] | None]
"""``data`` of a ConfigMap by its name; None when there is none."""


def second_schedulers(graph: Graph) -> tuple[SecondScheduler | Unsimulated, ...]:
    """The schedulers that a graph brings, by its pod templates and ConfigMaps, and those that its pods name and nothing runs."""
    config_maps = {
        (text(at(one.inputs, "metadata", "namespace")) or "default", text(at(one.inputs, "metadata", "name"))): one.inputs
        for one in graph.resources
        if is_kubernetes_object(one) and group_kind(one)[1] == "ConfigMap"
    }
    found: list[SecondScheduler | Unsimulated] = []
    named: dict[str, None] = {}
    for pods in pod_templates(graph):
        namespace = pods.namespace or "default"

        def data(name: str, namespace: str = namespace) -> Mapping[str, Any] | None:
            inputs = config_maps.get((namespace, name))
            return None if inputs is None else table(inputs.get("data"))

        scheduler = scheduler_of(pods.title, namespace, at(pods.template, "spec"), data)
        if scheduler:
            found.append(scheduler)
        named[text(at(pods.template, "spec", "schedulerName")) or _DEFAULT] = None
    known = {_DEFAULT, *(name for one in found if isinstance(one, SecondScheduler) for name in one.names)}
    why = "nothing in the graph runs it (a chart may bring it): pods that name it wait here"
    return (*found, *(Unsimulated(f"scheduler {name}", why) for name in named if name not in known))


def scheduler_of(title: str, namespace: str, spec: Any, data: Data) -> SecondScheduler | Unsimulated | None:
    """The scheduler that pods of a specification run; None when they run none."""
    for container in items(at(spec, "containers")):
        words = _words(container)
        if words is None:
            continue
        try:
            flags = tuple(_flags(words))
            path = next((value for flag, value in flags if flag == _CONFIG_FLAG), "")
            if not path:
                raise _Unreadable(f"{PROGRAM} runs without --config")
            config_map, content = _mounted_file(spec, container, path, data)
            return SecondScheduler(
                title=title,
                namespace=namespace,
                service_account=text(at(spec, "serviceAccountName")) or "default",
                config_map=config_map,
                arguments=tuple(f"--{flag}={value}" for flag, value in flags if flag not in (_CONFIG_FLAG, *_PLACES)),
                configuration=_configuration(content, f"{config_map}, {path}"),
            )
        except _Unreadable as unreadable:
            return Unsimulated(title, str(unreadable))
    return None


def rewritten(scheduler: SecondScheduler, kubeconfig: str, extender_urls: Mapping[str, str]) -> dict[str, Any]:
    """The scheduler's configuration with the API server and the extenders where they are on this machine.

    ``extender_urls`` has the address on loopback for each ``urlPrefix`` that is stood in for; other extenders are left out, since
    nothing could answer. All else is as the stack has it.
    """
    found = dict(scheduler.configuration)
    found["clientConnection"] = {**table(found.get("clientConnection")), "kubeconfig": kubeconfig}
    kept = [one for one in scheduler.extenders if text(one.get("urlPrefix")) in extender_urls]
    if scheduler.extenders:
        found["extenders"] = [
            {**{key: value for key, value in one.items() if key != "tlsConfig"}, "urlPrefix": extender_urls[one["urlPrefix"]]}
            for one in kept
        ]
    return found


def _words(container: Any) -> Sequence[str] | None:
    """The words after ``kube-scheduler`` on the command line of a container; None when that is not its program."""
    command, arguments = ([word for word in items(at(container, key)) if isinstance(word, str)] for key in ("command", "args"))
    words = [*command, *arguments]
    if len(words) > 2 and _base_name(words[0]) in _SHELLS and words[1] == "-c":
        try:
            words = shlex.split(words[2])
        except ValueError:
            return None
        words = words[1:] if words[:1] == ["exec"] else words
        return words[1:] if words and _base_name(words[0]) == PROGRAM else None
    if words and _base_name(words[0]) == PROGRAM:
        return words[1:]
    image = text(at(container, "image")).partition("@")[0]
    runs_image = not command and _base_name(image).partition(":")[0] == PROGRAM
    return words if runs_image else None


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names and values of flags, written ``--name=value``, ``--name value`` or ``--name``, which means true."""
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("-"):
            raise _Unreadable(f"the argument {word!r} of {PROGRAM} is no flag")
        name, sign, value = word.lstrip("-").partition("=")
        if not sign:
            value = waiting.pop(0) if waiting and not waiting[0].startswith("-") else "true"
        yield name, value


def _mounted_file(spec: Any, container: Any, path: str, data: Data) -> tuple[str, str]:
    """The ConfigMap a path of the container comes from, and what is in the file."""
    for mount in items(at(container, "volumeMounts")):
        folder = text(at(mount, "mountPath")).rstrip("/")
        if path != folder and not path.startswith(f"{folder}/"):
            continue
        inside = "/".join(part for part in (text(at(mount, "subPath")), path[len(folder) + 1 :]) if part)
        volume = next((one for one in items(at(spec, "volumes")) if at(one, "name") == at(mount, "name")), None)
        projected = [at(source, "configMap") for source in items(at(volume, "projected", "sources"))]
        for source in (at(volume, "configMap"), *projected):
            name = text(at(source, "name"))
            keys = {text(at(item, "path")): text(at(item, "key")) for item in items(at(source, "items"))} or {inside: inside}
            found = data(name) if name and inside in keys else None
            if found is not None and keys[inside] in found:
                return name, str(found[keys[inside]])
    raise _Unreadable(f"--config={path} is in no ConfigMap that the pod mounts")


def _configuration(content: str, where: str) -> Mapping[str, Any]:
    if is_token(content):
        raise _Unreadable(f"the content of ConfigMap {where} is not known before it is deployed")
    try:
        found = yaml.safe_load(content)
    except yaml.YAMLError:
        found = None
    if at(found, "kind") != "KubeSchedulerConfiguration":
        raise _Unreadable(f"ConfigMap {where} has no KubeSchedulerConfiguration")
    return table(found)


def forbidden(log: str) -> tuple[str, ...]:
    """What the API server forbade a component, by its log: each sentence once."""
    return tuple(dict.fromkeys(found.replace('\\"', '"') for found in _FORBIDDEN.findall(log)))


# -- running ---------------------------------------------------------------------------------------------------------------------


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

        scheduler = scheduler_of(title, namespace, pod["spec"], data)
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
                    f"--{_CONFIG_FLAG}={configuration}",
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
    namespace = pod["metadata"]["namespace"]
    for owner in items(at(pod, "metadata", "ownerReferences")):
        if at(owner, "kind") == "ReplicaSet":  # named after its Deployment, with a hash
            return f"Deployment {namespace}/{owner['name'].rpartition('-')[0]}"
        return f"{owner['kind']} {namespace}/{owner['name']}"
    return f"Pod {namespace}/{pod['metadata']['name']}"


def _exits(log: str) -> Iterator[str]:
    """What the scheduler said last, each time it ended."""
    lines = log.splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith(_ENDED):
            yield joined(f"{line}:", before)
