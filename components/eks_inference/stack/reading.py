"""Reads a stack object and reports every fault in its shape: where it is, what was given and what is allowed."""

from pathlib import Path

from eks_inference.faults import SpecError
from eks_inference.specs.project_files import files_below
from eks_inference.stack.references import reference_faults
from eks_inference.stack.spec import StackSpec


def parse_stack(text: str, folder: Path | None = None) -> StackSpec:
    """Parses a stack object (JSON) into a spec. Raises ``SpecError`` with every fault when it is invalid.

    ``folder`` is that of the project, for files that the stack names; default: the working directory.

    Strict: a number in quotes is an error, although pydantic could convert it.
    """
    with files_below(folder):
        spec = StackSpec.model_validate_json(text, strict=True)
    faults = list(reference_faults(spec))
    if faults:
        raise SpecError(faults)
    return spec
