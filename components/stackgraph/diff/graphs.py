"""What changes from one recorded graph to another: resource by resource, and with what a replacement pulls along."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from stackgraph.diff import replacements
from stackgraph.diff.comparing import Path, PropertyChange, alike, differences, identical, opened, path_text
from stackgraph.diff.moves import Pairing, pairing
from stackgraph.graph.document import STACK_TYPE, Graph, Resource, is_component, is_opaque, is_read
from stackgraph.graph.structure import Structure
from stackgraph.graph.tokens import Sealed, redacted
from stackgraph.graph.values import plain

Kind = Literal["create", "update", "replace", "delete", "move", "dependencies", "same"]
KINDS: tuple[Kind, ...] = ("create", "update", "replace", "delete", "move", "dependencies", "same")

# Options that a reviewer need not see: aliases show as a move.
_SILENT_OPTIONS = ("aliases",)


@dataclass(frozen=True)
class ResourceChange:
    """What happens to one resource. ``before`` and ``after`` are as recorded; None where it is not there.

    ``properties`` are changes of inputs, ``options`` of resource options, both by path. ``dependencies`` says that it waits for
    others than before. ``because`` names what replaces it: paths, or resources that are replaced. ``ignored`` are changes that
    ``ignoreChanges`` leaves out. ``certain`` is False where the type is not in the table: replacement is not ruled out.
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
    certain: bool = True

    @property
    def resource(self) -> Resource:
        """As it will be; as it was when it goes."""
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
        """Whether it is something to be made: no component, default provider, stack, or resource that is only read."""
        resource = self.resource
        apart = is_component(resource) or resource.type == STACK_TYPE or resource.is_default_provider or is_read(resource)
        return not apart

    @property
    def opaque(self) -> bool:
        return is_opaque(self.resource)

    def forces(self, change: PropertyChange) -> bool:
        """Whether a change is among what replaces the resource."""
        return any(replacements.covers(replacements.pattern_of(path), change.path) for path in self.because)


@dataclass(frozen=True)
class StackDiff:
    """Everything that differs between two graphs of one stack. Either may be None: then the stack is on one side only."""

    stack: str
    base: Graph | None
    head: Graph | None
    changes: tuple[ResourceChange, ...]
    outputs: tuple[PropertyChange, ...] = ()
    names: Mapping[str, str] | None = None

    @cached_property
    def by_urn(self) -> Mapping[str, ResourceChange]:
        return {change.urn: change for change in self.changes}

    def of_kind(self, kind: Kind) -> list[ResourceChange]:
        """Changes of one kind, of what counts."""
        return [change for change in self.changes if change.kind == kind and change.counts]

    @property
    def counts(self) -> Mapping[Kind, int]:
        return {kind: len(self.of_kind(kind)) for kind in KINDS}

    @property
    def changed(self) -> bool:
        """Whether a deployment would do anything, or outputs differ."""
        return bool(self.outputs) or any(change.kind not in ("same", "dependencies") for change in self.changes)


def compare(base: Graph | None, head: Graph | None) -> StackDiff:
    """The differences of two graphs of a stack; None stands for a stack that is not there."""
    present = head or base
    assert present is not None
    before = base or Graph(present.project, present.stack, ())
    after = head or Graph(present.project, present.stack, ())
    pairs = pairing(before, after)
    changes = [*_kept(before, after, pairs), *_deleted(before, pairs)]
    changes = _pulled_along(changes, after)
    outputs = differences(opened(pairs.translated(before.outputs)), opened(after.outputs)) if base and head else ()
    order = sorted(changes, key=lambda change: change.urn)
    return StackDiff(after.stack, base, head, tuple(order), tuple(outputs), dict(pairs.names))


def _kept(base: Graph, head: Graph, pairs: Pairing) -> Iterator[ResourceChange]:
    for resource in head.resources:
        if resource.urn in pairs.old_of:
            yield _compared(base.by_urn[pairs.old_of[resource.urn]], resource, base, head, pairs)
        else:
            yield ResourceChange("create", None, resource)


def _deleted(base: Graph, pairs: Pairing) -> Iterator[ResourceChange]:
    for resource in base.resources:
        if resource.urn not in pairs.new_of:
            yield ResourceChange("delete", resource, None)


def inputs_of(resource: Resource) -> dict[str, Any]:
    """The inputs as they are compared: texts in JSON opened, what a Kubernetes Secret holds sealed."""
    return redacted(resource.type, opened(resource.inputs), _sealed)


def _sealed(value: Any) -> Sealed:
    if isinstance(value, Sealed):
        return value
    return Sealed(hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest())


def _compared(before: Resource, after: Resource, base: Graph, head: Graph, pairs: Pairing) -> ResourceChange:
    old = new = inputs_of(after)
    if pairs.names or not identical(before.inputs, after.inputs):
        old = pairs.translated(inputs_of(before))
    found = list(differences(old, new))
    # As the engine: a change at a path that is ignored is none.
    patterns = [replacements.pattern_of(path) for path in after.options.get("ignoreChanges", ())]
    ignored = [change for change in found if any(_within(pattern, change.path) for pattern in patterns)]
    properties = [change for change in found if change not in ignored]
    options = list(differences(_options(before, pairs), _options(after)))
    because = _because(before, after, old, new, properties, head) if after.custom or after.remote else ()
    refused = tuple(path_text(path) for path in replacements.refused(after.type, old, new))
    kind: Kind = "same"
    if because:
        kind = "replace"
    elif properties or options:
        kind = "update"
    elif before.urn != after.urn:
        kind = "move"
    dependencies = _dependencies(before, base, pairs) != _dependencies(after, head)
    if kind == "same" and dependencies:
        kind = "dependencies"
    return ResourceChange(
        kind,
        before,
        after,
        tuple(properties),
        tuple(options),
        dependencies,
        because,
        refused,
        tuple(ignored),
        is_component(after) or replacements.is_known(after.type) or after.type == STACK_TYPE or not properties,
    )


def _within(pattern: Path, path: Path) -> bool:
    return len(path) >= len(pattern) and replacements.covers(pattern, path)


def _because(
    before: Resource, after: Resource, old: Any, new: Any, properties: Sequence[PropertyChange], head: Graph
) -> tuple[str, ...]:
    """What replaces the resource: paths of the table that changed, then what its own options say."""
    if is_read(after):
        return ()
    provider = head.by_urn.get(after.provider)
    paths = [*replacements.replacing(after.type, old, new, provider.inputs if provider else {})]
    if after.type != before.type and properties:
        return ("type",)
    for text in after.options.get("replaceOnChanges", ()):
        pattern = replacements.pattern_of(text)
        paths += [change.path for change in properties if text == "*" or replacements.covers(pattern, change.path)]
    changed = [change.path for change in properties]
    kept = [path for path in paths if any(replacements.covers(path, one) for one in changed)]
    found = [path_text(path) for path in kept]
    if not alike(before.options.get("replacementTrigger"), after.options.get("replacementTrigger")):
        found.append("replacementTrigger")
    return tuple(dict.fromkeys(found))


def _options(resource: Resource, pairs: Pairing | None = None) -> Any:
    options = {key: value for key, value in resource.options.items() if key not in _SILENT_OPTIONS}
    if pairs:
        for key in ("deletedWith", "replaceWith"):
            if key in options:
                given = options[key]
                options[key] = [pairs.urn(urn) for urn in given] if isinstance(given, list) else pairs.urn(given)
    return options


def _dependencies(resource: Resource, graph: Graph, pairs: Pairing | None = None) -> Any:
    """Dependencies, property by property, and the provider; a default provider of another version is no other provider."""

    def named(urn: str) -> str:
        known = graph.by_urn.get(urn)
        if known is not None and known.is_default_provider:
            return known.type
        return pairs.urn(urn) if pairs else urn

    by_property = {key: {named(urn) for urn in urns} for key, urns in resource.property_dependencies.items()}
    return ({named(urn) for urn in resource.dependencies}, by_property, named(resource.provider))


def _pulled_along(changes: Sequence[ResourceChange], head: Graph) -> list[ResourceChange]:
    """The changes, with the replacements that follow from others.

    As the engine's preview: the outputs of a replaced resource are not known, and a value that is not known where a change
    replaces does so. All that is made through a provider that is replaced is replaced, too.
    """
    found = {change.urn: change for change in changes}
    replaced = {urn: change for urn, change in found.items() if change.kind == "replace"}
    waiting = list(replaced)
    users: dict[str, set[str]] = {}
    for resource in head.resources:
        for urn in (resource.provider, *(urn for urns in resource.property_dependencies.values() for urn in urns)):
            users.setdefault(urn, set()).add(resource.urn)
    while waiting:
        origin = head.by_urn.get(waiting.pop())
        for urn in sorted(users.get(origin.urn, ())) if origin else ():
            change = found[urn]
            if origin is None or change.before is None or change.kind == "replace" or is_read(change.resource):
                continue
            if reasons := _reasons(change, origin, head):
                found[urn] = replaced[urn] = replace(change, kind="replace", because=reasons)
                waiting.append(urn)
    return list(found.values())


def _reasons(change: ResourceChange, origin: Resource, head: Graph) -> tuple[str, ...]:
    resource = change.resource
    if resource.provider == origin.urn:
        return (f"provider {origin.name}",)
    inputs = inputs_of(resource)
    provider = head.by_urn.get(resource.provider)
    waits = [key for key, urns in resource.property_dependencies.items() if origin.urn in urns and key in inputs]
    given = {key: _without(inputs[key], origin.name) for key in waits}
    paths = replacements.replacing(resource.type, inputs, {**inputs, **given}, provider.inputs if provider else {})
    return tuple(f"{path_text(path)} of {origin.name}" for path in paths)


def _without(value: Any, name: str) -> Any:
    """The value with another one wherever it refers to the resource of that name."""
    if isinstance(value, Mapping):
        table = {key: _without(item, name) for key, item in value.items()}
        return type(value)(table) if isinstance(value, dict) else table
    if isinstance(value, list):
        return [_without(item, name) for item in value]
    if isinstance(value, str) and (f"<{name}." in value or value == "<unknown>"):
        return f"{value} anew"
    return value


def components(diff: StackDiff) -> Mapping[str, tuple[Resource, ...]]:
    """By URN of a change, the components around it, outermost first."""
    found: dict[str, tuple[Resource, ...]] = {}
    for graph, side in ((diff.base, "before"), (diff.head, "after")):
        if graph is None:
            continue
        structure = Structure(graph)
        for change in diff.changes:
            resource = getattr(change, side)
            if resource is not None and resource.urn in structure.parent:
                chain = [graph.by_urn[urn] for urn in structure.above(resource.urn)]
                found[change.urn] = tuple(one for one in chain[:-1] if not one.custom)
    return found
