"""``eks-inference schema``: prints the JSON schema of stack files."""

import argparse

from eks_inference_tools.commands.wishes import add_catalog, extended
from stackgraph.commands.options import add_document

HELP = "print the JSON schema of stack files, for editors"
EXAMPLES = ("schema -o stacks/schema.json",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints the JSON schema of stack files. An editor with the YAML language server completes keys from it, and the values "
        "that the catalog knows, each with its facts: eks-inference schema -o stacks/schema.json"
    )
    add_catalog(parser)
    add_document(parser)


def run(options: argparse.Namespace) -> int:
    from eks_inference.stack.schema import stack_file_schema
    from stackgraph.presentation.output import json_text, write

    extended(options.catalog)
    write(json_text(stack_file_schema()), options.output)
    return 0
