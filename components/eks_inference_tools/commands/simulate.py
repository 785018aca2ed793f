"""``eks-inference simulate``: where every pod of a stack lands, on a real control plane with simulated nodes.

Exit code 1: something was refused, is Pending or does not roll out. A simulation that failed itself is 2.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eks_inference_tools.commands.options import add_document, add_program, add_stack
from eks_inference_tools.interrupts import ending_cleanly

# The parser is built for every command; what a simulation needs is imported when one runs.
if TYPE_CHECKING:
    from eks_inference_tools.simulate.report import Report
    from stackgraph.graph.document import Graph

HELP = "where every pod lands, on a real control plane with simulated nodes"
FORMATS = ("text", "json")
MOST = "max"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = (
        "Starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok on loopback, gives them nodes as the "
        "stack's own pools would start, and applies the stack's objects in Pulumi's order. Exit code 1 when something is refused "
        "or Pending. Nothing runs in the pods; needs the programs of `eks-inference cluster-tools`."
    )
    add_stack(parser)
    add_program(parser)
    parser.add_argument(
        "--scale",
        metavar="NAMESPACE/NAME=N",
        action="append",
        type=_replicas,
        default=[],
        help="other replicas of a workload than the stack's, may be given again; 'max': as many as autoscalers may ask for",
    )
    parser.add_argument("--rollout", action="store_true", help="then change every image, and then delete everything, too")
    parser.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C, for a look with kubectl")
    add_document(parser, FORMATS)


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code; raises ``ProblemsFound`` where that is 2."""
    from eks_inference_tools.presentation.output import write
    from eks_inference_tools.presentation.progress import Progress
    from eks_inference_tools.program import program
    from eks_inference_tools.simulate.control_plane.control_plane import TOOLS
    from eks_inference_tools.simulate.control_plane.toolchain import DEFINITIONS, installed
    from eks_inference_tools.simulate.simulation import rolled_out, simulation

    graph = program(options.stack, options.program, debug=options.debug).record()
    toolchain = installed(*TOOLS, "kubectl", DEFINITIONS)
    for tool in toolchain.asked:
        toolchain.path(tool)
    replicas = _wanted(options.scale, graph)
    with (
        ending_cleanly(),
        Progress() as progress,
        simulation(graph, toolchain, replicas=replicas, tell=progress.show) as simulated,
    ):
        report = rolled_out(simulated, whole=options.rollout)
        write(_rendered(report, options), options.output)
        if options.keep:
            _keep(simulated.plane.kubeconfig, simulated.ensure_alive)
    return 0 if report.is_well else 1


def _rendered(report: "Report", options: argparse.Namespace) -> str:
    if options.format == "json":
        from eks_inference_tools.simulate.document import render_json

        return render_json(report)
    from eks_inference_tools.presentation.output import colour
    from eks_inference_tools.simulate.text import render_text

    return render_text(report, colour=options.output is None and colour())


def _replicas(given: str) -> tuple[str, int | None]:
    """``demo/server=2`` as (``demo/server``, 2); ``max`` as (``max``, None)."""
    if given == MOST:
        return MOST, None
    name, _, count = given.partition("=")
    if "/" not in name or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"'{given}' is neither NAMESPACE/NAME=N nor '{MOST}'")
    return name, int(count)


def _wanted(given: Sequence[tuple[str, int | None]], graph: "Graph") -> dict[str, int]:
    """Replicas by name; what is given by name wins over ``max``, which is about what the stack itself makes."""
    from eks_inference_tools.simulate.rollout.replicas import most_replicas, scalable
    from eks_inference_tools.simulate.world.objects import cluster_objects

    named = {name: count for name, count in given if count is not None}
    if all(count is not None for _, count in given):
        return named
    known = scalable(cluster_objects(graph))
    return {name: most for name, most in most_replicas(graph).items() if name in known} | named


def _keep(kubeconfig: Path, ensure_alive: Callable[[], None]) -> None:
    print(f"\nit runs until Ctrl-C; look at it with:\n  export KUBECONFIG={kubeconfig}\n  kubectl get pods -A", file=sys.stderr)
    while True:
        ensure_alive()
        time.sleep(1)
