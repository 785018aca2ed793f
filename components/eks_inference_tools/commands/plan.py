"""``eks-inference plan``: shows how a model fits an instance type, as a table or JSON. A model that does not fit is no error."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eks_inference_tools.commands.options import add_prices, own_prices
from eks_inference_tools.commands.wishes import (
    TRAFFIC,
    accelerated,
    add_model,
    add_region,
    add_wishes,
    catalog_model,
    count_measured,
    extended,
    known,
    known_region,
    named,
    option_of,
    refuse,
    wish_of,
)
from stackgraph.commands.options import add_document, number_of

if TYPE_CHECKING:
    from eks_inference.catalog.models import Model
    from eks_inference.serving.feasibility import Feasibility
    from eks_inference_tools.cost.money import Offer
    from eks_inference_tools.cost.price_book import OwnPrices

HELP = "show where a model fits and what its tokens cost, cheapest first, or how it fits one instance type"
EXAMPLES = (
    "plan --model Qwen/Qwen3-8B --region us-west-2 --under 5",
    "plan --model Qwen/Qwen3-8B --rate 5 --input 1000 --output 250 --ttft 1 --itl 0.05",
    "plan --model Llama-2-13B --instance inf2.48xlarge",
    "plan --config ./config.json",
    "plan --model Qwen/Qwen3-4B --hub",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Shows where a model fits, by the same arithmetic as `check`. Without --instance, lists the instance types with an "
        "accelerator by the price of a million tokens. With --instance, shows how the model can be split there and which batches "
        "fit. With --rate, says how many replicas the traffic takes. Predicts speeds from published measurements "
        "(docs/speed.md), and sends no request to AWS."
    )
    add_model(parser)
    parser.add_argument("--instance", metavar="TYPE", help="an EC2 instance type with Neuron devices or GPUs")
    parser.add_argument("--engine", metavar="PROFILE", help="an engine profile (default: the newest that is supported)")
    parser.add_argument(
        "--max-model-len",
        metavar="TOKENS",
        type=number_of("tokens"),
        nargs="+",
        default=[],
        help="lengths of sequences, prompt and answer together (default: powers of two from 2048, and the model's maximum)",
    )
    add_region(parser)
    search = parser.add_argument_group("search", "without --instance")
    add_wishes(search)
    search.add_argument("--all", action="store_true", help="every way, not only the first of each instance type")
    search.add_argument("--explain", action="store_true", help="where the time of the first place goes, and the setting to try")
    add_prices(parser)
    add_document(parser, ("text", "json"), long="--write-to")


def run(options: argparse.Namespace) -> int:
    from stackgraph.presentation.output import write

    extended(options.catalog)
    count_measured(options)
    if options.instance is None:
        return _searched(options)
    _refuse_wishes(options)
    wanted = named(options)
    found = answer(wanted.model, options.instance, options.engine, options.max_model_len)
    offer, told = _offer(found, options.region, own_prices(options)), _told(found, wanted.source)
    if options.format == "json":
        from eks_inference_tools.fitting.splits import document
        from stackgraph.presentation.output import json_text

        write(json_text(document(found, offer, told)), options.output)
    else:
        from eks_inference_tools.fitting.one_type import render_text
        from stackgraph.presentation.output import drawing

        write(render_text(found, offer, told, **drawing(options.output)), options.output)
    return 0


def _searched(options: argparse.Namespace) -> int:
    """Lists the places of a model."""
    from eks_inference_tools.cost.price_book import PriceBook
    from eks_inference_tools.fitting.search import quantized_for_less, search
    from stackgraph.presentation.output import drawing, json_text, write

    if options.max_model_len:
        refuse("goes with --instance", "--max-model-len", "", hint="--context TOKENS is the length that the search looks for")
    book = PriceBook((own_prices(options),))
    found = search(wish_of(options, named(options)), book)
    saving = None if options.quantization else quantized_for_less(found, found.rows[0] if found.rows else None, book)
    if options.format == "json":
        from eks_inference_tools.fitting.document import document

        write(json_text(document(found, saving, options.explain)), options.output)
    else:
        from eks_inference_tools.fitting.text import render_text

        write(render_text(found, options.all, saving, options.explain, **drawing(options.output)), options.output)
    return 0


def _refuse_wishes(options: argparse.Namespace) -> None:
    for name in ("under", "context", "concurrency", "quantization", "family", "all", "explain", "measured", "rate", *TRAFFIC):
        if getattr(options, name) not in (None, False):
            refuse("belongs to the search, which --instance leaves out", option_of(name), "", hint="leave out one of them")


def _offer(found: "Feasibility", region: str | None, prices: "OwnPrices") -> "Offer":
    """What the instance type costs in a region. Raises ``ProblemsFound`` for a region that the catalog does not know."""
    from eks_inference_tools.cost.money import offer
    from eks_inference_tools.cost.price_book import PriceBook

    return offer(found.instance, known_region(region), PriceBook((prices,)))


def _told(found: "Feasibility", source: Mapping[str, Any]) -> list[str]:
    """What rules refuse or cannot judge of a pod of the widest split that is possible, beside the memory in the table."""
    from eks_inference_tools.fitting.trials import Trial

    possible = [split for split in found.splits if split.fits]
    if not possible:
        return []
    split = possible[-1]
    context = min(fit.max_model_len for fit in split.fits)
    trial = Trial(source, found.model, found.engine, found.instance, context, 1, tensor_parallel=split.tensor_parallel)
    findings = trial.findings() if trial.server else ()
    stops = ((rule, one) for rule, one in findings if one.unjudged or (one.severity or rule.severity) == "error")
    return [f"{rule.id}: {one.working[-1] if one.unjudged else one.message}" for rule, one in stops]


def answer(
    model_name: "str | Model | None", instance_name: str, engine_name: str | None = None, lengths: Sequence[int] = ()
) -> "Feasibility":
    """Works out what fits, from names as a user gives them. Raises ``ProblemsFound`` for names that cannot be used.

    A model of another source than the catalog is given as it is.
    """
    from eks_inference.catalog.engines import engine
    from eks_inference.catalog.instances import instance_types
    from eks_inference.catalog.models import Model
    from eks_inference.serving.choosing import engines_for, why_none
    from eks_inference.serving.feasibility import feasibility

    wanted = model_name if isinstance(model_name, Model) else catalog_model(model_name)
    instance = accelerated(instance_name)
    choices = engines_for(instance, wanted, named=engine_name)
    allowed = ", ".join(choice.name for choice in choices) or "no profile of the catalog"
    if engine_name is None:
        if not choices:
            message = f"{wanted.name}: {why_none(instance, wanted)}"
            families = dict.fromkeys(one.family for one in instance_types().values() if engines_for(one, wanted))
            refuse(message, "--instance", instance_name, f"types of {', '.join(families)}")
        chosen = choices[0]
    else:
        chosen = known(engine, engine_name, "--engine", [choice.name for choice in choices])
        if chosen not in choices:
            reason = f": {chosen.retired}" if chosen.retired else ""
            refuse(f"engine {chosen.name} is not for {wanted.name} on {instance.name}{reason}", "--engine", chosen.name, allowed)
    if lengths and max(lengths) > wanted.max_positions:
        message = f"{wanted.name} was made for sequences of {wanted.max_positions} tokens"
        refuse(message, "--max-model-len", str(max(lengths)), f"at most {wanted.max_positions}")
    return feasibility(wanted, instance, chosen, lengths)
