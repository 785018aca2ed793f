"""Rules AWS… about values of AWS resources: what the API takes (``aws_bounds.json``), and what only documents say of it."""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from eks_inference.faults import format_path
from eks_inference.rules import Judgement, rule
from eks_inference_tools.check.bounds import faults
from eks_inference_tools.reading.graph_facts import GraphFacts
from stackgraph.graph.describe import short_type
from stackgraph.graph.document import Resource, is_read
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import grouped, text

# What Pulumi appends to the name of a resource that has none of its own.
_SUFFIX = "-1234567"


@cache
def stated() -> Mapping[str, Any]:
    """By type of resource: ``api``, its operations; ``schema``, what they take; ``named``, the property that Pulumi names.

    ``named`` maps to what the provider puts between the resource's name and Pulumi's suffix. A test derives it all from botocore.
    """
    return _read("aws_bounds.json", json.loads)


@cache
def documented() -> Mapping[str, Any]:
    """By type of resource: ``schema`` and ``source``."""
    return _read("aws_documented.toml", tomllib.loads)


def _read(name: str, loads: Callable[[str], Any]) -> Mapping[str, Any]:
    return loads(files("eks_inference_tools.check").joinpath(name).read_text("utf-8"))


@rule(
    "AWS013",
    "Values of AWS resources are those that the documents of their service name.",
    fix="change the value, or the key of the stack file that gives it; "
    "a name consists of those of the stack and of its pool or server",
    source="check/aws_documented.toml, with the source of each row",
)
def values_are_documented(facts: GraphFacts) -> Iterator[Judgement]:
    yield from _judgements(facts, documented(), "source")


@rule(
    "AWS014",
    "Values of AWS resources are those that the API of their service takes.",
    fix="change the value, or the key of the stack file that gives it; "
    "a name consists of those of the stack and of its pool or server",
    source="AWS's API models as botocore has them (check/aws_bounds.json)",
)
def values_are_taken(facts: GraphFacts) -> Iterator[Judgement]:
    yield from _judgements(facts, stated(), "api")


def _judgements(facts: GraphFacts, rows: Mapping[str, Any], source: str) -> Iterator[Judgement]:
    for resource in facts.graph.resources:
        row = rows.get(resource.type)
        if row is None or is_read(resource):
            continue
        title = f"{short_type(resource.type)} {resource.name}"
        inputs = _named(resource)
        wrong = list(faults(inputs, row.get("schema", {})))
        if not wrong:
            yield Judgement(True, (), (f"{title}: {row[source]}",), resource=resource.urn)
        for path, given, allowed in wrong:
            where = format_path(path)
            made = path[:1] in [(key,) for key in inputs.keys() - resource.inputs.keys()]
            suffix = (f"the last {len(_SUFFIX)} characters are the suffix that Pulumi adds, here as an example",) if made else ()
            yield Judgement(
                holds=False,
                path=(),
                working=(f"{title}, {where}: {row[source]}", *suffix),
                message=f"{title}: {where} is not what the API takes",
                given=_short(given),
                allowed=allowed,
                resource=resource.urn,
            )


def _named(resource: Resource) -> Mapping[str, Any]:
    """The inputs of a resource, with the name that Pulumi makes of the resource's where the program gives none."""
    inputs = resource.inputs
    for key, middle in stated().get(resource.type, {}).get("named", {}).items():
        if inputs.get(key) is None and inputs.get(f"{key}Prefix") is None:
            return {**inputs, key: f"{resource.name}{middle}{_SUFFIX}"}
    return inputs


def _short(given: Any) -> str:
    shown = text(given)
    return shown if len(shown) <= 60 else f"{shown[:57]}... ({len(str(given))} characters)"


@rule(
    "AWS015",
    "The inline policies of a role are together as short as IAM wants them.",
    fix="name fewer buckets, or one policy of your own with all of them",
    source="IAM user guide, IAM and STS quotas: role policy size cannot exceed 10,240 characters; white space does not count",
)
def inline_policies_fit(facts: GraphFacts) -> Iterator[Judgement]:
    policies = (one for one in facts.graph.of_type("aws:iam/rolePolicy:RolePolicy") if not is_read(one))
    # An unknown name is that of the role which the policy depends on.
    by_role = grouped((one.property_dependencies.get("role") or text(one.inputs.get("role")) or one.urn, one) for one in policies)
    for inline in by_role.values():
        documents = [one.inputs.get("policy") for one in inline]
        size = sum(len("".join(one.split())) for one in documents if isinstance(one, str) and not is_token(one))
        name = text(inline[0].inputs.get("role"))
        yield Judgement(
            holds=size <= _MOST_INLINE,
            path=(),
            working=(f"role {name}: {size} characters of {_MOST_INLINE} in {len(inline)} policies",),
            message=f"the inline policies of role {name} have {size} characters",
            given=f"{size} characters",
            allowed=f"at most {_MOST_INLINE}",
            resource=inline[0].urn,
        )


_MOST_INLINE = 10_240
