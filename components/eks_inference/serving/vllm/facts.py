"""What the rules of serving judge of a plain vLLM server: its pods, each with one copy of the model."""

from eks_inference.catalog.models import find_model
from eks_inference.kubernetes.quantity import cpu_millis, memory_mib
from eks_inference.placement import Placement
from eks_inference.rules import Path
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.spec import NoCompileCache
from eks_inference.serving.vllm import plan
from eks_inference.serving.vllm.spec import VllmServerSpec


def serving_facts(spec: VllmServerSpec, placement: Placement, *, scheduler: bool, path: Path = ()) -> ServingFacts:
    """``scheduler`` says whether the Neuron scheduler extension is installed."""
    shape = placement.instance_type
    resources = plan.resources(spec, shape)
    return ServingFacts(
        path=path,
        kind=spec.kind,
        engine=spec.profile,
        model_id=spec.model.id,
        model=find_model(spec.model.id),
        placement=placement,
        devices=plan.device_count(spec, shape),
        tensor_parallel=spec.tensor_parallel,
        max_num_seqs=spec.max_num_seqs,
        max_model_len=spec.max_model_len,
        pods_min=spec.fewest,
        pods_max=spec.most,
        cpu_millis=cpu_millis(resources["cpu"]),
        memory_mib=memory_mib(resources["memory"]),
        scheduler=scheduler,
        startup_timeout_s=plan.startup_timeout_seconds(spec),
        arguments=tuple(plan.arguments(spec)),
        environment=plan.environment(spec, shape),
        compile_cache=not isinstance(spec.cache, NoCompileCache),
        container_port=plan.port(spec),
        service_port=plan.port(spec),
        image=spec.compiled_image if isinstance(spec.compiled_image, str) else "",
        keys={
            "pods_max": ("autoscaling", "max") if spec.autoscaling else ("replicas",),
            "startup_timeout": ("startup_timeout_seconds",),
        },
    )
