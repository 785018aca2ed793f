"""``eks-inference schema``: what a stack file may say, as a JSON schema."""

import argparse
import json

from eks_inference_tools.commands.options import add_document

HELP = "the JSON schema of stack files, for editors"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_document(parser)


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code; raises ``ProblemsFound`` where that is 2."""
    from eks_inference.stack.spec import stack_file_schema
    from eks_inference_tools.presentation.output import write

    write(json.dumps(stack_file_schema(), indent=2, ensure_ascii=False) + "\n", options.output)
    return 0
