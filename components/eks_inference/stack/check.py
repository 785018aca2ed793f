"""Runs the rules on a stack's spec."""

from dataclasses import replace

from eks_inference.faults import SpecError
from eks_inference.rules import Verdict, judged
from eks_inference.specs.settings import region_fault
from eks_inference.stack import registry
from eks_inference.stack.facts import stack_facts
from eks_inference.stack.references import reference_faults
from eks_inference.stack.spec import StackSpec


def check_spec(spec: StackSpec, region: str) -> Verdict:
    """Returns the verdict of the rules that need only the spec.

    Raises ``SpecError`` for a region that cannot be, and for names that lead nowhere, which a program may give as well.
    """
    # Without the region no rule about zones can judge. A region that the catalog lacks needs zone_ids.
    if fault := region_fault(region, in_catalog=not spec.network.zone_ids):
        raise SpecError([replace(fault, config_key="aws:region")])
    if faults := list(reference_faults(spec)):
        raise SpecError(faults)
    rules = registry.spec_rules()
    subjects = tuple(stack_facts(spec, region))
    return Verdict(rules, judged(rules, subjects), spec.silenced, subjects)
