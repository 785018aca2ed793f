"""Reads a stack object and reports every fault in its shape: where it is, what was given and what is allowed."""

from eks_inference.faults import SpecError
from eks_inference.stack.references import reference_faults
from eks_inference.stack.spec import StackSpec


def parse_stack(text: str) -> StackSpec:
    """Parses a stack object (JSON) into a spec. Raises ``SpecError`` with every fault when it is invalid.

    Strict: a number in quotes is an error, although pydantic could convert it.
    """
    spec = StackSpec.model_validate_json(text, strict=True)
    faults = list(reference_faults(spec))
    if faults:
        raise SpecError(faults)
    return spec
