"""Settings of vLLM's plugin for Neuron, which stand in one JSON object below a key that depends on the generation. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.catalog.engines import EngineProfile
from eks_inference.serving.flags import flag, object_flag


def plugin_settings(engine: EngineProfile, arguments: Sequence[str]) -> Mapping[str, Any] | None:
    """Returns the settings as the plugin reads them; None where the flag has anything else than such an object."""
    known = engine.generation.settings
    text = flag(arguments, known.flag) if known else None
    if known is None or text is None:
        return {}
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return None
    found = config.get(known.key, {}) if isinstance(config, dict) else None
    return found if isinstance(found, dict) else None


def with_object(engine: EngineProfile, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a user's flags with the plugin's object as such where it is JSON text, so that ours can stand beside theirs."""
    known = engine.generation.settings
    text = given.get(known.flag) if known else None
    found = object_flag([f"--{known.flag}={text}"], known.flag) if known and isinstance(text, str) else {}
    return {**given, known.flag: found} if known and found else given
