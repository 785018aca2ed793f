"""``eks-inference replay STACK``: runs a HorizontalPodAutoscaler under load in real time, on a local control plane.

Exit code 1: the autoscaler missed a target. Exit code 2: the simulation itself failed.
"""

import argparse
from typing import TYPE_CHECKING

from eks_inference_tools.commands.options import add_cluster, add_document, add_program, add_stack, output_file

if TYPE_CHECKING:
    from eks_inference_tools.simulate.replay.samples import Sample

HELP = "show how an autoscaled server scales, with a real control plane and Prometheus"
EXAMPLES = (
    "replay gpu-opt350m",
    "replay gpu-opt350m --plot load.svg",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Tests the autoscaler of a Triton server, such as that of gpu-opt350m, under changing load: a real Prometheus with the "
        "stack's own rules reads simulated servers, and the real controller scales them by the stack's own object. Takes seven "
        "to nine minutes."
    )
    add_stack(parser)
    add_program(parser)
    add_cluster(parser)
    add_document(parser, ("text", "json"))
    parser.add_argument("--plot", metavar="FILE.svg", type=output_file, help="also plot users, queue times and pods")


def run(options: argparse.Namespace) -> int:
    from eks_inference_tools.presentation.output import json_text, write
    from eks_inference_tools.presentation.progress import Progress
    from eks_inference_tools.program import program
    from eks_inference_tools.reading.parts import part_of
    from eks_inference_tools.simulate.control_plane.toolchain import installed
    from eks_inference_tools.simulate.replay.judge import judge
    from eks_inference_tools.simulate.replay.model import fitted, predictions, rows
    from eks_inference_tools.simulate.replay.plot import render_plot
    from eks_inference_tools.simulate.replay.report import Report
    from eks_inference_tools.simulate.replay.run import TOOLS, replay
    from eks_inference_tools.simulate.replay.samples import TIMELINE
    from eks_inference_tools.simulate.replay.subject import subject_of
    from eks_inference_tools.simulate.replay.text import render_text

    graph = part_of(
        program(options.stack, options.program, debug=options.debug, answers=options.answers).record(), options.cluster
    )
    subject = subject_of(graph)
    limits, source = subject.limits, rows()
    model = fitted(source, limits.target)
    with Progress(about=sum(phase.seconds for phase in TIMELINE)) as progress:

        def watch(sample: "Sample") -> None:
            progress.show(f"{sample.users} users, {sample.replicas} replicas")

        samples = replay(installed(*TOOLS), graph, subject, model, watch=watch)
    report = Report(
        subject=subject,
        samples=samples,
        findings=judge(samples, limits),
        model=model,
        predictions=predictions(model, source, target=limits.target, least=limits.least, most=limits.most),
    )
    write(json_text(report.document()) if options.format == "json" else render_text(report), options.output)
    if options.plot:
        write(render_plot(samples, subject), options.plot)
    return 0 if report.holds else 1
