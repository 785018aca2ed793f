"""What the rules say of stacks."""

from dataclasses import dataclass
from typing import Any

from eks_inference.rules import Finding, Judgement, ReadRule, Rule
from eks_inference.stack.check import Verdict, check_spec
from eks_inference_tools.check.registry import check_graph, unknown_ids
from eks_inference_tools.program import REGION_KEY, STACK_KEY, StackProgram
from stackgraph.problems import Problem, ProblemsFound


@dataclass(frozen=True)
class StackReport:
    """What there is to say of one stack. ``refusals`` are why it cannot be read or built at all, apart from the rules."""

    program: StackProgram
    verdict: Verdict
    refusals: tuple[Problem, ...] = ()

    @property
    def stopped(self) -> bool:
        return bool(self.refusals or self.verdict.faults)

    @property
    def unknown(self) -> list[Problem]:
        """Silenced rules that do not exist; they are no findings of a rule."""
        return self.program.problems([fault for fault in self.verdict.faults if not fault.rule])

    def explained(self, rule: Rule[Any] | ReadRule) -> list[Judgement]:
        """What one rule looked at in this stack."""
        return [judgement for judged, judgement in self.verdict.judgements if judged.id == rule.id]


def judge(program: StackProgram) -> StackReport:
    """Judge a stack: its spec first; when that can be built, also the graph."""
    nothing = Verdict((), (), {})
    try:
        spec = program.spec() if STACK_KEY in program.config.values else None
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
    """A finding with its place: a line of the stack file, or a resource."""
    if finding.judgement.resource:
        fault = finding.fault
        return Problem(
            fault.message,
            key=short_name(finding.judgement.resource),
            given=fault.given,
            allowed=fault.allowed,
            hint=fault.hint,
            rule=fault.rule,
            working=fault.working,
        )
    return program.problems([finding.fault])[0]


def short_name(urn: str) -> str:
    """The short form of a URN: its name and type."""
    type_, _, name = urn.rpartition("::")
    return f"{name} ({type_.rpartition('::')[2].rpartition('$')[2]})"
