"""Whether a resource of AWS is in another region than before, although its own inputs stay: its provider's region decides.

Version 7 of the provider writes the provider's region into each resource that names none, and replaces it when that changes.
Source: pulumi-aws ``provider/region.go`` (applyRegion); ``regions.toml`` has the types without a region.
"""

import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.tokens import is_token


def another_region(before: Resource, after: Resource, base: Graph, head: Graph) -> tuple[str, ...]:
    """The change in words; nothing if either region is unknown here, as that of the environment is."""
    if not is_regional(after.type):
        return ()
    old, new = _region(before, base), _region(after, head)
    known = old and new and not is_token(old) and not is_token(new)
    return (f"region {old} → {new}",) if known and old != new else ()


@cache
def is_regional(type_: str) -> bool:
    """Whether resources of the type are of AWS and in a region."""
    return type_.startswith("aws:") and not any(fnmatchcase(type_, pattern) for pattern in _without_region())


def _region(resource: Resource, graph: Graph) -> Any:
    provider = graph.by_urn.get(resource.provider)
    return resource.inputs.get("region") or (provider.inputs.get("region") if provider else None)


@cache
def _without_region() -> Sequence[str]:
    return tomllib.loads(files("stackgraph.diff").joinpath("regions.toml").read_text(encoding="utf-8"))["types"]
