"""The comparison of a program with a deployed stack, in the form of the other comparisons."""

from collections.abc import Iterator

from stackgraph.diff.domain import ComparedDomain, Danger, Weight
from stackgraph.diff.report import Recorded, StackReport
from stackgraph.graph.describe import identity, short_type
from stackgraph.graph.wording import counted
from stackgraph.state.exported import Deployed
from stackgraph.state.planning import Plan, plan
from stackgraph.state.steps import steps

_MOST_UNSAID = 8


def stack_report(deployed: Deployed, head: Recorded, domain: ComparedDomain) -> tuple[StackReport, list[str]]:
    """What ``pulumi up`` would do, and notes on what was not compared. ``head`` is the recorded program, with its graph."""
    assert head.graph is not None
    found = plan(deployed, head.graph)
    names = {resource.urn: resource for graph in (deployed.graph, head.graph) for resource in graph.resources}
    condemned = {one.resource.urn: one.resource for one in deployed.held if one.condemned}
    told = []
    for step in steps(found, deployed):
        if step.op != "same":
            resource = names.get(step.urn) or condemned[step.urn]
            told.append(f"{step.op} {short_type(resource.type)} {identity(resource)}")
    report = StackReport(
        head.graph.stack,
        Recorded(found.diff.base),
        head,
        domain,
        planned=found.diff,
        steps=tuple(told),
        found=(*_refused(found), *_unfinished(deployed)),
    )
    return report, [*_notes(found)]


def _notes(found: Plan) -> Iterator[str]:
    if found.uncompared:
        yield f"{counted(found.uncompared, 'value')} not compared: secrets, and what the program computes from outputs"
    if found.unsaid:
        more = len(found.unsaid) - _MOST_UNSAID
        named = ", ".join(found.unsaid[:_MOST_UNSAID]) + (f" and {more} more" if more > 0 else "")
        yield f"computed from outputs, and not in the state: {named}. If that is new, `pulumi preview` says what it changes"


def _refused(found: Plan) -> Iterator[Danger]:
    """Pulumi deletes and replaces nothing that its state protects (step_generator.go, ``IgnoreProtect``)."""
    for change in found.diff.changes:
        protected = change.before is not None and change.before.options.get("protect")
        kept = change.after is not None and not change.after.options.get("protect")
        if protected and not kept and change.kind in ("replace", "delete"):
            what = (
                f"{short_type(change.resource.type)} {identity(change.resource)} is protected: pulumi refuses to {change.kind} it"
            )
            yield Danger("refused", what, change.urn, Weight.REFUSED)


def _unfinished(deployed: Deployed) -> Iterator[Danger]:
    for operation in deployed.pending:
        what = f"the last update was interrupted at {operation}: what became of it the state does not know; run `pulumi refresh`"
        yield Danger("pending-operation", what, weight=Weight.REFUSED)
    condemned = [one.resource for one in deployed.held if one.condemned]
    if condemned:
        names = ", ".join(f"{short_type(one.type)} {identity(one)}" for one in condemned[:4])
        more = f" and {len(condemned) - 4} more" if len(condemned) > 4 else ""
        what = f"left to delete from an earlier update: {names}{more}"
        yield Danger("pending-delete", what, weight=Weight.DELETED)
