"""How a model fits one instance type, as JSON. Sizes are in bytes."""

from collections.abc import Sequence
from typing import Any

from eks_inference.serving.feasibility import Feasibility, Split
from eks_inference_tools.cost.money import Offer
from eks_inference_tools.fitting.document import SCHEMA

_PRICE = float | None
_MEMORY = ("weight_bytes", "kv_bytes_advised", "kv_bytes_most", "usable_bytes")
SHAPE = {
    "model": {
        **dict.fromkeys(("name", "architecture", "dtype"), str),
        **dict.fromkeys(("parameters", "weight_bytes", "kv_bytes_per_token", "heads", "kv_heads", "window_layers"), int),
        "quantization": str | None,
        "window": int | None,
        "not_counted": [str],
        "max_positions": int,
    },
    "instance": {
        **dict.fromkeys(("name", "accelerator"), str),
        **dict.fromkeys(("devices", "cores_per_device"), int),
        "device_memory_gib": float,
    },
    "engine": {**dict.fromkeys(("name", "image", "caveat", "kv_cache"), str), **dict.fromkeys(("vllm", "sdk"), str | None)},
    "rules": [str],
    "region": str,
    "usd_per_hour": _PRICE,
    **dict.fromkeys(("price_source", "quota"), str | None),
    "splits": [
        {
            "tensor_parallel": int,
            "kv_repeats": float,
            "refusal?": str,
            **dict.fromkeys(("devices?", "idle_cores?", "pods_per_node?", "idle_devices_per_node?"), int),
            "usd_per_hour_and_pod?": _PRICE,
            "neuron_scheduler?": bool,
            "cautions?": [str],
            "fits?": [
                {
                    **dict.fromkeys(("max_model_len", "advised_sequences", "most_sequences", *_MEMORY), int),
                    "beside_bytes": int | None,
                }
            ],
        }
    ],
}
"""Of `plan --instance`."""


def document(found: Feasibility, offer: Offer, told: Sequence[str] = ()) -> dict[str, Any]:
    """Everything in the table and more, as JSON. Sizes are in bytes."""
    model, instance, engine = found.model, found.instance, found.engine
    return {
        "schema": SCHEMA,
        "model": {
            "name": model.name,
            "architecture": model.architecture,
            "dtype": model.dtype,
            "parameters": model.parameters,
            "weight_bytes": model.weight_bytes(),
            "kv_bytes_per_token": model.kv_bytes_per_token(),
            "heads": model.heads,
            "kv_heads": model.kv_heads,
            "quantization": model.quantization.method if model.quantization else None,
            "window": model.window or None,
            "window_layers": model.window_layers,
            "not_counted": list(model.uncounted),
            "max_positions": model.max_positions,
        },
        "instance": {
            "name": instance.name,
            "accelerator": instance.accelerator,
            "devices": instance.devices,
            "cores_per_device": instance.cores_per_device,
            "device_memory_gib": instance.device_memory_gib,
        },
        "engine": {
            "name": engine.name,
            "vllm": engine.vllm,
            "sdk": engine.sdk,
            "image": engine.image,
            "caveat": engine.caveat,
            "kv_cache": engine.generation.kv_cache,
        },
        "rules": list(told),
        "region": offer.region,
        "usd_per_hour": offer.price.usd if offer.price else None,
        "price_source": offer.source,
        "quota": offer.quota.title if offer.quota else None,
        "splits": [_split(split, offer) for split in found.splits],
    }


def _split(split: Split, offer: Offer) -> dict[str, Any]:
    head = {"tensor_parallel": split.tensor_parallel, "kv_repeats": split.kv_repeats}
    if split.refusal:
        return head | {"refusal": split.refusal}
    return head | {
        "devices": split.devices,
        "idle_cores": split.idle_cores,
        "pods_per_node": split.pods,
        "usd_per_hour_and_pod": offer.per_pod(split.pods),
        "idle_devices_per_node": split.idle_devices,
        "neuron_scheduler": split.scheduler,
        "cautions": list(split.cautions),
        "fits": [
            {
                "max_model_len": fit.max_model_len,
                "advised_sequences": fit.advised.sequences,
                "most_sequences": fit.most.sequences,
                "weight_bytes": fit.most.weights,
                "beside_bytes": fit.most.reserved.size if fit.most.reserved else None,
                "kv_bytes_advised": fit.advised.kv,
                "kv_bytes_most": fit.most.kv,
                "usable_bytes": fit.most.capacity,
            }
            for fit in split.fits
        ],
    }
