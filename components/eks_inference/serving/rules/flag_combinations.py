"""The rule about flags that vLLM refuses together. What it refuses is data: ``catalog/vllm_combinations.toml``."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from eks_inference.catalog.engine_facts import engine_facts
from eks_inference.catalog.models import Model
from eks_inference.catalog.vllm_arguments import Condition, VllmRelease, combinations_of, default_of, vllm_releases
from eks_inference.rules import Judgement, not_judged, rule
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flag_values import parsed
from eks_inference.serving.flags import flag, flag_names, switched

_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "is_in": lambda value, several: value in several,
    "is_not_in": lambda value, several: value not in several,
    "is_not": lambda value, other: value != other,
    "less_than": lambda value, other: value < other,
    "no_less_than": lambda value, other: value >= other,
    "more_than": lambda value, other: value > other,
    "no_multiple_of": lambda value, other: value % other != 0,
    "no_divisor_of": lambda value, other: other % value != 0,
}

_POOLING = {"runner", "convert", "task", "pooler-config", "override-pooler-config"}
"""Flags of models that generate nothing."""


@rule(
    "SRV011",
    "Flags go together.",
    fix="change one of the flags, or leave it out",
    source="the checks of each release of vLLM, with their place: catalog/vllm_combinations.toml",
)
def flags_go_together(server: ServingFacts) -> Iterator[Judgement]:
    release = vllm_releases().get(server.engine.vllm)
    if release is None:  # SRV007 says so
        return
    named = flag_names(server.arguments)
    for combination in combinations_of(release.name):
        first, *others = combination.conditions
        if combination.flag not in named or _given(server, release, first.setting) is None or not _met(server, release, first):
            continue
        met = [_met(server, release, condition) for condition in others]
        if None in met and False not in met:
            yield not_judged(
                "flags",
                combination.flag,
                server.at_flag(combination.flag),
                why=f"vLLM {release.name}: {combination.says}; {others[met.index(None)].setting} is not known here",
                fix="look at the log of vLLM when it starts",
            )
            continue
        settings = dict.fromkeys(condition.setting for condition in combination.conditions)
        values = ", ".join(f"{setting} {json.dumps(_value(server, release, setting))}" for setting in settings)
        yield Judgement(
            holds=not all(met),
            path=server.at_flag(combination.flag),
            working=(f"vLLM {release.name} ({combination.source}): {combination.says}", f"here: {values}"),
            message=f"vLLM {release.name} does not start: {combination.says}",
            given=values,
        )


def _met(server: ServingFacts, release: VllmRelease, condition: Condition) -> bool | None:
    """Whether a condition holds; None when a value is not known, or none that the parser takes (SRV010)."""
    if condition.test == "given":
        return (_given(server, release, condition.setting) is not None) == condition.against
    value, against = _value(server, release, condition.setting), condition.against
    if isinstance(against, str):
        against = _value(server, release, against)
    if value is None or against is None:
        return None
    try:
        return _TESTS[condition.test](value, against)
    except (TypeError, ValueError, ZeroDivisionError):
        return None


def _value(server: ServingFacts, release: VllmRelease, setting: str) -> Any:
    """Returns the value of a setting: the one given, a fact, or the engine's default; None when it is not known."""
    given = _given(server, release, setting)
    defaults = server.engine.generation.defaults
    return _facts(server).get(setting, defaults.get(setting, default_of(setting))) if given is None else given


def _facts(server: ServingFacts) -> dict[str, Any]:
    model, profiled, capability = server.model, server.image == server.engine.image, server.instance.compute_capability
    return {
        "accelerator": server.instance.accelerator,
        "compute_capability": capability[0] * 10 + capability[1] if capability else None,
        "image.has_ray": False if profiled else None,
        "max-model-len": server.max_model_len or None,
        "max-num-seqs": server.max_num_seqs or None,
        "tensor-parallel-size": server.tensor_parallel or None,
        **({} if model is None else _of_model(model, server.tensor_parallel)),
        **({"enable-chunked-prefill": True} if _chunks(server) else {}),
        # An encoder reads a text as a whole, or hears (``SchedulerConfig.__post_init__``).
        **({} if model is None or (model.writes and not model.heard) else {"enable-chunked-prefill": False}),
    }


def _chunks(server: ServingFacts) -> bool:
    """Whether prefill is chunked by default: where a decoder generates (``ModelConfig.is_chunked_prefill_supported``)."""
    generates = server.model is not None and _POOLING.isdisjoint(flag_names(server.arguments))
    return generates and server.instance.nvidia and engine_facts(server.engine.vllm) is not None


def _of_model(model: Model, degree: int) -> dict[str, Any]:
    return {
        "model.architecture": model.architecture,
        "model.tied": model.tied_embeddings,
        "model.experts": model.experts,
        "model.multimodal": model.sees,
        "model.kv_heads": model.kv_heads,
        "model.heads_per_kv_head": model.heads // model.kv_heads,
        "model.heard": model.heard,
        "model.windows": model.window_layers > 0,
        "model.writes": model.writes,
        "model.kv_copies": max(degree // model.kv_heads, 1),
    }


def _given(server: ServingFacts, release: VllmRelease, setting: str) -> Any:
    """Returns the value that the arguments of a server give a flag, or a key inside its object; None if they give none."""
    name, *path = setting.split(".")
    known = release.flags.get(name) or release.keys.get(name.replace("-", "_"))
    if known is None:
        return None
    if known.takes == "switch":
        return switched(server.arguments, name, None)
    text = flag(server.arguments, name)
    if text == "null" and not server.engine.standalone:  # of a model.json
        text = None
    value = None if text is None else True if known.takes == "on" else parsed(known, text)
    for step in path:
        inside = {key.replace("-", "_"): one for key, one in value.items()} if isinstance(value, dict) else {}
        value = inside.get(step)
    return value
