"""``eks-inference engines``: lists the engine profiles of the catalog."""

import argparse

from eks_inference_tools.commands.filters import (
    add_accelerator,
    add_architecture,
    add_chip,
    add_family,
    add_texts,
    chosen,
    headed,
    room,
)
from eks_inference_tools.commands.named import add_catalog, extended, known
from eks_inference_tools.commands.options import add_document

HELP = "list engine profiles: vLLM, SDK, instance types, architectures, status"
EXAMPLES = (
    "engines",
    "engines --chip Trainium2 --architecture qwen3",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Lists the engine profiles of the catalog: releases, instance types, architectures, documented features, image and "
        "status. usable: nothing speaks against it; caveat: read it first; retired: no longer accepted."
    )
    add_texts(parser)
    add_accelerator(parser)
    add_chip(parser)
    add_family(parser)
    add_architecture(parser)
    parser.add_argument("--instance", metavar="TYPE", help="only profiles that support this instance type")
    parser.add_argument("--model", metavar="MODEL", help="only profiles that serve this model of the catalog")
    parser.add_argument("--status", choices=("usable", "caveat", "retired"), help="only profiles of this status")
    add_catalog(parser)
    add_document(parser, ("text", "json"))


def run(options: argparse.Namespace) -> int:
    from eks_inference.catalog.described import chip_lines, family_lines
    from eks_inference.catalog.engines import engines
    from eks_inference.catalog.instances import instance_type, instance_types
    from eks_inference.catalog.models import model, models
    from eks_inference_tools.listing.engines import COLUMNS, EngineFilter, details, document, listed, notes
    from eks_inference_tools.presentation.output import json_text, write

    extended(options.catalog)
    architectures = dict.fromkeys(name for one in engines().values() for name in one.architectures)
    wanted = EngineFilter(
        texts=tuple(options.texts),
        accelerator=options.accelerator or "",
        families=chosen(options.family, family_lines(), "--family"),
        chips=chosen(options.chip, chip_lines(), "--chip"),
        architectures=chosen(options.architecture, architectures, "--architecture"),
        instance=known(instance_type, options.instance, "--instance", instance_types()) if options.instance else None,
        model=known(model, options.model, "--model", models()) if options.model else None,
        status=options.status or "",
    )
    found = listed(wanted)
    if options.format == "json":
        write(json_text(document(found)), options.output)
        return 0
    from eks_inference_tools.listing.table import table

    head = headed(len(found.rows), found.of, "engine profile")
    text = table(head, COLUMNS, found.rows, width=room(options.output), below=details, notes=notes(found))
    write(text, options.output)
    return 0
