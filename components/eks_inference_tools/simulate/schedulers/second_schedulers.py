"""Second schedulers of a stack, found by its pods and ConfigMaps, and their configuration as a simulation runs them. Pure.

Only what a loopback needs is changed: where the API server and the extenders are, and where the scheduler itself listens.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from eks_inference_tools.reading.pod_templates import group_kind, pod_templates
from eks_inference_tools.reading.pods import Container, PodSpec
from eks_inference_tools.simulate.world.unsimulated import Unsimulated
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, table, text, texts

PROGRAM = "kube-scheduler"
_DEFAULT = "default-scheduler"

_SHELLS = ("ash", "bash", "dash", "sh")
CONFIG_FLAG = "config"

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
        namespace = pods.namespace

        def data(name: str, namespace: str = namespace) -> Mapping[str, Any] | None:
            inputs = config_maps.get((namespace, name))
            return None if inputs is None else table(inputs.get("data"))

        scheduler = scheduler_of(pods.title, namespace, pods.spec, data)
        if scheduler:
            found.append(scheduler)
        named[pods.spec.scheduler or _DEFAULT] = None
    known = {_DEFAULT, *(name for one in found if isinstance(one, SecondScheduler) for name in one.names)}
    why = "nothing in the graph runs it (a chart may bring it): pods that name it wait here"
    return (*found, *(Unsimulated(f"scheduler {name}", why) for name in named if name not in known))


def scheduler_of(title: str, namespace: str, spec: PodSpec, data: Data) -> SecondScheduler | Unsimulated | None:
    """The scheduler that pods of a specification run; None when they run none."""
    for container in spec.containers:
        words = None if container.first else _words(container)
        if words is None:
            continue
        try:
            flags = tuple(_flags(words))
            path = next((value for flag, value in flags if flag == CONFIG_FLAG), "")
            if not path:
                raise _Unreadable(f"{PROGRAM} runs without --config")
            config_map, content = _mounted_file(spec, container, path, data)
            return SecondScheduler(
                title=title,
                namespace=namespace,
                service_account=spec.service_account,
                config_map=config_map,
                arguments=tuple(f"--{flag}={value}" for flag, value in flags if flag not in (CONFIG_FLAG, *_PLACES)),
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


def _words(container: Container) -> Sequence[str] | None:
    """The words after ``kube-scheduler`` on the command line of a container; None when that is not its program."""
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


def _mounted_file(spec: PodSpec, container: Container, path: str, data: Data) -> tuple[str, str]:
    """The ConfigMap a path of the container comes from, and what is in the file."""
    for mount in items(at(container.document, "volumeMounts")):
        folder = text(at(mount, "mountPath")).rstrip("/")
        if path != folder and not path.startswith(f"{folder}/"):
            continue
        inside = "/".join(part for part in (text(at(mount, "subPath")), path[len(folder) + 1 :]) if part)
        volume = next((one for one in spec.volumes if at(one, "name") == at(mount, "name")), None)
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
