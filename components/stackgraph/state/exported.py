"""Reads the file of ``pulumi stack export``. Never reads a secret: each becomes ``[secret]``, encrypted or not.

Format: ``apitype.UntypedDeployment`` and ``ResourceV3`` of pulumi/pulumi, ``sdk/go/common/apitype/core.go``, version 3 and 4.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from stackgraph.graph.document import STACK_TYPE, Graph, Resource
from stackgraph.graph.values import SECRET, UNKNOWN
from stackgraph.problems import Problem, ProblemsFound, content

# The keys and values that mark special values in a state (sdk/go/common/resource/properties.go).
SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET_MARK = "1b47061264138c4ac30d75fd1eb44270"
ASSET_MARK = "c44067f5952c0a294b673a41bacd8c17"
ARCHIVE_MARK = "0def7320c3a5731c473e5ecbe6d01bc7"
RESOURCE_MARK = "5cf8f73096256a8f31e491e813e4eb8e"
OUTPUT_MARK = "d0e6a833031e9bbcd3f4e8bde6ca49a4"

VERSIONS = (3, 4)
HINT = "write one with: pulumi stack export --stack STACK --file FILE"
_TYPES = {
    **dict.fromkeys(("urn", "type", "parent", "id", "provider"), str),
    "inputs": dict,
    "outputs": dict,
    "dependencies": list,
    "propertyDependencies": dict,
    "protect": bool,
    "retainOnDelete": bool,
    "delete": bool,
    "deletedWith": str,
}
_OPTIONS = ("protect", "retainOnDelete", "deletedWith", "replacementTrigger")


@dataclass(frozen=True)
class Held:
    """One resource of a state. ``condemned``: an earlier update replaced it and still has to delete it. ``imported`` is the id by
    which it was imported.
    """

    resource: Resource
    id: str
    outputs: Mapping[str, Any]
    condemned: bool = False
    pending_replacement: bool = False
    imported: str = ""


@dataclass(frozen=True)
class Deployed:
    """A stack as its state has it. ``pending`` are operations of an interrupted update, in words."""

    held: tuple[Held, ...]
    pending: tuple[str, ...] = ()

    @cached_property
    def by_urn(self) -> Mapping[str, Held]:
        return {held.resource.urn: held for held in self.held if not held.condemned}

    @cached_property
    def graph(self) -> Graph:
        """The resources that an update meets, and the outputs of the stack."""
        resources = tuple(self.by_urn[urn].resource for urn in sorted(self.by_urn))
        _, _, rest = resources[0].urn.partition("urn:pulumi:")
        stack, project, *_ = rest.split("::")
        outputs = next((held.outputs for held in self.by_urn.values() if held.resource.type == STACK_TYPE), {})
        return Graph(project, stack, resources, outputs)


def read_export(file: Path) -> Deployed:
    """The state in an export. Raises ``ProblemsFound`` if the file is none."""
    shown = str(file)
    try:
        document = json.loads(content(file))
    except (ValueError, RecursionError) as error:
        raise ProblemsFound([Problem(f"not JSON: {error}", file=shown, hint=HINT)]) from error
    deployment = document.get("deployment") if isinstance(document, Mapping) else None
    if not isinstance(deployment, Mapping):
        raise ProblemsFound([Problem("not an export of a stack", file=shown, hint=HINT)])
    if document.get("version") not in VERSIONS:
        allowed = ", ".join(map(str, VERSIONS))
        given = str(document.get("version"))
        raise ProblemsFound([Problem("unsupported version of a state", shown, key="version", given=given, allowed=allowed)])
    resources, pending = deployment.get("resources") or [], deployment.get("pending_operations") or []
    if problems := [Problem(what, file=shown, key=key, hint=HINT) for key, what in _faults(resources, pending)]:
        raise ProblemsFound(problems[:10])
    if all(resource.get("delete") for resource in resources):
        raise ProblemsFound([Problem("the state has no resource: a new stack", shown, hint="leave out --state and use: preview")])
    operations = tuple(f"{one['type']} of {one['resource']['urn'].rpartition('::')[2]}" for one in pending)
    try:
        return Deployed(tuple(map(_held, resources)), operations)
    except RecursionError as error:
        raise ProblemsFound([Problem("values nested too deeply", file=shown, key="deployment.resources")]) from error


def _faults(resources: Any, pending: Any) -> Iterator[tuple[str, str]]:
    for key, found in (("deployment.resources", resources), ("deployment.pending_operations", pending)):
        if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
            yield key, "not a list of mappings"
            return
    for number, one in enumerate(resources):
        place = f"deployment.resources[{number}]"
        if not (isinstance(one.get("urn"), str) and one["urn"].startswith("urn:pulumi:") and one["urn"].count("::") >= 3):
            yield f"{place}.urn", "not the URN of a resource"
        elif not isinstance(one.get("type"), str):
            yield f"{place}.type", "not a type"
        for key, kind in _TYPES.items():
            if not isinstance(one.get(key, kind()), kind):
                yield f"{place}.{key}", f"not a {kind.__name__}"
        for key in ("inputs", "outputs"):
            if isinstance(one.get(key), Mapping) and SIGNATURE in one[key]:
                yield f"{place}.{key}", "not a mapping of properties"
        dependencies, by_property = one.get("dependencies"), one.get("propertyDependencies")
        named = [("dependencies", dependencies)] if isinstance(dependencies, list) else []
        named += [("propertyDependencies", urns) for urns in by_property.values()] if isinstance(by_property, Mapping) else []
        if wrong := [key for key, urns in named if not _are_texts(urns)]:
            yield f"{place}.{wrong[0]}", "not a list of URNs"
    for number, one in enumerate(pending):
        resource = one.get("resource")
        if not isinstance(one.get("type"), str) or not isinstance(resource, Mapping) or not isinstance(resource.get("urn"), str):
            yield f"deployment.pending_operations[{number}]", "not an operation"


def _are_texts(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(one, str) for one in value))


def _held(item: Mapping[str, Any]) -> Held:
    options = {key: item[key] for key in _OPTIONS if item.get(key)}
    if item.get("external"):
        options["read"] = item.get("id", "")
    resource = Resource(
        urn=item["urn"],
        type=item["type"],
        name=item["urn"].split("::", 3)[3],
        parent=item.get("parent", ""),
        custom=bool(item.get("custom")),
        provider=str(item.get("provider", "")).rpartition("::")[0],
        inputs=canonical(item.get("inputs", {})),
        dependencies=tuple(sorted(item.get("dependencies") or ())),
        property_dependencies={
            key: tuple(sorted(urns)) for key, urns in (item.get("propertyDependencies") or {}).items() if urns
        },
        options=canonical(options),
    )
    outputs = canonical(item.get("outputs", {}))
    flags = bool(item.get("delete")), bool(item.get("pendingReplacement"))
    return Held(resource, item.get("id", ""), outputs, *flags, item.get("importID", ""))


def canonical(value: Any) -> Any:
    """A value of a state in the form of graphs."""
    if isinstance(value, list):
        return [canonical(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    mark = value.get(SIGNATURE)
    if mark is None:
        return {key: canonical(item) for key, item in value.items()}
    if mark == SECRET_MARK:
        return SECRET
    if mark == RESOURCE_MARK:
        return {"resource": value.get("urn", "")}
    if mark in (ASSET_MARK, ARCHIVE_MARK):
        kept = {key: canonical(item) for key, item in value.items() if key not in (SIGNATURE, "hash")}
        return {"asset" if mark == ASSET_MARK else "archive": kept}
    if mark == OUTPUT_MARK:
        return SECRET if value.get("secret") else canonical(value["value"]) if "value" in value else UNKNOWN
    return UNKNOWN
