"""``eks-inference replay STACK``: a HorizontalPodAutoscaler under load, on a control plane of its own, in real time.

Exit code 1: the autoscaler did not do well. A part of the simulation that failed is 2.
"""

import argparse
from typing import TYPE_CHECKING

from eks_inference_tools.commands.options import add_document, add_program, add_stack, output_file

# The parser is built for every command; what a replay needs is imported when one runs.
if TYPE_CHECKING:
    from eks_inference_tools.simulate.replay.report import Report
    from eks_inference_tools.simulate.replay.samples import Sample
    from stackgraph.graph.document import Graph

HELP = "how an autoscaled server scales, on a real control plane and Prometheus"
FORMATS = ("text", "json")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = (
        "Replays the autoscaler of a Triton server, such as that of gpu-opt350m: a real Prometheus with the stack's own rules "
        "reads simulated servers, and the real controller scales by the stack's own object, while users come and go. Takes seven "
        "to nine minutes."
    )
    add_stack(parser)
    add_program(parser)
    add_document(parser, FORMATS)
    parser.add_argument("--plot", metavar="FILE.svg", type=output_file, help="also draw users, queueing and pods")


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code; raises ``ProblemsFound`` where that is 2."""
    from eks_inference_tools.presentation.output import write
    from eks_inference_tools.program import program
    from eks_inference_tools.simulate.replay.plot import render_plot

    report = _report(program(options.stack, options.program, debug=options.debug).record())
    write(_render(report, options.format), options.output)
    if options.plot:
        write(render_plot(report.samples, report.subject), options.plot)
    return 0 if report.holds else 1


def _report(graph: "Graph") -> "Report":
    from eks_inference_tools.presentation.progress import Progress
    from eks_inference_tools.simulate.control_plane.toolchain import installed
    from eks_inference_tools.simulate.replay.judge import judge
    from eks_inference_tools.simulate.replay.model import fitted, predictions, rows
    from eks_inference_tools.simulate.replay.report import Report
    from eks_inference_tools.simulate.replay.run import TOOLS, replay
    from eks_inference_tools.simulate.replay.subject import subject_of

    subject = subject_of(graph)
    limits, source = subject.limits, rows()
    model = fitted(source, limits.target)
    with Progress() as progress:

        def watch(sample: "Sample") -> None:
            progress.show(f"replay: {sample.at:.0f} s, {sample.users} users, {sample.replicas} replicas")

        samples = replay(installed(*TOOLS), graph, subject, model, watch=watch)
    return Report(
        subject=subject,
        samples=samples,
        findings=judge(samples, limits),
        model=model,
        predictions=predictions(model, source, target=limits.target, least=limits.least, most=limits.most),
    )


def _render(report: "Report", format_: str) -> str:
    if format_ == "json":
        import json

        return json.dumps(report.document(), indent=2, ensure_ascii=False) + "\n"
    from eks_inference_tools.simulate.replay.text import render_text

    return render_text(report)
