"""Options that several commands of this library share, beside those of ``stackgraph.commands.options``."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eks_inference_tools.cost.price_book import OwnPrices


def add_prices(parser: argparse.ArgumentParser) -> None:
    """Adds ``options.prices``, the file of ``own_prices``, for every command that tells costs."""
    parser.add_argument(
        "--prices",
        metavar="FILE",
        type=Path,
        help="your own prices, which are used before all others (docs/cost.md)",
    )


def own_prices(options: argparse.Namespace) -> "OwnPrices":
    """The prices of the file that ``--prices`` names. Raises ``ProblemsFound`` with everything that is wrong in it."""
    if options.prices is None:
        return {}
    from eks_inference_tools.cost.price_book import read_price_file

    return read_price_file(options.prices)


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Adds ``options.cluster``, for commands that look at one cluster of a program."""
    parser.add_argument("--cluster", metavar="NAME", help="a cluster of the program (default: the only one)")
