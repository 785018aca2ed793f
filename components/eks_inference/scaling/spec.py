"""What a user decides about the number of pods of a model server."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from eks_inference.spec import Spec


class _Bounds(Spec):
    min: int = Field(default=1, ge=0, description="Fewest pods.")
    max: int = Field(ge=1, description="Most pods.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        return self


class KedaSpec(_Bounds):
    """KEDA on what vLLM itself says: requests that wait, and how full the KV cache is. The default."""

    kind: Literal["keda"]
    waiting_requests: float = Field(default=4, gt=0, description="Requests waiting per pod above which a pod is added.")
    kv_cache_use: float = Field(default=0.8, gt=0, le=1, description="Use of the KV cache above which a pod is added.")
    polling_interval_seconds: int = Field(default=15, ge=5, description="How often KEDA asks Prometheus.")
    scale_in_seconds: int = Field(default=300, ge=0, description="How long load must have been lower before a pod goes.")


class HpaSpec(_Bounds):
    """HorizontalPodAutoscaler on a metric that prometheus-adapter serves: parity with the source system."""

    kind: Literal["hpa"]
    metric: Literal["nv_inference_queue_duration_ms", "triton_queue_ms_per_request"] = Field(
        default="nv_inference_queue_duration_ms",
        description="nv_inference_queue_duration_ms: milliseconds of queueing a second, all requests together, as the source "
        "system has it. triton_queue_ms_per_request: mean queueing of one request.",
    )
    target: float = Field(default=10, gt=0, description="Average over the pods that the autoscaler holds, in milliseconds.")
    scale_out_seconds: int = Field(default=0, ge=0, description="Stabilization window upwards.")
    scale_in_seconds: int = Field(default=120, ge=0, description="Stabilization window downwards.")


AutoscalerSpec = Annotated[KedaSpec | HpaSpec, Field(discriminator="kind")]
"""What changes the number of pods, told apart by ``kind``."""
