"""``eks-inference simulate``: schedules the pods of a stack on a real control plane with simulated nodes.

Exit code 1: an object was rejected, a pod is Pending, or a rollout failed. Exit code 2: the simulation itself failed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from eks_inference_tools import COMMAND
from eks_inference_tools.commands.options import add_cluster
from stackgraph.commands.options import add_document, add_program, add_stack
from stackgraph.interrupts import ending_cleanly

if TYPE_CHECKING:
    from stackgraph.graph.document import Graph

HELP = "show where every pod is scheduled, on a real control plane with simulated nodes"
EXAMPLES = (
    "simulate inf2-llama2",
    "simulate inf2-llama2 --scale llama2-c/llama2-c=2",
)
MOST = "max"
_SECONDS = 30.0
"""That a simulation of a shipped stack takes on two quiet cores (docs/simulate.md)."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok on loopback, adds the nodes that the "
        "stack's own pools would start, and applies the stack's objects in Pulumi's order. Exit code 1 when an object is "
        "rejected or a pod stays Pending. Containers do not run. The first run builds these programs with Go."
    )
    add_stack(parser)
    add_program(parser)
    add_cluster(parser)
    parser.add_argument(
        "--scale",
        metavar="NAMESPACE/NAME=N",
        action="append",
        type=_replicas,
        default=[],
        help="override the replicas of a workload, repeatable; 'max': as many as the autoscalers allow",
    )
    parser.add_argument("--rollout", action=_Moved, nargs=0, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="keep the cluster running until Ctrl-C, for kubectl")
    parser.add_argument("--load", action=_Moved, nargs=0, help=argparse.SUPPRESS)
    add_document(parser, ("text", "json"))


def run(options: argparse.Namespace) -> int:
    from eks_inference_tools.program import program
    from eks_inference_tools.reading.clusters import part_of

    stack = program(options.stack, options.program, debug=options.debug, answers=options.answers)
    graph = part_of(stack.record(), options.cluster)
    from eks_inference_tools.simulate.control_plane.tool_build import provided
    from eks_inference_tools.simulate.report import render_json
    from eks_inference_tools.simulate.simulation import rolled_out, simulation, tools_of
    from eks_inference_tools.simulate.text import render_text
    from stackgraph.presentation.output import drawing, write
    from stackgraph.presentation.progress import Progress

    toolchain = provided(*tools_of(graph))
    replicas = _wanted(options.scale, graph)
    with (
        ending_cleanly(),
        Progress(about=_SECONDS) as progress,
        simulation(graph, toolchain, replicas=replicas, tell=progress.show) as simulated,
    ):
        report = rolled_out(simulated)
        text = render_json(report) if options.format == "json" else render_text(report, **drawing(options.output))
        write(text, options.output)
        if options.keep:
            _keep(simulated.plane.kubeconfig, simulated.ensure_alive)
    return 0 if report.is_well else 1


_NOW = {"--rollout": "rehearse change STACK", "--load": "rehearse day STACK --rate 4,1:10,3:20,6:1"}


class _Moved(argparse.Action):
    """An option that is now a command."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        option = self.option_strings[0]
        parser.error(f"{option} is now: {COMMAND} {_NOW[option]}")


def _replicas(given: str) -> tuple[str, int | None]:
    """Parses ``demo/server=2`` into ``("demo/server", 2)`` and ``max`` into ``("max", None)``."""
    if given == MOST:
        return MOST, None
    name, _, count = given.partition("=")
    if "/" not in name or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"not NAMESPACE/NAME=N or '{MOST}': {given}")
    return name, int(count)


def _wanted(given: Sequence[tuple[str, int | None]], graph: "Graph") -> dict[str, int]:
    """The replicas to set by name. A name that is given goes before ``max``, which covers the workloads of the stack itself."""
    from eks_inference_tools.simulate.rollout.changes import most_replicas, scalable
    from eks_inference_tools.simulate.world.api_objects import cluster_objects

    named = {name: count for name, count in given if count is not None}
    if all(count is not None for _, count in given):
        return named
    known = scalable(cluster_objects(graph))
    return {name: most for name, most in most_replicas(graph).items() if name in known} | named


def _keep(kubeconfig: Path, ensure_alive: Callable[[], None]) -> None:
    print(f"\nrunning until Ctrl-C; inspect it with:\n  export KUBECONFIG={kubeconfig}\n  kubectl get pods -A", file=sys.stderr)
    while True:
        ensure_alive()
        time.sleep(1)
