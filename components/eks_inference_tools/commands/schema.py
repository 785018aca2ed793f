"""``eks-inference schema``: prints the JSON schema of stack files."""

import argparse

from eks_inference_tools.commands.options import add_document

HELP = "print the JSON schema of stack files, for editors"


def configure(parser: argparse.ArgumentParser) -> None:
    add_document(parser)


def run(options: argparse.Namespace) -> int:
    from eks_inference.stack.spec import stack_file_schema
    from eks_inference_tools.presentation.output import json_text, write

    write(json_text(stack_file_schema()), options.output)
    return 0
