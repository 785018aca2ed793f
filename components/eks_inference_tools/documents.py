"""The documents of ``--format json``, by command: their versions and shapes, where each is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, get_type_hints

from eks_inference.clients import chat
from eks_inference_tools import alternatives as places
from eks_inference_tools.check import document as check
from eks_inference_tools.cost import document as cost
from eks_inference_tools.doctor import report as doctor
from eks_inference_tools.fitting import document as fitting
from eks_inference_tools.fitting import splits
from eks_inference_tools.flight import report as flight
from eks_inference_tools.listing import columns, engine_list, instance_list, model_list
from eks_inference_tools.loadtest_report import compared_runs
from eks_inference_tools.timeline import document as timeline
from eks_inference_tools.verify import observed
from stackgraph.cli import ERRORS_SCHEMA
from stackgraph.diff import document as diff
from stackgraph.diff import saved
from stackgraph.graph import document as graph
from stackgraph.problems import Problem
from stackgraph.strict_json import published

_ANSWER = {"prompt?": str, **get_type_hints(chat.Answer)}


@dataclass(frozen=True)
class Document:
    version: int
    shape: Mapping[str, Any]


_DOCUMENTS = {
    "chat": Document(chat.SCHEMA, {"url": str, "model": str, "answers": [_ANSWER]}),
    "check": Document(check.SCHEMA, check.SHAPE),
    "check --explain": Document(check.SCHEMA, check.EXPLAINED),
    "check --rules": Document(check.SCHEMA, check.RULES),
    "diff": Document(diff.SCHEMA, saved.SHAPE),
    "doctor": Document(doctor.SCHEMA, doctor.SHAPE),
    "errors": Document(ERRORS_SCHEMA, {"errors": [Problem]}),
    "first-flight --plan": Document(flight.SCHEMA, flight.COURSE),
    "first-flight report": Document(flight.SCHEMA, flight.SHAPE),
    "list engines": Document(columns.SCHEMA, engine_list.SHAPE),
    "list instances": Document(columns.SCHEMA, instance_list.SHAPE),
    "list models": Document(columns.SCHEMA, model_list.SHAPE),
    "loadtest report": Document(compared_runs.SCHEMA, compared_runs.SHAPE),
    "new": Document(check.SCHEMA, {"file": str, "place": fitting.PLACE, "instead": [str], **check.VERDICT}),
    "plan": Document(fitting.SCHEMA, fitting.SHAPE),
    "plan --instance": Document(fitting.SCHEMA, splits.SHAPE),
    "preview": Document(graph.SCHEMA, {**graph.SHAPE, "cost": cost.SHAPE, "places?": places.SHAPE, "timeline?": timeline.SHAPE}),
    "verify": Document(observed.SCHEMA, observed.SHAPE),
}


_REHEARSED = {
    "rehearse change": "rehearsal.report",
    "rehearse day": "day.text",
    "simulate": "report",
}
"""Modules of ``simulate``, which only those who ask load."""

NAMES = (*_DOCUMENTS, *_REHEARSED)


def schema_of(name: str) -> dict[str, Any]:
    """The JSON schema of one of the ``NAMES``."""
    if name in _REHEARSED:
        module = import_module(f"eks_inference_tools.simulate.{_REHEARSED[name]}")
        found = Document(module.SCHEMA, module.SHAPE)
    else:
        found = _DOCUMENTS[name]
    title = "Errors of a command" if name == "errors" else f"What `eks-inference {name} --format json` writes"
    return published(title, found.version, found.shape)
