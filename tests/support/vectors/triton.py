"""Vectors of the rules about Triton servers."""

from typing import Any

from eks_inference.catalog.instances import instance_type
from eks_inference.place.placement import POOL_LABEL, Placement
from eks_inference.serving.triton.rules import TritonFacts, triton_facts
from eks_inference.serving.triton.spec import TritonServerSpec
from vectors import Vector

GPU = {"pool": "gpu", "model": {"id": "facebook/opt-350m"}}
HPA = {"kind": "hpa", "min": 1, "max": 4}


def triton(on: str = "g4dn.xlarge", **changes: Any) -> TritonFacts:
    """Returns OPT-350M on one T4, with changes."""
    spec = TritonServerSpec.model_validate({**GPU, **changes})
    placement = Placement("gpu", instance_type(on), {POOL_LABEL: "gpu"}, max_nodes=4)
    return triton_facts(spec, placement, path=("servers", "triton-server"))


def scaled(**autoscaling: Any) -> TritonFacts:
    """Returns a server scaled by the mean queue time of a request, with changes."""
    return triton(autoscaling={**HPA, "metric": "triton_queue_ms_per_request", **autoscaling})


def several(**changes: Any) -> TritonFacts:
    """Returns two models on one T4, with changes of the first."""
    second = {"model": {"id": "Qwen/Qwen3-0.6B"}, "gpu_memory_utilization": 0.4, "max_model_len": 4096}
    first = {"gpu_memory_utilization": 0.4, "startup_timeout_seconds": 4800, "further_models": {"qwen3": second}}
    return triton(**{**first, **changes})


VECTORS = {
    "OBS011": Vector(
        lambda: triton(objectives={"time_to_first_token_seconds": 9.9}),
        lambda: triton(objectives={"time_to_first_token_seconds": 10}),
        "the alert never fires",
    ),
    "TRI001": Vector(
        lambda: triton(extra_args={"trust-remote-code": True}),
        lambda: triton(extra_args={"trust-remote-cod": True}),
        "vLLM 0.27.1 has no argument of this name",
    ),
    "TRI002": Vector(
        lambda: triton("g4dn.12xlarge", tensor_parallel=2, extra_args={"pipeline-parallel-size": 2}),
        lambda: triton(extra_args={"pipeline-parallel-size": 2}),
        "a copy of the model takes 2 GPUs, and a pod has 1",
    ),
    "TRI003": Vector(triton, lambda: triton(log_stats=False), "no vLLM metrics are exported: log_stats is off"),
    "TRI004": Vector(triton, lambda: triton(extra_args={"disable-log-requests": True}), "vLLM 0.27.1 dropped this argument"),
    "TRI005": Vector(
        lambda: scaled(metric="vllm_time_to_first_token_ms"), lambda: triton(autoscaling=HPA), "requests wait inside vLLM"
    ),
    "TRI006": Vector(scaled, lambda: triton(autoscaling={"kind": "keda", "max": 4}), "Triton exports none of vLLM's gauges"),
    "TRI008": Vector(several, lambda: several(gpu_memory_utilization=0.8), "together would take 1.2 of each GPU"),
    "TRI009": Vector(several, lambda: several(startup_timeout_seconds=1200), "killed before its 2 models are loaded"),
}
