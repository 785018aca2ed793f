"""Renders the report as JSON, for programs."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from stackgraph.diff.contents import Revision, StackContents, Told
from stackgraph.diff.differences import ABSENT, JsonText, PropertyChange
from stackgraph.diff.graphs import ResourceChange
from stackgraph.diff.markdown import marker
from stackgraph.diff.report import Report, StackReport
from stackgraph.diff.telling import contents
from stackgraph.graph.values import plain

SCHEMA = 1


def render_json(report: Report) -> str:
    """The whole report. Secrets read ``[secret]``; of a changed secret, the report shows only that it changed."""
    return json.dumps(document(report), indent=2, ensure_ascii=False) + "\n"


def document(report: Report) -> dict[str, Any]:
    """The report as data. ``schema`` changes when the meaning of a key does. ``saved.py`` reads it."""
    told = contents(report)
    return {
        "schema": SCHEMA,
        "marker": marker(told),
        "project": told.project,
        "base": _revision(told.base),
        "head": _revision(told.head),
        "headline": told.headline,
        "changed": told.changed,
        "summary": dict(report.counts),
        "danger": [
            {
                "stack": stack.stack,
                **{key: getattr(danger, key) for key in ("kind", "what", "urn", "subject", "effects", "seconds", "avoid")},
            }
            for stack in report.stacks
            for danger in stack.dangers
        ],
        "failed": told.failed,
        "notes": list(told.notes),
        "onlyStackFiles": told.only_stack_files,
        "stacks": [_stack(*both) for both in zip(report.stacks, told.stacks, strict=True)],
    }


def _revision(revision: Revision) -> dict[str, Any]:
    return {"revision": revision.name, "commit": revision.commit, "dirty": revision.dirty}


def _stack(stack: StackReport, told: StackContents) -> dict[str, Any]:
    diff = stack.diff
    words = {change.urn: change for change in told.changes}
    return {
        "stack": told.stack,
        "status": "failed" if told.failed else told.side or "both",
        "changed": told.changed,
        "problems": {side: list(problems) for side, problems in told.problems.items()},
        "summary": dict(diff.counts) if diff else {},
        "measures": [{"title": title, "what": what} for title, what in told.measures.items()],
        "opaque": told.opaque,
        "mayReplace": told.unsure,
        "steps": None if told.steps is None else list(told.steps),
        "facts": [asdict(row) for row in told.facts],
        "newFindings": [asdict(finding) for finding in told.new_findings],
        "curedFindings": [asdict(finding) for finding in told.cured_findings],
        "rotatedConfig": list(told.rotated),
        "outputs": [_property(change) for change in diff.outputs] if diff else [],
        "outputLines": list(told.outputs),
        "keys": [
            {"kind": key.kind, "name": key.name, "source": key.source, "file": key.path, "lines": list(key.lines)}
            for key in told.keys
        ],
        "resources": [_change(one, stack, words.get(one.urn)) for one in diff.changes if one.kind != "same"] if diff else [],
    }


def _change(change: ResourceChange, stack: StackReport, told: Told | None) -> dict[str, Any]:
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
        "replacementKnown": not change.unsure,
        "mayReplace": list(change.unsure),
        "dependencies": change.dependencies,
        "remote": resource.remote,
        "properties": [_property(property_change) for property_change in change.properties],
        "options": [_property(option) for option in change.options],
        "ignored": [_property(property_change) for property_change in change.ignored],
        "told": told and {key: getattr(told, key) for key in ("section", "type", "name", "lines", "notes")},
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
