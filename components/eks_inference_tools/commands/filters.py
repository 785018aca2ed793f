"""Filters of the commands that list rows of the catalog. A value that no row has is an error with the nearest that one has."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from eks_inference_tools.commands.named import refuse

if TYPE_CHECKING:
    from pathlib import Path

ACCELERATORS = ("neuron", "nvidia")


def add_texts(parser: argparse.ArgumentParser) -> None:
    """Adds ``options.texts``."""
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="only rows that have each of these texts somewhere")


def add_family(parser: argparse._ActionsContainer) -> None:
    """Adds ``options.family``."""
    parser.add_argument("--family", metavar="FAMILY", nargs="+", help="only types of these families, e.g. g6e inf2")


def add_accelerator(parser: argparse.ArgumentParser, *more: str) -> None:
    """Adds ``options.accelerator``; ``more`` are further choices."""
    parser.add_argument("--accelerator", choices=(*ACCELERATORS, *more), help="only what is for this kind of device")


def add_chip(parser: argparse.ArgumentParser) -> None:
    """Adds ``options.chip``."""
    parser.add_argument("--chip", metavar="CHIP", nargs="+", help="only what is for these devices, e.g. Trainium2 H100")


def add_architecture(parser: argparse.ArgumentParser) -> None:
    """Adds ``options.architecture``."""
    parser.add_argument(
        "--architecture", metavar="ARCHITECTURE", nargs="+", help="only what is for these architectures of models, e.g. qwen3"
    )


def chosen(given: Iterable[str] | None, allowed: Iterable[str], option: str) -> frozenset[str]:
    """Returns the names that were given, in the spelling of the catalog. Raises ``ProblemsFound`` for one that is not allowed."""
    from eks_inference.catalog.tables import nearest

    spellings = {one.casefold(): one for one in allowed}
    for one in given or ():
        if one.casefold() not in spellings:
            like = nearest(one, spellings.values())
            hint = f"nearest: {', '.join(like)}" if like else ""
            refuse("no row of the catalog has this", option, one, ", ".join(spellings.values()), hint)
    return frozenset(spellings[one.casefold()] for one in given or ())


def room(output: "Path | None") -> int:
    """The columns that a list may have: those of a terminal, otherwise any number, so that each row is one line for a pipe."""
    import sys

    from eks_inference_tools.presentation.output import width
    from stackgraph.presentation.terminal import UNBOUND

    return width(output) if output is None and sys.stdout.isatty() else UNBOUND


def headed(shown: int, of: int, one: str) -> str:
    """``3 of 39 models``."""
    from stackgraph.graph.wording import counted

    return counted(of, one) if shown == of else f"{shown} of {counted(of, one)}"
