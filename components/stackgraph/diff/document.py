"""Renders the report as JSON, for programs."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from stackgraph.diff.comparing import ABSENT, JsonText, PropertyChange
from stackgraph.diff.graphs import ResourceChange
from stackgraph.diff.markdown import marker
from stackgraph.diff.report import Recorded, Report, Revision, StackReport
from stackgraph.graph.values import plain

SCHEMA = 1


def render_json(report: Report) -> str:
    """The whole report. Secrets read ``[secret]``; of a changed secret, the report shows only that it changed."""
    return json.dumps(document(report), indent=2, ensure_ascii=False) + "\n"


def document(report: Report) -> dict[str, Any]:
    """The report as data. ``schema`` changes when the meaning of a key does."""
    return {
        "schema": SCHEMA,
        "marker": marker(report),
        "project": report.project,
        "base": _revision(report.base),
        "head": _revision(report.head),
        "headline": report.headline,
        "changed": report.changed,
        "summary": dict(report.counts),
        "danger": [
            {"stack": stack.stack, "kind": danger.kind, "what": danger.what, "urn": danger.urn}
            for stack in report.stacks
            for danger in stack.dangers
        ],
        "failed": list(report.failed),
        "notes": list(report.notes),
        "stacks": [_stack(stack) for stack in report.stacks],
    }


def _revision(revision: Revision) -> dict[str, Any]:
    return {"revision": revision.name, "commit": revision.commit, "dirty": revision.dirty}


def _stack(stack: StackReport) -> dict[str, Any]:
    diff = stack.diff
    return {
        "stack": stack.stack,
        "status": "failed" if stack.failed else stack.side or "both",
        "changed": stack.changed,
        "problems": {name: _problems(side) for name, side in (("base", stack.base), ("head", stack.head))},
        "summary": dict(diff.counts) if diff else {},
        "facts": [asdict(row) for row in stack.facts],
        "newFindings": [asdict(finding) for finding in stack.new_findings],
        "curedFindings": [asdict(finding) for finding in stack.cured_findings],
        "rotatedConfig": list(stack.rotated),
        "outputs": [_property(change) for change in diff.outputs] if diff else [],
        "resources": [_change(change, stack) for change in diff.changes if change.kind != "same"] if diff else [],
    }


def _problems(side: Recorded | None) -> list[str]:
    return [problem.render() for problem in side.problems] if side else []


def _change(change: ResourceChange, stack: StackReport) -> dict[str, Any]:
    resource = change.resource
    places = stack.head.places if stack.head and change.after else {}
    return {
        "kind": change.kind,
        "urn": change.urn,
        "type": resource.type,
        "name": resource.name,
        "counts": change.counts,
        "movedFrom": change.before.urn if change.moved and change.before else None,
        "source": resource.source,
        "file": places.get(resource.source.rpartition(":")[0]),
        "because": list(change.because),
        "refused": list(change.refused),
        "replacementKnown": change.certain,
        "dependencies": change.dependencies,
        "remote": resource.remote,
        "properties": [_property(one) for one in change.properties],
        "options": [_property(one) for one in change.options],
        "ignored": [_property(one) for one in change.ignored],
    }


def _property(change: PropertyChange) -> dict[str, Any]:
    values = {"before": change.before, "after": change.after}
    return {"path": change.name} | {key: plain(_closed(value)) for key, value in values.items() if value is not ABSENT}


def _closed(value: Any) -> Any:
    """The value with the content of JSON strings in place of ``JsonText``."""
    if isinstance(value, JsonText):
        return _closed(value[""])
    if isinstance(value, Mapping):
        return {key: _closed(item) for key, item in value.items()}
    return [_closed(item) for item in value] if isinstance(value, list) else value
