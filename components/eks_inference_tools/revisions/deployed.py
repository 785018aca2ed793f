"""Compares the working tree's program with a deployed stack, from an export of its state."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from eks_inference_tools import COMMAND
from eks_inference_tools.program import program as load
from stackgraph.diff.contents import Revision
from stackgraph.diff.domain import ComparedDomain
from stackgraph.diff.report import Recorded, Report
from stackgraph.problems import Problem, ProblemsFound
from stackgraph.recorder.answers import Given
from stackgraph.state.exported import read_export
from stackgraph.state.inputs import without_computed
from stackgraph.state.report import stack_report


def compare(
    file: Path,
    stack: str | None,
    *,
    program: Path | None,
    domain: ComparedDomain,
    link: str = "",
    debug: bool = False,
    answers: Sequence[Given] = (),
) -> Report:
    """Reports what ``pulumi up`` would do. Without a name, the stack is that of the export.

    Raises ``ProblemsFound`` if the file is no export, or of another stack or project; ``ProgramError`` if the program fails.
    """
    deployed = read_export(file)
    base = deployed.graph
    loaded = load(stack or base.stack, program, debug=debug, answers=answers)
    pairs = (("project", base.project, loaded.project.name), ("stack", base.stack, loaded.stack))
    wrong = [Problem(f"of another {what}", str(file), 0, what, has, wants) for what, has, wants in pairs if has != wants]
    if wrong:
        raise ProblemsFound(wrong)
    graph = loaded.record()
    # A program that needs what only a placeholder gives is compared as it was recorded.
    with contextlib.suppress(ProblemsFound):
        graph = without_computed(graph, loaded.record(strict=True))
    report, notes = stack_report(deployed, Recorded(graph), domain)
    return Report(base.project, Revision(file.name), Revision("working tree"), [report], notes, link, COMMAND)
