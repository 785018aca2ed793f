"""Gives the inputs of a program and those of a state the same form: known values, what a program computes of outputs, what
providers write, Kubernetes objects as they are kept.
"""

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

from stackgraph.diff.differences import Path, opened
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import REFERENCE, SECRET, UNKNOWN, at, items, leaves, references, table, text

Outputs = Callable[[str], Iterator[Mapping[str, Any]]]
"""By the name of a resource, the outputs that the update will find for the resources of that name."""


def settled(value: Any, outputs: Outputs) -> Any:
    """The value with each reference to an output that is known. Other references stay; between several values nobody decides."""
    if isinstance(value, Mapping):
        made = {key: settled(item, outputs) for key, item in value.items()}
        return type(value)(made) if isinstance(value, dict) else made
    if isinstance(value, list):
        return [settled(item, outputs) for item in value]
    if not isinstance(value, str) or "<" not in value:
        return value
    found = {reference: _found(reference, outputs) for reference in references(value)}
    if any(len(values) > 1 for values in found.values()):
        return UNKNOWN
    if (whole := REFERENCE.fullmatch(value)) and found[whole[1]]:
        return found[whole[1]][0]

    def inside(match: re.Match[str]) -> str:
        (known,) = found[match[1]] or (None,)
        return str(known) if isinstance(known, str | int | float) else match[0]

    return REFERENCE.sub(inside, value)


def unknown(leaf: Any) -> bool:
    """Whether a value, after ``settled``, is one that only the update will know."""
    return leaf == UNKNOWN or (isinstance(leaf, str) and bool(REFERENCE.search(leaf)))


def _found(reference: str, outputs: Outputs) -> list[Any]:
    """The values that a reference has: several if resources of one name differ in it."""
    steps = reference.split(".")
    values: list[Any] = []
    for split in range(1, len(steps)):
        for known in outputs(".".join(steps[:split])):
            value: Any = known
            for step in steps[split:]:
                value = value.get(step) if isinstance(value, Mapping) else None
            if value is not None and value not in values:
                values.append(value)
    return values


def hidden(value: Any, deployed: Any, unchanged: bool) -> tuple[Any, int]:
    """The value with what is deployed in place of what cannot be compared, and how often: secrets, and values that the program
    computes from outputs. Only if ``unchanged``: nothing that they depend on is made anew. Else they are unknown.

    What is computed may have come out as none: the state has nothing in its place (``unsaid``). A secret that it lacks is new.
    """
    if value == UNKNOWN or (value == SECRET and deployed is not None):
        return (deployed, 1) if unchanged else (UNKNOWN, 0)
    if isinstance(value, Mapping) and isinstance(deployed, Mapping):
        pairs = {key: hidden(item, deployed.get(key), unchanged) for key, item in value.items()}
        made = {key: item for key, (item, _) in pairs.items()}
        return (type(value)(made) if isinstance(value, dict) else made), sum(count for _, count in pairs.values())
    if isinstance(value, list) and isinstance(deployed, list) and len(value) == len(deployed):
        items = [hidden(item, other, unchanged) for item, other in zip(value, deployed, strict=True)]
        return [item for item, _ in items], sum(count for _, count in items)
    return value, 0


def unsaid(value: Any, deployed: Any, path: Path = ()) -> Iterator[Path]:
    """Where the program computes a value that the state lacks: it was none, or somebody has added it since."""
    if value == UNKNOWN and deployed is None:
        yield path
    elif isinstance(value, Mapping) and isinstance(deployed, Mapping):
        for key, item in value.items():
            yield from unsaid(item, deployed.get(key), (*path, key))
    elif isinstance(value, list) and isinstance(deployed, list) and len(value) == len(deployed):
        for number, (item, other) in enumerate(zip(value, deployed, strict=True)):
            yield from unsaid(item, other, (*path, number))


def without_computed(graph: Graph, strict: Graph) -> Graph:
    """The graph with what is computed as unknown. ``strict`` is a recording of the same program with outputs unknown.

    A preview gives an ``apply`` a placeholder, and such a result looks like any text of the program, which differs from what was
    deployed. A recording in which outputs are unknown tells it. A text with a whole output inside stays: the state knows that
    output.
    """
    names = {resource.name for resource in graph.resources}

    def known(value: Any, other: Any) -> Any:
        if other == UNKNOWN:
            return value if any(leaf == SECRET or _refers(leaf, names) for leaf in leaves(value)) else UNKNOWN
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            # Of a placeholder, none may come out, of which a recording has no trace.
            none = {key: UNKNOWN for key, item in other.items() if item == UNKNOWN and value.get(key) is None}
            return {**{key: known(item, other.get(key)) for key, item in value.items()}, **none}
        if isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
            return [known(*pair) for pair in zip(value, other, strict=True)]
        return value

    found = ((resource, strict.by_urn.get(resource.urn)) for resource in graph.resources)
    resources = tuple(_with(one, known(one.inputs, other.inputs), other) if other else one for one, other in found)
    return replace(graph, resources=resources, outputs=known(graph.outputs, strict.outputs))


def _with(resource: Resource, inputs: Mapping[str, Any], strict: Resource) -> Resource:
    return replace(
        resource, inputs=inputs, property_dependencies={**strict.property_dependencies, **resource.property_dependencies}
    )


def _refers(leaf: Any, names: set[str]) -> bool:
    """Whether a text has an output of a resource inside."""
    return isinstance(leaf, str) and any(name in names for reference in references(leaf) for name in _prefixes(reference))


def _prefixes(reference: str) -> Iterator[str]:
    """What may be the name of the resource: names may hold dots."""
    steps = reference.split(".")
    return (".".join(steps[:end]) for end in range(1, len(steps)))


def from_provider(
    type_: str, inputs: Mapping[str, Any], deployed: Mapping[str, Any], provider: Mapping[str, Any]
) -> dict[str, Any]:
    """The inputs of a program with what the provider of AWS adds: the region, and all tags. ``deployed`` are those of the state,
    ``provider`` the provider's.

    Only where the state has them: older versions of the provider wrote neither. A region that nobody knows here, such as that of
    the environment, stays. Sources: pulumi-aws ``provider/region.go`` (applyRegion) and ``provider/tags.go`` (applyTags).
    """
    made = dict(inputs)
    if not type_.startswith("aws:"):
        return made
    if "region" in deployed and made.get("region") is None:
        made["region"] = provider.get("region") or deployed["region"]
    if "tagsAll" in deployed:
        made["tagsAll"] = _all_tags(made.get("tags"), opened(dict(provider)))
    return made


def _all_tags(tags: Any, provider: Mapping[str, Any]) -> Any:
    default, ignored = (_plain(provider.get(key)) for key in ("defaultTags", "ignoreTags"))
    if any(unknown(leaf) for leaf in leaves([tags, default, ignored])):
        return UNKNOWN
    found = {**table(_plain(table(default).get("tags"))), **table(tags)}
    keys, prefixes = ({text(item) for item in items(table(ignored).get(key))} for key in ("keys", "keyPrefixes"))
    return {key: value for key, value in found.items() if key not in keys and not key.startswith(tuple(prefixes))}


def _plain(setting: Any) -> Any:
    """A setting of a provider, which may be a JSON text: ``opened`` keeps its content under an empty name."""
    return setting[""] if isinstance(setting, Mapping) and setting.keys() == {""} else setting


# What providers wrote themselves, beside what the program gave. Sources: ``__defaults`` and ``__internal``,
# pulumi-terraform-bridge ``pkg/tfbridge/schema.go`` and pulumi ``providers/config.go``; Kubernetes, pulumi-kubernetes v4
# ``provider/pkg/provider/provider.go`` (Check) and ``metadata/naming.go``, ``metadata/labels.go``.

_AUTONAMED = "pulumi.com/autonamed"
_MANAGED_BY = "app.kubernetes.io/managed-by"


def given(type_: str, deployed: Mapping[str, Any], program: Mapping[str, Any]) -> dict[str, Any]:
    """The deployed inputs as the program gave them then. ``program`` are the inputs it gives now."""
    found = _without_defaults(deployed)
    return _without_kubernetes(found, program) if type_.startswith("kubernetes:") else found


def _without_defaults(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_defaults(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    made = value.get("__defaults")
    defaults = made if isinstance(made, list) else ()
    return {key: _without_defaults(item) for key, item in value.items() if not key.startswith("__") and key not in defaults}


def _without_kubernetes(found: dict[str, Any], program: Mapping[str, Any]) -> dict[str, Any]:
    metadata = found.get("metadata")
    if not isinstance(metadata, dict):
        return found
    kept = dict(metadata)
    if at(metadata, "annotations", _AUTONAMED) == "true" and at(program, "metadata", "name") is None:
        kept.pop("name", None)
    if kept.get("namespace") == "default" and at(program, "metadata", "namespace") is None:
        kept.pop("namespace")
    for part, key in (("annotations", _AUTONAMED), ("labels", _MANAGED_BY)):
        if isinstance(kept.get(part), Mapping) and at(program, "metadata", part, key) is None:
            rest = {name: item for name, item in kept[part].items() if name != key}
            kept[part] = rest
            if not rest and at(program, "metadata", part) is None:
                del kept[part]
    return {**found, "metadata": kept} if kept or "metadata" in program else {k: v for k, v in found.items() if k != "metadata"}


# The provider reads an object of a built-in kind into the Go types of its API and writes it again. This leaves out a zero value
# of a field that is ``omitempty`` and no pointer. Of a Secret, ``stringData`` becomes ``data``. Other inputs stay as they are.
#
# Sources: pulumi-kubernetes v4 ``provider/pkg/provider/provider.go`` (normalizeInputs), ``provider/pkg/clients/unstructured.go``;
# k8s.io/api v0.36.2, ``types.go`` of all groups.

_GROUPS = frozenset(
    f"{name}.k8s.io"
    for name in (
        *("admissionregistration", "apiregistration", "authentication", "authorization", "certificates", "coordination"),
        *("discovery", "events", "flowcontrol.apiserver", "networking", "node", "rbac.authorization", "resource", "scheduling"),
        *("storage", "storagemigration"),
    )
)
"""The built-in groups with a dot in their names. Definitions of custom resources are kept as they are given."""

_POINTERS = frozenset(
    (
        *("apiGroup", "appProtocol", "containerName", "driver", "fsType", "hostname", "ingressClassName", "loadBalancerClass"),
        *("localhostProfile", "managedBy", "name", "namespace", "nodeName", "path", "pool", "runAsUserName", "runtimeClassName"),
        *("signerName", "storageClassName", "timeZone", "trafficDistribution", "url", "version", "volumeAttributesClassName"),
    )
)
"""Texts that may be pointers, for which an empty text is a value. In a PersistentVolume, ``storageClassName`` is none."""

_SWITCHES = frozenset(
    (
        *("globalDefault", "hostIPC", "hostNetwork", "hostPID", "insecureSkipTLSVerifyBackend", "paused"),
        *("publishNotReadyAddresses", "readOnly", "stdin", "stdinOnce", "tty", "unschedulable"),
    )
)
"""Switches that are no pointers: false is their zero value."""

_NUMBERS = frozenset(
    (
        *("failureThreshold", "healthCheckNodePort", "hostPort", "initialDelaySeconds", "minReadySeconds", "nodePort"),
        *("periodSeconds", "successThreshold"),
    )
)
"""Numbers that are no pointers: 0 is their zero value."""


def normalized(type_: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that a program gives to a resource as a state keeps them."""
    package, _, rest = type_.partition(":")
    group, _, kind = rest.partition("/")
    if package != "kubernetes" or ("." in group and group not in _GROUPS):
        return dict(inputs)
    if kind.endswith(":Secret"):
        return _secret(inputs)
    return _without_zeros(inputs, _POINTERS - {"storageClassName"} if kind.endswith(":PersistentVolume") else _POINTERS)


def _without_zeros(value: Any, pointers: Set[str]) -> Any:
    if isinstance(value, list):
        return [_without_zeros(item, pointers) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {key: _without_zeros(item, pointers) for key, item in value.items() if not _is_zero(key, item, pointers)}


def _is_zero(key: str, value: Any, pointers: Set[str]) -> bool:
    if isinstance(value, bool):
        return not value and key in _SWITCHES
    if isinstance(value, int | float):
        return not value and key in _NUMBERS
    return value == [] or (value == "" and key not in pointers)


def _secret(inputs: Mapping[str, Any]) -> dict[str, Any]:
    texts = inputs.get("stringData")
    if not texts or texts == UNKNOWN:
        return dict(inputs)
    data = SECRET if texts == SECRET else {**(inputs.get("data") or {}), **{key: _encoded(text) for key, text in texts.items()}}
    return {key: value for key, value in inputs.items() if key != "stringData"} | {"data": data}


def _encoded(text: Any) -> Any:
    hidden = not isinstance(text, str) or text in (SECRET, UNKNOWN)
    return text if hidden else base64.b64encode(text.encode()).decode()
