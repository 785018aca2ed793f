"""``eks-inference instances``: lists the EC2 instance types of the catalog, with prices and zones of a region."""

import argparse

from eks_inference_tools.commands.filters import (
    add_accelerator,
    add_chip,
    add_family,
    add_texts,
    chosen,
    headed,
    room,
)
from eks_inference_tools.commands.named import add_catalog, add_region, extended, known, known_region
from eks_inference_tools.commands.options import add_document, add_prices, number_of, own_prices
from eks_inference_tools.commands.wishes import add_under

HELP = "list instance types: devices, memory, EFA, price and zones in a region"
EXAMPLES = (
    "instances --accelerator neuron --region us-west-2 --sort price",
    "instances --min-memory 80 --under 10",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Lists EC2 instance types with what the catalog knows: devices and their memory, vCPU, EFA, disks, price and zones of a "
        "region. With --region only types with a zone or a price there."
    )
    add_texts(parser)
    add_accelerator(parser, "none")
    add_chip(parser)
    add_family(parser)
    parser.add_argument("--engine", metavar="PROFILE", help="only types that this engine profile supports")
    parser.add_argument(
        "--min-memory", metavar="GIB", type=number_of("GiB"), help="only types whose devices have so much together"
    )
    parser.add_argument("--efa", action="store_true", help="only types with EFA interfaces")
    add_under(parser)
    parser.add_argument("--sort", choices=("family", "price", "memory"), default="family", help="default: %(default)s")
    add_region(parser)
    add_prices(parser)
    add_catalog(parser)
    add_document(parser, ("text", "json"))


def run(options: argparse.Namespace) -> int:
    from eks_inference.catalog.described import chip_lines, family_lines
    from eks_inference.catalog.engines import engine, engines
    from eks_inference_tools.cost.price_book import PriceBook
    from eks_inference_tools.listing.instances import InstanceFilter, columns, document, instances, notes
    from eks_inference_tools.presentation.output import json_text, write

    extended(options.catalog)
    region = known_region(options.region)
    wanted = InstanceFilter(
        texts=tuple(options.texts),
        accelerator=options.accelerator or "",
        families=chosen(options.family, family_lines(), "--family"),
        chips=chosen(options.chip, chip_lines(), "--chip"),
        engine=known(engine, options.engine, "--engine", engines()) if options.engine else None,
        memory_gib=options.min_memory or 0,
        under=options.under,
        efa=options.efa,
        in_region=options.region is not None,
    )
    found = instances(region, wanted, PriceBook((own_prices(options),)), options.sort)
    if options.format == "json":
        write(json_text(document(found)), options.output)
        return 0
    from eks_inference_tools.listing.table import table

    head = f"{headed(len(found.rows), found.of, 'instance type')}; prices and zones of {region}"
    write(table(head, columns(region), found.rows, width=room(options.output), notes=notes(found)), options.output)
    return 0
