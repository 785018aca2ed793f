"""``eks-inference check``: judges whether stacks can run. ``preview`` judges its graph with ``refuse``."""

import argparse
import dataclasses
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any

from eks_inference_tools import COMMAND
from eks_inference_tools.commands.options import add_prices, own_prices
from stackgraph.commands.options import add_document, add_program, add_stacks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eks_inference.rules import Finding, ReadRule, Rule
    from eks_inference_tools.check.report import StackReport
    from eks_inference_tools.cost.price_book import OwnPrices
    from eks_inference_tools.program import StackProgram
    from stackgraph.graph.document import Graph
    from stackgraph.problems import Problem

HELP = "check by rules whether stacks can run, and show the arithmetic"
EXAMPLES = (
    "check",
    "check inf2-llama3 --explain NEU008",
    "check --rules",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Judges stacks by rules, each with its arithmetic: first the stack file, then every resource that it would create. "
        "Says 'can run' only if everything was judged. Exit code 2 when a stack cannot run."
    )
    add_stacks(parser)
    parser.add_argument("--explain", metavar="RULE", help="show the arithmetic of one rule, e.g. NEU008, even where it holds")
    parser.add_argument("--rules", action="store_true", help="list every rule")
    parser.add_argument("--strict", action="store_true", help="also exit with 2 when something was not judged")
    add_program(parser)
    add_prices(parser)
    add_document(parser, ("text", "json"))


def run(options: argparse.Namespace) -> int:
    from stackgraph.presentation.output import drawing, write
    from stackgraph.problems import Problem, ProblemsFound

    if options.format == "json":
        from eks_inference_tools.check import document as view
    else:
        from eks_inference_tools.check import text as view
    shown: Any = {} if options.format == "json" else drawing(options.output)
    if options.rules:
        if given := [*options.stacks, *(["--explain"] if options.explain else [])]:
            hint = "--rules lists the rules of all stacks; --explain RULE STACK shows one of a stack"
            raise ProblemsFound([Problem("takes nothing else", key="--rules", given=" ".join(given), hint=hint)])
        write(view.rule_list(**shown), options.output)
        return 0
    explained = _rule(options.explain) if options.explain else None

    from eks_inference_tools.check.report import judge
    from eks_inference_tools.program import readable
    from stackgraph.presentation.progress import Progress
    from stackgraph.side_by_side import Ended, can_fork, side_by_side

    prices = own_prices(options)

    def judged(stack: "StackProgram") -> tuple[Any, bool]:
        """What is said of a stack, and whether the exit code tells that it cannot run."""
        report = judge(stack)
        said = view.explained(explained, report, **shown) if explained else view.verdict(report, _notes(report, prices), **shown)
        return said, report.stopped or (options.strict and bool(report.not_judged))

    stacks, problems = readable(options.stacks, options.program, debug=options.debug, answers=options.answers)
    if not stacks:
        raise ProblemsFound(problems)
    first, *others = stacks
    with Progress() as progress:
        # The first stack loads the modules that the others then start with.
        found = [judged(first)]
        with closing(side_by_side(judged, others)) if can_fork() else nullcontext(map(judged, others)) as judgements:
            for stack, each in zip(others, judgements, strict=True):
                progress.count("stacks judged", len(found), len(stacks))
                if isinstance(each, Ended):
                    raise ProblemsFound([Problem(f"judging it ended with {each}", file=stack.document.shown)])
                found.append(each)
    said = [each for each, _ in found]
    write(view.explanation(explained, said, **shown) if explained else view.verdicts(said), options.output)
    if problems:
        raise ProblemsFound(problems)
    if len(found) == 1 and not (found[0][1] or explained or options.output or options.format == "json"):
        print(f"next: {COMMAND} preview {first.stack}{f' --program {options.program}' if options.program else ''}")
    return 2 if any(failed for _, failed in found) else 0


def _notes(report: "StackReport", prices: "OwnPrices") -> "Iterable[str]":
    """What a program warns of, what a stack costs, and how long it takes. Nothing of one that cannot run."""
    if report.graph is None or report.stopped:
        return ()
    from eks_inference_tools.notes import notes_of

    # With a stack object, the platform warns of the same findings as the report.
    told = report.graph.warnings if not report.spec else ()
    not_judged = {not_judged.summary for not_judged in report.not_judged}
    warnings = (f"the program warns: {warning}" for warning in told if warning not in not_judged)
    return *warnings, *_few_sequences(report), *_idle_mirrors(report), *notes_of(report.graph, prices)


def _few_sequences(report: "StackReport") -> "Iterator[str]":
    """Which servers hold fewer sequences at once than `plan` looks for where nobody says how many."""
    from eks_inference.serving.choosing import USUAL_CONCURRENCY
    from eks_inference.serving.facts import ServingFacts
    from eks_inference.serving.feasibility import at_once

    for server in report.verdict.subjects:
        if isinstance(server, ServingFacts) and server.engine.generation.paged:
            held = at_once(server)
            if held is not None and held < USUAL_CONCURRENCY:
                longest = f"{held or 'perhaps 1'} of the longest sequences ({server.max_model_len} tokens)"
                yield f"a pod of {server.path[-1]} holds {longest} at once: others wait"


def _idle_mirrors(report: "StackReport") -> "Iterator[str]":
    """Which mirrors replaced nothing: no image and no chart of the stack comes from what they name."""
    from eks_inference_tools.reading.graph_facts import walk

    mirrors = report.spec.mirrors if report.spec and report.graph else {}
    said = {str(value) for one in report.graph.resources for _, value in walk(one.inputs)} if mirrors and report.graph else ()
    for name, mirror in mirrors.items():
        if not any(mirror.rstrip("/").removeprefix("https://") in text for text in said):
            yield f"the mirror of {name} replaces nothing: no image and no chart comes from there (charts' names begin with https://)"


def refuse(stack: "StackProgram", graph: "Graph") -> "Graph":
    """Returns the graph with the findings of the rules about graphs added to its warnings.

    Raises ``ProblemsFound`` when such a finding stops the stack, as ``check`` does. It stops no program without a component of
    this library: ``pulumi up`` of one asks no rule.
    """
    from eks_inference_tools.check.registry import check_graph
    from eks_inference_tools.check.report import problem, unknown_silences
    from stackgraph.problems import ProblemsFound

    spec = stack.spec()
    silenced = stack.silenced(spec)
    findings = check_graph(graph, silenced).findings
    ours = any(resource.package == "eks-inference" for resource in graph.resources)
    stopping = [problem(stack, finding, graph) for finding in findings if finding.stops and ours]
    stopping += unknown_silences(stack, spec, silenced)
    if stopping:
        raise ProblemsFound(stopping)
    shown = tuple(_warning(problem(stack, finding, graph), finding) for finding in findings if not finding.reason)
    return dataclasses.replace(graph, warnings=(*graph.warnings, *shown))


def _warning(place: "Problem", finding: "Finding") -> str:
    """A finding on one line. A key of the stack file tells its own place; a resource, the line that makes it or asks for it."""
    by_resource = place.file and finding.judgement.resource
    return f"{place.file}:{place.line}: {finding.summary}" if by_resource else finding.summary


def _rule(id_: str) -> "Rule[Any] | ReadRule":
    from eks_inference_tools.check.registry import all_rules
    from stackgraph.problems import Problem, ProblemsFound

    known = all_rules()
    if id_.upper() in known:
        return known[id_.upper()]
    # Two numbers that look alike are about different things, so no other number is proposed.
    family = id_.upper().rstrip("0123456789")
    number = id_.upper().removeprefix(family)
    same = [
        one for one in known if number and one.startswith(family) and one.removeprefix(family).lstrip("0") == number.lstrip("0")
    ]
    allowed = ", ".join(one for one in known if one.rstrip("0123456789") == family)
    allowed = allowed or f"a number of {', '.join(dict.fromkeys(one.rstrip('0123456789') for one in known))}"
    hint = "`eks-inference check --rules` says what each is about"
    hint = f"did you mean '{same[0]}'? {hint}" if same else hint
    raise ProblemsFound([Problem("there is no rule with this id", given=id_, allowed=allowed, hint=hint)])
