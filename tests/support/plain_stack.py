"""A shipped stack with a server of the kind ``another_kind``, which only tests have, scaled by KEDA."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import another_kind
from eks_inference.serving.kinds import KINDS
from eks_inference.specs.validation import schema_of
from eks_inference.stack.spec import StackSpec, register_kind

STACK = "gpu-opt350m"

PLAIN: dict[str, Any] = {
    "servers": {
        "triton-server": None,
        "plain": {
            "kind": "plain",
            "model": {"id": "facebook/opt-350m"},
            "engine": "cuda-vllm-0.30",
            "pool": "gpu",
            "max_model_len": 2048,
            "cpu": "3",
            "memory": "12Gi",
            "autoscaling": {"kind": "keda", "min": 1, "max": 4},
        },
    },
    "clients": {"triton": None, "smoke_test": {}},
}


@contextmanager
def plain_kind() -> Iterator[None]:
    """Registers the kind for the duration of the context."""
    before = dict(KINDS)
    register_kind(another_kind.KIND)
    try:
        yield
    finally:
        KINDS.clear()
        KINDS.update(before)
        StackSpec.model_rebuild(force=True)
        schema_of.cache_clear()
