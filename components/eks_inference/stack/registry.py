"""Collects every rule that judges a spec from the modules of the domains."""

from dataclasses import replace
from importlib import import_module
from typing import Any

from eks_inference.faults import SpecError, faults_under
from eks_inference.network.plan import check_zones
from eks_inference.rules import ReadRule, Rule, Verdict, gathered, judged
from eks_inference.serving.kinds import KINDS
from eks_inference.specs.settings import region_fault
from eks_inference.stack.facts import stack_facts
from eks_inference.stack.references import reference_faults
from eks_inference.stack.spec import StackSpec

# Named, not imported: a command that runs no rules loads none of these modules.
_MODULES = (
    "eks_inference.endpoints.rules",
    "eks_inference.gateway.rules",
    "eks_inference.loadtest.rules",
    "eks_inference.network.rules",
    "eks_inference.pools.node_rules",
    "eks_inference.pools.rules",
    "eks_inference.serving.rules.claim_rules",
    "eks_inference.serving.rules.engine_features",
    "eks_inference.serving.rules.engine_flags",
    "eks_inference.serving.rules.gpu",
    "eks_inference.serving.rules.gpu_arithmetic",
    "eks_inference.serving.rules.neuron",
    "eks_inference.serving.rules.neuron_plugin",
    "eks_inference.serving.rules.nixl",
    "eks_inference.serving.rules.openings",
    "eks_inference.serving.rules.autoscalers",
    "eks_inference.serving.rules.every_server",
    "eks_inference.speed.rules",
    "eks_inference.stack.isolated_rules",
    "eks_inference.stack.observability_rules",
    "eks_inference.stack.pool_rules",
    "eks_inference.stack.rules",
    "eks_inference.stack.values_rules",
    "eks_inference.storage.rules",
)


def spec_rules() -> tuple[Rule[Any], ...]:
    """Returns the rules that need only the spec, those of every kind of server included, sorted by id."""
    return gathered(_modules())


def read_rules() -> tuple[ReadRule, ...]:
    """Returns the rules that validation of the stack file enforces."""
    return tuple(value for module in _modules() for value in vars(import_module(module)).values() if isinstance(value, ReadRule))


def _modules() -> tuple[str, ...]:
    return (*_MODULES, *(module for kind in KINDS.values() for module in kind.rules))


def check_spec(spec: StackSpec, region: str) -> Verdict:
    """Returns the verdict of the rules that need only the spec.

    Raises ``SpecError`` for a region that cannot be, and for names that lead nowhere, which a program may give as well.
    """
    # Without the region no rule about zones can judge. A region that the catalog lacks needs zone_ids.
    if fault := region_fault(region, in_catalog=not spec.network.zone_ids):
        raise SpecError([replace(fault, config_key="aws:region")])
    if faults := list(reference_faults(spec)):
        raise SpecError(faults)
    if spec.network.zone_ids:
        with faults_under("network"):
            check_zones(region, spec.network.zone_ids)
    rules = spec_rules()
    subjects = tuple(stack_facts(spec, region))
    return Verdict(rules, judged(rules, subjects), spec.silenced, subjects)
