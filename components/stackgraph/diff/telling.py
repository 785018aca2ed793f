"""Puts a comparison into words: what each change of a resource is, line by line."""

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from stackgraph.diff.comparing import ABSENT, JsonText, PropertyChange
from stackgraph.diff.contents import Contents, StackContents, Told, by_subject
from stackgraph.diff.graphs import KINDS, Kind, ResourceChange, StackDiff
from stackgraph.diff.report import Recorded, Report, StackReport
from stackgraph.diff.stack_files import changed_keys, key_text
from stackgraph.graph.describe import describe, identity, kind, short_component_type, short_type
from stackgraph.graph.document import is_component
from stackgraph.graph.values import Sealed, plain, text, unique
from stackgraph.graph.wording import shorten

NO_COMPONENT = "Outside of components"
_MOST_LINES = 60
_WIDEST = 200


def contents(report: Report) -> Contents:
    """Everything that a format shows of a comparison."""
    return Contents(
        project=report.project,
        base=report.base,
        head=report.head,
        stacks=tuple(map(_stack, report.stacks)),
        notes=tuple(report.notes),
        link=report.link,
        tool=report.tool,
        titles=report.domain.titles,
        only_stack_files=report.only_stack_files,
    )


def _stack(stack: StackReport) -> StackContents:
    diff = stack.diff
    counts = diff.counts if diff else {}
    return StackContents(
        stack.stack,
        side="" if stack.failed else stack.side,
        changed=stack.changed,
        counts={kind: counts[kind] for kind in KINDS if counts.get(kind) and kind != "same"},
        problems={name: _problems(side) for name, side in (("base", stack.base), ("head", stack.head))},
        dangers=by_subject((danger.subject, danger.what) for danger in stack.dangers),
        avoid=unique(danger.avoid for danger in stack.dangers),
        facts=stack.facts,
        new_findings=stack.new_findings,
        cured_findings=stack.cured_findings,
        rotated=stack.rotated,
        outputs=tuple(line for output in (diff.outputs if diff else ()) for line in property_lines(output)),
        unsure=len(diff.unsure) if diff and not stack.side else 0,
        steps=stack.steps,
        measures=stack.measures,
        keys=tuple(_keys(stack.base, stack.head)) if stack.changed else (),
        changes=tuple(_told(stack, diff)) if diff and not stack.side else (),
        opaque=len(diff.head.opaque) if diff and diff.head else 0,
    )


def _problems(side: Recorded | None) -> tuple[str, ...]:
    return tuple(problem.render() for problem in side.problems) if side else ()


def _keys(base: Recorded | None, head: Recorded | None) -> Iterator[Told]:
    if not base or not head or not head.file:
        return
    for change in changed_keys(base.file, head.file):
        kind: Kind = "create" if change.before is ABSENT else "delete" if change.after is ABSENT else "update"
        name = str(change.path[-1]).rpartition(":")[2]
        lines = tuple(property_lines(PropertyChange((name,), change.before, change.after)))
        yield Told("", kind, None, "key", key_text(change.path), head.file.source(change.path), head.file.path, lines, ())


def _told(stack: StackReport, diff: StackDiff) -> Iterator[Told]:
    """The changes of resources that a deployment touches, and of the outermost components that somebody edited."""
    edited = {c.urn for c in diff.changes if c.kind == "update" and is_component(c.resource) and c.properties}
    for change in diff.changes:
        around = diff.components.get(change.urn, ())
        if change.counts and (change.kind not in ("dependencies", "same")):
            section = short_component_type(around[-1].type) if around else NO_COMPONENT
        elif change.urn in edited and not edited & {component.urn for component in around}:
            section = None
        else:
            continue
        resource = change.resource
        places = stack.head.places if stack.head and change.after else {}
        yield Told(
            change.urn,
            change.kind,
            section,
            kind(resource),
            identity(resource),
            resource.source,
            places.get(resource.source.rpartition(":")[0], ""),
            tuple(_lines(stack, change)),
            tuple(_notes(change)),
        )


def _notes(change: ResourceChange) -> Iterator[str]:
    if change.moved and change.before is not None:
        yield f"moved: was {short_type(change.before.type)} {text(change.before.name)}, matched by its alias"
    causes = [reason for reason in change.because if " of " in reason or reason.startswith("provider ")]
    if causes:
        yield f"replaced because of {', '.join(causes[:3])}, which is replaced"
    yield from (f"replaced: {reason}" for reason in change.because if reason.startswith("region "))
    if change.refused:
        yield f"the service refuses to change {', '.join(change.refused)}"
    if change.unsure:
        yield f"may be replaced because of {', '.join(change.unsure[:5])}: {change.doubt}"
    if change.kind == "update" and change.resource.remote:
        yield "a remote component: only its plugin knows what this changes inside"
    if change.ignored:
        yield f"ignored by ignoreChanges: {', '.join(property_change.name for property_change in change.ignored[:5])}"


def _lines(stack: StackReport, change: ResourceChange) -> Iterator[str]:
    if change.kind in ("create", "delete"):
        if words := describe(change.resource, stack.domain.words):
            yield f"{'+' if change.kind == 'create' else '-'} {words}"
        return
    for one in change.properties:
        why = "  # replaces" if change.forces(one) else ""
        yield from [f"~ {one.name}: hidden by hideDiffs{why}"] if change.hides(one) else property_lines(one, why)
    for option in change.options:
        yield from property_lines(PropertyChange(("option", *option.path), option.before, option.after), "")


def property_lines(change: PropertyChange, ending: str = "") -> Iterator[str]:
    """The lines of one changed property. Long texts and lists show only the items that differ."""
    name, before, after = change.name, change.before, change.after
    if isinstance(before, str) and isinstance(after, str) and ("\n" in before or "\n" in after):
        yield f"  {name}:{ending}"
        yield from _between(before.splitlines(), after.splitlines())
    elif isinstance(before, list) and isinstance(after, list):
        yield f"  {name}:{ending}"
        yield from _between([_value(item) for item in before], [_value(item) for item in after])
    elif isinstance(before, Sealed) and isinstance(after, Sealed):
        yield f"- {name}: {before}"
        yield f"+ {name}: {after} (a different one){ending}"
    else:
        if before is not ABSENT:
            yield f"- {name}: {_value(before)}{ending if after is ABSENT else ''}"
        if after is not ABSENT:
            yield f"+ {name}: {_value(after)}{ending}"


def _between(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    found = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
    shown = [f"{line[0]}   {line[1:]}" for line in found if not line.startswith("@@")]
    yield from (shorten(line, _WIDEST) for line in shown[:_MOST_LINES])
    if len(shown) > _MOST_LINES:
        yield f"  … {len(shown) - _MOST_LINES} more lines"


def _value(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, JsonText):
        value = value[""]
    if isinstance(value, str):
        return shorten(text(value), _WIDEST) if text(value) else '""'
    return shorten(json.dumps(plain(value), ensure_ascii=False, sort_keys=True), _WIDEST)
