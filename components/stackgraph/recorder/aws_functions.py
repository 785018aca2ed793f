"""The functions of the AWS provider whose result follows from their arguments, their provider and facts."""

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from stackgraph.graph.tokens import is_token
from stackgraph.recorder.policy_document import policy_document

# By the prefix of a region: the partition and its DNS suffix. Source: AWS General Reference, "Amazon Resource Names", 2026-11.
_PARTITIONS = {
    "cn-": ("aws-cn", "amazonaws.com.cn"),
    "us-gov-": ("aws-us-gov", "amazonaws.com"),
    "": ("aws", "amazonaws.com"),
}


def compute(name: str, args: Mapping[str, Any], provider: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is known of the result of a function, ``module/name:name`` in its token. ``provider`` are its provider's inputs."""
    region = args.get("region") or provider.get("region")
    region = region if isinstance(region, str) and not is_token(region) else ""
    match name.rpartition(":")[2]:
        case "getPolicyDocument":
            return policy_document(args)
        case "getCallerIdentity":
            return _caller(provider)
        case "getRegion" if region:
            return _region(region)
        case "getPartition" if region:
            return _partition(region)
        case "getAvailabilityZones" if region:
            return _zones(region, args)
        case "getAvailabilityZone" if args.get("name"):
            return _zone(args["name"])
    return None


def _caller(provider: Mapping[str, Any]) -> dict[str, Any] | None:
    """The account, where the provider allows no other. SDK and configuration pass lists to providers as JSON texts."""
    try:
        allowed = json.loads(provider.get("allowedAccountIds", "[]"))
    except (TypeError, ValueError):
        return None
    return {"accountId": allowed[0]} if isinstance(allowed, list) and len(allowed) == 1 else None


def _region(region: str) -> dict[str, Any]:
    return {"id": region, "name": region, "region": region, "endpoint": f"ec2.{region}.{_partition(region)['dnsSuffix']}"}


def _partition(region: str) -> dict[str, Any]:
    partition, suffix = next(found for prefix, found in _PARTITIONS.items() if region.startswith(prefix))
    reverse = ".".join(reversed(suffix.split(".")))
    return {"id": partition, "partition": partition, "dnsSuffix": suffix, "reverseDnsPrefix": reverse, "region": region}


def _zones(region: str, args: Mapping[str, Any]) -> dict[str, Any] | None:
    if args.get("filters") or args.get("excludeZoneIds") or args.get("state") not in (None, "available"):
        return None
    names = [f"{region}{letter}" for letter in letters(region)]
    names = [name for name in names if name not in (args.get("excludeNames") or ())]
    return {"id": region, "names": names, "region": region, "groupNames": [region]}


def _zone(name: str) -> dict[str, Any]:
    return {"id": name, "name": name, "nameSuffix": name[-1], "region": name[:-1], "zoneType": "availability-zone"}


def letters(region: str) -> str:
    """The letters of a region's zones."""
    return _facts()["regions"].get(region, _facts()["usual"])


@cache
def _facts() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("aws_zones.toml").read_text(encoding="utf-8"))
