"""``eks-inference verify``: checks that a deployed stack matches its program and is healthy.

Exit code 1: something failed or is missing, for now or for good. Exit code 2: a part of the cluster could not be read.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eks_inference_tools.commands.options import add_cluster
from stackgraph.commands.options import add_document, add_program, add_stack

if TYPE_CHECKING:
    from eks_inference_tools.reading.expected import Expected
    from eks_inference_tools.verify.observed import Check, Observed

HELP = "check with kubectl that a deployed stack is complete and healthy; changes nothing"
EXAMPLES = (
    "verify inf2-llama3",
    "verify inf2-llama3 --wait 1800",
)
EXIT_CODES = {"ok": 0, "wait": 1, "failed": 1, "unknown": 2}
POLL_SECONDS = 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compares a deployed stack with its program: nodes and their devices, every controller, pod, Service, volume "
        "and model server. Reads with kubectl and changes nothing. Exit code 0: everything is healthy; 1: something failed or is "
        "missing, perhaps for now; 2: the cluster could not be read."
    )
    add_stack(parser)
    add_program(parser)
    add_cluster(parser)
    parser.add_argument("--kubeconfig", metavar="FILE", type=Path, help="default: KUBECONFIG, or ~/.kube/config")
    parser.add_argument("--context", metavar="NAME", help="a context of the kubeconfig (default: its current one)")
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_seconds,
        default=0.0,
        help="seconds to repeat the checks while something is still starting (default: 0)",
    )
    add_document(parser, ("text", "json"))


def run(options: argparse.Namespace) -> int:
    from eks_inference_tools.program import program
    from eks_inference_tools.reading.clusters import part_of
    from eks_inference_tools.reading.expected import expected_of
    from eks_inference_tools.verify.cluster_api import Kubectl
    from eks_inference_tools.verify.observed import overall, render_json, render_text
    from stackgraph.presentation.output import drawing, write
    from stackgraph.presentation.progress import Progress

    graph = program(options.stack, options.program, debug=options.debug, answers=options.answers).record()
    expected = expected_of(part_of(graph, options.cluster))
    kubectl = Kubectl(kubeconfig=options.kubeconfig, context=options.context, access_command=expected.access_command)
    context = kubectl.check_cluster(expected.cluster)
    resources = expected.resources()
    with Progress() as progress:
        checks = watch(
            expected,
            lambda: kubectl.read(resources, releases=bool(expected.releases)),
            seconds=options.wait,
            show=lambda checks, left: progress.show(_state(checks, left)),
        )
    if options.format == "json":
        text = render_json(expected, checks, context=context)
    else:
        text = render_text(expected, checks, context=context, **drawing(options.output))
    write(text, options.output)
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
    """Repeats the checks for up to ``seconds`` while something is still starting, and returns the last ones.

    Retries when the cluster stops answering; raises its ``AccessError`` when it still does not answer at the end. Ctrl-C ends the
    wait with the last checks. ``show`` is called with the checks and the seconds left.
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
    if lost:
        raise lost
    return checks


def _state(checks: "Sequence[Check]", left: float) -> str:
    from eks_inference_tools.verify.observed import counted

    first = next((check for check in checks if check.verdict == "wait"), None)
    what = f": {first.subject}: {first.finding.found}" if first else ""
    return f"{counted(checks)}; {int(left) // 60}:{int(left) % 60:02} left{what}"


def _seconds(given: str) -> float:
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e6:
        raise argparse.ArgumentTypeError(f"not a number of seconds from 0 to 999999: {given}")
    return seconds
