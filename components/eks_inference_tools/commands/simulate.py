"""``eks-inference simulate``: schedules the pods of a stack on a real control plane with simulated nodes, or scales a server.

Exit code 1: an object was rejected, a pod is Pending, a rollout failed, or the autoscaler missed a target. Exit code 2: the
simulation itself failed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from eks_inference_tools import COMMAND
from eks_inference_tools.commands.options import add_cluster
from eks_inference_tools.commands.wishes import refuse
from stackgraph.commands.options import add_document, add_program, add_stack, output_file
from stackgraph.interrupts import ending_cleanly

if TYPE_CHECKING:
    from eks_inference_tools.simulate.replay.subject import Sample
    from stackgraph.graph.document import Graph

HELP = "show where every pod is scheduled, on a real control plane with simulated nodes"
EXAMPLES = (
    "simulate inf2-llama2",
    "simulate inf2-llama2 --scale llama2-c/llama2-c=2",
    "simulate gpu-opt350m --load --plot load.svg",
)
MOST = "max"
_SECONDS = 30.0
"""That a simulation of a shipped stack takes on two quiet cores (docs/simulate.md)."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok on loopback, adds the nodes that the "
        "stack's own pools would start, and applies the stack's objects in Pulumi's order. Exit code 1 when an object is "
        "rejected or a pod stays Pending. Containers do not run. The first run builds these programs with Go. --load instead "
        "tests the autoscaler of a Triton server, such as that of gpu-opt350m, under changing load: a real Prometheus with the "
        "stack's own rules reads simulated servers, and the real controller scales them by the stack's own object, in seven to "
        "nine minutes."
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
    parser.add_argument("--load", action="store_true", help="only show how an autoscaled server scales, in real time")
    parser.add_argument("--plot", metavar="FILE.svg", type=output_file, help="with --load, also plot users, queue times and pods")
    add_document(parser, ("text", "json"))


def run(options: argparse.Namespace) -> int:
    from eks_inference_tools.program import program
    from eks_inference_tools.reading.clusters import part_of

    for name in ("scale", "keep") if options.load else ("plot",):
        if getattr(options, name):
            refuse(f"belongs to a simulation with{'out' * options.load} --load", f"--{name}", "")
    stack = program(options.stack, options.program, debug=options.debug, answers=options.answers)
    graph = part_of(stack.record(), options.cluster)
    return (_under_load if options.load else _placed)(graph, options)


def _placed(graph: "Graph", options: argparse.Namespace) -> int:
    from eks_inference_tools.simulate.control_plane.tool_build import provided
    from eks_inference_tools.simulate.report import render_json
    from eks_inference_tools.simulate.simulation import rolled_out, simulation, tools_of
    from eks_inference_tools.simulate.text import render_text
    from stackgraph.presentation.output import colour, write
    from stackgraph.presentation.progress import Progress

    toolchain = provided(*tools_of(graph))
    replicas = _wanted(options.scale, graph)
    with (
        ending_cleanly(),
        Progress(about=_SECONDS) as progress,
        simulation(graph, toolchain, replicas=replicas, tell=progress.show) as simulated,
    ):
        report = rolled_out(simulated)
        text = render_json(report) if options.format == "json" else render_text(report, colour=colour(options.output))
        write(text, options.output)
        if options.keep:
            _keep(simulated.plane.kubeconfig, simulated.ensure_alive)
    return 0 if report.is_well else 1


def _under_load(graph: "Graph", options: argparse.Namespace) -> int:
    from eks_inference_tools.simulate.control_plane.tool_build import provided
    from eks_inference_tools.simulate.replay.report import reported
    from eks_inference_tools.simulate.replay.run import TOOLS, replay
    from eks_inference_tools.simulate.replay.subject import TIMELINE, subject_of
    from eks_inference_tools.simulate.replay.text import render_plot, render_text
    from eks_inference_tools.simulate.replay.triton import fitted, rows
    from stackgraph.presentation.output import json_text, write
    from stackgraph.presentation.progress import Progress

    subject = subject_of(graph)
    model = fitted(rows(), subject.limits.target)
    toolchain = provided(*TOOLS)
    with Progress(about=sum(phase.seconds for phase in TIMELINE)) as progress:

        def watch(sample: "Sample") -> None:
            progress.show(f"{sample.users} users, {sample.replicas} replicas")

        samples = replay(toolchain, graph, subject, model, watch=watch)
    report = reported(subject, samples, model)
    write(json_text(report.document()) if options.format == "json" else render_text(report), options.output)
    if options.plot:
        write(render_plot(samples, subject), options.plot)
    return 0 if report.holds else 1


class _Moved(argparse.Action):
    """An option that is now a command."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        parser.error(f"{self.option_strings[0]} is now: {COMMAND} rehearse change STACK")


def _replicas(given: str) -> tuple[str, int | None]:
    """Parses ``demo/server=2`` into ``("demo/server", 2)`` and ``max`` into ``("max", None)``."""
    if given == MOST:
        return MOST, None
    name, _, count = given.partition("=")
    if "/" not in name or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"'{given}' is neither NAMESPACE/NAME=N nor '{MOST}'")
    return name, int(count)


def _wanted(given: Sequence[tuple[str, int | None]], graph: "Graph") -> dict[str, int]:
    """The replicas to set by name. A name that is given goes before ``max``, which covers the workloads of the stack itself."""
    from eks_inference_tools.simulate.rollout.changes import most_replicas, scalable
    from eks_inference_tools.simulate.world.objects import cluster_objects

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
