"""Options that several commands have: each is defined once, and means the same wherever it stands."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path


def add_stack(parser: argparse.ArgumentParser) -> None:
    """``options.stack``: the name of one stack; None where it is left out."""
    parser.add_argument(
        "stack", nargs="?", metavar="STACK", help="a stack that has a file, e.g. inf2-llama3 (default: the only one)"
    )


def add_stacks(parser: argparse.ArgumentParser, also: str = "") -> None:
    """``options.stacks``: names of stacks, empty for all of them. ``also`` says what else may be named."""
    parser.add_argument("stacks", nargs="*", metavar="STACK", help=f"stacks that have a file{also} (default: all of them)")


def add_program(parser: argparse.ArgumentParser) -> None:
    """``options.program`` and ``options.debug``, for every command that runs a program."""
    parser.add_argument(
        "--program", metavar="DIR", type=Path, help="another Pulumi Python project (default: the one around here)"
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of a program that fails")


def add_document(parser: argparse.ArgumentParser, formats: Sequence[str] = ()) -> None:
    """``options.format``, the first of the formats where it is left out, and ``options.output``, None for standard output."""
    if formats:
        parser.add_argument("--format", choices=formats, default=formats[0], help="default: %(default)s")
    parser.add_argument("-o", "--output", metavar="FILE", type=output_file, help="write to a file instead of standard output")


def output_file(given: str) -> Path:
    """The type of an option that names a file to write. What cannot be written is refused before a command does its work."""
    path = Path(given)
    if path.is_dir():
        wrong = "it is a folder"
    elif not path.parent.is_dir():
        wrong = f"there is no folder {path.parent}"
    elif not os.access(path.parent if path.is_file() or not path.exists() else path, os.W_OK):
        wrong = f"{path.parent} may not be written to"
    else:
        return path
    raise argparse.ArgumentTypeError(f"cannot write '{given}': {wrong}; name a file in a folder that may be written to")
