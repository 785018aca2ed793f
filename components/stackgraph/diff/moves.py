"""Which resource of the base is which of the head: by URN, and by aliases where a resource moved or was renamed.

Follows ``generateAliases`` of the engine (``pkg/resource/deploy/step_generator.go``): a resource also has the aliases that follow
from those of its parent.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from stackgraph.graph.document import STACK_TYPE, Graph, Resource


@dataclass(frozen=True)
class Pairing:
    """Pairs of resources. ``old_of`` has the URN in the base by the URN in the head, also where both are the same."""

    old_of: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)
    """New names by old, where a name stands for one resource before and after."""

    @cached_property
    def new_of(self) -> Mapping[str, str]:
        return {old: new for new, old in self.old_of.items()}

    def translated(self, value: Any) -> Any:
        """A value of the base as the head would write it: references to what has moved name it as it is called now."""
        if isinstance(value, Mapping):
            translated = {key: self.translated(item) for key, item in value.items()}
            return type(value)(translated) if isinstance(value, dict) else translated
        if isinstance(value, list):
            return [self.translated(item) for item in value]
        if isinstance(value, str) and self._pattern is not None and "<" in value:
            return self._pattern.sub(lambda found: f"<{self.names[found[1]]}.", value)
        return value

    def urn(self, old: str) -> str:
        """The URN in the head of a resource of the base; its own where it has none."""
        return self.new_of.get(old, old)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        if not self.names:
            return None
        names = "|".join(re.escape(name) for name in sorted(self.names, key=len, reverse=True))
        return re.compile(rf"<({names})\.")


def pairing(base: Graph, head: Graph) -> Pairing:
    """Pairs every resource of the head with the one of the base that the engine would take for it."""
    old_of: dict[str, str] = {}
    taken: set[str] = set()
    for resource in _parents_first(head):
        for urn in (resource.urn, *_aliases(resource, head, old_of)):
            if urn in base.by_urn and urn not in taken:
                old_of[resource.urn] = urn
                taken.add(urn)
                break
    return Pairing(old_of, _renamed(base, head, old_of))


def _parents_first(graph: Graph) -> Iterator[Resource]:
    seen: set[str] = set()
    # Parents that lead in a circle have no root: its resources come last.
    for start in (*(r for r in graph.resources if r.parent not in graph.by_urn), *graph.resources):
        waiting = [start]
        while waiting:
            resource = waiting.pop()
            if resource.urn not in seen:
                seen.add(resource.urn)
                yield resource
                waiting += graph.children.get(resource.urn, ())


def _aliases(resource: Resource, graph: Graph, old_of: Mapping[str, str]) -> Iterator[str]:
    specs = resource.options.get("aliases", ())
    own = [_urn_of(resource, spec, graph) for spec in specs]
    yield from own
    old_parent = old_of.get(resource.parent, resource.parent)
    if old_parent == resource.parent or resource.parent not in graph.by_urn:
        return
    parent_name = graph.by_urn[resource.parent].name
    for urn in (resource.urn, *own):
        yield _below(urn, parent_name, old_parent)


def _below(urn: str, parent_name: str, old_parent: str) -> str:
    """The URN that a child had below an old parent; a name that began with the parent's name does so then, too."""
    _, _, types, name = _split(urn)
    _, _, _, old_parent_name = _split(old_parent)
    if name.startswith(parent_name):
        name = old_parent_name + name.removeprefix(parent_name)
    stack, project, chain, _ = _split(old_parent)
    return _urn(stack, project, chain, types.rpartition("$")[2], name)


def _urn_of(resource: Resource, spec: Mapping[str, Any], graph: Graph) -> str:
    if "urn" in spec:
        return spec["urn"]
    stack, project, _, name = _split(resource.urn)
    parent = "" if spec.get("noParent") else spec.get("parent") or resource.parent
    chain = _split(parent)[2] if parent else ""
    return _urn(
        spec.get("stack") or stack,
        spec.get("project") or project,
        chain,
        spec.get("type") or resource.type,
        spec.get("name") or name,
    )


def _split(urn: str) -> tuple[str, str, str, str]:
    """Stack, project, chain of types, name."""
    stack, project, types, name = urn.removeprefix("urn:pulumi:").split("::", 3)
    return stack, project, types, name


def _urn(stack: str, project: str, chain: str, type_: str, name: str) -> str:
    types = f"{chain}${type_}" if chain and chain != STACK_TYPE else type_
    return f"urn:pulumi:{stack}::{project}::{types}::{name}"


def _renamed(base: Graph, head: Graph, old_of: Mapping[str, str]) -> dict[str, str]:
    names: dict[str, set[str]] = {}
    for new, old in old_of.items():
        names.setdefault(base.by_urn[old].name, set()).add(head.by_urn[new].name)
    return {old: new for old, found in names.items() if len(found) == 1 for new in found if new != old}
