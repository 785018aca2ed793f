"""The region of a resource of AWS that its provider gives: another one replaces it, as another one of its own does.

Source: hashicorp/terraform-provider-aws v6 (pulumi-aws v7), internal/provider (defaultRegion, forceNewIfRegionChanges): a region
that the program does not name is the one of the provider.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from stackgraph.graph.document import Resource, is_read
from stackgraph.graph.tokens import is_token


def in_regions(
    resource: Resource, old: dict[str, Any], new: dict[str, Any], old_provider: Resource | None, new_provider: Resource | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two inputs of a resource, each with the region of its provider unless it names one. As given where one is not known."""
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
