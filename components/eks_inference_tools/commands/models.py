"""``eks-inference models``: lists the models of the catalog."""

import argparse

from eks_inference_tools.commands.filters import (
    add_accelerator,
    add_architecture,
    add_texts,
    chosen,
    headed,
    room,
)
from eks_inference_tools.commands.named import add_catalog, extended, known
from eks_inference_tools.commands.options import add_document, amount_of, number_of

HELP = "list models: parameters, bytes, context, KV cache, and engines that serve them"
EXAMPLES = (
    "models qwen --max-parameters 40 --open",
    "models --engine neuron-2.31-vllm-0.16 --format json",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Lists the models of the catalog: parameters, bytes as published, longest context, KV cache of a token, gated "
        "repositories, and engines that serve the architecture. Whether one fits an instance type, `plan` says."
    )
    add_texts(parser)
    add_architecture(parser)
    parser.add_argument("--engine", metavar="PROFILE", help="only models that this engine profile serves")
    add_accelerator(parser)
    parser.add_argument("--open", action="store_true", help="only models with a repository that needs no accepted licence")
    parser.add_argument("--min-context", metavar="TOKENS", type=number_of("tokens"), help="only models with such a context")
    parser.add_argument(
        "--max-parameters", metavar="BILLIONS", type=amount_of("number of billions"), help="only models with at most so many"
    )
    parser.add_argument(
        "--sort", choices=("catalog", "parameters", "context", "kv"), default="catalog", help="default: %(default)s"
    )
    add_catalog(parser)
    add_document(parser, ("text", "json"))


def run(options: argparse.Namespace) -> int:
    from eks_inference.catalog.described import architecture_lines
    from eks_inference.catalog.engines import engine, engines
    from eks_inference_tools.listing.models import COLUMNS, ModelFilter, document, listed, notes
    from eks_inference_tools.presentation.output import json_text, write

    extended(options.catalog)
    wanted = ModelFilter(
        texts=tuple(options.texts),
        architectures=chosen(options.architecture, architecture_lines(), "--architecture"),
        engine=known(engine, options.engine, "--engine", engines()) if options.engine else None,
        accelerator=options.accelerator,
        open=options.open,
        context=options.min_context or 0,
        parameters=options.max_parameters,
    )
    found = listed(wanted, options.sort)
    if options.format == "json":
        write(json_text(document(found)), options.output)
        return 0
    from eks_inference_tools.listing.table import table

    head = headed(len(found.rows), found.of, "model")
    write(table(head, COLUMNS, found.rows, width=room(options.output), notes=notes(found)), options.output)
    return 0
