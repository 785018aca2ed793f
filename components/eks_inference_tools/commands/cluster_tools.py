"""``eks-inference cluster-tools``: builds the programs that ``simulate`` and ``replay`` run, once.

Ctrl-C keeps what was finished.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from eks_inference_tools.interrupts import EXIT_CODE, ending_cleanly

# The parser is built for every command; what a build needs is imported when there is one.
if TYPE_CHECKING:
    from eks_inference_tools.simulate.control_plane.tool_build import Step
    from eks_inference_tools.simulate.control_plane.toolchain import Toolchain

HELP = "build the programs that `simulate` and `replay` run, once"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds what runs the command; it has no options."""
    parser.description = (
        "Builds etcd, Kubernetes, kwok and Prometheus from Go modules that are pinned by their hashes, and fetches definitions "
        "of custom resources the same way. What is on PATH in a version that fits is used instead. All goes into the user's "
        "cache; a second run builds nothing."
    )


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code; raises ``PreviewError`` when something cannot be built."""
    from eks_inference_tools.simulate.control_plane.tool_build import build
    from eks_inference_tools.simulate.control_plane.toolchain import installed

    progress = _Progress()
    try:
        with ending_cleanly():
            build(progress.show, progress.waiting)
    except KeyboardInterrupt:
        progress.clear()
        print("ended; what was finished is kept", file=sys.stderr)
        return EXIT_CODE
    except BaseException:
        progress.clear()
        raise
    print(_table(installed()))
    return 0


class _Progress:
    """On a terminal one line that changes; elsewhere a line for each thing that is done."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._shown = ""

    def show(self, step: "Step") -> None:
        counts = ((step.modules, "module"), (step.packages, "package"))
        told = [f"{count} {what}{'s' * (count != 1)}" for count, what in counts if count]
        text = ", ".join([f"{step.name}: {'done' if step.done else 'building'}", *told, f"{step.seconds:.0f} s"])
        if self._live and text != self._shown:
            print(f"\r\x1b[K{text}", end="\n" if step.done else "", file=sys.stderr, flush=True)
            self._shown = text
        elif not self._live and step.done:
            print(text, file=sys.stderr, flush=True)

    def waiting(self) -> None:
        print("another build is under way; waiting for it", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _table(found: "Toolchain") -> str:
    """What is used, from where, and why a program on PATH is not."""
    from eks_inference_tools.simulate.control_plane.toolchain import tools

    home = str(Path.home())
    width = max(map(len, found.asked))
    lines = []
    for name in found.asked:
        path = str(found.paths[name]).replace(home, "~", 1)
        passed = [
            f"{other.path} is not used: {other.version or 'tells no version'}; wanted is {tools()[name].range}"
            for other in found.passed.get(name, ())
        ]
        lines += [f"{name:<{width}}  {found.versions.get(name, ''):<7}  {path}", *(f"{'':<{width}}  {line}" for line in passed)]
    return "\n".join(lines)
