"""``eks-inference diff``: shows what a branch changes in every stack, with its cost, its outages and what the rules find."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from eks_inference_tools import COMMAND
from eks_inference_tools.commands.options import add_prices, own_prices
from stackgraph.commands import diff

if TYPE_CHECKING:
    from stackgraph.revisions.recorders import Recorder

HELP = diff.HELP
EXAMPLES = (
    "diff --base origin/main",
    "diff --base HEAD~1 inf2-llama3 --format markdown",
    "diff before.json after.json",
    "diff --state export.json inf2-llama3",
)


def configure(parser: argparse.ArgumentParser) -> None:
    diff.configure(parser)
    add_prices(parser)


def run(options: argparse.Namespace) -> int:
    from eks_inference_tools.comparison import eks_compared
    from eks_inference_tools.program import StackProgram

    return diff.compare(options, eks_compared(own_prices(options)), StackProgram, recorder())


def recorder() -> "Recorder":
    """Records stacks of revisions, with what their rules find."""
    import eks_inference_tools
    from stackgraph.revisions.recorders import Recorder

    ours = Path(eks_inference_tools.__file__).parent
    return Recorder(COMMAND, "eks_inference_tools.recorder", (ours / "recorder.py", ours / "program.py"))
