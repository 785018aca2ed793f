"""Variables that the engine of every kind of server needs: limits of time, whether it looks for EFA, what it fetches. Pure."""

from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model


def engine_environment(
    engine: EngineProfile, instance: InstanceType, model: Model | None, timeout_s: int, *, efa_interfaces: int = 0
) -> dict[str, str]:
    """Returns them for an engine that may take ``timeout_s`` to start, in a pod with so many EFA interfaces.

    An engine that fetches pictures follows no redirects: one leads from a domain that is allowed to any other (vLLM 0.30.0,
    docs/usage/security.md).

    Without the limits, vLLM gives its engine 600 seconds, however long the probes of a pod wait (vllm/envs.py of release 0.30.0,
    VLLM_ENGINE_READY_TIMEOUT_S).
    """
    waits = {name: str(getattr(engine.startup, phase)) for name, phase in engine.generation.waits.items()}
    affinity = engine.generation.efa_affinity
    lost = affinity if affinity and not affinity.finds(instance.name, efa_interfaces) else None
    skipping = {lost.switch: lost.skips} if lost else {}
    fetching = {"VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0"} if model and model.sees else {}
    return {"VLLM_ENGINE_READY_TIMEOUT_S": str(timeout_s), **waits, **skipping, **fetching}
