"""Every rule that judges a spec, gathered from where it is written."""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

from eks_inference.rules import ReadRule, Rule
from eks_inference.serving.kinds import KINDS

# Where rules are written. Named, not imported: a command that judges nothing loads none of them.
_MODULES = (
    "eks_inference.loadtest.rules",
    "eks_inference.network.rules",
    "eks_inference.pools.rules",
    "eks_inference.serving.rules.gpu",
    "eks_inference.serving.rules.neuron",
    "eks_inference.serving.rules.scaling",
    "eks_inference.serving.rules.servers",
    "eks_inference.stack.rules",
    "eks_inference.storage.rules",
)


def spec_rules() -> tuple[Rule[Any], ...]:
    """Rules that need the spec only, by id; those of every kind of server among them."""
    return gathered(_modules())


def read_rules() -> tuple[ReadRule, ...]:
    """What reading a stack file refuses already. It cannot be silenced, since nothing is left to judge."""
    return tuple(value for module in _modules() for value in vars(import_module(module)).values() if isinstance(value, ReadRule))


@cache
def gathered(modules: tuple[str, ...]) -> tuple[Rule[Any], ...]:
    """The rules that stand in these modules, by id."""
    found = [value for module in modules for value in vars(import_module(module)).values() if isinstance(value, Rule)]
    return tuple(sorted(found, key=lambda one: one.id))


def _modules() -> tuple[str, ...]:
    kinds: Iterable[str] = (kind.rules for kind in KINDS.values())
    return (*_MODULES, *(module for module in kinds if module))
