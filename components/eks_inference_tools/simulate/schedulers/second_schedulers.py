"""Finds a stack's second schedulers by their pods and ConfigMaps, and rewrites their configuration for loopback. Pure.

The rewritten configuration differs only in addresses: of the API server, of the extenders, and of the scheduler itself.
"""

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from eks_inference_tools.reading.kinds import group_kind
from eks_inference_tools.reading.live_objects import identity_of
from eks_inference_tools.reading.pod_templates import pod_templates
from eks_inference_tools.reading.pods import Container, PodSpec
from eks_inference_tools.simulate.world.unsimulated import Unsimulated
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, is_token, items, table, text, texts, unique

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
