"""Why the changes of a resource replace it, or may replace it."""

from collections.abc import Iterator, Sequence
from typing import Any

from stackgraph.diff import replacements
from stackgraph.diff.comparing import Path, PropertyChange, alike, differences, path_text
from stackgraph.graph.document import STACK_TYPE, Graph, Resource, is_component, is_read


def would_replace(resource: Resource, old: Any, new: Any) -> bool:
    """Whether other inputs replace the resource, by the tables and its own ``replaceOnChanges``."""
    changed = [change.path for change in differences(old, new)]
    named = [replacements.pattern_of(text) for text in resource.options.get("replaceOnChanges", ())]
    paths = (*replacements.replacing(resource.type, old, new, {}), *named)
    return any(replacements.covers(path, one) for path in paths for one in changed)


def unsure(after: Resource, old: Any, new: Any, properties: Sequence[PropertyChange]) -> tuple[str, ...]:
    """The changed paths that may replace the resource."""
    if is_component(after) or after.type == STACK_TYPE or is_read(after):
        return ()
    if not replacements.is_known(after.type):
        return tuple(change.name for change in properties)
    changed = [change.path for change in properties]
    possible = replacements.possible(after.type, old, new)
    return tuple(path_text(path) for path in possible if any(replacements.covers(path, one) for one in changed))


def because(
    before: Resource, after: Resource, old: Any, new: Any, properties: Sequence[PropertyChange], head: Graph
) -> tuple[str, ...]:
    """The reasons for a replacement: changed paths of the table, then those that the resource's own options name."""
    if is_read(after):
        return ()
    if after.type != before.type and properties:
        return ("type",)
    changed = [change.path for change in properties]
    paths = [*replacing(after, old, new, head)]
    for text in after.options.get("replaceOnChanges", ()):
        pattern = replacements.pattern_of(text)
        paths += [path for path in changed if text == "*" or replacements.covers(pattern, path)]
    found = [path_text(path) for path in paths if any(replacements.covers(path, one) for one in changed)]
    if not alike(before.options.get("replacementTrigger"), after.options.get("replacementTrigger")):
        found.append("replacementTrigger")
    return tuple(dict.fromkeys(found))


def replacing(resource: Resource, old: Any, new: Any, head: Graph) -> Iterator[Path]:
    provider = head.by_urn.get(resource.provider)
    return replacements.replacing(resource.type, old, new, provider.inputs if provider else {})
