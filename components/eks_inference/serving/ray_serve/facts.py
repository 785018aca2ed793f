"""Derives the facts that the rules about servers judge: a worker, with as many replicas as its cores hold. Pure; no pulumi."""

from eks_inference.place.placement import Placement
from eks_inference.place.quantity import cpu_millis, memory_mib
from eks_inference.rules import Path
from eks_inference.serving.facts import ServingFacts, server_facts
from eks_inference.serving.ray_serve import plan
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec
from eks_inference.serving.spec import NoCompileCache


def serving_facts(spec: RayServeVllmSpec, worker: Placement, *, scheduler: bool, path: Path = ()) -> ServingFacts:
    """Returns the facts of the workers on ``worker``. ``scheduler``: the Neuron scheduler extension is installed."""
    resources = plan.worker_resources(spec.worker)
    return server_facts(
        spec,
        worker,
        path=path,
        scheduler=scheduler,
        devices=spec.worker.device_count,
        tensor_parallel=spec.tensor_parallel,
        max_num_seqs=spec.max_num_seqs,
        max_model_len=spec.max_model_len,
        copies=min(plan.replicas_per_worker(spec), spec.replicas.max),
        pods_min=spec.worker.min,
        pods_max=spec.worker.max,
        cpu_millis=cpu_millis(resources["cpu"]),
        memory_mib=memory_mib(resources["memory"]),
        shared_memory_mib=spec.worker.shared_memory_gib * 1024,
        startup_timeout_s=plan.startup_timeout_seconds(spec, worker),
        arguments=tuple(spec.engine_flags),
        environment=plan.environment(spec, worker),
        compile_cache=not isinstance(spec.cache, NoCompileCache),
        container_port=plan.HEAD_PORTS["serve"],
        service_port=plan.HEAD_PORTS["serve"],
        keys={
            "devices": ("worker", "devices"),
            "cpu": ("worker", "cpu"),
            "memory": ("worker", "memory"),
            "shared_memory_gib": ("worker", "shared_memory_gib"),
            "instance_type": ("worker", "instance_type"),
            "pool": ("worker", "pool"),
            "pods_max": ("worker", "max"),
            "startup_timeout": ("startup_timeout_seconds",),
        },
    )
