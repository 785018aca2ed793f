"""Judges one stack by all rules."""

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import eks_inference
from eks_inference.faults import SpecError
from eks_inference.rules import Finding, Judgement, ReadRule, Rule
from eks_inference.stack.check import Verdict, check_spec
from eks_inference_tools.check.registry import check_graph, unknown_ids
from eks_inference_tools.program import REGION_KEY, StackProgram
from stackgraph.problems import Problem, ProblemsFound

if TYPE_CHECKING:
    from stackgraph.graph.document import Graph


@dataclass(frozen=True)
class StackReport:
    """The verdict about one stack. ``refusals`` are the problems, apart from rules, that keep it from being read or built."""

    program: StackProgram
    verdict: Verdict
    refusals: tuple[Problem, ...] = ()
    graph: "Graph | None" = None
    """What was recorded; None of a stack that was refused before."""

    @property
    def stopped(self) -> bool:
        return bool(self.refusals or self.verdict.faults)

    @property
    def unknown(self) -> list[Problem]:
        """Problems with silenced rules that do not exist. No rule finds these."""
        return self.program.problems([fault for fault in self.verdict.faults if not fault.rule])

    def explained(self, rule: Rule[Any] | ReadRule) -> list[Judgement]:
        """The judgements of one rule about this stack."""
        return [judgement for judged, judgement in self.verdict.judgements if judged.id == rule.id]


def judge(program: StackProgram) -> StackReport:
    """Judges the spec of a stack, and its graph when the spec passes."""
    nothing = Verdict((), (), {})
    try:
        spec = program.spec()
    except ProblemsFound as error:
        return StackReport(program, nothing, error.problems)
    region = program.config.values.get(REGION_KEY)
    try:
        verdict = check_spec(spec, region) if spec and region else nothing
    except SpecError as error:
        return StackReport(program, nothing, tuple(program.problems(error.faults)))
    unknown = tuple(program.problems(unknown_ids(spec.silenced))) if spec else ()
    if verdict.faults or unknown:
        return StackReport(program, verdict, unknown)
    try:
        graph = program.record()
    except ProblemsFound as error:
        return StackReport(program, verdict, error.problems)
    return StackReport(program, verdict + check_graph(graph, spec.silenced if spec else {}), graph=graph)


def problem(program: StackProgram, finding: Finding, graph: "Graph | None") -> Problem:
    """A finding as a problem with its place: a line of the stack file, or a resource and the line of a program that makes it."""
    found = program.problems([finding.fault])[0]
    urn = finding.judgement.resource
    if not urn:
        return found
    file, _, line = _source(urn, graph).rpartition(":")
    return replace(found, file=file, line=int(line or 0), key=short_name(urn))


def _source(urn: str, graph: "Graph | None") -> str:
    """``file:line`` of the program that made a resource, by itself or by a component of ours. Empty when the library did."""
    resource = graph.by_urn.get(urn) if graph else None
    while graph and resource and (not resource.source or resource.source.startswith(_LIBRARY)):
        resource = graph.by_urn.get(resource.parent)
    return resource.source if resource else ""


_LIBRARY = f"{eks_inference.__name__}{os.sep}"


def short_name(urn: str) -> str:
    """``name (type)`` of a URN."""
    type_, _, name = urn.rpartition("::")
    return f"{name} ({type_.rpartition('::')[2].rpartition('$')[2]})"
