"""Options of commands that search for a place of a model, and what they wish for."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eks_inference_tools.commands.named import chosen, configured, known, known_region, named_model, refuse
from eks_inference_tools.commands.options import amount_of, number_of

if TYPE_CHECKING:
    from eks_inference.catalog.models import Model
    from eks_inference_tools.fitting.search import Wish

QUANTIZED = ("published", "fp8-kv", "fp8-weights", "fp8")
"""The names in ``fitting.trials.QUANTIZATIONS``, which ``--help`` does not load."""


_TOKENS, _SEQUENCES = number_of("tokens"), number_of("sequences")
_dollars = amount_of("price in USD an hour")


def add_wishes(parser: argparse._ActionsContainer) -> None:
    """Adds the options."""
    add_under(parser)
    parser.add_argument(
        "--context",
        metavar="TOKENS",
        type=_TOKENS,
        help="length of sequences, prompt and answer together (default: 8192, or the model's maximum)",
    )
    parser.add_argument(
        "--concurrency",
        metavar="N",
        type=_SEQUENCES,
        help="sequences of that length that one pod has to hold at once (default: 4)",
    )
    parser.add_argument(
        "--quantization",
        choices=QUANTIZED,
        nargs="+",
        metavar="HOW",
        help=f"what the engine quantizes at its start: {', '.join(QUANTIZED)} (default: published)",
    )
    add_family(parser)


def add_family(parser: argparse._ActionsContainer) -> None:
    """Adds ``options.family``."""
    parser.add_argument("--family", metavar="FAMILY", nargs="+", help="only types of these families, e.g. g6e inf2")


def add_under(parser: argparse._ActionsContainer) -> None:
    """Adds ``options.under``."""
    parser.add_argument("--under", metavar="USD_PER_HOUR", type=_dollars, help="only instance types that cost at most this")


def wish_of(options: argparse.Namespace, types: tuple[str, ...] = ()) -> "Wish":
    """Returns what the options ask for. Raises ``ProblemsFound`` for names and numbers that cannot be."""
    from eks_inference.catalog.engines import engine, engines
    from eks_inference.serving.usual import USUAL_CONCURRENCY, USUAL_CONTEXT
    from eks_inference_tools.fitting.search import Wish

    model, source = configured(options.config, options.model) if options.config else _of_catalog(options.model)
    context = min(USUAL_CONTEXT, model.max_positions) if options.context is None else options.context
    if context > model.max_positions:
        message = f"{model.name} was made for sequences of {model.max_positions} tokens"
        refuse(message, "--context", str(context), f"at most {model.max_positions}")
    if options.engine is not None:
        known(engine, options.engine, "--engine", engines())
    return Wish(
        source=source,
        model=model,
        region=known_region(options.region),
        context=context,
        concurrency=options.concurrency or USUAL_CONCURRENCY,
        quantized=tuple(options.quantization or ("published",)),
        families=_families(options.family),
        types=types,
        engine=options.engine,
        under=options.under,
    )


def _of_catalog(name: str | None) -> "tuple[Model, Mapping[str, Any]]":
    """A model with the key ``model`` of a server: the repository that was named, or else one that needs no token."""
    model = named_model(name)
    open_ones = [one for one in model.repositories if one not in model.gated]
    return model, {"id": name if name in model.repositories else (open_ones or model.repositories)[0]}


def _families(given: list[str] | None) -> tuple[str, ...]:
    from eks_inference.catalog.instances import instance_types

    there = dict.fromkeys(one.family for one in instance_types().values() if one.accelerator)
    named = chosen(given, there, "--family")
    return tuple(one for one in there if one in named)
