"""Every rule there is, gathered from where it is written."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from eks_inference.rules import ReadRule, Rule

# Where rules are written. Named, not imported: a command that judges nothing loads none of them.
_SPEC_MODULES = (
    "eks_inference.loadtest.rules",
    "eks_inference.network.rules",
    "eks_inference.pools.rules",
    "eks_inference.stack.rules",
    "eks_inference.serving.rules.scaling",
    "eks_inference.serving.disaggregated.rules",
    "eks_inference.serving.rules.gpu",
    "eks_inference.serving.rules.neuron",
    "eks_inference.serving.rules.servers",
    "eks_inference.serving.triton.rules",
    "eks_inference.storage.rules",
)
_GRAPH_MODULES = (
    "eks_inference_tools.check.aws_rules",
    "eks_inference_tools.check.chart_rules",
    "eks_inference_tools.check.cluster_object_rules",
    "eks_inference_tools.check.efa_rules",
    "eks_inference_tools.check.neuron_rules",
    "eks_inference_tools.check.node_group_rules",
    "eks_inference_tools.check.placement_rules",
    "eks_inference_tools.check.pod_rules",
    "eks_inference_tools.check.secret_rules",
)


@cache
def spec_rules() -> tuple[Rule[Any], ...]:
    """Rules that need the spec only, by id."""
    return _gathered(_SPEC_MODULES)


@cache
def graph_rules() -> tuple[Rule[Any], ...]:
    """Rules about the recorded graph, by id."""
    return _gathered(_GRAPH_MODULES)


@cache
def read_rules() -> tuple[ReadRule, ...]:
    """What reading a stack file refuses already, by id: it cannot be silenced, since nothing is left to judge."""
    return tuple(
        value for module in _SPEC_MODULES for value in vars(import_module(module)).values() if isinstance(value, ReadRule)
    )


@cache
def all_rules() -> Mapping[str, Rule[Any] | ReadRule]:
    """Every rule by its id, sorted."""
    every = sorted((*spec_rules(), *graph_rules(), *read_rules()), key=lambda one: one.id)
    found = {one.id: one for one in every}
    if len(found) < len(every):
        raise AssertionError("a rule id is given twice")
    return found


def _gathered(modules: Sequence[str]) -> tuple[Rule[Any], ...]:
    found = [value for module in modules for value in vars(import_module(module)).values() if isinstance(value, Rule)]
    return tuple(sorted(found, key=lambda one: one.id))
