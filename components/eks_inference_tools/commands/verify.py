"""``eks-inference verify``: is a deployed stack what its program says it is, and is it well?

Exit codes: 0 all is well; 1 something failed, or is not there (yet); 2 the stack or the cluster could not be looked at, or only
in part.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

# The parser is built for every command; what a check needs is imported when one runs.
if TYPE_CHECKING:
    from eks_inference_tools.reading.expected import Expected
    from eks_inference_tools.reading.observed import Observed
    from eks_inference_tools.verify.verdicts import Check
    from stackgraph.graph.document import Graph

FORMATS = ("table", "json")
EXIT_CODES = {"ok": 0, "wait": 1, "failed": 1, "unknown": 2}
POLL_SECONDS = 10.0

_WIDTH = 110


def add_parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", recorded_stack: "Callable[[argparse.Namespace], Graph]"
) -> argparse.ArgumentParser:
    """Adds the command. ``recorded_stack`` gives the graph of the stack that the options name; it raises ``PreviewError``."""
    parser = commands.add_parser(
        "verify",
        help="whether a deployed stack is there and well, by kubectl; changes nothing",
        description="Compares a deployed stack with its program: nodes and their devices, every controller, pod, Service, volume "
        "and model server. Reads with kubectl, changes nothing. Exit code 0: all is well; 1: something failed or is not there "
        "yet; 2: it could not be looked at.",
    )
    parser.add_argument("stack", nargs="?", metavar="STACK", help="a stack that has a file, e.g. inf2-llama3")
    parser.add_argument("--kubeconfig", metavar="FILE", type=Path, help="default: KUBECONFIG, or ~/.kube/config")
    parser.add_argument("--context", metavar="NAME", help="a context of the kubeconfig (default: its current one)")
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_seconds,
        default=0.0,
        help="look again while something is on its way (default: 0)",
    )
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: %(default)s")
    parser.set_defaults(run=lambda options: run(options, recorded_stack))
    return parser


def run(options: argparse.Namespace, recorded_stack: "Callable[[argparse.Namespace], Graph]") -> int:
    """Runs the command and returns its exit code; raises ``PreviewError`` where that is 2 before anything was seen."""
    from eks_inference_tools.reading.expected import expected_of
    from eks_inference_tools.verify.cluster_api import Kubectl
    from eks_inference_tools.verify.report import render_json, render_table
    from eks_inference_tools.verify.verdicts import overall

    expected = expected_of(recorded_stack(options))
    kubectl = Kubectl(kubeconfig=options.kubeconfig, context=options.context, access_command=expected.access_command)
    context = kubectl.check_cluster(expected.cluster)
    resources = expected.resources()
    checks = watch(
        expected,
        lambda: kubectl.read(resources, releases=bool(expected.releases)),
        seconds=options.wait,
        show=_show if sys.stderr.isatty() else None,
    )
    if options.format == "json":
        sys.stdout.write(render_json(expected, checks, context=context))
    else:
        on_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size((_WIDTH, 0)).columns if on_terminal else _WIDTH
        colour = on_terminal and not os.environ.get("NO_COLOR")
        sys.stdout.write(render_table(expected, checks, context=context, colour=colour, width=width))
    return EXIT_CODES[overall(checks)]


def watch(
    expected: "Expected",
    read: "Callable[[], Observed]",
    *,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    show: "Callable[[Sequence[Check], float], None] | None" = None,
) -> "list[Check]":
    """Checks again and again while something is on its way and ``seconds`` have not passed.

    A cluster that stops answering meanwhile is asked again, too; if it still does not in the end, that is raised. Ctrl-C ends the
    wait with what was last seen. ``show`` is told the checks and how many seconds are left.
    """
    from eks_inference_tools.verify.checks import judge
    from eks_inference_tools.verify.cluster_api import AccessError

    end = clock() + seconds
    checks = judge(expected, read())
    lost: AccessError | None = None
    try:
        while (lost or any(check.verdict == "wait" for check in checks)) and (left := end - clock()) > 0:
            if show:
                show(checks, left)
            sleep(min(POLL_SECONDS, left))
            try:
                checks, lost = judge(expected, read()), None
            except AccessError as error:
                lost = error
    except KeyboardInterrupt:
        lost = None
    finally:
        if show:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
    if lost:
        raise lost
    return checks


def _show(checks: "Sequence[Check]", left: float) -> None:
    """One line on standard error, over the one before."""
    from eks_inference_tools.verify.report import counted
    from stackgraph.graph.wording import shorten

    first = next((check for check in checks if check.verdict == "wait"), None)
    what = f": {first.subject}: {first.finding.found}" if first else ""
    line = f"{counted(checks)}; {int(left) // 60}:{int(left) % 60:02} left{what}"
    print(f"\r\033[K{shorten(line, shutil.get_terminal_size().columns - 1)}", end="", file=sys.stderr, flush=True)


def _seconds(given: str) -> float:
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e6:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {given}")
    return seconds
