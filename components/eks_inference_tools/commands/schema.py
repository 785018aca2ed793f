"""``eks-inference schema``: prints the JSON schema of stack files, or of what a command writes."""

import argparse

from eks_inference_tools.commands.wishes import add_catalog, extended, refuse
from stackgraph.commands.options import add_document

HELP = "print the JSON schema of stack files, or of what a command writes"
EXAMPLES = ("schema -o stacks/schema.json", "schema rehearse change", "schema errors")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints the JSON schema of stack files. An editor with the YAML language server completes keys from it, and the values "
        "that the catalog knows, each with its facts: eks-inference schema -o stacks/schema.json. With the name of a command, "
        "prints the schema of its --format json; with `errors`, that of the errors of every command."
    )
    parser.add_argument("of", metavar="COMMAND", nargs="*", help="a command and its form, such as check, or plan instance")
    add_catalog(parser)
    add_document(parser)


def run(options: argparse.Namespace) -> int:
    from stackgraph.presentation.output import json_text, write

    extended(options.catalog)
    write(json_text(_schema(" ".join(options.of))), options.output)
    return 0


def _schema(of: str) -> object:
    if not of:
        from eks_inference.stack.schema import stack_file_schema

        return stack_file_schema()
    from eks_inference_tools.documents import NAMES, schema_of

    names = {name.replace("--", ""): name for name in NAMES}
    if of not in names:
        refuse("no command writes such a document", "COMMAND", of, ", ".join(names))
    return schema_of(names[of])
