"""``eks-inference check``: can these stacks run? Also what ``preview`` asks of a graph before it shows it."""

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from eks_inference_tools.commands.options import add_document, add_program, add_stacks

# The parser is built for every command; what a check needs is imported when one runs.
if TYPE_CHECKING:
    from eks_inference.rules import ReadRule, Rule
    from eks_inference_tools.program import StackProgram
    from stackgraph.graph.document import Graph

HELP = "whether a stack can run, by rules, with the arithmetic"
FORMATS = ("text", "json")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = (
        "Judges stacks by rules, each with its arithmetic: first what the stack file says, then every resource it would create. "
        "Exit code 2 when something could not run."
    )
    add_stacks(parser)
    parser.add_argument("--explain", metavar="RULE", help="show the arithmetic of one rule, e.g. NEU008, also where it holds")
    parser.add_argument("--rules", action="store_true", help="list every rule")
    add_program(parser)
    add_document(parser, FORMATS)


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code; raises ``ProblemsFound`` when there is nothing to judge."""
    from eks_inference_tools.presentation.output import colour, write

    drawing: dict[str, bool] = {}
    if options.format == "json":
        from eks_inference_tools.check import document as view
    else:
        from eks_inference_tools.check import text as view

        drawing["colour"] = options.output is None and colour()

    if options.rules:
        write(view.rule_list(), options.output)
        return 0
    explained = _rule(options.explain) if options.explain else None

    from eks_inference_tools.check.report import judge
    from eks_inference_tools.program import programs

    reports = [judge(stack) for stack in programs(options.stacks, options.program, debug=options.debug)]
    said = view.explanation(explained, reports, **drawing) if explained else view.render(reports, **drawing)
    write(said, options.output)
    return 2 if any(each.stopped for each in reports) else 0


def refuse(stack: "StackProgram", graph: "Graph") -> "Graph":
    """The graph with what the rules warn of among its warnings.

    Raises ``ProblemsFound`` when a rule about graphs stops the stack. A program that is not configured by a ``StackSpec`` has no
    place to silence a rule in, so there every finding is a warning; ``check`` is as strict with it as with any other.
    """
    from eks_inference_tools.check.registry import check_graph, unknown_ids
    from eks_inference_tools.check.report import problem
    from eks_inference_tools.program import STACK_KEY
    from stackgraph.problems import ProblemsFound

    spec = stack.spec() if STACK_KEY in stack.config.values else None
    findings = check_graph(graph, spec.silenced if spec else {}).findings
    stopping = [problem(stack, finding) for finding in findings if finding.stops and spec]
    stopping += stack.problems(unknown_ids(spec.silenced)) if spec else []
    if stopping:
        raise ProblemsFound(stopping)
    shown = tuple(finding.summary for finding in findings if not finding.reason)
    return dataclasses.replace(graph, warnings=(*graph.warnings, *shown))


def _rule(id_: str) -> "Rule[Any] | ReadRule":
    from difflib import get_close_matches

    from eks_inference_tools.check.registry import all_rules
    from stackgraph.problems import Problem, ProblemsFound

    known = all_rules()
    if id_.upper() in known:
        return known[id_.upper()]
    nearest = get_close_matches(id_.upper(), known, n=1)
    hint = f"did you mean '{nearest[0]}'? `eks-inference check --rules` lists all"
    raise ProblemsFound([Problem("there is no rule of this id", given=id_, hint=hint if nearest else hint.partition("? ")[2])])
