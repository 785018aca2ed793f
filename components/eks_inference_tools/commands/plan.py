"""``eks-inference plan``: shows how a model fits an instance type, as a table or JSON. A model that does not fit is no error."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from eks_inference_tools.commands.options import add_document, add_prices, number_of, own_prices

if TYPE_CHECKING:
    from eks_inference.catalog.models import Model
    from eks_inference.serving.feasibility import Feasibility, Split
    from eks_inference_tools.cost.offers import Offer
    from eks_inference_tools.cost.price_book import OwnPrices

HELP = "show how a model fits an instance type: splits, batches, lengths"
Found = TypeVar("Found")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Shows how a model can be split over the devices of an instance type, and which batches fit at which length, by the "
        "arithmetic of the rules of `check`. It measures nothing and sends no request to AWS."
    )
    parser.add_argument("--model", metavar="NAME", help="a model of the catalog, or its Hugging Face repository")
    parser.add_argument("--config", metavar="FILE", help="the config.json of any model, instead of one of the catalog")
    parser.add_argument(
        "--catalog",
        metavar="FILE",
        action="append",
        default=[],
        help="a TOML file with your models, engines, instances",
    )
    parser.add_argument("--instance", required=True, metavar="TYPE", help="an EC2 instance type with Neuron devices or GPUs")
    parser.add_argument("--engine", metavar="PROFILE", help="an engine profile (default: the newest without a caveat)")
    parser.add_argument(
        "--max-model-len",
        metavar="TOKENS",
        type=number_of("tokens"),
        nargs="+",
        default=[],
        help="lengths of sequences, prompt and answer together (default: powers of two from 2048, and the model's maximum)",
    )
    parser.add_argument("--region", metavar="REGION", default="us-east-1", help="the region of the price (default: %(default)s)")
    add_prices(parser)
    add_document(parser, ("text", "json"))


def run(options: argparse.Namespace) -> int:
    from eks_inference_tools.presentation.output import write

    extended(options.catalog)
    model = configured(options.config, options.model) if options.config else options.model
    found = answer(model, options.instance, options.engine, options.max_model_len)
    offer = _offer(found, options.region, own_prices(options))
    if options.format == "json":
        write(as_json(found, offer), options.output)
    else:
        from eks_inference_tools.presentation.feasibility import render_text

        write(render_text(found, offer), options.output)
    return 0


def extended(files: Sequence[str]) -> None:
    """Adds rows of a team to the catalog. Raises ``ProblemsFound`` with every fault."""
    from eks_inference.catalog.own import LARGEST, rows_of
    from eks_inference.catalog.tables import use
    from eks_inference.faults import SpecError
    from stackgraph.problems import Problem, ProblemsFound

    try:
        use(rows_of({file: _content(file, LARGEST, "--catalog", "a TOML file") for file in files}), of_stack=True)
    except SpecError as error:
        told = [Problem(one.message, key="--catalog", given=one.given, allowed=one.allowed) for one in error.faults]
        raise ProblemsFound(told) from None


def _content(path: str, limit: int, option: str, allowed: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no path"
        _refuse(f"this file cannot be read: {reason}", option, path, allowed)


def configured(path: str, name: str | None = None) -> "Model":
    """Returns the model of a config.json. Raises ``ProblemsFound`` for a file that is none, or an architecture without formula.

    ``name`` is what the model is called; default: the file's folder, or the file.
    """
    from eks_inference.catalog.config_json import LONGEST, model_of_config, parse
    from eks_inference.faults import SpecError, format_path
    from stackgraph.problems import Problem, ProblemsFound

    written = _content(path, LONGEST, "--config", "the config.json of a model")
    place = Path(path)
    called = name or (place.resolve().parent.name if place.stem == "config" else place.stem) or path
    try:
        return model_of_config(called, parse(written), path)
    except SpecError as error:
        told = [
            Problem(one.message, path, key=format_path(one.path), given=one.given, allowed=one.allowed, hint=one.hint)
            for one in error.faults
        ]
        raise ProblemsFound(told) from None


def _offer(found: "Feasibility", region: str, prices: "OwnPrices") -> "Offer":
    """What the instance type costs in a region. Raises ``ProblemsFound`` for a region that the catalog does not know."""
    from eks_inference.catalog.zones import regions
    from eks_inference_tools.cost.offers import offer
    from eks_inference_tools.cost.price_book import PriceBook

    if region not in regions():
        _refuse("not a region of the catalog", "--region", region, ", ".join(sorted(regions())))
    return offer(found.instance, region, PriceBook((prices,)))


def answer(
    model_name: "str | Model | None", instance_name: str, engine_name: str | None = None, lengths: Sequence[int] = ()
) -> "Feasibility":
    """Works out what fits, from names as a user gives them. Raises ``ProblemsFound`` for names that cannot be used.

    A model of another source than the catalog is given as it is.
    """
    from eks_inference.catalog.engines import engine
    from eks_inference.catalog.instances import instance_type, instance_types
    from eks_inference.catalog.models import Model, model, models
    from eks_inference.serving.feasibility import engines_for, feasibility

    if model_name is None:
        _refuse("name a model", "--model", "", ", ".join(models()), "or give its config.json with --config")
    wanted = model_name if isinstance(model_name, Model) else _known(model, model_name, "--model", models())
    instance = _known(instance_type, instance_name, "--instance", ())
    if instance.accelerator is None:
        families = dict.fromkeys(one.family for one in instance_types().values() if one.accelerator)
        _refuse(f"{instance.name} has no accelerator", "--instance", instance_name, f"types of {', '.join(families)}")
    choices = engines_for(instance, wanted)
    allowed = ", ".join(one.name for one in choices) or "no profile of the catalog"
    if engine_name is None:
        if not choices:
            message = f"no engine serves {wanted.name} (architecture {wanted.architecture}) on {instance.family}"
            families = dict.fromkeys(one.family for one in instance_types().values() if engines_for(one, wanted))
            _refuse(message, "--instance", instance_name, f"types of {', '.join(families)}")
        chosen = choices[0]
    else:
        chosen = _known(engine, engine_name, "--engine", [one.name for one in choices])
        if chosen not in choices:
            reason = f": {chosen.retired}" if chosen.retired else ""
            _refuse(f"engine {chosen.name} is not for {wanted.name} on {instance.name}{reason}", "--engine", chosen.name, allowed)
    if lengths and max(lengths) > wanted.max_positions:
        message = f"{wanted.name} was made for sequences of {wanted.max_positions} tokens"
        _refuse(message, "--max-model-len", str(max(lengths)), f"at most {wanted.max_positions}")
    return feasibility(wanted, instance, chosen, lengths)


def _known(look_up: Callable[[str], Found], name: str, option: str, allowed: Iterable[str]) -> Found:
    try:
        return look_up(name)
    except KeyError as error:
        message, _, nearest = str(error.args[0]).partition("; ")
        _refuse(message, option, name, ", ".join(allowed), nearest)


def _refuse(message: str, option: str, given: str, allowed: str, hint: str = "") -> NoReturn:
    from stackgraph.problems import Problem, ProblemsFound

    raise ProblemsFound([Problem(message, key=option, given=given, allowed=allowed, hint=hint)])


def as_json(found: "Feasibility", offer: "Offer") -> str:
    """Everything in the table and more, as JSON. Sizes are in bytes."""
    from eks_inference_tools.presentation.output import json_text

    model, instance, engine = found.model, found.instance, found.engine
    return json_text(
        {
            "model": {
                "name": model.name,
                "architecture": model.architecture,
                "dtype": model.dtype,
                "parameters": model.parameters,
                "weight_bytes": model.weight_bytes(),
                "kv_bytes_per_token": model.kv_bytes_per_token(),
                "heads": model.heads,
                "kv_heads": model.kv_heads,
                "quantization": model.quantization.method if model.quantization else None,
                "window": model.window or None,
                "window_layers": model.window_layers,
                "not_counted": list(model.uncounted),
                "max_positions": model.max_positions,
            },
            "instance": {
                "name": instance.name,
                "accelerator": instance.accelerator,
                "devices": instance.devices,
                "cores_per_device": instance.cores_per_device,
                "device_memory_gib": instance.device_memory_gib,
            },
            "engine": {
                "name": engine.name,
                "vllm": engine.vllm,
                "sdk": engine.sdk,
                "image": engine.image,
                "caveat": engine.caveat,
                "kv_cache": engine.generation.kv_cache,
            },
            "region": offer.region,
            "usd_per_hour": offer.price.usd if offer.price else None,
            "price_source": offer.source,
            "quota": offer.quota.title if offer.quota else None,
            "splits": [_split(split, offer) for split in found.splits],
        }
    )


def _split(split: "Split", offer: "Offer") -> dict[str, Any]:
    head = {"tensor_parallel": split.tensor_parallel, "kv_repeats": split.kv_repeats}
    if split.refusal:
        return head | {"refusal": split.refusal}
    return head | {
        "devices": split.devices,
        "idle_cores": split.idle_cores,
        "pods_per_node": split.pods,
        "usd_per_hour_and_pod": offer.per_pod(split.pods),
        "idle_devices_per_node": split.idle_devices,
        "neuron_scheduler": split.scheduler,
        "caution": split.caution,
        "fits": [
            {
                "max_model_len": fit.max_model_len,
                "advised_sequences": fit.advised.sequences,
                "most_sequences": fit.most.sequences,
                "weight_bytes": fit.most.weights,
                "kv_bytes_advised": fit.advised.kv,
                "kv_bytes_most": fit.most.kv,
                "usable_bytes": fit.most.capacity,
            }
            for fit in split.fits
        ],
    }
