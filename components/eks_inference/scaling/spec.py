"""What a user decides about the number of pods of a model server, and about the software that changes it."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from eks_inference.spec import ResourceName, Spec

Seconds = Annotated[int, Field(ge=0, le=3600)]
"""A stabilization window; Kubernetes takes at most an hour."""

HpaMetric = Literal["nv_inference_queue_duration_ms", "triton_queue_ms_per_request", "vllm_time_to_first_token_ms"]


class Step(Spec):
    """How fast the number of pods may change: so many pods, or so many percent of them, within a period."""

    pods: int | None = Field(default=None, ge=1, description="Pods that may come or go within the period.")
    percent: int | None = Field(default=None, ge=1, description="The same as a part of the pods there are, in percent.")
    every_seconds: int = Field(default=60, ge=1, le=1800, description="The period.")

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.pods is None) == (self.percent is None):
            raise ValueError("a step is either pods or percent; give one of them")
        return self


class _Bounds(Spec):
    min: int = Field(default=1, ge=0, description="Fewest pods.")
    max: int = Field(ge=1, description="Most pods.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        return self


class KedaSpec(_Bounds):
    """KEDA on what vLLM itself says: requests that wait, and how full the KV cache is. The default.

    Each signal asks for a number of pods, and the largest wins. A queue says when pods are too few, never when they are enough:
    it is empty again as soon as they are. Then the KV cache keeps them, and where that never fills (short sequences, large
    memory) ``concurrent_requests`` does.

    KEDA's polling and cooldown are not offered: they decide between no pod and one (KEDA documentation, "Scaling Deployments"),
    and here is always one. Nor is its fallback: when Prometheus does not answer, the pods stay as many as they are.
    """

    kind: Literal["keda"]
    waiting_requests: float = Field(default=4, gt=0, description="Requests waiting per pod above which a pod is added.")
    kv_cache_use: float = Field(default=0.8, gt=0, le=1, description="Use of the KV cache above which a pod is added.")
    concurrent_requests: float | None = Field(
        default=None,
        gt=0,
        description="Requests a pod should have, running and waiting together; some 80 percent of max_num_seqs is usual. "
        "Default: not looked at.",
    )
    scale_out_seconds: Seconds = Field(
        default=30, description="How long load must have been higher before a pod is added: a queue gone by then costs no node."
    )
    scale_out_step: Step = Field(default_factory=lambda: Step(percent=100), description="Default: twice the pods in a minute.")
    scale_in_seconds: Seconds = Field(default=300, description="How long load must have been lower before a pod goes.")
    scale_in_step: Step = Field(default_factory=lambda: Step(pods=1), description="Default: one pod in a minute.")


_FIRST_TOKEN_TARGET_MS = 500.0


class HpaSpec(_Bounds):
    """HorizontalPodAutoscaler on a metric of Triton that prometheus-adapter serves. Defaults: parity with the source system."""

    kind: Literal["hpa"]
    metric: HpaMetric = Field(
        default="nv_inference_queue_duration_ms",
        description="nv_inference_queue_duration_ms: milliseconds of queueing a second, all requests together, as the source "
        "system has it. triton_queue_ms_per_request: mean queueing of one request. Both are of Triton's own queue, which vLLM "
        "empties at once. vllm_time_to_first_token_ms: mean time of one request until its first token, queueing inside vLLM "
        "included.",
    )
    target: float = Field(
        default=10,
        gt=0,
        description="Average over the pods that the autoscaler holds, in milliseconds. Default: 10, the source's, for queues; "
        "500 for the first token, where it depends on the model and the prompts: some times what an idle server takes.",
    )
    scale_out_seconds: Seconds = Field(default=0, description="How long load must have been higher before a pod is added.")
    scale_out_step: Step = Field(
        default_factory=lambda: Step(percent=100, every_seconds=5), description="Default: twice the pods in 5 seconds."
    )
    scale_in_seconds: Seconds = Field(default=120, description="How long load must have been lower before a pod goes.")
    scale_in_step: Step = Field(
        default_factory=lambda: Step(percent=100, every_seconds=10),
        description="Default: all but min in 10 seconds. For pods that take long to start: {pods: 1, every_seconds: 60}.",
    )

    @model_validator(mode="before")
    @classmethod
    def _target_of_the_metric(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("metric") == "vllm_time_to_first_token_ms":
            return {"target": _FIRST_TOKEN_TARGET_MS, **given}
        return given


AutoscalerSpec = Annotated[KedaSpec | HpaSpec, Field(discriminator="kind")]
"""What changes the number of pods, told apart by ``kind``."""


class KedaOperatorSpec(Spec):
    """KEDA, by its chart. One a cluster serves every autoscaler of kind keda."""

    namespace: ResourceName = Field(default="keda", description="Namespace of KEDA; made here.")
    values: dict[str, Any] = Field(default_factory=dict, description="Values of the keda chart, merged last.")


class PrometheusAdapterSpec(Spec):
    """prometheus-adapter, by its chart, in the namespace of Prometheus. One a cluster serves every autoscaler of kind hpa.

    Its project is being retired in favour of KEDA (kubernetes-sigs/prometheus-adapter, issue 701): it is here for parity.
    """

    values: dict[str, Any] = Field(default_factory=dict, description="Values of the prometheus-adapter chart, merged last.")


class ScalingSpec(Spec):
    """What autoscalers of servers stand on; installed when one needs it."""

    keda: KedaOperatorSpec = Field(
        default_factory=lambda: KedaOperatorSpec(), description="KEDA, installed when a server's autoscaling is of kind keda."
    )
    prometheus_adapter: PrometheusAdapterSpec = Field(
        default_factory=lambda: PrometheusAdapterSpec(),
        description="prometheus-adapter, installed when a server's autoscaling is of kind hpa.",
    )
