"""What the rules say of stacks, for people and for programs."""

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference.faults import format_path
from eks_inference.rules import Finding, Judgement, ReadRule, Rule
from eks_inference.stack.check import Verdict, check_spec
from eks_inference_tools.check.registry import all_rules, check_graph, unknown_ids
from eks_inference_tools.program import REGION_KEY, STACK_KEY, StackProgram
from stackgraph.problems import PreviewError, Problem

SCHEMA = 1
_WIDTH = 110


@dataclass(frozen=True)
class StackReport:
    """What there is to say of one stack. ``refusals`` are why it cannot be read or built at all, apart from the rules."""

    program: StackProgram
    verdict: Verdict
    refusals: tuple[Problem, ...] = ()

    @property
    def stopped(self) -> bool:
        return bool(self.refusals or self.verdict.faults)

    def explained(self, rule: Rule[Any] | ReadRule) -> list[Judgement]:
        """What one rule looked at in this stack."""
        return [judgement for judged, judgement in self.verdict.judgements if judged.id == rule.id]


def judge(program: StackProgram) -> StackReport:
    """Judge a stack: its spec first; when that can be built, also the graph."""
    nothing = Verdict((), (), {})
    try:
        spec = program.spec() if STACK_KEY in program.config.values else None
    except PreviewError as error:
        return StackReport(program, nothing, error.problems)
    region = program.config.values.get(REGION_KEY)
    verdict = check_spec(spec, region) if spec and region else nothing
    unknown = tuple(program.problems(unknown_ids(spec.silenced))) if spec else ()
    if verdict.faults or unknown:
        return StackReport(program, verdict, unknown)
    try:
        graph = program.record()
    except PreviewError as error:
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


def render(reports: Sequence[StackReport], format_: str, *, colour: bool = False) -> str:
    """The reports of all stacks: ``text`` or ``json``."""
    if format_ == "json":
        return _json({"schema": SCHEMA, "stacks": [_document(report) for report in reports]})
    return "\n".join(line for report in reports for line in _lines(report, colour))


def explanation(rule: Rule[Any] | ReadRule, reports: Sequence[StackReport], format_: str) -> str:
    """One rule, and its arithmetic in every stack, kept or broken."""
    if format_ == "json":
        stacks = [
            {
                "stack": report.program.stack,
                "refusals": [_problem(each) for each in report.refusals],
                "judgements": [_judgement(each) for each in report.explained(rule)],
            }
            for report in reports
        ]
        return _json({"schema": SCHEMA, "rule": _rule(rule), "stacks": stacks})
    lines = [
        f"{rule.id}  {rule.meaning}",
        *_wrapped("source", rule.source),
        *_wrapped("if it is broken", f"{rule.severity}; {rule.fix}"),
    ]
    for report in reports:
        reason = report.verdict.silenced.get(rule.id)
        lines += ["", report.program.stack + (f"  (silenced: {reason})" if reason else "")]
        lines += [f"  {line}" for refusal in report.refusals for line in f"error: {refusal.render()}".splitlines()]
        if isinstance(rule, ReadRule):
            lines += [] if report.refusals else ["  holds: a stack file that breaks it cannot be read"]
            continue
        judgements = report.explained(rule)
        if not judgements and not report.refusals:
            lines.append("  does not apply to anything here")
        for each in judgements:
            place = report.program.stack_place(each.path) if each.path else short_name(each.resource)
            lines.append(f"  {'holds ' if each.holds else 'BROKEN'}  {place}")
            lines += [f"          {line}" for line in each.working]
            if not each.holds:
                lines.append(f"          {each.message}")
    return "\n".join(lines) + "\n"


def rule_list(format_: str) -> str:
    """Every rule there is."""
    rules = all_rules().values()
    if format_ == "json":
        return _json({"schema": SCHEMA, "rules": [_rule(rule) for rule in rules]})
    width = max(len(rule.id) for rule in rules)
    return "".join(f"{rule.id:<{width}}  {rule.severity:<7}  {rule.meaning}\n" for rule in rules)


def _lines(report: StackReport, colour: bool) -> Iterator[str]:
    program, verdict = report.program, report.verdict

    def paint(word: str, code: str) -> str:
        return f"\033[{code}m{word}\033[0m" if colour else word

    broken = [finding for finding in verdict.findings if not finding.reason]
    errors = [*report.refusals, *(problem(program, each) for each in broken if each.severity == "error"), *_unknown(report)]
    warnings = [problem(program, each) for each in broken if each.severity == "warning"]
    silenced = [finding for finding in verdict.findings if finding.reason]
    for each in errors:
        yield f"{paint('error', '31')}: {each.render()}"
    for each in warnings:
        yield f"{paint('warning', '33')}: {each.render()}"
    for each in silenced:
        shown = problem(program, each)
        place = f"{shown.file}:{shown.line}: " if shown.file else ""
        yield f"silenced: {place}{shown.key}: {each.rule.id}: {shown.message}\n    reason: {each.reason}"
    for idle in verdict.idle:
        place = f"{program.document.shown}:{program.document.line(('config', STACK_KEY, 'silenced', idle))}"
        yield f"note: {place}: {idle} is silenced and has nothing against this stack: the entry can go"
    applied = len({rule.id for rule, _ in verdict.judgements})
    state = paint("refused", "31") if report.stopped else paint("can run", "32")
    counts = [_counted(len(errors), "error"), _counted(len(warnings), "warning")]
    counts += [f"{len(silenced)} silenced"] if silenced else []
    yield f"{program.stack}: {state}: {', '.join(counts)}; {applied} of {len(verdict.rules)} rules apply"
    yield ""


def _wrapped(label: str, words: str) -> list[str]:
    return textwrap.wrap(f"{label}: {words}", _WIDTH, initial_indent="  ", subsequent_indent="    ")


def _unknown(report: StackReport) -> list[Problem]:
    """Silenced rules that do not exist; they are no findings of a rule."""
    return report.program.problems([fault for fault in report.verdict.faults if not fault.rule])


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _document(report: StackReport) -> dict[str, Any]:
    verdict = report.verdict
    return {
        "stack": report.program.stack,
        "canRun": not report.stopped,
        "refusals": [_problem(each) for each in (*report.refusals, *_unknown(report))],
        "findings": [
            {
                "rule": finding.rule.id,
                "severity": finding.severity,
                "silenced": finding.reason or None,
                **_problem(problem(report.program, finding)),
            }
            for finding in verdict.findings
        ],
        "idleSilences": list(verdict.idle),
        "rulesApplied": sorted({rule.id for rule, _ in verdict.judgements}),
        "rules": len(verdict.rules),
    }


def _problem(each: Problem) -> dict[str, Any]:
    return {
        "message": each.message,
        "file": each.file,
        "line": each.line,
        "key": each.key,
        "given": each.given,
        "allowed": each.allowed,
        "working": list(each.working),
        "fix": each.hint,
    }


def _rule(rule: Rule[Any] | ReadRule) -> dict[str, str]:
    return {
        "id": rule.id,
        "severity": rule.severity,
        "meaning": rule.meaning,
        "fix": rule.fix,
        "source": rule.source,
    }


def _judgement(each: Judgement) -> dict[str, Any]:
    return {
        "holds": each.holds,
        "key": format_path(each.path),
        "resource": each.resource,
        "working": list(each.working),
        "message": "" if each.holds else each.message,
    }


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
