"""The kernels of linear layers with quantized weights on GPUs: which ``--linear-backend`` a server needs, and which it has. Pure.

Source: vLLM 0.30.0, ``_get_linear_backend`` in ``model_executor/kernels/linear`` and ``EngineArgs.create_engine_config``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.catalog.engine_facts import Capability, Failing, engine_facts, failing
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


def fails(vllm: str, has: Capability | None, quantization: Quantization | None) -> Failing | None:
    """Returns where the kernel fails that a release of vLLM selects for such weights on a GPU; None where it works."""
    facts = engine_facts(vllm)
    if not (quantization and facts and has):
        return None
    found = (failing().get(one) for one in facts.selected(quantization, has, experts=False) or ())
    return next((one for one in found if one and one.on(has)), None)


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
    wanted = (fails(vllm, shape.compute_capability, one) for one in (weights(arguments, model), draft_weights(arguments)))
    found = "" if told else next((one.backend for one in wanted if one), "")
    return {"linear-backend": found} if found else {}


def _quantized(model: Model | None, online: object) -> Quantization | None:
    return (model.quantization if model else None) or (Quantization("fp8", 8) if online in _ONLINE else None)


def _kernel_config(arguments: Sequence[str]) -> Mapping[str, Any]:
    return {key.replace("-", "_"): value for key, value in object_flag(arguments, "kernel-config").items()}
