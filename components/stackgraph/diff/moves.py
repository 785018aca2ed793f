"""Pairs the resources of two graphs: by URN, or by alias where a resource was moved or renamed; and gives both the region of AWS
that they are in.

Follows ``generateAliases`` of the engine (``pkg/resource/deploy/step_generator.go``): a resource also inherits aliases from those
of its parent.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from stackgraph.graph.document import Graph, Resource, build_urn, is_read
from stackgraph.graph.values import is_token, mapped


@dataclass(frozen=True)
class Pairing:
    """Pairs of resources. ``old_of`` maps the URN in the head to the URN in the base, also where they are equal.

    ``names`` maps old names to new ones, where a name belongs to one resource in each graph.
    """

    old_of: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def new_of(self) -> Mapping[str, str]:
        return {old: new for new, old in self.old_of.items()}

    def translated(self, value: Any) -> Any:
        """A value of the base with the new names of resources in its references."""
        if not self.names:
            return value

        def renamed(leaf: Any) -> Any:
            found = isinstance(leaf, str) and "<" in leaf
            return self._pattern.sub(lambda match: f"<{self.names[match[1]]}.", leaf) if found else leaf

        return mapped(value, renamed)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        names = "|".join(re.escape(name) for name in sorted(self.names, key=len, reverse=True))
        return re.compile(rf"<({names})\.")

    def urn(self, old: str) -> str:
        """The URN in the head of a resource of the base; the same URN if it has no pair."""
        return self.new_of.get(old, old)


def pairing(base: Graph, head: Graph) -> Pairing:
    """Pairs every resource of the head with the resource of the base that the engine would update."""
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
    # Resources in a cycle of parents have no root and come last.
    for start in (*(r for r in graph.resources if r.parent not in graph.by_urn), *graph.resources):
        waiting = [start]
        while waiting:
            resource = waiting.pop()
            if resource.urn not in seen:
                seen.add(resource.urn)
                yield resource
                waiting += graph.children.get(resource.urn, ())


def _aliases(resource: Resource, graph: Graph, old_of: Mapping[str, str]) -> Iterator[str]:
    own = [_urn_of(resource, spec) for spec in resource.options.get("aliases", ())]
    yield from own
    old_parent = old_of.get(resource.parent, resource.parent)
    if old_parent == resource.parent or resource.parent not in graph.by_urn:
        return
    parent_name = graph.by_urn[resource.parent].name
    for urn in (resource.urn, *own):
        yield _below(urn, parent_name, old_parent)


def _below(urn: str, parent_name: str, old_parent: str) -> str:
    """The URN of a child under its old parent. A parent's name at the start of the child's name changes, too."""
    _, _, types, name = _split(urn)
    stack, project, chain, old_parent_name = _split(old_parent)
    if name.startswith(parent_name):
        name = old_parent_name + name.removeprefix(parent_name)
    return build_urn(stack, project, chain, types.rpartition("$")[2], name)


def _urn_of(resource: Resource, spec: Mapping[str, Any]) -> str:
    """The URN that an alias stands for."""
    if "urn" in spec:
        return spec["urn"]
    stack, project, _, name = _split(resource.urn)
    parent = "" if spec.get("noParent") else spec.get("parent") or resource.parent
    chain = _split(parent)[2] if parent else ""
    return build_urn(
        spec.get("stack") or stack,
        spec.get("project") or project,
        chain,
        spec.get("type") or resource.type,
        spec.get("name") or name,
    )


def _split(urn: str) -> tuple[str, str, str, str]:
    """The parts of a URN: stack, project, chain of types, name."""
    stack, project, types, name = urn.removeprefix("urn:pulumi:").split("::", 3)
    return stack, project, types, name


def _renamed(base: Graph, head: Graph, old_of: Mapping[str, str]) -> dict[str, str]:
    names: dict[str, set[str]] = {}
    for new, old in old_of.items():
        names.setdefault(base.by_urn[old].name, set()).add(head.by_urn[new].name)
    return {old: new for old, found in names.items() if len(found) == 1 for new in found if new != old}


def in_regions(
    resource: Resource, old: dict[str, Any], new: dict[str, Any], old_provider: Resource | None, new_provider: Resource | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two inputs of a resource, each with the region of its provider unless it names one. As given where one is not known.

    Source: hashicorp/terraform-provider-aws v6 (pulumi-aws v7), internal/provider (defaultRegion, forceNewIfRegionChanges).
    """
    if not resource.custom or is_read(resource) or not _is_regional(resource.type):
        return old, new
    before, after = _region(old, old_provider), _region(new, new_provider)
    return (old, new) if before is None or after is None else ({**old, "region": before}, {**new, "region": after})


def _region(inputs: Mapping[str, Any], provider: Resource | None) -> str | None:
    region = inputs.get("region") or (provider.inputs.get("region") if provider else None)
    return region if region and isinstance(region, str) and not is_token(region) else None


def _is_regional(type_: str) -> bool:
    package, _, rest = type_.partition(":")
    known = _global()
    return package == "aws" and rest.partition("/")[0] not in known["services"] and type_ not in known["types"]


@cache
def _global() -> Mapping[str, Any]:
    return tomllib.loads(files("stackgraph.diff").joinpath("global_aws.toml").read_text(encoding="utf-8"))
