"""Describes the workloads of a graph for display: replicas, images, accelerators, requests, and models, which are named by inputs
of components, else by commands and environments of pods. Pure.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from eks_inference_tools.reading.autoscalers import autoscalers
from eks_inference_tools.reading.object_kinds import title
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from eks_inference_tools.reading.pods import Container, PodSpec
from eks_inference_tools.reading.scalars import quantity
from stackgraph.graph.describe import short_type
from stackgraph.graph.document import Graph, is_component
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import at, is_token, joined, plain, text, unique


@dataclass(frozen=True)
class Workload:
    """The pods of one template.

    ``part`` distinguishes the templates of one object (``head``, ``worker inf2-group``). ``replicas`` is for display (``1–4 by
    HPA``, ``each node``). ``pods`` is the initial number of pods, None when only a cluster knows it. ``accelerators`` are the
    extended resources that one pod requests, ``models`` those in its command line or environment.
    """

    urn: str
    kind: str
    namespace: str
    name: str
    part: str = ""
    replicas: str = ""
    pods: int | None = None
    images: tuple[str, ...] = ()
    accelerators: Mapping[str, str] = field(default_factory=dict)
    cpu: str = ""
    memory: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return title(self.kind, self.namespace, self.name, self.part)


def workloads(graph: Graph) -> tuple[Workload, ...]:
    """The workloads of a graph, those that request accelerators first."""
    scaled = {scaler.target: f"{scaler.bounds} by {scaler.by}" for scaler in autoscalers(graph)}
    found = [_workload(pods, scaled.get((pods.given_namespace, pods.kind, pods.name), "")) for pods in pod_templates(graph)]
    return tuple(sorted(found, key=lambda w: (not w.accelerators, w.namespace, w.name, w.kind, w.part, w.urn)))


def requested(found: tuple[Workload, ...]) -> Mapping[str, int]:
    """The total of extended resources that all workloads with a known number of pods request."""
    total: Counter[str] = Counter()
    for workload in found:
        for resource, amount in workload.accelerators.items():
            if workload.pods is not None and amount.isdecimal():
                total[resource] += workload.pods * int(amount)
    return dict(sorted(total.items()))


def _workload(pods: PodTemplate, by_autoscaler: str) -> Workload:
    first = [container for container in pods.containers if container.first]
    containers = [container for container in pods.containers if not container.first]
    serve_config = at(pods.owner.inputs.get("spec"), "serveConfigV2")
    return Workload(
        urn=pods.urn,
        kind=pods.kind,
        namespace=pods.given_namespace,
        name=pods.name,
        part=pods.part,
        replicas=by_autoscaler or pods.replicas,
        pods=pods.pods,
        images=unique(container.image for container in containers),
        accelerators=_accelerators(first) | _accelerators(containers),
        cpu=_request(containers, "cpu"),
        memory=_request(containers, "memory"),
        node_selector=_node_selector(pods.spec),
        models=unique((*(model for container in containers for model in _models(container)), *_serve_models(serve_config))),
    )


# -- one pod ---------------------------------------------------------------------------------------------------------------------


def _accelerators(containers: Sequence[Container]) -> dict[str, str]:
    """The extended resources. Unlike resources of Kubernetes itself, their names have a domain."""
    found: dict[str, list[Any]] = {}
    for container in containers:
        for resource, amount in container.asked.items():
            if "/" in resource:
                found.setdefault(text(resource), []).append(amount)
    return {resource: _sum(amounts) for resource, amounts in sorted(found.items())}


def _request(containers: Sequence[Container], resource: str) -> str:
    return _sum([amount for container in containers if (amount := container.asked.get(resource)) is not None])


# Binary suffixes of quantities, in the order in which a sum tries them (Kubernetes, apimachinery, resource.Quantity).
_BINARY = {"Ti": 2**40, "Gi": 2**30, "Mi": 2**20, "Ki": 2**10}


def _sum(amounts: list[Any]) -> str:
    """The sum of quantities. A single one is returned as given; so are all, joined by +, when any is not a quantity."""
    shown = [text(amount) for amount in amounts]
    known = [found for amount in amounts if (found := quantity(amount)) is not None]
    if len(shown) < 2 or len(known) < len(shown):
        return " + ".join(shown)
    total, binary = sum(known, Decimal()), any(amount.endswith("i") for amount in shown)
    suffix = next((suffix for suffix, unit in _BINARY.items() if binary and total % unit == 0), "")
    return f"{(total / _BINARY.get(suffix, 1)).normalize():f}{suffix}"


def _node_selector(pod: PodSpec) -> dict[str, str]:
    """The node labels that a pod requires by its selector and the first term of its affinity."""
    selector = at(pod.document, "nodeSelector")
    found = {"nodes": text(selector)} if is_token(selector) else dict(pod.node_selector)
    for expression in pod.affinity_terms[0] if pod.affinity_terms else ():
        if expression.operator == "In":
            found.setdefault(expression.key, ", ".join(expression.values))
    return dict(sorted(found.items()))


# -- models ----------------------------------------------------------------------------------------------------------------------

_MODEL_VARIABLES = ("HF_MODEL", "HF_MODEL_ID", "MODEL", "MODEL_ID", "MODEL_NAME")
_MODEL_ARGUMENT = re.compile(r"(?:^|\s)(?:--model(?:-id)?[=\s]|vllm\s+serve\s)\s*[\"']?([^\s\"'$\\-][^\s\"'\\]*)")
_SERVED_NAME = re.compile(r"\s--served-model-name[=\s]\s*[\"']?([^\s\"'$\\-][^\s\"'\\]*)")
# The configuration of Ray Serve is a text in the object, with a line that names the model.
_SERVE_VARIABLE = re.compile(
    rf"^[\s\-{{]*[\"']?(?:{'|'.join(_MODEL_VARIABLES)})[\"']?\s*:\s*[\"']?([^\s\"'#,{{}}]+)", re.MULTILINE
)


def _models(container: Container) -> Iterator[str]:
    for name, value in container.environment:
        if name in _MODEL_VARIABLES:
            yield text(value)
    line = " ".join(text(word) for word in container.command)
    # What clients call the model says more than the folder it is in.
    yield from _SERVED_NAME.findall(line) or _MODEL_ARGUMENT.findall(line)


def _serve_models(serve_config: Any) -> Iterator[str]:
    if isinstance(serve_config, str) and not is_token(serve_config):
        yield from (text(model) for model in _SERVE_VARIABLE.findall(serve_config))


# In order of precedence: the first key that a table has names the model, the others are shown as settings.
_MODEL_KEYS = ("modelid", "hfmodel", "huggingfacemodel", "model", "modelname")
_MODEL_ID_KEYS = ("id", "name", "repository", "repo", "path")
_SETTING_KEYS = (
    "dtype",
    "engine",
    "maxmodellen",
    "maxnumseqs",
    "pipelineparallel",
    "pipelineparallelsize",
    "quantization",
    "revision",
    "task",
    "tensorparallel",
    "tensorparalleldegree",
    "tensorparallelism",
    "tensorparallelsize",
)


@dataclass(frozen=True)
class ModelFact:
    """A model and the component or workload that names it."""

    owner: str
    owner_type: str
    model: str
    settings: Mapping[str, str] = field(default_factory=dict)


def models(graph: Graph, running: tuple[Workload, ...]) -> Iterator[ModelFact]:
    """The models of a graph with the workloads ``running``. A model that a component names is not repeated for its pods."""
    structure = Structure(graph)
    named = {r.urn: tuple(_named_models(plain(r.inputs))) for r in graph.resources if is_component(r) or r.remote}
    known = set()
    for urn, found in named.items():
        deeper = {model for below in structure.inside(urn) for model, _ in named.get(below.urn, ())}
        component = graph.by_urn[urn]
        for model, settings in found:
            known.add(model)
            if model not in deeper:
                yield ModelFact(text(component.name), short_type(component.type).rpartition(".")[2], model, settings)
    seen = set()
    for workload in running:
        owner = joined(workload.namespace, workload.name, by="/")
        for model in workload.models:
            if model not in known and (workload.urn, model) not in seen:
                seen.add((workload.urn, model))
                yield ModelFact(owner, workload.kind, model)


def _named_models(value: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Models anywhere in a component's inputs, each with the settings in the same table."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, list):
            waiting += reversed(here)
        if not isinstance(here, Mapping):
            continue
        waiting += reversed([here[key] for key in sorted(here)])
        names = {key: model for key in _among(here, _MODEL_KEYS) if (model := _model_id(here[key]))}
        if names:
            (chosen, model), *others = names.items()
            inside = here[chosen] if isinstance(here[chosen], Mapping) else {}
            called = {text(key): name for key, name in others if name != model}
            yield model, _settings(here) | _settings(inside) | called


def _model_id(value: Any) -> str:
    if isinstance(value, Mapping):
        value = next((value[key] for key in _among(value, _MODEL_ID_KEYS)), None)
    return text(value) if isinstance(value, str) else ""


def _among(value: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """The keys of a table that are among ``keys``, in the order of ``keys``."""
    return sorted((key for key in value if _bare(key) in keys), key=lambda key: (keys.index(_bare(key)), key))


def _settings(value: Mapping[str, Any]) -> dict[str, str]:
    return {
        text(key): text(item)
        for key, item in sorted(value.items())
        if _bare(key) in _SETTING_KEYS and isinstance(item, str | int | float)
    }


def _bare(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()
