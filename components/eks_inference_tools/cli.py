"""The command line of ``eks-inference``."""

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

from eks_inference_tools import COMMAND
from stackgraph.cli import CommandLine

if TYPE_CHECKING:
    from stackgraph.commands import Command

GROUPS: Mapping[str, Sequence[str]] = {
    "look at a stack before it exists": ("preview", "check", "diff", "simulate", "rehearse"),
    "make a stack of your own": ("plan", "new", "list"),
    "go to AWS": ("doctor", "first-flight"),
    "look at a deployed stack": ("verify", "chat", "loadtest"),
    "for editors, shells and CI": ("schema", "completion", "diff-comment"),
}
"""Names of commands by what they are for, in the order of the help text. ``commands/`` has a module for each."""

FORMER = {
    "resolve": "preview STACK --format stack",
    "cluster-tools": "simulate STACK, which builds what it needs",
    "replay": "rehearse day STACK --rate 4,1:10,3:20,6:1",
    **{name: f"list {name}" for name in ("models", "engines", "instances")},
}
"""Names that commands had until the last release, and what does their work now."""

EXIT_CODES = """\
exit codes of every command:
  0    success, and nothing is wrong with what was examined
  1    something is wrong: with a server (chat), a deployed stack (verify) or
       a simulated one (simulate, rehearse); or a change matches --exit-code or
       --fail-on (diff)
  2    the input cannot be used: an option, a stack file, a stack that a rule
       refuses, a program that fails, a cluster that cannot be read, an account
       without what a stack needs (doctor)
  130  ended by Ctrl-C; 128 + N by signal N, such as a crash of the program
"""


def _load(name: str) -> "Command":
    return cast("Command", import_module(f"eks_inference_tools.commands.{name.replace('-', '_')}"))


_LINE = CommandLine(COMMAND, "Serve LLMs on Amazon EKS with Neuron chips or NVIDIA GPUs.", GROUPS, EXIT_CODES, _load, FORMER)
COMMANDS, parser = _LINE.commands, _LINE.parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command, as ``CommandLine.main`` says."""
    if arguments is None and "_ARGCOMPLETE" in os.environ:
        # A shell asks what may stand at its cursor.
        from eks_inference_tools.completing import complete

        complete(_LINE.parser_for)
    return _LINE.main(arguments)
