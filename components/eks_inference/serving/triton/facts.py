"""What the rules judge of a Triton server: what all servers have, and its model repository."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.models import find_model
from eks_inference.kubernetes.quantity import cpu_millis, memory_mib
from eks_inference.placement import Placement
from eks_inference.rules import Path
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.triton import plan
from eks_inference.serving.triton.spec import TritonServerSpec


@dataclass(frozen=True)
class TritonFacts:
    """A Triton server as it will run."""

    spec: TritonServerSpec
    serving: ServingFacts
    settings: Mapping[str, Any]
    """Content of model.json."""
    instance_kind: str
    """``KIND_GPU`` or ``KIND_MODEL``."""
    world_size: int
    """GPUs of one copy of the model."""

    def at(self, *keys: str) -> Path:
        """Where in the stack a key of the server stands."""
        return (*self.serving.path, *keys)


def triton_facts(spec: TritonServerSpec, placement: Placement, *, path: Path = ()) -> TritonFacts:
    """``placement`` is where the server runs; ``path`` is its key in the stack."""
    shape = placement.instance_type
    return TritonFacts(
        spec=spec,
        serving=serving_facts(spec, placement, path=path),
        settings=plan.engine_settings(spec, shape),
        instance_kind=plan.instance_kind(spec, shape),
        world_size=plan.world_size(spec, shape),
    )


def serving_facts(spec: TritonServerSpec, placement: Placement, *, scheduler: bool = False, path: Path = ()) -> ServingFacts:
    """``placement`` is where the server runs; the Neuron scheduler does not matter to GPUs."""
    shape = placement.instance_type
    # An instance type without devices is for the rules to refuse; it has no share to give.
    resources = plan.resources(spec, shape) if shape.accelerator else {"cpu": spec.cpu or "0", "memory": spec.memory or "0"}
    return ServingFacts(
        path=path,
        kind=spec.kind,
        engine=spec.profile,
        model_id=spec.model.id,
        model=find_model(spec.model.id),
        placement=placement,
        devices=plan.gpus(spec, shape),
        tensor_parallel=plan.tensor_parallel(spec, shape),
        max_num_seqs=plan.max_num_seqs(spec, shape),
        max_model_len=plan.max_model_len(spec),
        copies=plan.copies(spec, shape),
        pods_min=spec.fewest,
        pods_max=spec.most,
        cpu_millis=cpu_millis(resources["cpu"]),
        memory_mib=memory_mib(resources["memory"]),
        scheduler=scheduler,
        startup_timeout_s=plan.startup_timeout_seconds(spec),
        arguments=tuple(_flags(plan.engine_settings(spec, shape))),
        environment=plan.environment(spec),
        container_port=plan.PORTS["http"],
        service_port=plan.PORTS["http"],
        image=spec.image or spec.profile.image,
        keys={
            "devices": ("gpus",),
            "dtype": ("dtype",),
            "pods_max": ("autoscaling", "max") if spec.autoscaling else ("replicas",),
            "startup_timeout": ("startup_timeout_seconds",),
            "extra_args": ("engine_args",),
        },
    )


def _flags(settings: Mapping[str, Any]) -> Iterator[str]:
    """Arguments of the engine as flags of ``vllm serve``: the form that rules about all servers read."""
    for key, value in settings.items():
        name = key.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{name}" if value else f"--no-{name}"
        else:
            yield f"--{name}={value}"
