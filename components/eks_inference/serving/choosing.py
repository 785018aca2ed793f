"""Chooses: the engines that serve on an instance type, the best first, and the largest number that holds. Pure."""

from collections.abc import Callable
from typing import Any

from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import APART, Model
from eks_inference.serving.pods import vllm_release


def engines_for(
    instance: InstanceType, model: Model | None = None, *, kind: str = "", named: str | None = None
) -> tuple[EngineProfile, ...]:
    """Returns the engine profiles that can serve on an instance type, and serve ``model`` if given, the best first.

    Left out are profiles for certain kinds of servers, unless ``kind`` is one of them, and those on request, unless ``named``.
    """
    found = [
        engine
        for engine in engines().values()
        if engine.serves(instance)
        and not engine.retired
        and (model is None or engine.loads(model))
        and (not engine.chosen_for or kind in engine.chosen_for)
        and (not engine.on_request or engine.name == named)
    ]
    return tuple(sorted(found, key=preference))


def why_none(instance: InstanceType, model: Model) -> str:
    """Says why no engine is chosen for a model on an instance type."""
    for engine in engines().values():
        if engine.serves(instance) and model.architecture in engine.listed:
            return f"documents of {engine.name} list it, but how it is served was not examined here: it is not judged"
    does = f" for {model.task}" if model.task in APART else ""
    return f"no engine of the catalog serves architecture {model.architecture}{does} there"


def preference(engine: EngineProfile) -> tuple[Any, ...]:
    """Sorts engine profiles: by their standing, then those with the newest vLLM."""
    return (*standing(engine), tuple(-part for part in vllm_release(engine)), not engine.standalone)


def standing(engine: EngineProfile) -> tuple[bool, bool]:
    """Sorts engine profiles: those that stay supported first, and among them those without a caveat."""
    return (bool(engine.ends), bool(engine.caveat))


def largest(holds: Callable[[int], bool], guess: int = 0) -> int:
    """Returns the largest number >= 1 for which a monotonic condition holds; 0 if it never holds.

    By binary search, unless ``guess`` is that number.
    """
    if guess > 0 and holds(guess) and not holds(guess + 1):
        return guess
    beyond = 1
    while holds(beyond):
        beyond *= 2
    low = beyond // 2
    while beyond - low > 1:
        middle = (low + beyond) // 2
        low, beyond = (middle, beyond) if holds(middle) else (low, middle)
    return low
