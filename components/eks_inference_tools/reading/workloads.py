"""What runs on the nodes, as a person reads it: replicas, images, accelerators, requests and models of each kind of pod. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from eks_inference_tools.reading.autoscalers import autoscalers
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates, title_of
from eks_inference_tools.reading.pods import Container, PodSpec
from stackgraph.graph.document import Graph
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, text, unique


@dataclass(frozen=True)
class Workload:
    """Pods of one template.

    ``part`` tells the templates of one object apart (``head``, ``worker inf2-group``). ``replicas`` is what a person reads
    (``1–4 by HPA``, ``each node``); ``pods`` is their number to begin with, None when only a cluster knows it. ``accelerators``
    are the extended resources that one pod asks for; ``cpu`` and ``memory`` its requests. ``models`` are those that its command
    line or environment names.
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
        """``Deployment demo/server`` or ``RayService demo/llama (head)``."""
        return title_of(self.kind, self.namespace, self.name, self.part)


def workloads(graph: Graph) -> tuple[Workload, ...]:
    """Everything that makes pods; what asks for accelerators comes first."""
    scaled = {scaler.target: f"{scaler.bounds} by {scaler.by}" for scaler in autoscalers(graph)}
    found = [_workload(pods, scaled.get((pods.given_namespace, pods.kind, pods.name), "")) for pods in pod_templates(graph)]
    return tuple(sorted(found, key=lambda w: (not w.accelerators, w.namespace, w.name, w.kind, w.part, w.urn)))


def requested(found: tuple[Workload, ...]) -> Mapping[str, int]:
    """Extended resources that all pods of known number ask for together."""
    total: dict[str, int] = {}
    for workload in found:
        for resource, amount in workload.accelerators.items():
            if workload.pods is not None and amount.isdecimal():
                total[resource] = total.get(resource, 0) + workload.pods * int(amount)
    return dict(sorted(total.items()))


def _workload(pods: PodTemplate, by_autoscaler: str) -> Workload:
    first = [one for one in pods.containers if one.first]
    containers = [one for one in pods.containers if not one.first]
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
    """Extended resources: their names have a domain, which those of Kubernetes itself have not."""
    found: dict[str, list[Any]] = {}
    for container in containers:
        for resource, amount in container.asked.items():
            if "/" in resource:
                found.setdefault(text(resource), []).append(amount)
    return {resource: _sum(amounts) for resource, amounts in sorted(found.items())}


def _request(containers: Sequence[Container], resource: str) -> str:
    return _sum([amount for container in containers if (amount := container.asked.get(resource)) is not None])


# Suffixes of quantities in the order in which a sum is written (Kubernetes, apimachinery, resource.Quantity).
_BINARY = {"Ti": 2**40, "Gi": 2**30, "Mi": 2**20, "Ki": 2**10}
_SUFFIXES = {**_BINARY, "T": 10**12, "G": 10**9, "M": 10**6, "k": 10**3, "": 1, "m": Decimal("0.001")}
_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([TGMK]i|[TGMkm]|)", re.ASCII)


def _sum(amounts: list[Any]) -> str:
    """The sum of quantities; a single one as it is given, and all of them where one is no quantity."""
    shown = [text(amount) for amount in amounts]
    parsed = [_QUANTITY.fullmatch(amount) for amount in shown]
    known = [Decimal(match[1]) * _SUFFIXES[match[2]] for match in parsed if match]
    if len(shown) < 2 or len(known) < len(shown):
        return " + ".join(shown)
    total = sum(known, Decimal())
    binary = any(match and match[2] in _BINARY for match in parsed)
    suffix = next((suffix for suffix, unit in _BINARY.items() if binary and total % unit == 0), "")
    return f"{(total / _SUFFIXES[suffix]).normalize():f}{suffix}"


def _node_selector(pod: PodSpec) -> dict[str, str]:
    """Node labels a pod insists on, those of its affinity's first term included."""
    selector = at(pod.document, "nodeSelector")
    found = {"nodes": text(selector)} if is_token(selector) else dict(pod.node_selector)
    for expression in pod.affinity_terms[0] if pod.affinity_terms else ():
        if expression.operator == "In":
            found.setdefault(expression.key, ", ".join(expression.values))
    return dict(sorted(found.items()))


# -- models ----------------------------------------------------------------------------------------------------------------------

_MODEL_VARIABLES = ("HF_MODEL", "HF_MODEL_ID", "MODEL", "MODEL_ID", "MODEL_NAME")
_MODEL_ARGUMENT = re.compile(r"(?:^|\s)(?:--model(?:-id)?[=\s]|vllm\s+serve\s)\s*[\"']?([^\s\"'$\\-][^\s\"'\\]*)")
# Ray Serve's configuration is a text inside the object; one line of it names the model.
_SERVE_VARIABLE = re.compile(
    rf"^[\s\-{{]*[\"']?(?:{'|'.join(_MODEL_VARIABLES)})[\"']?\s*:\s*[\"']?([^\s\"'#,{{}}]+)", re.MULTILINE
)


def _models(container: Container) -> Iterator[str]:
    for name, value in container.environment:
        if name in _MODEL_VARIABLES:
            yield text(value)
    yield from _MODEL_ARGUMENT.findall(" ".join(text(word) for word in container.command))


def _serve_models(serve_config: Any) -> Iterator[str]:
    if isinstance(serve_config, str) and not is_token(serve_config):
        yield from (text(model) for model in _SERVE_VARIABLE.findall(serve_config))
