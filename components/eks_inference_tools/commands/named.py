"""Models, rows of the catalog and regions, as options of several commands name them. An error says what is allowed and near."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

if TYPE_CHECKING:
    from eks_inference.catalog.models import Model

Found = TypeVar("Found")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds ``options.model``, ``options.config`` and ``options.catalog``."""
    parser.add_argument("--model", metavar="NAME", help="a model of the catalog, or its Hugging Face repository")
    parser.add_argument("--config", metavar="FILE", help="the config.json of any model, instead of one of the catalog")
    parser.add_argument(
        "--catalog",
        metavar="FILE",
        action="append",
        default=[],
        help="a TOML file with your models, engines, instances",
    )


_REGION = "us-east-1"


def add_region(parser: argparse.ArgumentParser) -> None:
    """Adds ``options.region``; None where nobody named one."""
    parser.add_argument("--region", metavar="REGION", help=f"the region of prices and offers (default: {_REGION})")


def known_region(name: str | None) -> str:
    """Returns a region of the catalog, the default for None. Raises ``ProblemsFound`` for any other."""
    from eks_inference.catalog.zones import regions

    if name is not None and name not in regions():
        refuse("not a region of the catalog", "--region", name, ", ".join(sorted(regions())))
    return name or _REGION


def named_model(name: str | None) -> "Model":
    """Returns a model of the catalog. Raises ``ProblemsFound`` for a name that is missing or unknown."""
    from eks_inference.catalog.models import model, models

    if name is None:
        refuse("name a model", "--model", "", ", ".join(models()), "or give its config.json with --config")
    return known(model, name, "--model", models())


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
        refuse(f"this file cannot be read: {reason}", option, path, allowed)


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


def known(look_up: Callable[[str], Found], name: str, option: str, allowed: Iterable[str]) -> Found:
    try:
        return look_up(name)
    except KeyError as error:
        message, _, nearest = str(error.args[0]).partition("; ")
        refuse(message, option, name, ", ".join(allowed), nearest)


def refuse(message: str, option: str, given: str, allowed: str = "", hint: str = "") -> NoReturn:
    from stackgraph.problems import Problem, ProblemsFound

    raise ProblemsFound([Problem(message, key=option, given=given, allowed=allowed, hint=hint)])
