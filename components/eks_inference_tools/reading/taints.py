"""Taints in the spelling of Kubernetes or of the EKS API."""

from collections.abc import Mapping
from typing import Any

from stackgraph.graph.values import at, text, unique

_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}


def taint(value: Any) -> str:
    """``key=value:Effect`` of a taint in either spelling."""
    if not isinstance(value, Mapping):
        return text(value)
    effect = taint_effect(value)
    return "=".join(unique((text(value.get("key")), text(value.get("value"))))) + (f":{effect}" if effect else "")


def taint_effect(value: Any) -> str:
    """The effect of a taint in the spelling of Kubernetes."""
    effect = text(at(value, "effect"))
    return _EFFECTS.get(effect, effect)
