"""Computes ``aws.iam.get_policy_document`` as the provider does: it needs no account.

Source: internal/service/iam/policy_document_data_source.go and policy_model.go of hashicorp/terraform-provider-aws, read 2026-11.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

_LISTS = {
    "actions": "Action",
    "notActions": "NotAction",
    "resources": "Resource",
    "notResources": "NotResource",
}


def policy_document(args: Mapping[str, Any]) -> dict[str, Any] | None:
    """The documents of the arguments; None if a document to merge is not known yet, or no JSON."""
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
