"""``eks-inference resolve``: prints a stack file with every value that it leaves open, and where each comes from."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eks_inference_tools.commands.options import add_document, add_stack

if TYPE_CHECKING:
    from eks_inference_tools.program import StackProgram

HELP = "print a stack file with every default, and where each comes from"
EXAMPLES = (
    "resolve inf2-llama2",
    "resolve inf2-llama2 --without-defaults",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints the stack file with every value that it leaves open: what follows from its pools, its models and the catalog, "
        "with the row or rule that decides, and the defaults of the schema. What it prints is a stack file of the same stack. "
        "Secrets are not shown. It judges nothing; `check` does."
    )
    add_stack(parser)
    parser.add_argument(
        "--without-defaults",
        action="store_true",
        help="leave out the defaults of the schema: what the file says, and what follows",
    )
    parser.add_argument(
        "--program", metavar="DIR", type=Path, help="another Pulumi Python project (default: the one around here)"
    )
    add_document(parser, ("yaml", "json"))


def run(options: argparse.Namespace) -> int:
    from eks_inference.faults import format_path
    from eks_inference_tools.presentation.output import json_text, write
    from eks_inference_tools.program import STACK_KEY, program
    from eks_inference_tools.resolution.text import stack_file
    from eks_inference_tools.resolution.values import values_of
    from stackgraph.problems import Problem, ProblemsFound

    stack = program(options.stack, options.program)
    spec = stack.spec()
    if spec is None:
        hint = "a program that makes its own components has its values in its code"
        raise ProblemsFound([Problem("there is no stack object to resolve", stack.document.shown, key=STACK_KEY, hint=hint)])
    given = _config(stack)
    found = values_of(spec, given[STACK_KEY])
    if options.without_defaults:
        found = found.without("schema")
    if options.format == "json":
        values = [
            {"path": format_path(one.path), "value": one.value, "origin": one.origin, "why": one.why} for one in found.values()
        ]
        write(json_text({"stack": stack.stack, "values": values}), options.output)
        return 0
    secrets = sorted(given.keys() & stack.config.secret_keys)
    others = {key: value for key, value in given.items() if key != STACK_KEY and key not in secrets}
    write(stack_file(stack.stack, found, STACK_KEY, others, secrets), options.output)
    return 0


def _config(stack: "StackProgram") -> Mapping[str, Any]:
    """The configuration as the file has it, with the project in the name of every key."""
    return {key if ":" in key else f"{stack.project.name}:{key}": value for key, value in stack.document.data["config"].items()}
