"""Judges one stack by all rules."""

from dataclasses import dataclass, replace
from typing import Any

from eks_inference.rules import Finding, Judgement, ReadRule, Rule
from eks_inference.stack.check import Verdict, check_spec
from eks_inference_tools.check.registry import check_graph, unknown_ids
from eks_inference_tools.program import REGION_KEY, StackProgram
from stackgraph.problems import Problem, ProblemsFound


@dataclass(frozen=True)
class StackReport:
    """The verdict about one stack. ``refusals`` are the problems, apart from rules, that keep it from being read or built."""

    program: StackProgram
    verdict: Verdict
    refusals: tuple[Problem, ...] = ()

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
    verdict = check_spec(spec, region) if spec and region else nothing
    unknown = tuple(program.problems(unknown_ids(spec.silenced))) if spec else ()
    if verdict.faults or unknown:
        return StackReport(program, verdict, unknown)
    try:
        graph = program.record()
    except ProblemsFound as error:
        return StackReport(program, verdict, error.problems)
    return StackReport(program, verdict + check_graph(graph, spec.silenced if spec else {}))


def problem(program: StackProgram, finding: Finding) -> Problem:
    """A finding as a problem with its place: a line of the stack file, or a resource."""
    found = program.problems([finding.fault])[0]
    urn = finding.judgement.resource
    return replace(found, file="", line=0, key=short_name(urn)) if urn else found


def short_name(urn: str) -> str:
    """``name (type)`` of a URN."""
    type_, _, name = urn.rpartition("::")
    return f"{name} ({type_.rpartition('::')[2].rpartition('$')[2]})"
