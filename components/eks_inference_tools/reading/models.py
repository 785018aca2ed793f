"""Finds the models that a graph names: in inputs of components, else in commands and environments of pods. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eks_inference_tools.reading.workloads import Workload
from stackgraph.graph.describe import short_type
from stackgraph.graph.document import Graph, is_component
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import joined, plain, text

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
