"""Resource options of a registration: inheritance from the parent, and their form in a graph."""

from typing import Any

from pulumi.runtime.proto import resource_pb2

from stackgraph.graph.document import PROVIDER_PREFIX
from stackgraph.recorder import wire


def inherit(child: resource_pb2.RegisterResourceRequest, parent: resource_pb2.RegisterResourceRequest) -> None:
    """Sets the options that a resource inherits, like ``inheritFromParent`` of the engine."""
    if not child.deletedWith:
        child.deletedWith = parent.deletedWith
    if not child.HasField("protect") and parent.HasField("protect"):
        child.protect = parent.protect
    if not child.HasField("retainOnDelete") and parent.HasField("retainOnDelete"):
        child.retainOnDelete = parent.retainOnDelete
    if not child.provider and parent.provider:
        package = parent.provider.split("::")[2].rpartition("$")[2].removeprefix(PROVIDER_PREFIX)
        if not (child.remote or child.custom) or package == child.type.split(":", 1)[0]:
            child.provider = parent.provider


def recorded(request: resource_pb2.RegisterResourceRequest, secrets: wire.Secrets) -> dict[str, Any]:
    """The options of a registration that differ from the default."""
    timeouts = request.customTimeouts
    given: dict[str, Any] = {
        "additionalSecretOutputs": sorted(request.additionalSecretOutputs),
        "aliases": [_alias(alias) for alias in request.aliases] + [{"urn": urn} for urn in request.aliasURNs],
        "customTimeouts": {
            action: value for action in ("create", "update", "delete", "read") if (value := getattr(timeouts, action, ""))
        },
        "deleteBeforeReplace": request.deleteBeforeReplace,
        "deletedWith": request.deletedWith,
        "hideDiffs": list(request.hideDiffs),
        "hooks": {field.camelcase_name: list(names) for field, names in request.hooks.ListFields()},
        "ignoreChanges": sorted(request.ignoreChanges),
        "import": request.importId,
        "pluginDownloadUrl": request.pluginDownloadURL,
        "protect": request.protect,
        "replaceOnChanges": sorted(request.replaceOnChanges),
        "replaceWith": sorted(request.replace_with),
        "replacementTrigger": wire.canonical(wire.decode_value(request.replacement_trigger), secrets),
        "retainOnDelete": request.retainOnDelete,
    }
    return {key: value for key, value in given.items() if value or (key == "replacementTrigger" and value is not None)}


def _alias(alias: Any) -> dict[str, Any]:
    if alias.WhichOneof("alias") == "urn":
        return {"urn": alias.urn}
    spec = alias.spec
    fields = {"name": spec.name, "type": spec.type, "stack": spec.stack, "project": spec.project}
    fields |= {"parent": spec.parentUrn} if spec.WhichOneof("parent") == "parentUrn" else {"noParent": spec.noParent}
    return {key: value for key, value in fields.items() if value}
