"""Options of commands that search for a place of a model, and what they wish for."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eks_inference_tools.commands.named import configured, known, known_region, named_model, refuse
from eks_inference_tools.commands.options import number_of

if TYPE_CHECKING:
    from eks_inference.catalog.models import Model
    from eks_inference_tools.fitting.search import Wish

QUANTIZED = ("published", "fp8-kv", "fp8-weights", "fp8")
"""The names in ``fitting.trials.QUANTIZATIONS``, which ``--help`` does not load."""


_TOKENS, _SEQUENCES = number_of("tokens"), number_of("sequences")


def add_wishes(parser: argparse._ActionsContainer) -> None:
    """Adds the options."""
    parser.add_argument("--under", metavar="USD_PER_HOUR", type=_dollars, help="only instance types that cost at most this")
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
        help=f"what the engine quantizes at its start: {', '.join(QUANTIZED)} (default: plan tries all, new published)",
    )
    parser.add_argument("--family", metavar="FAMILY", nargs="+", help="only types of these families, e.g. g6e inf2")


def wish_of(options: argparse.Namespace, types: tuple[str, ...] = (), quantized: tuple[str, ...] = QUANTIZED) -> "Wish":
    """Returns what the options ask for. Raises ``ProblemsFound`` for names and numbers that cannot be."""
    from eks_inference.catalog.engines import engine, engines
    from eks_inference_tools.fitting.search import USUAL_CONCURRENCY, USUAL_CONTEXT, Wish

    model = configured(options.config, options.model) if options.config else named_model(options.model)
    context = min(USUAL_CONTEXT, model.max_positions) if options.context is None else options.context
    if context > model.max_positions:
        message = f"{model.name} was made for sequences of {model.max_positions} tokens"
        refuse(message, "--context", str(context), f"at most {model.max_positions}")
    if options.engine is not None:
        known(engine, options.engine, "--engine", engines())
    return Wish(
        source=source_of(model, options.model, options.config),
        model=model,
        region=known_region(options.region),
        context=context,
        concurrency=options.concurrency or USUAL_CONCURRENCY,
        quantized=tuple(options.quantization or quantized),
        families=_families(options.family or ()),
        types=types,
        engine=options.engine,
        under=options.under,
    )


def source_of(model: "Model", name: str | None, config: str | None) -> Mapping[str, Any]:
    """Returns the key ``model`` of a server: the repository that was named, or else one that needs no token."""
    if config:
        from eks_inference.catalog.config_json import parse, shape_keys

        with open(config, "rb") as file:
            shape = shape_keys(parse(file.read()))
        return {"id": name if name and name.count("/") == 1 else f"local/{_plain(model.name)}", "shape": shape}
    open_ones = [one for one in model.repositories if one not in model.gated]
    return {"id": name if name in model.repositories else (open_ones or model.repositories)[0]}


def _plain(name: str) -> str:
    return "".join(one if one.isalnum() or one in "-_." else "-" for one in name)


def _families(given: "list[str] | tuple[()]") -> tuple[str, ...]:
    from eks_inference.catalog.instances import instance_types

    there = list(dict.fromkeys(one.family for one in instance_types().values() if one.accelerator))
    for family in given:
        if family not in there:
            refuse("no family of the catalog with an accelerator", "--family", family, ", ".join(there))
    return tuple(given)


def _dollars(given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{given}' is no price in USD an hour")
    return value
