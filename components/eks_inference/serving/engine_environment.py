"""Variables that the engine of every kind of server needs: how long it waits, and whether it looks for EFA. Pure; no pulumi."""

from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.instances import InstanceType


def engine_environment(
    engine: EngineProfile, instance: InstanceType, timeout_s: int, *, efa_interfaces: int = 0
) -> dict[str, str]:
    """Returns them for an engine that may take ``timeout_s`` to start, in a pod with so many EFA interfaces.

    Without the limits, vLLM gives its engine 600 seconds, however long the probes of a pod wait (vllm/envs.py of release 0.30.0,
    VLLM_ENGINE_READY_TIMEOUT_S).
    """
    waits = {name: str(getattr(engine.startup, phase)) for name, phase in engine.generation.waits.items()}
    affinity = engine.generation.efa_affinity
    lost = affinity if affinity and not affinity.finds(instance.name, efa_interfaces) else None
    skipping = {lost.switch: lost.skips} if lost else {}
    return {"VLLM_ENGINE_READY_TIMEOUT_S": str(timeout_s), **waits, **skipping}
