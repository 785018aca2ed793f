"""Options that name models, rows of the catalog and regions, and those of commands that search for a place of a model."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from stackgraph.commands.options import amount_of, number_of

if TYPE_CHECKING:
    from eks_inference.catalog.instances import InstanceType
    from eks_inference.catalog.models import Model
    from eks_inference_tools.fitting.pace import Traffic
    from eks_inference_tools.fitting.search import Wish

Found = TypeVar("Found")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds the options that ``named`` reads, and ``options.catalog``."""
    parser.add_argument("--model", metavar="MODEL", help="a model of the catalog, or a Hugging Face repository")
    parser.add_argument("--config", metavar="FILE", help="config.json of any model, in place of a catalog model")
    parser.add_argument(
        "--hub",
        action="store_true",
        help="read the model's config.json from the Hugging Face Hub (HF_ENDPOINT, HF_TOKEN), and keep to its commit",
    )
    parser.add_argument("--revision", metavar="REV", help="with --hub, the branch, tag or commit (default: main)")
    add_catalog(parser)


def add_catalog(parser: argparse.ArgumentParser) -> None:
    """Adds ``options.catalog``, the files of ``extended``."""
    parser.add_argument(
        "--catalog",
        metavar="FILE",
        action="append",
        default=[],
        help="a TOML file with your models, engines, instances",
    )


_REGION = "us-east-1"
_A_ROW = "a row of `eks-inference list models`"


def add_region(parser: argparse.ArgumentParser) -> None:
    """Adds ``options.region``; None where nobody named one."""
    parser.add_argument("--region", metavar="REGION", help=f"the region of prices and offers (default: {_REGION})")


def known_region(name: str | None) -> str:
    """Returns a region of the catalog, the default for None. Raises ``ProblemsFound`` for any other."""
    from eks_inference.catalog.zones import regions

    if name is not None and name not in regions():
        refuse("not a region of the catalog", "--region", name, ", ".join(sorted(regions())))
    return name or _REGION


def catalog_model(name: str | None) -> "Model":
    """Returns a model of the catalog. Raises ``ProblemsFound`` for a name that is missing or unknown."""
    from eks_inference.catalog.models import config_at, model, quantized_from

    if name is None:
        refuse("name a model", "--model", "", _A_ROW, "a repository with --hub, or its config.json with --config")
    plain = quantized_from(name)
    ways = f"{plain}, whose quantization it is by its name; that takes more memory; " if plain else ""
    ways += (
        f"--hub reads its config.json; download {config_at(name)} for --config; or write a row of your own for --catalog"
        if name.count("/") == 1
        else "a repository as owner/name with --hub; its config.json with --config; a row of your own with --catalog"
    )
    return known(model, name, "--model", [_A_ROW], ways)


@dataclass(frozen=True)
class Named:
    """A model that options name."""

    model: "Model"
    source: Mapping[str, Any]
    """The key ``model`` of a server."""
    of_hub: bytes | None = None
    """Its config.json, if it was read from the Hub."""


def named(options: argparse.Namespace) -> Named:
    """Returns the model. Raises ``ProblemsFound`` for options that name none."""
    if options.revision and not options.hub:
        refuse("goes with --hub", "--revision", options.revision)
    if options.hub and options.config:
        refuse("the Hub has a config.json of its own", "--hub", "", hint="leave out --hub or --config")
    if options.hub:
        return _of_hub(options.model or "", options.revision or "main")
    return Named(*(configured(options.config, options.model) if options.config else _of_catalog(options.model)))


def _of_hub(repository: str, revision: str) -> Named:
    from eks_inference.catalog.models import config_at
    from eks_inference.faults import SpecError
    from eks_inference.serving.spec import HubModel
    from eks_inference_tools import hub

    try:
        HubModel.model_validate({"id": repository, "revision": revision})
    except SpecError as error:
        fault = error.faults[0]
        refuse(fault.message, f"--{fault.path[-1]}".replace("--id", "--model"), fault.given, fault.allowed, fault.hint)
    found = hub.described(repository, revision)
    model, shape = _read(found.config, repository, config_at(repository, found.commit))
    if found.weight_bytes and not _as_large(model, found.weight_bytes):
        sizes = (
            f"{found.weight_bytes / 2**30:.1f} GiB; by the formula of {model.architecture} {model.weight_bytes() / 2**30:.1f} GiB"
        )
        hint = "write a row with counted_parameters (docs/models.md)"
        refuse("the weights of the repository are not as large as its config.json says", "--model", sizes, hint=hint)
    if found.embeds and model.task == "chat":
        model = replace(model, task="embed")
    return Named(model, {"id": repository, "revision": found.commit, "shape": shape}, found.config)


def extended(files: Sequence[str]) -> None:
    """Adds rows of a team to the catalog. Raises ``ProblemsFound`` with every fault."""
    from eks_inference.catalog.own import LARGEST, count
    from eks_inference.faults import SpecError
    from stackgraph.problems import Problem, ProblemsFound

    try:
        count({file: _content(file, LARGEST, "--catalog", "a TOML file") for file in files})
    except SpecError as error:
        raise ProblemsFound([Problem.of(fault, key="--catalog") for fault in error.faults]) from None


def _content(path: str, limit: int, option: str, allowed: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no path"
        refuse(f"this file cannot be read: {reason}", option, path, allowed)


def configured(path: str, name: str | None = None) -> "tuple[Model, Mapping[str, Any]]":
    """Returns the model of a config.json, and the key ``model`` of a server with it.

    Raises ``ProblemsFound`` for a file that is none, an architecture without formula, or a name that no repository has. ``name``
    is what the model is called; default: the file's folder, or the file. The file is read once: it may be a pipe.
    """
    from eks_inference.catalog.config_json import LONGEST
    from eks_inference.faults import SpecError
    from eks_inference.serving.spec import HubModel

    written = _content(path, LONGEST, "--config", "the config.json of a model")
    place = Path(path)
    called = name or (place.resolve().parent.name if place.stem == "config" else place.stem) or path
    model, shape = _read(written, called, path)
    source = {"id": name if name and "/" in name else f"local/{name or _plain(called)}", "shape": shape}
    try:
        HubModel.model_validate(source)
    except SpecError:
        allowed = "owner/name, like a repository: letters, digits and -_."
        refuse("the model of --config needs a name", "--model", source["id"], allowed)
    return model, source


def _read(written: bytes, called: str, place: str) -> "tuple[Model, Mapping[str, Any]]":
    """The model of a config.json, and the keys that describe it."""
    from eks_inference.catalog.config_json import model_of_config, parse, shape_keys
    from eks_inference.faults import SpecError, format_path
    from stackgraph.problems import Problem, ProblemsFound

    try:
        config = parse(written)
        return model_of_config(called, config, place), shape_keys(config)
    except SpecError as error:
        raise ProblemsFound([Problem.of(fault, place, key=format_path(fault.path)) for fault in error.faults]) from None


def _as_large(model: "Model", size: int) -> bool:
    """Whether the weights of a repository have the size that the formula has. Parts that no formula counts make them larger."""
    from eks_inference.catalog.architectures import architectures

    if model.architecture not in architectures():
        return True  # no engine serves it, which is told
    counted = model.weight_bytes()
    # A checkpoint in float32 is loaded with half its size; layers for speculation add some percent.
    return counted * 0.95 <= size and (bool(model.uncounted) or size <= counted * 1.05 or 1.95 <= size / counted <= 2.05)


def _plain(name: str) -> str:
    return "".join(one if one.isalnum() or one in "-_." else "-" for one in name)


def accelerated(name: str) -> "InstanceType":
    """Returns an instance type with accelerators. Raises ``ProblemsFound`` for any other name."""
    from eks_inference.catalog.instances import instance_type, instance_types

    found = known(instance_type, name, "--instance", ())
    if found.accelerator is None:
        families = dict.fromkeys(instance_type.family for instance_type in instance_types().values() if instance_type.accelerator)
        refuse(f"{name} has no accelerator", "--instance", name, f"types of {', '.join(families)}")
    return found


def known(look_up: Callable[[str], Found], name: str, option: str, allowed: Iterable[str], otherwise: str = "") -> Found:
    try:
        return look_up(name)
    except KeyError as error:
        message, _, nearest = str(error.args[0]).partition("; ")
        refuse(message, option, name, ", ".join(allowed), ", or ".join(filter(None, (nearest, otherwise))))


def chosen(given: Iterable[str] | None, allowed: Iterable[str], option: str) -> frozenset[str]:
    """Returns the names that were given, in the spelling of the catalog. Raises ``ProblemsFound`` for one that is not allowed."""
    spellings = {one.casefold(): one for one in allowed}
    for one in given or ():
        if one.casefold() not in spellings:
            refuse("no row of the catalog has this", option, one, ", ".join(spellings.values()))
    return frozenset(spellings[one.casefold()] for one in given or ())


def refuse(message: str, option: str, given: str, allowed: str = "", hint: str = "") -> NoReturn:
    from eks_inference.faults import did_you_mean
    from stackgraph.problems import Problem, ProblemsFound

    hint = hint or did_you_mean(given, allowed.split(", "))
    raise ProblemsFound([Problem(message, key=option, given=given, allowed=allowed, hint=hint)])


QUANTIZED = ("published", "fp8-kv", "fp8-weights", "fp8")
"""The names in ``fitting.trials.QUANTIZATIONS``, which ``--help`` does not load."""

_TOKENS, _SEQUENCES = number_of("tokens"), number_of("sequences")
_dollars, _rate = map(amount_of, ("price in USD an hour", "rate in requests a second"))
_TTFT_BELOW, _ITL_BELOW = 2560, 80
"""Seconds that ``observability.spec.Objectives`` allows, which ``--help`` does not load."""
_first, _between = (amount_of("time in seconds", most) for most in (_TTFT_BELOW, _ITL_BELOW))


def add_wishes(parser: argparse._ActionsContainer) -> None:
    """Adds the options."""
    add_under(parser)
    add_traffic(parser)
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
        help="sequences of that length that one pod must hold at once (default: 4)",
    )
    parser.add_argument(
        "--quantization",
        choices=QUANTIZED,
        nargs="+",
        metavar="HOW",
        help=f"what the engine quantizes at its start: {', '.join(QUANTIZED)} (default: published)",
    )
    add_family(parser)
    add_measured(parser)


def add_family(parser: argparse._ActionsContainer) -> None:
    """Adds ``options.family``."""
    parser.add_argument("--family", metavar="FAMILY", nargs="+", help="only types of these families, e.g. g6e inf2")


def add_under(parser: argparse._ActionsContainer) -> None:
    """Adds ``options.under``."""
    parser.add_argument("--under", metavar="USD_PER_HOUR", type=_dollars, help="only instance types that cost at most this")


def wish_of(options: argparse.Namespace, wanted: Named, types: tuple[str, ...] = ()) -> "Wish":
    """Returns what the options ask for. Raises ``ProblemsFound`` for names and numbers that cannot be."""
    from eks_inference.catalog.engines import engine, engines
    from eks_inference.serving.choosing import USUAL_CONCURRENCY, USUAL_CONTEXT
    from eks_inference_tools.fitting.search import Wish

    model = wanted.model
    traffic = traffic_of(options)
    usual = max(USUAL_CONTEXT, traffic.input + traffic.output) if traffic else USUAL_CONTEXT
    context = min(usual, model.max_positions) if options.context is None else options.context
    asked = traffic.input + traffic.output if traffic else 0
    for option, length in (("--context", context), ("--input and --output", asked)):
        if length > model.max_positions:
            message = f"{model.name} was made for sequences of {model.max_positions} tokens"
            refuse(message, option, str(length), f"at most {model.max_positions}")
    if context < asked:
        refuse("shorter than a prompt and its answer", "--context", str(context), f"at least {asked}")
    if options.engine is not None:
        known(engine, options.engine, "--engine", engines())
    return Wish(
        source=wanted.source,
        model=model,
        region=known_region(options.region),
        context=context,
        concurrency=options.concurrency or (1 if traffic else USUAL_CONCURRENCY),
        quantized=tuple(options.quantization or ("published",)),
        families=_families(options.family),
        types=types,
        traffic=traffic,
        engine=options.engine,
        under=options.under,
    )


TRAFFIC = {"input": "input", "answer": "output", "ttft": "first_token_s", "itl": "token_s", "spare": "spare"}
"""Options beside ``--rate``, ``--output`` as ``answer`` → the fields of ``fitting.pace.Traffic``."""


def option_of(name: str) -> str:
    """Returns the option that is kept by this name: `plan` has written to ``options.output`` longer."""
    return "--output" if name == "answer" else f"--{name}"


_MOST_SPARE = 99


def _spare(given: str) -> int:
    if not given.isdecimal() or int(given) > _MOST_SPARE:
        raise argparse.ArgumentTypeError(f"not a number of replicas from 0 to {_MOST_SPARE}: {given}")
    return int(given)


def add_measured(parser: argparse._ActionsContainer) -> None:
    """Adds ``options.measured``."""
    help_ = "results of your load tests, or a bundle of first-flight: predictions follow them before published measurements"
    parser.add_argument("--measured", metavar="FILE", type=Path, nargs="+", help=help_)


def count_measured(options: argparse.Namespace) -> None:
    """Makes the measurements count. Raises ``ProblemsFound`` for a file with none."""
    if options.measured:
        from eks_inference_tools.flight.measured import count_files

        count_files(options.measured)


def add_traffic(parser: argparse._ActionsContainer) -> None:
    """Adds the options that say what clients ask and are to get."""
    parser.add_argument("--rate", metavar="REQUESTS", type=_rate, help="requests a second that are to be served")
    parser.add_argument("--input", metavar="TOKENS", type=_TOKENS, help="tokens of a prompt (default: 1000)")
    parser.add_argument("--output", metavar="TOKENS", type=_TOKENS, dest="answer", help="tokens of an answer (default: 250)")
    parser.add_argument("--ttft", metavar="SECONDS", type=_first, help="longest time to the first token, of 95 of 100 requests")
    parser.add_argument("--itl", metavar="SECONDS", type=_between, help="longest time between tokens, of 95 of 100")
    parser.add_argument(
        "--spare", metavar="REPLICAS", type=_spare, help=f"replicas that may be lost, at most {_MOST_SPARE} (default: 1)"
    )


def traffic_of(options: argparse.Namespace) -> "Traffic | None":
    """Returns the traffic that the options say. Raises ``ProblemsFound`` for a part of one without a rate."""
    from eks_inference_tools.fitting.pace import Traffic

    given = {name: getattr(options, name) for name in TRAFFIC if getattr(options, name) is not None}
    if options.rate is None:
        for name, value in given.items():
            refuse("goes with --rate", option_of(name), str(value), hint="give --rate, the requests a second")
        return None
    return Traffic(options.rate, **{TRAFFIC[name]: value for name, value in given.items()})


def _of_catalog(name: str | None) -> "tuple[Model, Mapping[str, Any]]":
    """A model with the key ``model`` of a server: the repository that was named, or else one that needs no token."""
    model = catalog_model(name)
    open_ones = [repository for repository in model.repositories if repository not in model.gated]
    return model, {"id": name if name in model.repositories else (open_ones or model.repositories)[0]}


def _families(given: list[str] | None) -> tuple[str, ...]:
    from eks_inference.catalog.instances import instance_types

    there = dict.fromkeys(instance_type.family for instance_type in instance_types().values() if instance_type.accelerator)
    named = chosen(given, there, "--family")
    return tuple(one for one in there if one in named)
