"""Rules about servers under Ray Serve alone, and the facts that they judge: a worker, with as many replicas as its cores hold.
Ids SCL010 and SRV021; those about each worker: ``serving/rules``.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from eks_inference.catalog.times import phase_time
from eks_inference.images.spec import InClusterImage
from eks_inference.place.nodes import cpu_millis, memory_mib
from eks_inference.place.placement import Placement
from eks_inference.rules import Judgement, Path, rule
from eks_inference.serving.facts import ServingFacts, server_facts
from eks_inference.serving.ray_serve import plan
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec
from eks_inference.serving.spec import NoCompileCache


@dataclass(frozen=True)
class RayServeFacts:
    """A server under Ray Serve. ``path`` is its key in the stack; empty when a component judges itself."""

    about: ClassVar[str] = "servers under Ray Serve"

    path: Path
    spec: RayServeVllmSpec


@rule(
    "SCL010",
    "Ray Serve adds a replica before one is full, and has workers for the most that it may want.",
    severity="warning",
    fix="lower target_ongoing_requests, or leave it out; raise worker.max, or lower replicas.max or replicas.cpus",
    source="Ray documentation, Ray Serve Autoscaling: target_ongoing_requests; vLLM: what exceeds max_num_seqs waits; "
    "KubeRay, common/pod.go: Ray counts the limit of CPU, rounded up",
)
def replicas_find_work_and_workers(facts: RayServeFacts) -> Iterator[Judgement]:
    spec, replicas = facts.spec, facts.spec.replicas
    target, by_cores = plan.target_ongoing_requests(spec), plan.replicas_per_worker(spec)
    cpus, each = math.ceil(cpu_millis(plan.worker_resources(spec.worker)["cpu"]) / 1000), plan.replica_cpus(spec)
    held = min(by_cores, cpus // each)
    room = spec.worker.max * held
    yield Judgement(
        holds=target <= spec.max_num_seqs or replicas.min == replicas.max,
        path=(*facts.path, "replicas", "target_ongoing_requests"),
        working=(f"{target:g} requests in flight per replica, which works on {spec.max_num_seqs} at once",),
        message=f"{target - spec.max_num_seqs:g} requests wait at each replica before Serve adds one",
        given=f"{target:g}",
        allowed=f"at most {spec.max_num_seqs}",
    )
    yield Judgement(
        holds=replicas.max <= room,
        path=(*facts.path, "replicas", "max" if held == by_cores else "cpus"),
        working=(
            f"by cores {by_cores} replicas a worker, by CPU {cpus} / {each} = {cpus // each}",
            f"{spec.worker.max} workers x {held} replicas = {room}; max {replicas.max}",
        ),
        message=f"{replicas.max - room} of {replicas.max} replicas would find no worker",
        given=str(replicas.max) if held == by_cores else f"{each} CPU each",
        allowed=f"at most {room}" if held == by_cores else f"at most {cpus // max(by_cores, 1)}",
        severity="error" if held < by_cores and not held else None,
    )


@rule(
    "SRV021",
    "The build of an image has time to pull what it starts from.",
    severity="warning",
    fix="raise image.timeout_minutes",
    source="catalog/times.toml, phase pull",
)
def builds_have_time(facts: RayServeFacts) -> Iterator[Judgement]:
    build, size, pull = facts.spec.image_reference, facts.spec.profile.image_gb, phase_time("pull")
    if isinstance(build, InClusterImage) and not build.dockerfile and size and pull:
        seconds, limit = pull.p50 * size, build.timeout_minutes * 60
        yield Judgement(
            holds=seconds <= limit,
            path=(*facts.path, "image", "timeout_minutes"),
            working=(f"{size:g} GB x {pull.p50} s/GB = {seconds:.0f} s to pull, then the build and the push; limit {limit} s",),
            message=f"the engine's image of {size:g} GB alone takes some {seconds / 60:.0f} minutes to pull",
            given=str(build.timeout_minutes),
        )


RULES = (replicas_find_work_and_workers, builds_have_time)


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
