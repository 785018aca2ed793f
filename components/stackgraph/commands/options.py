"""Options that several commands share. Each is defined once and has the same meaning in every command."""

import argparse
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path


def add_stack(parser: argparse.ArgumentParser) -> None:
    """Adds ``options.stack``: the name of one stack, or None."""
    parser.add_argument(
        "stack",
        nargs="?",
        metavar="STACK",
        help="a stack or its file, e.g. dev or stacks/Pulumi.dev.yaml (default: the only one)",
    )


def add_stacks(parser: argparse.ArgumentParser, also: str = "") -> None:
    """Adds ``options.stacks``: names of stacks, empty for all. ``also`` tells in the help what else may be named."""
    parser.add_argument("stacks", nargs="*", metavar="STACK", help=f"stacks or their files{also} (default: all of them)")


def add_program(parser: argparse.ArgumentParser) -> None:
    """Adds ``options.program``, ``options.answers`` and ``options.debug``, for every command that runs a program."""
    parser.add_argument(
        "--program", metavar="DIR", type=Path, help="another Pulumi Python project (default: the one that contains this folder)"
    )
    told = {"dest": "answers", "action": "append", "default": []}
    parser.add_argument(
        "--answers", metavar="FILE", type=Path, help="what data sources and stack references give (docs/programs.md)", **told
    )
    parser.add_argument(
        "-c", metavar="KEY=VALUE", type=_config, help="a configuration value, which overrides the stack's file", **told
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of a program that fails")


def _config(given: str) -> dict[str, dict[str, str]]:
    """A row of answers."""
    key, equals, value = given.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"not KEY=VALUE, such as aws:region=eu-west-1: {given}")
    return {"config": {key: value}}


def add_document(parser: argparse.ArgumentParser, formats: Sequence[str] = (), long: str = "--output") -> None:
    """Adds ``options.format``, by default the first of ``formats``, and ``options.output``, None for standard output: ``-o`` or
    ``long``."""
    if formats:
        parser.add_argument("--format", choices=formats, default=formats[0], help="default: %(default)s")
    parser.add_argument(
        "-o", long, metavar="FILE", type=output_file, dest="output", help="write to a file instead of standard output"
    )


def output_file(given: str) -> Path:
    """The type of an option that names a file to write. Rejects what cannot be written before the command does its work."""
    path = Path(given)
    if os.path.isdir(path):
        wrong = "it is a folder"
    elif not os.path.isdir(path.parent):
        wrong = f"there is no folder {path.parent}"
    elif not os.access(path.parent if os.path.isfile(path) or not os.path.exists(path) else path, os.W_OK):
        wrong = f"{path.parent} is not writable"
    else:
        return path
    raise argparse.ArgumentTypeError(f"cannot write '{given}': {wrong}; name a file in a folder that you can write to")


def number_of(things: str) -> Callable[[str], int]:
    """The type of an option that takes a whole number of at least 1. ``things`` are named in the error."""

    def positive(given: str) -> int:
        if not given.isdecimal() or not int(given):
            raise argparse.ArgumentTypeError(f"not a whole number of {things}, at least 1: {given}")
        return int(given)

    return positive


def amount_of(what: str, below: float = math.inf) -> Callable[[str], float]:
    """The type of an option that takes an amount above 0. ``what`` it is, the error names."""
    limit = "" if below == math.inf else f" and below {below:.0f}"

    def amount(given: str) -> float:
        try:
            value = float(given)
        except ValueError:
            value = 0
        if not 0 < value < below:
            raise argparse.ArgumentTypeError(f"not a {what} above 0{limit}: {given}")
        return value

    return amount
