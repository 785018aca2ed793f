"""The steps of an update in the engine's order, with the names that ``pulumi preview --json`` gives them.

Follows ``pkg/resource/deploy/step_generator.go`` of pulumi/pulumi v3.272 (continueStepsFromDiff, calculateDependentReplacements,
GenerateDeletes). Steps that nothing orders among each other come by URN: the engine runs those at the same time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from stackgraph.diff.comparison_domain import ComparedDomain, Danger, Weight
from stackgraph.diff.graphs import ResourceChange, inputs_of
from stackgraph.diff.replacement_causes import FOLLOWS, would_replace
from stackgraph.diff.report import Recorded, StackReport
from stackgraph.graph.describe import identity, short_type
from stackgraph.graph.document import STACK_TYPE, Resource, is_component, is_read
from stackgraph.graph.structure import in_order
from stackgraph.graph.values import at
from stackgraph.graph.wording import counted, first_of
from stackgraph.state.exported import Deployed
from stackgraph.state.planning import Plan, plan

Op = Literal["same", "create", "update", "delete", "replace", "create-replacement", "delete-replaced", "read", "import"]

# The names that a user may give instead of the one that the provider makes up. Who gave one, and keeps it, has the old resource
# deleted first (pulumi-terraform-bridge, nameRequiresDeleteBeforeReplace).
_NAMES = ("name", "bucket", "clusterIdentifier", "identifier", "nodeGroupName")


@dataclass(frozen=True)
class Step:
    """One step. ``urn`` is the program's; for a deleted resource, the state's."""

    op: Op
    urn: str


def steps(plan: Plan, deployed: Deployed) -> tuple[Step, ...]:
    """Every step of the update but those of default providers."""
    graphs = (deployed.graph, plan.diff.head)
    hidden = {resource.urn for graph in graphs if graph for resource in graph.resources if resource.is_default_provider}
    return tuple(step for step in _Steps(plan, deployed).all() if step.urn not in hidden)


def deletes_first(change: ResourceChange) -> bool:
    """Whether a replaced resource is deleted before its successor exists.

    A provider decides unless an option says so; the rules are those of the AWS and the Kubernetes provider. The engine asks no
    provider about a replacement that follows from another resource (``diff`` of step_generator.go).
    """
    before, after = change.before, change.after
    if before is None or after is None:
        return False
    if "deleteBeforeReplace" in after.options:
        return bool(after.options["deleteBeforeReplace"])
    if any(reason.partition(" ")[0] in FOLLOWS for reason in change.because):
        return False
    if after.package == "kubernetes":
        old, new = ((at(side.inputs, "metadata", "name"), at(side.inputs, "metadata", "namespace")) for side in (before, after))
        return bool(new[0]) and old == new
    return after.package == "aws" and any(
        name in after.inputs and before.inputs.get(name) == after.inputs[name] for name in _NAMES
    )


class _Steps:
    def __init__(self, plan: Plan, deployed: Deployed) -> None:
        self.plan, self.deployed, self.base = plan, deployed, deployed.graph
        self.order = in_order(self.base)
        self.done: set[str] = set()
        self.met: set[str] = set()
        """URNs of the state that the update has come to, or has deleted."""

    def all(self) -> Iterator[Step]:
        later: list[str] = []
        for urn in self.plan.order:
            change = self.plan.diff.by_urn[urn]
            old = self.plan.pairs.old_of.get(urn, "")
            yield from self._of(change, urn, old, later)
            self.met.add(old)
        yield from (Step("same", urn) for urn in self.plan.inside)
        gone = {change.urn for change in self.plan.diff.changes if change.kind == "delete"} - self.done
        condemned = [held.resource.urn for held in self.deployed.held if held.condemned]
        for old in reversed(self.order):
            if old in gone:
                yield Step("delete", old)
            elif old in later:
                yield Step("delete-replaced", self.plan.pairs.urn(old))
        yield from (Step("delete-replaced", old) for old in condemned)

    def _of(self, change: ResourceChange, urn: str, old: str, later: list[str]) -> Iterator[Step]:
        if is_read(change.resource):
            yield Step("read", urn)
        elif change.kind == "replace" and not is_component(change.resource) and not change.resource.remote:
            if old in self.done:
                yield from (Step("replace", urn), Step("create-replacement", urn))
            elif deletes_first(change):
                for dependent in (*reversed(self._pulled_along(old)), old):
                    self.done.add(dependent)
                    yield Step("delete-replaced", self.plan.pairs.urn(dependent))
                yield from (Step("replace", urn), Step("create-replacement", urn))
            else:
                later.append(old)
                yield from (Step("create-replacement", urn), Step("replace", urn))
        elif old in self.done:
            yield from (Step("replace", urn), Step("create-replacement", urn))
        elif change.kind == "create":
            yield Step("import" if change.resource.options.get("import") else "create", urn)
        else:
            # Other options alone are written to the state without a step of their own.
            asked = change.properties or any(option.path == ("provider",) for option in change.options)
            yield Step("update" if asked and change.resource.type != STACK_TYPE else "same", urn)

    def _pulled_along(self, root: str) -> Sequence[str]:
        """The resources that have to go before ``root`` does: those that a change of its outputs would replace."""
        replaced, found = {root}, []
        for urn in self.order:
            resource = self.base.by_urn[urn]
            if urn in self.done or urn in self.met or urn == root or not resource.custom or is_read(resource):
                continue
            if resource.provider in replaced or resource.options.get("deletedWith") in replaced or _uses(resource, replaced):
                replaced.add(urn)
                found.append(urn)
        return found


def _uses(resource: Resource, replaced: set[str]) -> bool:
    """Whether an unknown value of an input that depends on a replaced resource would replace this one, too."""
    keys = [key for key, urns in resource.property_dependencies.items() if replaced.intersection(urns)]
    inputs = inputs_of(resource)
    return bool(keys) and would_replace(resource, inputs, {**inputs, **{key: "<unknown>" for key in keys if key in inputs}})


_MOST_NAMES = 8


def stack_report(deployed: Deployed, head: Recorded, domain: ComparedDomain) -> tuple[StackReport, list[str]]:
    """What ``pulumi up`` would do, and notes on what was not compared. ``head`` is the recorded program, with its graph."""
    assert head.graph is not None
    found = plan(deployed, head.graph)
    names = {resource.urn: resource for graph in (deployed.graph, head.graph) for resource in graph.resources}
    condemned = {held.resource.urn: held.resource for held in deployed.held if held.condemned}
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
        named = first_of(found.unsaid, _MOST_NAMES)
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
        what = f"the last update was interrupted at {operation}: the state does not say what became of it; run `pulumi refresh`"
        yield Danger("pending-operation", what, weight=Weight.REFUSED)
    condemned = [f"{short_type(held.resource.type)} {identity(held.resource)}" for held in deployed.held if held.condemned]
    if condemned:
        what = f"left to delete from an earlier update: {first_of(condemned, _MOST_NAMES)}"
        yield Danger("pending-delete", what, weight=Weight.DELETED)
