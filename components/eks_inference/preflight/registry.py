"""Every rule there is, gathered from where it is written."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from eks_inference.rules import Rule


@cache
def spec_rules() -> tuple[Rule[Any], ...]:
    """Rules that need the spec only, by id."""
    from eks_inference.network import rules as network_rules
    from eks_inference.pools import rules as pool_rules
    from eks_inference.preflight import stack_rules
    from eks_inference.scaling import rules as scaling_rules
    from eks_inference.serving import neuron_rules

    return _gathered(network_rules, neuron_rules, pool_rules, scaling_rules, stack_rules)


@cache
def graph_rules() -> tuple[Rule[Any], ...]:
    """Rules about the recorded graph, by id."""
    return _gathered()


@cache
def all_rules() -> Mapping[str, Rule[Any]]:
    """Every rule by its id."""
    return {one.id: one for one in sorted((*spec_rules(), *graph_rules()), key=lambda one: one.id)}


def _gathered(*modules: object) -> tuple[Rule[Any], ...]:
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Rule)]
    twice = {one.id for one in found if sum(other.id == one.id for other in found) > 1}
    if twice:
        raise AssertionError(f"rule ids given twice: {', '.join(sorted(twice))}")
    return tuple(sorted(found, key=lambda one: one.id))
