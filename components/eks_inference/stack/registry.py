"""Collects every rule that judges a spec from the modules of the domains."""

from functools import cache
from importlib import import_module
from typing import Any

from eks_inference.rules import ReadRule, Rule
from eks_inference.serving.kinds import KINDS

# Named, not imported: a command that runs no rules loads none of these modules.
_MODULES = (
    "eks_inference.loadtest.rules",
    "eks_inference.network.rules",
    "eks_inference.pools.disk_rules",
    "eks_inference.pools.rules",
    "eks_inference.serving.rules.engine_features",
    "eks_inference.serving.rules.engine_flags",
    "eks_inference.serving.rules.flag_combinations",
    "eks_inference.serving.rules.gpu",
    "eks_inference.serving.rules.neuron",
    "eks_inference.serving.rules.scaling",
    "eks_inference.serving.rules.servers",
    "eks_inference.stack.isolated_rules",
    "eks_inference.stack.karpenter_rules",
    "eks_inference.stack.observability_rules",
    "eks_inference.stack.rules",
    "eks_inference.storage.rules",
)


def spec_rules() -> tuple[Rule[Any], ...]:
    """Returns the rules that need only the spec, those of every kind of server included, sorted by id."""
    return gathered(_modules())


def read_rules() -> tuple[ReadRule, ...]:
    """Returns the rules that validation of the stack file enforces."""
    return tuple(value for module in _modules() for value in vars(import_module(module)).values() if isinstance(value, ReadRule))


@cache
def gathered(modules: tuple[str, ...]) -> tuple[Rule[Any], ...]:
    """Returns the rules defined in these modules, sorted by id."""
    found = [value for module in modules for value in vars(import_module(module)).values() if isinstance(value, Rule)]
    return tuple(sorted(found, key=lambda one: one.id))


def _modules() -> tuple[str, ...]:
    return (*_MODULES, *(kind.rules for kind in KINDS.values() if kind.rules))
