"""Which media a server takes, and from where. Pure."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, get_args

from pydantic import StringConstraints

from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.models import Model
from eks_inference.catalog.vllm_arguments import vllm_releases
from eks_inference.serving.flags import object_flag, switched

Medium = Literal["image", "video"]
Domain = Annotated[str, StringConstraints(pattern=r"^([a-z0-9-]+\.)+[a-z][a-z0-9-]*$", max_length=253)]
"""The name of a host, and no address: the engine compares whole names, in small letters."""

NOWHERE = "none.invalid"
"""A host that does not exist (RFC 2606): without any, the engine fetches from all (vLLM 0.30.0, MediaConnector)."""

_MOST = 999
"""The engine's own limit (vLLM 0.30.0, MultiModalConfig)."""


def fetches(engine: EngineProfile, model: Model | None) -> bool:
    """Whether the engine can be told where it fetches pictures from, and the model takes any."""
    release = vllm_releases().get(engine.vllm)
    return bool(model and model.sees and release and "allowed-media-domains" in release.flags)


def most(arguments: Sequence[str], medium: Medium) -> int:
    """How many of a medium a prompt may have (``--limit-mm-per-prompt``)."""
    limit = object_flag(arguments, "limit-mm-per-prompt").get(medium)
    limit = limit.get("count") if isinstance(limit, Mapping) else limit
    return 0 if switched(arguments, "language-model-only", False) else limit if isinstance(limit, int) else _MOST


def sees(arguments: Sequence[str], model: Model) -> bool:
    """Whether a prompt may have a medium that the model takes. Without one the engine loads no tower."""
    media = ("image",) if model.tower and not model.tower.video else get_args(Medium)
    return any(most(arguments, one) for one in media)
