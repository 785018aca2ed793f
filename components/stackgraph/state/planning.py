"""What ``pulumi up`` would change in a deployed stack: the recorded program against the state, resource by resource.

Goes through the program in the order of its dependencies, as the engine does: a resource is compared once it is known which
outputs its inputs will find. Outputs of what is created or replaced are unknown, so they differ from what was deployed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from stackgraph.diff.differences import PropertyChange, differences, opened, path_text
from stackgraph.diff.graphs import ResourceChange, StackDiff, compared
from stackgraph.diff.moves import Pairing, in_regions, pairing
from stackgraph.diff.replacement_causes import goes_with, replacing
from stackgraph.graph.describe import short_type
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.structure import in_order
from stackgraph.graph.values import leaves
from stackgraph.state.exported import Deployed, Held
from stackgraph.state.inputs import from_provider, given, hidden, normalized, settled, unknown, unsaid

_OF_THE_STATE = ("protect", "retainOnDelete", "deletedWith", "replacementTrigger", "read")

# Inputs that a provider makes from another one (``normalized``, ``from_provider``).
_MADE_FROM = {"data": "stringData", "tagsAll": "tags"}


@dataclass(frozen=True)
class Plan:
    """The changes of a stack. ``order`` has the program's URNs as the engine meets them, ``inside`` those in the state that
    belong to one of its remote components: only the plugin knows what becomes of them. ``uncompared`` values are secrets, or
    values that the program computes from outputs: those count as unchanged as long as the outputs are. ``unsaid`` names those of
    them that the state lacks: whether somebody added them since, only the update finds out.
    """

    diff: StackDiff
    order: tuple[str, ...]
    pairs: Pairing
    inside: tuple[str, ...]
    uncompared: int
    unsaid: tuple[str, ...]


def plan(deployed: Deployed, head: Graph) -> Plan:
    """What an update of the stack to the program would change."""
    return _Planner(deployed, head).plan()


class _Planner:
    def __init__(self, deployed: Deployed, head: Graph) -> None:
        self.deployed, self.head, self.base = deployed, head, deployed.graph
        self.pairs = pairing(self.base, head)
        self.changes: dict[str, ResourceChange] = {}
        self.uncompared = 0
        self.unsaid: list[str] = []
        self._outputs: dict[str, dict[str, Mapping[str, Any]]] = {}
        """By name and URN, the outputs that the update finds."""

    def plan(self) -> Plan:
        left = [resource for resource in self.base.resources if resource.urn not in self.pairs.new_of]
        inside = tuple(resource.urn for resource in left if self._inside_remote(resource.urn))
        for urn in inside:
            self._know(self.base.by_urn[urn], self.deployed.by_urn[urn], {})
        order = in_order(self.head)
        for urn in order:
            self.changes[urn] = self._change(self.head.by_urn[urn])
        # The engine keeps default providers as it needs them.
        gone = [resource for resource in left if resource.urn not in inside and not resource.is_default_provider]
        deleted = [ResourceChange("delete", resource, None) for resource in gone]
        outputs = self._hidden(settled(self.head.outputs, self._known), self.base.outputs, True, "outputs")
        changes = sorted((*self.changes.values(), *deleted), key=lambda change: change.urn)
        found = tuple(differences(opened(self.base.outputs), opened(outputs)))
        # Both sides as they were compared: with the same spelling, and without what is inside remote components.
        before = tuple(change.before for change in changes if change.before)
        after = tuple(change.after for change in changes if change.after)
        base, head = replace(self.base, resources=before), replace(self.head, resources=after, outputs=outputs)
        diff = StackDiff(self.head.stack, base, head, tuple(changes), found)
        return Plan(diff, order, self.pairs, inside, self.uncompared, tuple(self.unsaid))

    def _inside_remote(self, urn: str) -> bool:
        """Whether the resource is inside a remote component that the program still has."""
        seen = set()
        while urn in self.base.by_urn and urn not in seen:
            seen.add(urn)
            new = self.head.by_urn.get(self.pairs.new_of.get(urn, ""))
            if new is not None:
                return new.remote
            urn = self.base.by_urn[urn].parent
        return False

    def _change(self, resource: Resource) -> ResourceChange:
        held = self.deployed.by_urn.get(self.pairs.old_of.get(resource.urn, ""))
        inputs = self._settled(resource)
        if held is None:
            change = ResourceChange("create", None, replace(resource, inputs=inputs))
        else:
            change = self._compared(held, resource, inputs)
        anew = held is None or change.kind == "replace"
        changed = {str(property_change.path[0]) for property_change in change.properties if property_change.path}
        known = inputs if anew else {key: value for key, value in inputs.items() if key in changed}
        self._know(resource, None if anew else held, known)
        return change

    def _compared(self, held: Held, resource: Resource, inputs: Any) -> ResourceChange:
        options = settled(resource.options, self._known)
        old, inputs = given(resource.type, held.resource.inputs, inputs), normalized(resource.type, inputs)
        if provider := self.head.by_urn.get(resource.provider):
            inputs = from_provider(resource.type, inputs, old, self._settled(provider))
        providers = self.base.by_urn.get(held.resource.provider), self.head.by_urn.get(resource.provider)
        old, inputs = in_regions(resource, old, inputs, *providers)
        place = f"{short_type(resource.type)} {resource.name}"
        shown: dict[str, Any] = {}
        for key, value in inputs.items():
            shown[key] = self._hidden(value, old.get(key), self._kept(resource, key), f"{place} {key}")
        # The state keeps no options but these; others decide about this update alone.
        kept = {key: value for key, value in options.items() if key not in _OF_THE_STATE}
        options = {
            key: hidden(value, held.resource.options.get(key), key in held.resource.options)[0] for key, value in options.items()
        }
        before = replace(
            held.resource,
            inputs=old,
            options={**kept, **held.resource.options},
            remote=resource.remote,
            dependencies=resource.dependencies,
            property_dependencies=resource.property_dependencies,
            provider=resource.provider,
        )
        after = replace(resource, inputs=shown, options=options)
        change = compared(before, after, self.base, self.head, Pairing(self.pairs.old_of))
        if held.pending_replacement:
            change = replace(change, kind="replace", because=(*change.because, "an earlier update deleted it"))
        if resource.options.get("import") not in (None, held.imported or held.id):
            change = replace(change, kind="replace", because=(*change.because, "import"), unsure=())
        if change.kind != "replace" and (because := self._pulled_along(held, resource)):
            change = replace(change, kind="replace", because=because, unsure=())
        if change.kind in ("same", "dependencies", "move") and self._unconfigured(resource.provider):
            # The engine asks no provider whose configuration is unknown, and calls it an update (``DiffUnavailableError``).
            moved = PropertyChange(("provider",), self.pairs.urn(held.resource.provider), resource.provider)
            change = replace(change, kind="update", options=(moved,))
        return change

    def _hidden(self, value: Any, deployed: Any, unchanged: bool, place: str) -> Any:
        """What is compared of a value, with a count of what is not."""
        shown, count = hidden(value, deployed, unchanged)
        self.uncompared += count
        if unchanged:
            self.unsaid += [".".join(filter(None, (place, path_text(path)))) for path in unsaid(value, deployed)]
        return shown

    def _pulled_along(self, held: Held, resource: Resource) -> tuple[str, ...]:
        """Why a resource is replaced with others: its provider, or those that its options name (step_generator.go, ``diff``)."""
        old, new = self.base.by_urn.get(held.resource.provider), self.head.by_urn.get(resource.provider)
        if old and new and self.pairs.urn(old.urn) != new.urn:
            inputs = opened(self._settled(new))
            if any(replacing(new, opened(given(new.type, old.inputs, inputs)), inputs, self.head)):
                return (f"provider {new.name}",)
        found = ((key, self.changes.get(urn)) for key, urn in goes_with(resource))
        return tuple(f"{key} {change.resource.name}" for key, change in found if change and change.kind == "replace")

    def _unconfigured(self, provider: str) -> bool:
        change = self.changes.get(provider)
        return change is not None and any(unknown(leaf) for leaf in leaves(change.resource.inputs))

    def _kept(self, resource: Resource, key: str) -> bool:
        """Whether everything that an input depends on stays the resource that it is."""
        keys = (key, _MADE_FROM.get(key, ""))
        found = (self.changes.get(urn) for key in keys for urn in resource.property_dependencies.get(key, ()))
        return all(change is None or change.kind not in ("create", "replace") for change in found)

    def _know(self, resource: Resource, held: Held | None, inputs: Mapping[str, Any]) -> None:
        found = {**held.outputs, **inputs, "id": held.id} if held else dict(inputs)
        of_name = self._outputs.setdefault(resource.name, {})
        of_name[resource.urn] = {key: self._followed(value) for key, value in found.items()}

    def _followed(self, value: Any) -> Any:
        """The outputs of a resource that is itself an output, as remote components have them."""
        held = self.deployed.by_urn.get(value.get("resource", "")) if isinstance(value, Mapping) else None
        return {**held.outputs, "id": held.id} if held else value

    def _settled(self, resource: Resource) -> dict[str, Any]:
        """The inputs with the outputs that they find. If resources share a name, those that the input depends on count."""
        uses = resource.property_dependencies
        return {key: settled(item, partial(self._known, urns=uses.get(key, ()))) for key, item in resource.inputs.items()}

    def _known(self, name: str, urns: Sequence[str] = ()) -> Iterator[Mapping[str, Any]]:
        found = self._outputs.get(name, {})
        yield from [found[urn] for urn in urns if urn in found] or found.values()
