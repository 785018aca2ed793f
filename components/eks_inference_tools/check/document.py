"""Renders reports of the rules as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eks_inference.faults import format_path
from eks_inference.rules import Judgement, ReadRule, Rule
from eks_inference_tools.check.registry import all_rules
from eks_inference_tools.check.report import StackReport, open_question, problem
from stackgraph.presentation.output import json_text
from stackgraph.problems import Problem

SCHEMA = 1
_PROBLEM = {**dict.fromkeys(("message", "file", "key", "given", "allowed", "fix"), str), "line": int, "working": [str]}
_RULE = dict.fromkeys(("id", "severity", "meaning", "fix", "source"), str)
VERDICT = {
    **dict.fromkeys(("stack", "verdict"), str),
    "canRun": bool,
    **{key: [str] for key in ("notes", "idleSilences", "rulesApplied")},
    "notJudged": [{"what": str, "of": str, **_PROBLEM}],
    "refusals": [_PROBLEM],
    "findings": [{"rule": str, "severity": str, "silenced": str | None, **_PROBLEM}],
    "rules": int,
}
SHAPE = {"stacks": [VERDICT]}
_ARITHMETIC = {"holds": bool | None, **dict.fromkeys(("key", "resource", "message"), str), "working": [str]}
EXPLAINED = {
    "rule": _RULE,
    "stacks": [{"stack": str, "refusals": [_PROBLEM], "judgements": [_ARITHMETIC], "doesNotApply": str}],
}
RULES = {"rules": [_RULE]}


def verdicts(stacks: Sequence[Mapping[str, Any]]) -> str:
    """The reports of all stacks."""
    return json_text({"schema": SCHEMA, "stacks": stacks})


def explained(rule: Rule[Any] | ReadRule, report: StackReport) -> dict[str, Any]:
    """The arithmetic of one rule in one stack, whether it holds or not."""
    return {
        "stack": report.program.stack,
        "refusals": [_problem(each) for each in report.refusals],
        "judgements": [_judgement(each) for each in report.explained(rule)],
        "doesNotApply": report.why_not(rule) if isinstance(rule, Rule) and not report.explained(rule) else "",
    }


def explanation(rule: Rule[Any] | ReadRule, stacks: Sequence[Mapping[str, Any]]) -> str:
    """One rule and its arithmetic in every stack."""
    return json_text({"schema": SCHEMA, "rule": _rule(rule), "stacks": stacks})


def rule_list() -> str:
    """All rules."""
    return json_text({"schema": SCHEMA, "rules": [_rule(rule) for rule in all_rules().values()]})


def verdict(report: StackReport, notes: Iterable[str] = ()) -> dict[str, Any]:
    """The report of one stack, and lines about it."""
    verdict = report.verdict
    return {
        "stack": report.program.stack,
        "verdict": report.state,
        "canRun": report.state == "can run",
        "notes": list(notes),
        "notJudged": [{"what": each.what, "of": each.of, **_problem(open_question(report, each))} for each in report.not_judged],
        "refusals": [_problem(each) for each in (*report.refusals, *report.unknown)],
        "findings": [
            {
                "rule": finding.rule.id,
                "severity": finding.severity,
                "silenced": finding.reason or None,
                **_problem(problem(report.program, finding, report.graph)),
            }
            for finding in verdict.findings
        ],
        "idleSilences": list(verdict.idle),
        "rulesApplied": list(verdict.applied),
        "rules": len(verdict.rules),
    }


def _problem(each: Problem) -> dict[str, Any]:
    same = ("message", "file", "line", "key", "given", "allowed")
    return {key: getattr(each, key) for key in same} | {"working": list(each.working), "fix": each.hint}


def _rule(rule: Rule[Any] | ReadRule) -> dict[str, str]:
    return {key: getattr(rule, key) for key in ("id", "severity", "meaning", "fix", "source")}


def _judgement(each: Judgement) -> dict[str, Any]:
    return {
        "holds": None if each.unjudged else each.holds,
        "key": format_path(each.path),
        "resource": each.resource,
        "working": list(each.working),
        "message": "" if each.holds else each.message,
    }
