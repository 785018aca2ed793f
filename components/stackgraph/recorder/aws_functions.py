"""The functions of the AWS provider whose result follows from their arguments, their provider and facts."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from stackgraph.graph.values import is_token

_LISTS = {
    "actions": "Action",
    "notActions": "NotAction",
    "resources": "Resource",
    "notResources": "NotResource",
}


def policy_document(args: Mapping[str, Any]) -> dict[str, Any] | None:
    """The documents of the arguments; None if a document to merge is not known yet, or no JSON.

    Source: internal/service/iam/policy_document_data_source.go and policy_model.go of hashicorp/terraform-provider-aws, read
    2026-11.
    """
    try:
        sources, overrides = (
            [json.loads(text) for text in args.get(key) or () if text]
            for key in ("sourcePolicyDocuments", "overridePolicyDocuments")
        )
        own = {"Version": args.get("version") or "2012-10-17", "Id": args.get("policyId")}
        own["Statement"] = [_statement(each) for each in args.get("statements") or ()]
        merged: dict[str, Any] = {"Version": "", "Id": "", "Statement": []}
        for document in (*sources, own, *overrides):
            _merge(merged, document)
    except (ValueError, TypeError, AttributeError):
        return None
    document = {key: value for key, value in merged.items() if value}
    return {
        "json": json.dumps(document, indent=2, ensure_ascii=False),
        "minifiedJson": json.dumps(document, separators=(",", ":"), ensure_ascii=False),
        "version": merged["Version"],
    }


def _merge(into: dict[str, Any], document: Mapping[str, Any]) -> None:
    """A later document gives its id, the younger version, and its statements in place of those with the same Sid."""
    into["Id"] = document.get("Id") or into["Id"]
    into["Version"] = max(into["Version"], document.get("Version") or "")
    statements = document.get("Statement") or []
    for statement in statements if isinstance(statements, list) else [statements]:
        places = [n for n, other in enumerate(into["Statement"]) if statement.get("Sid") and other.get("Sid") == statement["Sid"]]
        if places:
            into["Statement"][places[0]] = statement
        else:
            into["Statement"].append(statement)


def _statement(given: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"Sid": given.get("sid"), "Effect": given.get("effect") or "Allow"}
    made |= {name: _texts(given[key]) for key, name in _LISTS.items() if given.get(key)}
    for key, name in (("principals", "Principal"), ("notPrincipals", "NotPrincipal")):
        if given.get(key):
            made[name] = _principals(given[key])
    if given.get("conditions"):
        made["Condition"] = _conditions(given["conditions"])
    return {key: value for key, value in made.items() if value}


def _texts(values: Iterable[str]) -> str | list[str]:
    """A set of texts: one alone, several in reverse order."""
    found = sorted({_variables(value) for value in values}, reverse=True)
    return found[0] if len(found) == 1 else found


def _principals(given: Iterable[Mapping[str, Any]]) -> Any:
    found: dict[str, list[str]] = {}
    for principal in given:
        identifiers = _texts(principal["identifiers"])
        found.setdefault(principal["type"], []).extend([identifiers] if isinstance(identifiers, str) else identifiers)
    if found == {"*": ["*"]}:
        return "*"
    return {kind: names[0] if len(names) == 1 else names for kind, names in sorted(found.items())}


def _conditions(given: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, dict[str, list[str]]] = {}
    for condition in given:
        values = found.setdefault(condition["test"], {}).setdefault(condition["variable"], [])
        values += [_variables(value) for value in condition["values"]]
    return {
        test: {name: values[0] if len(values) == 1 else values for name, values in sorted(variables.items())}
        for test, variables in sorted(found.items())
    }


def _variables(text: str) -> str:
    """A text with policy variables, which the argument writes ``&{…}``."""
    return text.replace("&{", "${")


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
