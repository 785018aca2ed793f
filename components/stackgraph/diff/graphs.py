"""Compares two recorded graphs resource by resource, including the replacements that follow from other replacements."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from stackgraph.diff import replacements
from stackgraph.diff.differences import PropertyChange, differences, identical, may_stay, opened, path_text, stays
from stackgraph.diff.moves import Pairing, in_regions, pairing
from stackgraph.diff.replacement_causes import because, goes_with, replacing, unsure
from stackgraph.graph.document import STACK_TYPE, Graph, Resource, is_component, is_read
from stackgraph.graph.structure import Structure
from stackgraph.graph.values import SECRET, UNKNOWN, Sealed, leaves, mapped, plain, redacted

Kind = Literal["create", "update", "replace", "delete", "move", "dependencies", "same"]
KINDS: tuple[Kind, ...] = ("create", "update", "replace", "delete", "move", "dependencies", "same")

# Pairs every resource with itself.
_IDENTITY = Pairing({})


@dataclass(frozen=True)
class ResourceChange:
    """What happens to one resource. ``before`` and ``after`` are the recorded resources, or None where it does not exist.

    ``properties`` are changes of inputs, ``options`` changes of resource options. ``dependencies`` is True if the dependencies
    differ. ``because`` names what causes a replacement: paths, or other replaced resources. ``refused`` are the paths that the
    service does not update. ``ignored`` are changes excluded by ``ignoreChanges``. ``unsure`` names the paths that may replace
    the resource: all that change if the tables do not know its type.
    """

    kind: Kind
    before: Resource | None
    after: Resource | None
    properties: tuple[PropertyChange, ...] = ()
    options: tuple[PropertyChange, ...] = ()
    dependencies: bool = False
    because: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    ignored: tuple[PropertyChange, ...] = ()
    unsure: tuple[str, ...] = ()

    @property
    def doubt(self) -> str:
        """Why nobody can say whether the resource is replaced, in words; empty where that is certain."""
        if not self.unsure:
            return ""
        if not replacements.is_known(self.resource.type):
            return "no table knows the type"
        decides = [pattern for row in replacements.rows(self.resource.type) for pattern in row.may]
        direct = [
            path for path in map(replacements.pattern_of, self.unsure) if any(replacements.covers(one, path) for one in decides)
        ]
        later = len(direct) < len(self.unsure)
        return "the values are known only during the update" if later else "the provider decides by the values"

    @property
    def resource(self) -> Resource:
        """The resource as it will be; a deleted one as it was."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def urn(self) -> str:
        return self.resource.urn

    @property
    def moved(self) -> bool:
        return self.before is not None and self.after is not None and self.before.urn != self.after.urn

    @property
    def counts(self) -> bool:
        """Whether a deployment creates the resource: no component, default provider, stack, or resource that is only read."""
        resource = self.resource
        return not (is_component(resource) or resource.type == STACK_TYPE or resource.is_default_provider or is_read(resource))

    def hides(self, change: PropertyChange) -> bool:
        """Whether the resource asks not to show a property change: at or below a path of ``hideDiffs``."""
        return _within(change, self.resource.options.get("hideDiffs", ()))

    def forces(self, change: PropertyChange) -> bool:
        """Whether a property change is a reason for the replacement."""
        return any(replacements.covers(replacements.pattern_of(path), change.path) for path in self.because)


@dataclass(frozen=True)
class StackDiff:
    """The differences between two graphs of one stack. A graph is None if its revision does not have the stack."""

    stack: str
    base: Graph | None
    head: Graph | None
    changes: tuple[ResourceChange, ...]
    outputs: tuple[PropertyChange, ...] = ()

    @cached_property
    def by_urn(self) -> Mapping[str, ResourceChange]:
        return {change.urn: change for change in self.changes}

    def of_kind(self, kind: Kind) -> list[ResourceChange]:
        """The changes of one kind to resources that count."""
        return [change for change in self.changes if change.kind == kind and change.counts]

    @property
    def unsure(self) -> list[ResourceChange]:
        """The changes that may be replacements."""
        return [change for change in self.changes if change.counts and change.unsure]

    @property
    def counts(self) -> Mapping[Kind, int]:
        return {kind: len(self.of_kind(kind)) for kind in KINDS}

    @property
    def changed(self) -> bool:
        """Whether a deployment would do anything, or outputs differ."""
        return bool(self.outputs) or any(change.kind not in ("same", "dependencies") for change in self.changes)

    @cached_property
    def components(self) -> Mapping[str, tuple[Resource, ...]]:
        """By URN of a change, the components around its resource, outermost first."""
        found: dict[str, tuple[Resource, ...]] = {}
        for graph, side in ((self.base, "before"), (self.head, "after")):
            if graph is None:
                continue
            structure = Structure(graph)
            for change in self.changes:
                resource = getattr(change, side)
                if resource is not None and resource.urn in structure.parent:
                    around = (graph.by_urn[urn] for urn in structure.above(resource.urn)[:-1])
                    found[change.urn] = tuple(resource for resource in around if not resource.custom)
        return found


def compare(base: Graph | None, head: Graph | None) -> StackDiff:
    """The differences between two graphs of a stack. None stands for a stack that does not exist; one graph must be given."""
    present = head or base
    assert present is not None
    before = base or Graph(present.project, present.stack, ())
    after = head or Graph(present.project, present.stack, ())
    pairs = pairing(before, after)
    changes = [
        _doubted(compared(before.by_urn[pairs.old_of[resource.urn]], resource, before, after, pairs), before, after)
        if resource.urn in pairs.old_of
        else ResourceChange("create", None, resource)
        for resource in after.resources
    ]
    changes += [ResourceChange("delete", resource, None) for resource in before.resources if resource.urn not in pairs.new_of]
    outputs = differences(opened(pairs.translated(before.outputs)), opened(after.outputs)) if base and head else ()
    order = sorted(_with_consequences(changes, after), key=lambda change: change.urn)
    return StackDiff(after.stack, base, head, tuple(order), tuple(outputs))


def _doubted(change: ResourceChange, base: Graph, head: Graph) -> ResourceChange:
    """The change as one that may replace, where every property that forces a replacement may stay as it is."""
    forcing = [property_change for property_change in change.properties if change.forces(property_change)]
    named = {path_text(path) for one in forcing for path in (one.path[:end] for end in range(1, len(one.path) + 1))}
    if not forcing or not named.issuperset(change.because) or not all(may_stay(one, base, head) for one in forcing):
        return change
    return replace(change, kind="update", because=(), unsure=change.because)


def _within(change: PropertyChange, paths: Sequence[str]) -> bool:
    """Whether a change is at or below one of the paths of a resource option."""
    patterns = map(replacements.pattern_of, paths)
    return any(len(change.path) >= len(pattern) and replacements.covers(pattern, change.path) for pattern in patterns)


def inputs_of(resource: Resource) -> dict[str, Any]:
    """The inputs in the form to compare: JSON strings parsed, the data of a Kubernetes Secret sealed."""
    return redacted(resource.type, opened(resource.inputs), _sealed)


def _sealed(value: Any) -> Sealed:
    if isinstance(value, Sealed):
        return value
    return Sealed(hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest())


def compared(before: Resource, after: Resource, base: Graph, head: Graph, pairs: Pairing) -> ResourceChange:
    """The change of one resource that both graphs have, without what follows from changes of others."""
    old = new = inputs_of(after)
    if pairs.names or not identical(before.inputs, after.inputs):
        old = pairs.translated(inputs_of(before))
    old, new = in_regions(after, old, new, base.by_urn.get(before.provider), head.by_urn.get(after.provider))
    found = list(differences(old, new))
    # Like the engine, disregard changes at or below an ignored path.
    ignored = [change for change in found if _within(change, after.options.get("ignoreChanges", ()))]
    properties = [one for one in found if one not in ignored and not (after.custom and stays(one, head, pairs))]
    options = list(differences(_options(before, pairs), _options(after, _IDENTITY)))
    reasons = because(before, after, old, new, properties, head) if after.custom or after.remote else ()
    reasons = reasons or _other_provider(before, after, base, head, pairs)
    refused = tuple(path_text(path) for path in replacements.refused(after.type, old, new))
    dependencies = _dependencies(before, base, pairs) != _dependencies(after, head, _IDENTITY)
    kind: Kind = "dependencies" if dependencies else "same"
    if reasons:
        kind = "replace"
    elif properties or options:
        kind = "update"
    elif before.urn != after.urn:
        kind = "move"
    return ResourceChange(
        kind,
        before,
        after,
        tuple(properties),
        tuple(options),
        dependencies,
        reasons,
        refused,
        tuple(ignored),
        () if reasons else unsure(after, old, new, properties),
    )


def _other_provider(before: Resource, after: Resource, base: Graph, head: Graph, pairs: Pairing) -> tuple[str, ...]:
    """Why a resource whose provider is another resource now is replaced: that one works elsewhere (``providerChanged`` of the
    engine's step_generator.go).
    """
    old, new = base.by_urn.get(before.provider), head.by_urn.get(after.provider)
    if old is None or new is None or pairs.urn(old.urn) == new.urn:
        return ()
    moved = any(replacing(new, pairs.translated(inputs_of(old)), inputs_of(new), head))
    return (f"provider {new.name}",) if moved else ()


def _options(resource: Resource, pairs: Pairing) -> Any:
    """The options with URNs of the head, without aliases, which show as a move."""
    urns = {key: mapped(value, pairs.urn) for key, value in resource.options.items() if key in ("deletedWith", "replaceWith")}
    return {key: value for key, value in {**resource.options, **urns}.items() if key != "aliases"}


def _dependencies(resource: Resource, graph: Graph, pairs: Pairing) -> Any:
    """Dependencies, also by property, and provider, as URNs of the head. All versions of a default provider are equal."""

    def named(urn: str) -> str:
        known = graph.by_urn.get(urn)
        return known.type if known and known.is_default_provider else pairs.urn(urn)

    by_property = {key: set(map(named, urns)) for key, urns in resource.property_dependencies.items()}
    return (set(map(named, resource.dependencies)), by_property, named(resource.provider))


def _with_consequences(changes: Sequence[ResourceChange], head: Graph) -> list[ResourceChange]:
    """The changes, including replacements that follow from others.

    Like the engine's preview: outputs of a replaced resource are unknown, and an unknown value replaces its user where a change
    of that value would. Replacing a provider replaces every resource that it manages, and other options name what goes along.
    """
    found = {change.urn: change for change in changes}
    waiting = [urn for urn, change in found.items() if change.kind == "replace"]
    replaced = {*waiting}
    users: dict[str, set[str]] = {}
    for resource in head.resources:
        for urn in {urn for _, urn in goes_with(resource)}.union(*resource.property_dependencies.values()):
            users.setdefault(urn, set()).add(resource.urn)
    while waiting:
        origin = head.by_urn.get(waiting.pop())
        for urn in sorted(users.get(origin.urn, ())) if origin else ():
            change = found[urn]
            if origin is None or change.before is None or change.kind == "replace" or is_read(change.resource):
                continue
            sure, maybe = _reasons(change.resource, origin, head, replaced)
            if sure:
                found[urn] = replace(change, kind="replace", because=sure, unsure=())
                waiting.append(urn)
                replaced.add(urn)
            elif maybe:
                # The engine shows an update of inputs that are unknown until then.
                kind = "update" if change.kind in ("same", "dependencies") else change.kind
                found[urn] = replace(change, kind=kind, unsure=tuple(dict.fromkeys((*change.unsure, *maybe))))
    return list(found.values())


def _reasons(
    resource: Resource, origin: Resource, head: Graph, replaced: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Why replacing ``origin`` replaces a resource that uses it, and why it may replace it. What is known stays known: only what
    the program made of an output changes with it.
    """
    if named := tuple(f"{key} {origin.name}" for key, urn in goes_with(resource) if urn == origin.urn):
        return named, ()
    # What ``origin`` was given, it also gives on.
    passed = [leaf for leaf in leaves(origin.inputs) if isinstance(leaf, str) and "<" in leaf]
    anew = {head.by_urn[urn].name for urn in replaced if urn in head.by_urn}
    names = {origin.name}.union(name for name in anew if any(f"<{name}." in leaf for leaf in passed))

    def made(key: str, *, sure: bool) -> Any:
        """A property with other texts in place of those that are made of an output of ``origin``, or may be."""
        kept = [
            head.by_urn[urn].name for urn in resource.property_dependencies[key] if urn not in replaced and urn in head.by_urn
        ]

        def other(leaf: Any) -> Any:
            refers = isinstance(leaf, str) and any(f"<{name}." in leaf for name in names if not (sure and name in kept))
            # Nobody sees whether a secret of such an input was made from the output.
            hidden = leaf in (UNKNOWN, SECRET) and not (sure and kept)
            return f"{leaf} anew" if refers or hidden else leaf

        computed = () if sure else resource.computed
        return mapped(opened(mapped(resource.inputs[key], lambda leaf: f"{leaf} anew" if leaf in computed else leaf)), other)

    inputs = opened(resource.inputs)
    uses = [key for key, urns in resource.property_dependencies.items() if origin.urn in urns and key in inputs]
    certain, possible = ({**inputs, **{key: made(key, sure=sure) for key in uses}} for sure in (True, False))
    sure = [path_text(path) for path in replacing(resource, inputs, certain, head)]
    maybe = unsure(resource, inputs, possible, list(differences(inputs, possible)))
    maybe += tuple(path for path in map(path_text, replacing(resource, inputs, possible, head)) if path not in sure)
    return tuple(f"{path} of {origin.name}" for path in sure), tuple(f"{path} of {origin.name}" for path in maybe)
