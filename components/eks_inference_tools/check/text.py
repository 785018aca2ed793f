"""Renders reports of the rules for a terminal."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Unpack

from rich.console import RenderableType

from eks_inference.rules import ReadRule, Rule
from eks_inference_tools.check.registry import all_rules
from eks_inference_tools.check.report import StackReport, open_question, problem, short_name
from stackgraph.graph.wording import counted
from stackgraph.presentation.output import Drawing
from stackgraph.presentation.terminal import UNBOUND, Columns, Paragraph, drawn, words


def verdict(report: StackReport, notes: Iterable[str] = (), *, colour: bool = False, width: int = UNBOUND) -> str:
    """The report of one stack, and lines about it. Only a terminal wraps lines: others search them."""
    return drawn(_lines(report, notes), colour=colour, width=width)


def verdicts(stacks: Sequence[str]) -> str:
    """The reports of all stacks."""
    return "".join(stacks)


def explained(rule: Rule[Any] | ReadRule, report: StackReport, *, colour: bool = False, width: int = UNBOUND) -> str:
    """The arithmetic of one rule in one stack, whether it holds or not."""
    return drawn(_explained(rule, report), colour=colour, width=width)


def explanation(rule: Rule[Any] | ReadRule, stacks: Sequence[str], **drawing: Unpack[Drawing]) -> str:
    """One rule and its arithmetic in every stack."""
    about = [("source", rule.source), ("if it is broken", f"{rule.severity}; {rule.fix}")]
    head = [words(f"{rule.id}  {rule.meaning}"), *(Paragraph(words(f"{label}: {text}"), "  ", "    ") for label, text in about)]
    return drawn(head, **drawing) + "".join(stacks)


def rule_list(width: int = UNBOUND, colour: bool = False) -> str:
    """All rules; one per line where no terminal wraps them."""
    return drawn([Columns((rule.id, rule.severity, rule.meaning) for rule in all_rules().values())], width=width, colour=colour)


def _explained(rule: Rule[Any] | ReadRule, report: StackReport) -> Iterator[RenderableType]:
    reason = report.verdict.silenced.get(rule.id)
    yield from ("", words(report.program.stack + (f"  (silenced: {reason})" if reason else "")))
    for refusal in report.refusals:
        yield from (words(f"  {line}") for line in f"error: {refusal.render()}".splitlines())
    judgements = report.explained(rule)
    if isinstance(rule, ReadRule) and not report.refusals:
        yield "  holds: a stack file that breaks it cannot be read"
    elif isinstance(rule, Rule) and not judgements and not report.refusals:
        yield words(f"  does not apply: {report.why_not(rule)}")
    for each in judgements:
        place = report.program.stack_place(each.path) if each.path else short_name(each.resource)
        said = "not judged" if each.unjudged else "holds " if each.holds else "BROKEN"
        yield words(f"  {said}  {place}", "" if each.holds else "red")
        yield from (words(f"          {line}") for line in each.working)
        if not each.holds:
            yield words(f"          {each.message}")


def _lines(report: StackReport, notes: Iterable[str]) -> Iterator[RenderableType]:
    program, verdict = report.program, report.verdict
    broken = [(finding.severity, problem(program, finding, report.graph)) for finding in verdict.findings if not finding.reason]
    errors = [*report.refusals, *(each for severity, each in broken if severity == "error"), *report.unknown]
    warnings = [each for severity, each in broken if severity == "warning"]
    silenced = [finding for finding in verdict.findings if finding.reason]
    for severity, style, problems in (("error", "red", errors), ("warning", "yellow", warnings)):
        for each in problems:
            first, *further = (words(line) for line in f"{severity}: {each.render()}".splitlines())
            first.stylize(style, end=len(severity))
            yield from (first, *further)
    for each in silenced:
        shown = problem(program, each, report.graph)
        place = f"{shown.file}:{shown.line}: " if shown.file else ""
        yield words(f"silenced: {place}{shown.key}: {each.rule.id}: {shown.message}")
        yield words(f"    reason: {each.reason}")
    for idle in verdict.idle:
        place = f"{program.document.shown}:{program.document.line((*program.silenced_path(report.spec), idle))}"
        yield words(f"note: {place}: {idle} is silenced but has no finding in this stack; remove the entry")
    applied = len(verdict.applied)
    for each in report.not_judged:
        yield from (words(line) for line in f"not judged: {open_question(report, each).render()}".splitlines())
    state = words(report.state, {"refused": "red", "can run": "green"}.get(report.state, "yellow"))
    if report.not_judged and not report.stopped:
        state.append("; not judged: " + "; ".join(f"{', '.join(each.what)} of {each.of}" for each in report.not_judged))
    counts = [counted(len(errors), "error"), counted(len(warnings), "warning")]
    counts += [f"{len(silenced)} silenced"] if silenced else []
    # No rule judges a stack that cannot be read.
    applies = f"; {applied} of {len(verdict.rules)} rules apply" if verdict.rules else ""
    yield from (words(f"note: {note}") for note in notes)
    yield from (words(f"{program.stack}: ").append_text(state).append(f": {', '.join(counts)}{applies}"), "")
