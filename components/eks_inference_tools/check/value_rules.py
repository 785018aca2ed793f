"""Rules about values: what the API server takes of Kubernetes objects (K8S019, ``kubernetes_bounds.json``), what AWS takes of its
resources (``aws_bounds.json``), and what Helm charts take (HEL…).
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from eks_inference.faults import format_path
from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts, walk
from eks_inference_tools.reading.object_kinds import title_of
from eks_inference_tools.reading.scalars import whole
from stackgraph.graph.describe import is_kubernetes_object, short_type
from stackgraph.graph.document import Resource, is_read
from stackgraph.graph.values import grouped, is_token, redacted, text

Path = tuple[str | int, ...]

# Inside a longer text: "<net-vpc.id>-logs".
_PLACEHOLDER = re.compile(r"<[^<>\s]+\.[^<>\s]+>|<unknown>|\[secret\]")

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping,),
}


def faults(value: Any, schema: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any, str]]:
    """Everything in a value that its schema does not take: where, what was given, what is allowed.

    Knows ``type``, ``enum``, ``pattern``, ``minLength``, ``maxLength``, ``minimum``, ``maximum``, ``minItems``, ``maxItems``,
    ``properties``, ``required``, ``additionalProperties``, ``propertyNames`` and ``items``, as JSON Schema defines them, and
    ``x-kubernetes-list-map-keys``, which no two items share. ``description`` says a pattern in words. What is below a
    placeholder, or absent from the schema, is not judged.
    """
    if not schema or value is None or is_token(value):
        return
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield path, value, f"a value of type {' or '.join(kinds)}"
        return
    if isinstance(value, str | int | float):
        if allowed := ", ".join(_scalar(value, schema)):
            yield path, value, allowed
    elif isinstance(value, Mapping):
        yield from _of_mapping(value, schema, path)
    elif isinstance(value, list | tuple):
        yield from _counted(len(value), schema, "Items", "items", path)
        for index, item in enumerate(value):
            yield from faults(item, schema.get("items", {}), (*path, index))
        if keys := schema.get("x-kubernetes-list-map-keys"):
            yield from _repeated(value, keys, path)


def _is(value: Any, kind: str) -> bool:
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind]) and isinstance(value, bool) == (kind == "boolean")


def _repeated(value: Sequence[Any], keys: Sequence[str], path: Path) -> Iterator[tuple[Path, Any, str]]:
    seen = set()
    for index, item in enumerate(value):
        named = tuple(item.get(key) for key in keys) if isinstance(item, Mapping) else ()
        if not named or any(isinstance(one, list | Mapping) or is_token(one) for one in named):
            continue
        if named in seen:
            shown = ", ".join(f"{key} {text(one)}" for key, one in zip(keys, named, strict=True) if one is not None)
            yield (*path, index), shown, f"one item with this {' and '.join(keys)}"
        seen.add(named)


def _of_mapping(value: Mapping[Any, Any], schema: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any, str]]:
    known = schema.get("properties", {})
    for key in schema.get("required", ()):
        if value.get(key) is None:
            yield (*path, key), None, "a value: the key is required"
    yield from _counted(len(value), schema, "Properties", "keys", path)
    others = schema.get("additionalProperties")
    for key, item in value.items():
        if key not in known and others is False and item is not None:
            nearest = get_close_matches(str(key), known, n=1)
            yield (*path, str(key)), item, f"a known field{f', such as {nearest[0]}' if nearest else ''}"
            continue
        if key not in known:
            yield from faults(str(key), schema.get("propertyNames", {}), (*path, str(key)))
        yield from faults(item, known.get(key) or others or {}, (*path, str(key)))


def _scalar(value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    """Each bound in words that a text or number breaks."""
    if isinstance(value, str):
        known = _PLACEHOLDER.sub("", value) if "<" in value or "[" in value else value
        if len(known) > schema.get("maxLength", len(known)):
            yield f"at most {schema['maxLength']} characters"
        if known != value:
            return
        if len(value) < schema.get("minLength", 0):
            yield f"at least {schema['minLength']} characters"
        if "pattern" in schema and not _pattern(schema["pattern"]).search(value):
            yield schema.get("description") or f"the form {schema['pattern']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"one of {', '.join(text(one) for one in schema['enum'] if one != '')}"
    if not isinstance(value, str):
        if value < schema.get("minimum", value):
            yield f"at least {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"at most {schema['maximum']}"


def _counted(count: int, schema: Mapping[str, Any], suffix: str, what: str, path: Path) -> Iterator[tuple[Path, Any, str]]:
    least, most = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if count < (least or 0) or (most is not None and count > most):
        bounds = (f"{word} {bound}" for word, bound in (("at least", least), ("at most", most)) if bound is not None)
        yield path, f"{count} {what}", f"{' and '.join(bounds)} {what}"


# Parts of a pattern: an escaped character, a class of characters, the end of the text.
_PART = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\$")


@cache
def _pattern(form: str) -> re.Pattern[str]:
    """A pattern as JSON Schema means it: ``\\w`` and the like are ASCII, and no line break follows the end of the text."""
    return re.compile(_PART.sub(lambda part: r"\Z" if part[0] == "$" else part[0], form), re.ASCII)


_LONGEST = 60


@cache
def kubernetes_bounds() -> Mapping[str, Any]:
    """By API version and kind (``apps/v1/Deployment``): the ``schema`` of its objects, and where that comes from (``source``)."""
    references = []

    def note(found: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in found:
            references.append(found)
        return found

    document = files("eks_inference_tools.check").joinpath("kubernetes_bounds.json").read_text("utf-8")
    read = json.loads(document, object_hook=note)
    for reference in references:
        reference.update(read["types"][reference.pop("$ref")])
    return read["kinds"]


@rule(
    "K8S019",
    "The API server accepts every field and value, for the kinds of object that this library's stacks have.",
    fix="change the value, or the key of the stack file that gives it",
    source="OpenAPI and validation of kube-apiserver 1.35; definitions of custom resources (docs/bounds-kubernetes.md)",
)
def objects_are_taken(facts: GraphFacts) -> Iterator[Judgement]:
    for resource in facts.graph.resources:
        kind = kubernetes_bounds().get(resource.type.removeprefix("kubernetes:").removeprefix("core/").replace(":", "/"))
        if kind is None or not is_kubernetes_object(resource):
            continue
        found = list(faults(redacted(resource.type, resource.inputs), kind["schema"]))
        for path, given, allowed in found:
            yield Judgement(
                holds=False,
                path=(),
                working=(f"{title_of(resource)}: {format_path(path)}: {_shown(given)}; the API server takes {allowed}",),
                message=f"{title_of(resource)}: the API server does not take this {format_path(path)}",
                given=_shown(given),
                allowed=f"{allowed} ({kind['source']})",
                resource=resource.urn,
            )
        if not found:
            yield Judgement(holds=True, path=(), working=(f"{title_of(resource)}: {kind['source']}",), resource=resource.urn)


def _shown(given: Any) -> str:
    if given is None:
        return "nothing"
    shown = text(given) if isinstance(given, str | int | float) else json.dumps(given, default=str)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


# What Pulumi appends to the name of a resource that has none of its own.
_SUFFIX = "-1234567"


@cache
def aws_stated() -> Mapping[str, Any]:
    """By type of resource: ``api``, its operations; ``schema``, what they take; ``named``, the property that Pulumi names.

    ``named`` maps to what the provider puts between the resource's name and Pulumi's suffix. A test derives it all from botocore.
    """
    return _read("aws_bounds.json", json.loads)


@cache
def aws_documented() -> Mapping[str, Any]:
    """By type of resource: ``schema`` and ``source``."""
    return _read("aws_documented.toml", tomllib.loads)


def _read(name: str, loads: Callable[[str], Any]) -> Mapping[str, Any]:
    return loads(files("eks_inference_tools.check").joinpath(name).read_text("utf-8"))


@rule(
    "AWS013",
    "Each AWS service's documents allow the values of its resources.",
    fix="change the value, or the stack file's key behind it; a name joins the stack's and the pool's or server's",
    source="check/aws_documented.toml, with the source of each row",
)
def values_are_documented(facts: GraphFacts) -> Iterator[Judgement]:
    yield from _judgements(facts, aws_documented(), "source")


@rule(
    "AWS014",
    "The API of each AWS service accepts the values of its resources.",
    fix="change the value, or the stack file's key behind it; a name joins the stack's and the pool's or server's",
    source="AWS's API models as botocore has them (check/aws_bounds.json)",
)
def values_are_taken(facts: GraphFacts) -> Iterator[Judgement]:
    yield from _judgements(facts, aws_stated(), "api")


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
                message=f"{title}: the API does not accept {where}",
                given=_short(given),
                allowed=allowed,
                resource=resource.urn,
            )


def _named(resource: Resource) -> Mapping[str, Any]:
    """The inputs of a resource, with the name that Pulumi makes of the resource's where the program gives none."""
    inputs = resource.inputs
    for key, middle in aws_stated().get(resource.type, {}).get("named", {}).items():
        if inputs.get(key) is None and inputs.get(f"{key}Prefix") is None:
            return {**inputs, key: f"{resource.name}{middle}{_SUFFIX}"}
    return inputs


def _short(given: Any) -> str:
    shown = text(given)
    return shown if len(shown) <= 60 else f"{shown[:57]}... ({len(str(given))} characters)"


_MOST_INLINE = 10_240


@rule(
    "AWS015",
    "The inline policies of a role are together as short as IAM wants them.",
    fix="name fewer buckets, or one policy of your own with all of them",
    source="IAM user guide, IAM and STS quotas: role policy size cannot exceed 10,240 characters; white space does not count",
)
def inline_policies_fit(facts: GraphFacts) -> Iterator[Judgement]:
    policies = (resource for resource in facts.graph.of_type("aws:iam/rolePolicy:RolePolicy") if not is_read(resource))
    # An unknown name is that of the role which the policy depends on.
    by_role = grouped((one.property_dependencies.get("role") or text(one.inputs.get("role")) or one.urn, one) for one in policies)
    for inline in by_role.values():
        documents = [resource.inputs.get("policy") for resource in inline]
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


# Semantic Versioning 2.0.0. Charts may add a leading v.
_EXACT = re.compile(r"v?\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?")


@rule(
    "HEL001",
    "Charts are pinned to one version.",
    fix="set version to an exact x.y.z",
    source="Helm, chart version ranges: without an exact version, Helm installs the newest chart",
)
def charts_pinned(facts: GraphFacts) -> Iterator[Judgement]:
    for chart in facts.charts:
        version = chart.version
        local = chart.reference.startswith((".", "/")) or chart.reference.endswith(".tgz")
        if is_token(version) or is_token(chart.reference) or local:
            continue
        yield Judgement(
            holds=_EXACT.fullmatch(version) is not None,
            path=(),
            working=(f"chart {chart.resource.name}: {chart.reference}, version {version or 'not given'}",),
            message=f"chart {chart.resource.name} ({chart.reference}) has no exact version",
            given=version or "no version",
            allowed="x.y.z",
            resource=chart.resource.urn,
        )


@rule(
    "HEL002",
    "Charts and add-ons have at least one pod of what they install.",
    fix="leave the number of replicas out, or remove the chart",
    source="charts of controllers: without a pod nothing acts on the objects that name them, and nothing says so",
)
def charts_have_pods(facts: GraphFacts) -> Iterator[Judgement]:
    installed = [(f"chart {chart.resource.name}", chart.resource, chart.values) for chart in facts.charts]
    installed += [(f"add-on {addon.name}", addon.resource, addon.configuration) for addon in facts.addons]
    for title, resource, values in installed:
        counts = {".".join(path): whole(value) for path, value in walk(values) if path[-1:] in (("replicas",), ("replicaCount",))}
        none = [path for path, count in counts.items() if count == 0]
        if counts:
            yield Judgement(
                holds=not none,
                path=(),
                working=(f"{title}: {', '.join(f'{path} {count}' for path, count in counts.items())}",),
                message=f"{title} runs no pod of what {text(', '.join(none))} counts",
                given=text(", ".join(f"{path}: 0" for path in none)),
                allowed="at least 1",
                # A part of a chart may be dispensable; its controller is not.
                severity=None if _CONTROLLERS & {*none} else "warning",
                resource=resource.urn,
            )


_CONTROLLERS = {"replicas", "replicaCount", "operator.replicaCount", "controller.replicaCount"}
"""Where charts and add-ons count the pods without which the rest does nothing."""
