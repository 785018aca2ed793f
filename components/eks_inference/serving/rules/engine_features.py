"""Rules about features of engines that a user turns on by a key of the server, and about flags that vLLM refuses together. Ids
SRV… Which it refuses is data: ``catalog/vllm_combinations.toml``.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.engine_facts import engine_facts
from eks_inference.catalog.features import Choice, documented, engines_with
from eks_inference.catalog.models import Model, find_model
from eks_inference.catalog.tables import nearest
from eks_inference.catalog.vllm_arguments import Condition, VllmRelease, combinations_of, default_of, vllm_releases
from eks_inference.rules import Judgement, Path, not_judged, rule
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flag_values import parsed
from eks_inference.serving.flags import flag, flag_names, object_flag, switched

_SOURCE = "the documents of each engine, as catalog/features.toml keeps them"
_SWITCHES = ("on", "off")


@rule(
    "SRV012",
    "The documents of the engine have the feature.",
    fix="choose another value or another engine, or leave it out",
    source=_SOURCE,
)
def features_are_documented(server: ServingFacts) -> Iterator[Judgement]:
    if server.features is None:
        return
    known = documented(server.engine.name)
    for feature, choice in server.features.chosen.items():
        values = known.get(feature, {})
        what = feature if choice in _SWITCHES else f"{feature} {choice}"
        others = [one for one in engines_with(feature, choice) if one != server.engine.name]
        yield Judgement(
            holds=choice in values,
            path=_path(server, feature),
            working=(f"{server.engine.name} documents {feature}: {', '.join(values) or 'no'}; given: {choice}",),
            message=f"the documents of engine {server.engine.name} have no {what}",
            given=choice,
            allowed=", ".join(values) or "nothing",
            fix=f"leave it out, or choose an engine that has it: {', '.join(others)}" if others else "leave it out",
        )
        if choice in values:
            yield from _has_what_it_needs(server, feature, choice, values[choice])


def _has_what_it_needs(server: ServingFacts, feature: str, value: str, choice: Choice) -> Iterator[Judgement]:
    if feature == "quantized_weights" and not choice.flags and server.model is not None:
        # Nothing converts the weights: the repository itself would have to be quantized, and those of the catalog are not.
        yield Judgement(
            holds=False,
            path=_path(server, feature),
            working=(f"{server.engine.name} loads {value} as saved; {server.model_id} is published in {server.model.dtype}",),
            message=f"{server.model_id} is published in {server.model.dtype}: engine {server.engine.name} does not convert it",
            given=value,
            fix=f"name a repository whose weights are in {value}, or leave it out",
        )
    if choice.architectures and server.model is not None:
        architecture = server.model.architecture
        yield Judgement(
            holds=architecture in choice.architectures,
            path=_path(server, feature),
            working=(f"{feature} {value} with engine {server.engine.name}: {', '.join(choice.architectures)}; {architecture}",),
            message=f"engine {server.engine.name} has {feature} {value} for other architectures than {architecture}",
            given=value,
            allowed=", ".join(choice.architectures),
            fix="leave it out, or choose another engine",
        )
    if choice.needs:
        given = getattr(server.features, choice.needs)
        yield Judgement(
            holds=given is not None,
            path=server.at(choice.needs),
            working=(f"{feature} {value} with engine {server.engine.name} needs {choice.needs}: {given or 'none'}",),
            message=f"{feature} {value} with engine {server.engine.name} needs {choice.needs}",
            given="none",
            fix=f"give {choice.needs}",
        )


def _path(server: ServingFacts, feature: str) -> Path:
    return (*server.path, *feature.split("."))


@rule(
    "SRV014",
    "Files and models that a feature names can be loaded.",
    fix="name a draft with the vocabulary of the model, or leave it out",
    source="vLLM, SpeculativeConfig.verify_equal_vocab_size_if_draft_model; it resolves files and repositories when it starts",
)
def what_features_name_is_there(server: ServingFacts) -> Iterator[Judgement]:
    features = server.features
    if features is None:
        return
    for feature in ("chat_template", "quantized_checkpoint"):
        if getattr(features, feature, None):
            yield not_judged(
                "value",
                feature,
                server.at(feature),
                why="vLLM reads it when it starts",
                fix="see that the image or a volume has the file, and that a template can be parsed",
            )
    if features.draft is None:
        return
    draft, path = find_model(features.draft), (*server.path, "speculation", "draft")
    if draft is None:
        why = "the catalog has no such model: vLLM looks for it when it starts"
        yield not_judged("draft", features.draft, path, why=why, fix="see that it exists and was made for this model")
    elif server.model is not None:
        yield Judgement(
            holds=draft.vocabulary == server.model.vocabulary,
            path=path,
            working=(f"vocabularies: {server.model.name} {server.model.vocabulary}, {draft.name} {draft.vocabulary}",),
            message=f"the draft {draft.name} has another vocabulary than {server.model.name}: the server does not start",
            given=f"{draft.vocabulary}",
            allowed=f"{server.model.vocabulary}",
        )


@rule(
    "SRV015",
    "The disk of a pod holds the model that it downloads.",
    fix="raise disk_gib, and root_volume_gib of the pool if needed; or keep the model in a store",
    source="Kubernetes: a pod that writes more than its limit of ephemeral storage is evicted; weights from the catalog",
)
def disk_of_a_pod_holds_the_model(server: ServingFacts) -> Iterator[Judgement]:
    if server.snapshot and server.model is not None and not server.model.safetensors:
        why = "the repository had its weights as .bin only, and what is downloaded beforehand are safetensors"
        yield not_judged(
            "files", server.model_id, (*server.path, "model", "id"), why=why, fix="look at the repository on the Hub"
        )
    if server.disk_gib is None or not server.devices:
        return
    if server.model is None:
        yield server.unknown_model("disk of a pod")
        return
    weights, draft = server.cold_start.weight_bytes / 1024**3, server.features.draft if server.features else None
    names = " and ".join(filter(None, (server.model.name, draft)))
    yield Judgement(
        holds=weights <= server.disk_gib,
        path=server.at("disk_gib"),
        working=(f"weights of {names}: {weights:.1f} GiB; disk_gib: {server.disk_gib}",),
        message=f"a pod downloads {weights:.0f} GiB and may write {server.disk_gib}: it is evicted, again and again",
        given=f"{server.disk_gib}",
        allowed=f"at least {math.ceil(weights)}, and what it compiles and writes",
    )


@rule(
    "SRV013",
    "The engine knows the parsers of tool calls and of reasoning.",
    fix="name a parser of this release, the one for this model",
    source="vllm/tool_parsers/__init__.py and reasoning/__init__.py of each release: catalog/vllm_arguments.toml, engine_facts",
)
def parsers_are_known(server: ServingFacts) -> Iterator[Judgement]:
    release, facts = vllm_releases().get(server.engine.vllm), engine_facts(server.engine.vllm)
    if release is None:
        return
    of_tools, of_reasoning = release.tool_parsers, facts.reasoning_parsers if facts else ()
    yield from _parser(server, release.name, "tool-call-parser", "tool-parser-plugin", "tool calls", of_tools)
    yield from _parser(server, release.name, "reasoning-parser", "reasoning-parser-plugin", "reasoning", of_reasoning)


def _parser(server: ServingFacts, vllm: str, name: str, plugin: str, what: str, known: tuple[str, ...]) -> Iterator[Judgement]:
    given, path = flag(server.arguments, name), server.at_flag(name)
    if not given:
        return
    if flag(server.arguments, plugin) or not known:
        why = "a plugin may add parsers of its own" if known else f"no list of the parsers of vLLM {vllm}"
        yield not_judged(what, given, path, why=why, fix="look it up in the documentation of the plugin, or of vLLM")
        return
    # validate_api_server_args looks at a parser of tool calls only where the engine is to call tools.
    used = name != "tool-call-parser" or switched(server.arguments, "enable-auto-tool-choice", False)
    yield Judgement(
        holds=given in known,
        path=path,
        working=(f"vLLM {vllm}: {', '.join(known)}",),
        message=f"vLLM {vllm} has no parser '{given}' for {what}: "
        + ("the server does not start" if used else "without enable-auto-tool-choice nothing uses it"),
        given=given,
        allowed=", ".join(nearest(given, known) or known),
        severity=None if used else "warning",
    )
    # Parsers of reasoning serve models that were distilled into others; those of tool calls follow the form of one family.
    family, model = _family(given), server.model
    if model and used and given in known and name == "tool-call-parser" and family in set(map(_family, architectures())):
        yield Judgement(
            holds=_family(model.architecture).startswith(family),
            path=path,
            working=(f"{given}: {family}; {server.model_id}: {model.architecture}",),
            message=f"'{given}' reads {what} of {family}: those of {model.architecture} stay in the text of the answer",
            given=given,
            severity="warning",
        )


def _family(name: str) -> str:
    """``qwen`` of ``qwen3_xml``, a parser, and of ``qwen2_moe``, an architecture. Mixtral writes as Mistral does."""
    return re.split(r"[^a-z]", name.replace("mixtral", "mistral"))[0]


@rule(
    "SRV018",
    "A model that is to propose tokens itself has layers for it.",
    fix="choose another method of speculation, or leave it out",
    source="vLLM, SpeculativeConfig.hf_config_override: catalog/engine_facts",
)
def model_proposes_tokens(server: ServingFacts) -> Iterator[Judgement]:
    facts, config = engine_facts(server.engine.vllm), object_flag(server.arguments, "speculative-config")
    if facts is None or server.model is None or config.get("method") != "mtp" or config.get("model"):
        return
    architecture = server.model.architecture
    yield Judgement(
        holds=architecture in facts.mtp,
        path=server.at_flag("speculative-config"),
        working=(f"{server.model.name}: architecture {architecture}; of those known here, mtp is for {', '.join(facts.mtp)}",),
        message=f"{server.model.name} has no layers that propose tokens: vLLM {facts.name} does not start with method mtp",
        given="mtp",
    )


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
