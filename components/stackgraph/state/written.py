"""Takes out of a state's inputs what providers wrote there themselves, beside what the program gave.

Sources: ``__defaults`` and ``__internal``, pulumi-terraform-bridge ``pkg/tfbridge/schema.go`` and pulumi ``providers/config.go``;
Kubernetes, pulumi-kubernetes v4 ``provider/pkg/provider/provider.go`` (Check) and ``metadata/naming.go``, ``metadata/labels.go``.
"""

from collections.abc import Mapping
from typing import Any

from stackgraph.graph.values import at

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
