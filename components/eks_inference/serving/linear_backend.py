"""The kernels of linear layers with quantized weights on GPUs: which ``--linear-backend`` a server needs, and which it has. Pure.

Source: vLLM 0.30.0, ``_get_linear_backend`` in ``model_executor/kernels/linear`` and ``EngineArgs.create_engine_config``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.catalog.engine_facts import LinearBackend, engine_facts, kernel, since
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model, find_model
from eks_inference.catalog.quantization import Quantization
from eks_inference.serving.flags import flag, object_flag

_ONLINE = ("fp8", "fp8_per_tensor")
"""What ``--quantization`` says where the engine itself makes such weights, with one scale a tensor."""
_SCHEME = "fp8_w8a8"
"""What vLLM calls them in ``linear_backend_per_quant``."""


def weights(arguments: Sequence[str], model: Model | None) -> Quantization | None:
    """Returns how the weights of a server are quantized: as published, or by the engine when it loads them."""
    return _quantized(model, flag(arguments, "quantization"))


def draft_weights(arguments: Sequence[str]) -> Quantization | None:
    """Returns how the weights of the draft model are quantized; None where they are not, and where nothing is known of it."""
    config = object_flag(arguments, "speculative-config")
    name = config.get("model")
    return _quantized(find_model(name) if isinstance(name, str) else None, config.get("quantization"))


def needed(vllm: str, shape: InstanceType, quantization: Quantization | None) -> LinearBackend | None:
    """Returns what a release of vLLM needs for such weights on a GPU; None where it selects a kernel that works."""
    known, facts, has = kernel(quantization, vllm) if quantization else None, engine_facts(vllm), shape.compute_capability
    if not (known and known.linear and facts and has and has < known.linear.below):
        return None
    return known.linear if since(facts.kernels["fp8"], has) == known.linear.fails else None


def chosen(arguments: Sequence[str]) -> str:
    """Returns the back end that the arguments name for fp8 weights without blocks; ``auto``: the engine selects it."""
    config = _kernel_config(arguments)
    several = config.get("linear_backend_per_quant")
    named = several.get(_SCHEME) if isinstance(several, Mapping) else None
    given = flag(arguments, "linear-backend") or "auto"
    found = named or (config.get("linear_backend", given) if given == "auto" else given)
    return str(found).lower().replace("-", "_")


def backend_settings(vllm: str, shape: InstanceType, arguments: Sequence[str], model: Model | None) -> dict[str, str]:
    """Returns the flag that the weights of model and draft need on a GPU; nothing where a user names a back end."""
    told = flag(arguments, "linear-backend") is not None or any(
        key.startswith("linear_backend") for key in _kernel_config(arguments)
    )
    wanted = (needed(vllm, shape, one) for one in (weights(arguments, model), draft_weights(arguments)))
    found = None if told else next(filter(None, wanted), None)
    return {"linear-backend": found.backend} if found else {}


def _quantized(model: Model | None, online: object) -> Quantization | None:
    return (model.quantization if model else None) or (Quantization("fp8", 8) if online in _ONLINE else None)


def _kernel_config(arguments: Sequence[str]) -> Mapping[str, Any]:
    return {key.replace("-", "_"): value for key, value in object_flag(arguments, "kernel-config").items()}
