"""``eks-inference list``: lists models, engine profiles or instance types of the catalog."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from eks_inference_tools.commands.options import add_prices, own_prices
from eks_inference_tools.commands.wishes import (
    add_catalog,
    add_family,
    add_region,
    add_under,
    chosen,
    extended,
    known,
    known_region,
)
from stackgraph.commands.options import add_document, amount_of, number_of

if TYPE_CHECKING:
    from eks_inference_tools.listing.columns import Listing

HELP = "list models, engine profiles or instance types of the catalog"
EXAMPLES = (
    "list models qwen --max-parameters 40 --open",
    "list engines --chip Trainium2 --architecture qwen3",
    "list instances --accelerator neuron --region us-west-2 --sort price",
    "list instances --min-memory 80 --under 10",
)


def configure(parser: argparse.ArgumentParser) -> None:
    lists = parser.add_subparsers(title="lists", required=True, metavar="LIST", dest="list")
    models = lists.add_parser(
        "models",
        help="parameters, bytes, context, KV cache, and engines that serve them",
        description="Lists the models of the catalog: parameters, bytes as published, longest context, KV cache of a token, "
        "gated repositories, and engines that serve the architecture. `plan` says whether one fits an instance type.",
    )
    models.add_argument("--engine", metavar="PROFILE", help="only models that this engine profile serves")
    models.add_argument("--open", action="store_true", help="only models with a repository that needs no accepted licence")
    models.add_argument("--min-context", metavar="TOKENS", type=number_of("tokens"), help="only models with this context or more")
    models.add_argument(
        "--max-parameters", metavar="BILLIONS", type=amount_of("number of billions"), help="only models with at most this many"
    )
    models.add_argument(
        "--sort", choices=("catalog", "parameters", "context", "kv"), default="catalog", help="default: %(default)s"
    )
    engines = lists.add_parser(
        "engines",
        help="vLLM, SDK, instance types, architectures, status",
        description="Lists the engine profiles of the catalog: releases, instance types, architectures, documented features, "
        "image and status. usable: nothing speaks against it; caveat: read it first; retired: no longer accepted.",
    )
    engines.add_argument("--instance", metavar="TYPE", help="only profiles that support this instance type")
    engines.add_argument("--model", metavar="MODEL", help="only profiles that serve this model of the catalog")
    engines.add_argument("--status", choices=("usable", "caveat", "retired"), help="only profiles of this status")
    instances = lists.add_parser(
        "instances",
        help="devices, memory, EFA, price and zones in a region",
        description="Lists EC2 instance types with what the catalog knows: devices and their memory, vCPU, EFA, disks, price "
        "and zones of a region. With --region only types with a zone or a price there.",
    )
    instances.add_argument("--engine", metavar="PROFILE", help="only types that this engine profile supports")
    instances.add_argument(
        "--min-memory",
        metavar="GIB",
        type=number_of("GiB"),
        help="only types whose devices have this much memory in total",
    )
    instances.add_argument("--efa", action="store_true", help="only types with EFA interfaces")
    add_under(instances)
    instances.add_argument("--sort", choices=("family", "price", "memory"), default="family", help="default: %(default)s")
    add_region(instances)
    add_prices(instances)
    for each in (models, engines, instances):
        each.add_argument("texts", nargs="*", metavar="TEXT", help="only rows that contain each of these texts")
        kinds = ("neuron", "nvidia", *(["none"] if each is instances else []))
        each.add_argument("--accelerator", choices=kinds, help="only rows for this kind of device")
        add_catalog(each)
        add_document(each, ("text", "json"))
    words = "only rows for these model architectures, e.g. qwen3"
    for each in (models, engines):
        each.add_argument("--architecture", metavar="ARCHITECTURE", nargs="+", help=words)
    for each in (engines, instances):
        each.add_argument("--chip", metavar="CHIP", nargs="+", help="only rows for these devices, e.g. Trainium2 H100")
        add_family(each)


def run(options: argparse.Namespace) -> int:
    from stackgraph.presentation.output import drawing, json_text, write

    extended(options.catalog)
    listing = _listing(options)
    wanted = dict(_wanted(options, listing.filters))
    rows = listing.taken(options.texts, wanted, getattr(options, "sort", None))
    if options.format == "json":
        write(json_text(listing.document(options.list, rows)), options.output)
    else:
        write(listing.text(rows, **drawing(options.output)), options.output)
    return 0


def _listing(options: argparse.Namespace) -> "Listing[Any]":
    if options.list == "models":
        from eks_inference_tools.listing.model_list import models

        return models()
    if options.list == "engines":
        from eks_inference_tools.listing.engine_list import engines

        return engines()
    from eks_inference_tools.cost.price_book import PriceBook
    from eks_inference_tools.listing.instance_list import instances

    book = PriceBook((own_prices(options),))
    return instances(known_region(options.region), book, named=options.region is not None)


def _wanted(options: argparse.Namespace, filters: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yields what the options ask for, by the name of the filter, in rows and spellings of the catalog."""
    from eks_inference.catalog import described
    from eks_inference.catalog.engines import engine, engines
    from eks_inference.catalog.instances import instance_type, instance_types
    from eks_inference.catalog.models import model, models

    rows: Mapping[str, tuple[Callable[[str], Any], Callable[[], Iterable[str]]]] = {
        "engine": (engine, engines),
        "instance": (instance_type, instance_types),
        "model": (model, models),
    }
    names: Mapping[str, Callable[[], Iterable[str]]] = {
        "family": described.family_lines,
        "chip": described.chip_lines,
        "architecture": lambda: sorted(
            {*described.architecture_lines(), *(architecture for row in engines().values() for architecture in row.architectures)}
        ),
    }
    for name in filters:
        value = getattr(options, name)
        if value and name in rows:
            look_up, every = rows[name]
            yield name, known(look_up, value, f"--{name}", every())
        elif value:
            yield name, chosen(value, names[name](), f"--{name}") if name in names else value
