"""Rules about flags and variables that a user adds to an engine. Ids SRV…"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType

from eks_inference.catalog.engine_facts import engine_facts, kernel_names
from eks_inference.catalog.engines import EngineProfile, engines
from eks_inference.catalog.models import POOLING, find_model
from eks_inference.catalog.tables import nearest
from eks_inference.catalog.vllm_arguments import VllmArgument, VllmRelease, vllm_releases
from eks_inference.rules import Judgement, Path, not_judged, rule
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flag_values import allowed, takes
from eks_inference.serving.flags import flag, only_lengths, switched

_SOURCE = "vLLM's own argument parser, by release: catalog/vllm_arguments.toml"

_HARMLESS: Mapping[str, Collection[str]] = MappingProxyType(
    {
        "convert": ("auto", "none"),
        "host": ("0.0.0.0", "::"),
        "runner": ("auto", "generate"),
        "task": ("auto", "generate"),
    }
)
"""Values of protected flags that break nothing."""

PROTECTED_FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "convert": "the key task decides it",
        "config": "rules do not see what a file sets",
        "api-server-count": "with 0 there is no API server, and the CPU of a pod is sized for one",
        "grpc": "probes, metrics and clients speak HTTP to the pod",
        "headless": "there would be no API server",
        "hf-token": "a token in a flag can be read in the pod's manifest; use the secret huggingFaceToken",
        "host": "probes and the Service reach a pod at its own address, not at one of its choice",
        "model": "model.id says which model is served; everything else follows it",
        "runner": "the key task decides it",
        "served-model-name": "clients ask for the model by model.id, which its names have to include",
        "nnodes": "a copy of the model is in one pod; nothing starts the others that it would wait for",
        "ssl-ca-certs": "probes, metrics and clients speak HTTP to the pod",
        "ssl-certfile": "probes, metrics and clients speak HTTP to the pod",
        "ssl-keyfile": "probes, metrics and clients speak HTTP to the pod",
        "task": "the key task decides it",
        "tokens-only": "clients send text, and need answers in text",
        "uds": "probes and the Service need a port, not a socket in the pod",
        "api-key": "a key in a flag can be read in the pod's manifest; use the secret servingApiKey",
    }
)
"""Flags that would break what the stack builds around an engine, with the reason."""

PROTECTED_VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "CUDA_VISIBLE_DEVICES": "the device plugin assigns the GPUs of a pod",
        "HF_HUB_OFFLINE": "pods that download a model need the Hub, and others do not ask it",
        "HF_TOKEN": "a token in a variable can be read in the pod's manifest; use the secret huggingFaceToken",
        "HUGGING_FACE_HUB_TOKEN": "a token in a variable can be read in the pod's manifest; use the secret huggingFaceToken",
        "LD_LIBRARY_PATH": "the image's own libraries would not be found",
        "NEURON_RT_NUM_CORES": "the device plugin assigns the NeuronCores of a pod",
        "NEURON_RT_VISIBLE_CORES": "the device plugin assigns the NeuronCores of a pod",
        "NEURON_VISIBLE_DEVICES": "the device plugin, or a claim, assigns the NeuronCores, which a pod counts from 0",
        "NVIDIA_VISIBLE_DEVICES": "the device plugin assigns the GPUs of a pod",
        "PATH": "the image's own programs would not be found",
        "PYTHONPATH": "the image's own modules would not be found",
        "TRANSFORMERS_OFFLINE": "it is HF_HUB_OFFLINE: pods that download a model need the Hub, and others do not ask it",
        "VLLM_API_KEY": "a key in a variable can be read in the pod's manifest; use the secret servingApiKey",
    }
)
"""Variables that would break an engine or reveal a secret, with the reason."""

_RESOLVED_BY_THE_ENGINE = ("adapters", "name", "object", "object_or_text", "text", "texts")
"""Kinds of values that may be a name of a registry, a file, a repository or an object with keys of its own."""

_BUCKETS = frozenset({"context_encoding_buckets", "token_generation_buckets"})
"""Settings of NxD Inference that NEU014 judges (vLLM user guide for NxD Inference, bucketing)."""

_TAKEN_AS_THEY_ARE = frozenset(
    {
        "allowed-media-domains",
        "default-chat-template-kwargs",
        "disable-access-log-for-endpoints",
        "fingerprint-value",
        "otlp-traces-endpoint",
        "quantization",  # SRV008
        "reasoning-parser",  # SRV013
        "response-role",
        "root-path",
        "served-model-name",
        "tool-call-parser",  # SRV013
    }
)
"""Flags of such kinds with values that vLLM does not resolve, or that other rules judge."""


_ALIKE = 0.7
"""What two flags have in common, by difflib, if one is taken for a misspelling of the other."""


@rule(
    "SRV007",
    "The engine knows every flag.",
    fix="correct the flag, or leave it out",
    source=_SOURCE,
)
def flags_are_known(server: ServingFacts) -> Iterator[Judgement]:
    if not server.engine.standalone or not server.extra_args:
        return
    release = vllm_releases().get(server.engine.vllm)
    if release is None:
        yield not_judged(
            "flags", server.engine.name, server.at("extra_args"), why=f"no list of the flags of vLLM {server.engine.vllm}", fix=""
        )
        return
    for name in server.extra_args:
        if same := release.spellings.get(name):
            yield Judgement(
                holds=False,
                path=server.under("extra_args", name),
                working=(f"vLLM {release.name}: --{name} is --{same}",),
                message=f"--{name} is another name of --{same}, and the rules read only that one",
                given=name,
                allowed=f"{same.removeprefix('no-')}{': false' if same.startswith('no-') else ''}",
            )
            continue
        known = _declared(release, name) is not None
        like = [] if known else get_close_matches(name, release.flags, n=1, cutoff=_ALIKE)
        has_it = [engine.name for engine in engines().values() if _may_serve(engine, server) and name in _flags(engine.vllm)]
        yield Judgement(
            holds=known,
            path=server.under("extra_args", name),
            working=(f"vLLM {release.name} takes {len(release.flags)} flags; {name}: {'known' if known else 'unknown'}",),
            message=f"vLLM {release.name} has no flag --{name}: the server does not start",
            given=name,
            allowed=", ".join(like) or f"a flag of vLLM {release.name}",
            fix=f"choose an engine that has it ({', '.join(has_it)}), or leave it out" if has_it else "",
        )


def _may_serve(engine: EngineProfile, server: ServingFacts) -> bool:
    """Whether the server could run with this engine on the nodes that it has."""
    return engine.standalone and not engine.retired and engine.serves(server.instance)


@rule(
    "SRV010",
    "The engine accepts the values of all flags.",
    fix="correct the value, or leave the flag out",
    source=f"{_SOURCE}; its model of the configuration",
)
def flags_have_their_values(server: ServingFacts) -> Iterator[Judgement]:
    release, as_flag = vllm_releases().get(server.engine.vllm), server.engine.standalone
    if release is None:  # SRV007 says so
        return
    for name, value in server.extra_args.items():
        argument = _declared(release, name) if as_flag else release.keys.get(name.replace("-", "_"))
        if argument is None:  # SRV007, TRI001
            continue
        negated = name != argument.name.replace("_", "-")
        of_any_choice = replace(argument, choices=())
        if server.engine.neuron and not takes(argument, value, as_flag=as_flag) and takes(of_any_choice, value, as_flag=as_flag):
            yield _of_the_plugin(server, release, argument, value)
            continue
        wanted = "true, or leave it out" if negated else allowed(argument)
        holds = value is True if negated else takes(argument, value, as_flag=as_flag)
        if holds and value is not None and _resolved_by_the_engine(argument) and not _judged_elsewhere(server, name, value):
            yield not_judged(
                "value",
                f"{'--' if as_flag else ''}{name}",
                server.under("extra_args", name),
                why=f"vLLM {release.name} resolves it when it starts: a name, a file or repository, or the keys of an object",
                fix="compare it with the documentation of vLLM; a file must be in the image or on a volume",
            )
            continue
        like = nearest(value, map(str, argument.choices))[:1] if isinstance(value, str) else []
        yield Judgement(
            holds=holds,
            path=server.under("extra_args", name),
            working=(f"vLLM {release.name}: {name} takes {wanted}",),
            message=f"vLLM {release.name} does not take this value of {name}",
            given=json.dumps(value),
            allowed=wanted,
            fix=f"did you mean {like[0]}?" if like else "",
        )


def _declared(release: VllmRelease, name: str) -> VllmArgument | None:
    """Returns the flag that a name sets; ``no-`` in front is the negation of a switch only."""
    plain = release.flags.get(name.removeprefix("no-"))
    return release.flags.get(name) or (plain if plain and plain.takes == "switch" else None)


def _resolved_by_the_engine(argument: VllmArgument) -> bool:
    flag_name = argument.name.replace("_", "-")
    free = argument.takes in _RESOLVED_BY_THE_ENGINE and not argument.choices
    return free and flag_name not in _TAKEN_AS_THEY_ARE and flag_name not in PROTECTED_FLAGS


def _judged_elsewhere(server: ServingFacts, name: str, value: object) -> bool:
    """Whether another rule judges all of a value: GPU012, SRV002, NEU014, NEU028, NEU029."""
    if name == "attention-backend":
        return server.instance.nvidia
    return only_lengths(server.model, server.arguments) if name == "hf-overrides" else _of_the_generation(server, name, value)


def _of_the_generation(server: ServingFacts, name: str, value: object) -> bool:
    """Whether an object for vLLM's plugin sets nothing but what rules about Neuron judge."""
    known = server.engine.generation.settings
    if known is None or name != known.flag or known.keys:
        return known is not None and name == known.flag
    inside = value[known.key] if isinstance(value, Mapping) and {*value} == {known.key} else None
    return isinstance(inside, Mapping) and bool(inside) and {*inside} <= _BUCKETS


def _of_the_plugin(server: ServingFacts, release: VllmRelease, argument: VllmArgument, value: object) -> Judgement:
    return not_judged(
        argument.name,
        f"{value} on {server.instance.name}",
        server.under("extra_args", argument.name),
        why=f"vLLM {release.name} does not list '{value}'; its plugin for Neuron may add choices of its own",
        fix="look it up in the documentation of the plugin",
    )


@rule(
    "SRV008",
    "The engine knows the quantization.",
    fix="name a quantization of this release, or leave it out: vLLM reads that of a quantized checkpoint itself",
    source=_SOURCE,
)
def quantization_is_known(server: ServingFacts) -> Iterator[Judgement]:
    release = vllm_releases().get(server.engine.vllm)
    if release is None:
        return
    published = server.model.quantization if server.model and server.instance.nvidia else None
    if published:
        yield _known(release, published.method, (*server.path, "model", "id"))
    if not (given := flag(server.arguments, "quantization")):
        return
    known = given in release.quantizations
    path = server.at_flag("quantization")
    if server.engine.neuron and not known:
        yield not_judged(
            "quantization",
            f"{given} on {server.instance.name}",
            path,
            why=f"vLLM {release.name} does not list '{given}'; its plugin for Neuron may add methods of its own",
            fix="look it up in the documentation of the plugin",
        )
        return
    yield _known(release, given, path)


def _known(release: VllmRelease, method: str, path: Path) -> Judgement:
    known = method in release.quantizations
    like = [] if known else nearest(method, release.quantizations)
    return Judgement(
        holds=known,
        path=path,
        working=(f"vLLM {release.name}: {', '.join(release.quantizations)}",),
        message=f"vLLM {release.name} knows no quantization '{method}'",
        given=method,
        allowed=", ".join(like or release.quantizations),
    )


@rule(
    "SRV016",
    "A quantized checkpoint is not quantized otherwise, nor another read as one.",
    fix="leave the quantization out: vLLM reads that of the checkpoint itself; or name a checkpoint that is not quantized",
    source="vLLM, ModelConfig._verify_quantization (vllm-project/vllm#19050), get_quant_config",
)
def quantization_is_that_of_the_checkpoint(server: ServingFacts) -> Iterator[Judgement]:
    given, published = flag(server.arguments, "quantization"), server.model.quantization if server.model else None
    facts, used = engine_facts(server.engine.vllm), published.method if published else given
    if server.instance.nvidia and facts and used in facts.deprecated:
        allow = "allow-deprecated-quantization"
        yield Judgement(
            holds=bool(switched(server.arguments, allow, False)),
            path=server.at_flag("quantization") if given else (*server.path, "model", "id"),
            working=(f"vLLM {facts.name} is about to drop {', '.join(facts.deprecated)}",),
            message=f"vLLM {facts.name} is about to drop the quantization {used}, and does not start with it",
            given=used,
            fix=f"say {allow}: true, or choose other weights",
        )
    if not given or server.engine.neuron:
        return
    if published is None:
        of_catalog = server.model is not None and find_model(server.model_id) is not None  # others may have a file of their own
        if facts and of_catalog:
            yield Judgement(
                holds=given not in facts.of_checkpoints,
                path=server.at_flag("quantization"),
                working=(f"{server.model_id} is not quantized; {', '.join(facts.of_checkpoints)} are read from checkpoints",),
                message=f"{server.model_id} is not quantized, and vLLM only reads {given}: it does not start",
                given=given,
                fix="leave it out, or name a checkpoint that is quantized so",
            )
        return
    allowed = (published.method, *kernel_names(published.method))
    ignored = facts is not None and published.method in facts.ignores_flag
    yield Judgement(
        holds=given in allowed,
        path=server.at_flag("quantization"),
        working=(f"{server.model_id} is quantized: {published.method}; --quantization={given}",),
        message=f"{server.model_id} is quantized with {published.method}, "
        + (f"and vLLM ignores {given}" if ignored else f"and vLLM does not start with {given}"),
        given=given,
        allowed=", ".join(allowed),
        severity="warning" if ignored else None,
    )


@rule(
    "SRV009",
    "Flags and variables leave alone what the stack relies on.",
    fix="leave it out",
    source="the reasons in serving/rules/engine_flags.py; Kubernetes API, EnvVar",
)
def stack_s_own_are_left_alone(server: ServingFacts) -> Iterator[Judgement]:
    for given, value in server.extra_args.items():
        harmless = (server.model_id,) if given == "served-model-name" else _HARMLESS.get(given, ())
        values = value if isinstance(value, list) else [value]
        if given in ("runner", "task") and server.does in POOLING:
            harmless = ()
        why = "" if any(value in harmless for value in values) else PROTECTED_FLAGS.get(given, "")
        yield _left_alone(server, "extra_args", given, why)
    for given in server.extra_env:
        yield _left_alone(server, "extra_env", given, PROTECTED_VARIABLES.get(given, ""))


def _left_alone(server: ServingFacts, where: str, given: str, why: str) -> Judgement:
    return Judgement(
        holds=not why,
        path=server.under(where, given),
        working=(f"{given}: {why or 'free to set'}",),
        message=f"{given} is not free to set: {why}",
        given=given,
    )


def _flags(version: str) -> Collection[str]:
    release = vllm_releases().get(version)
    return release.flags if release else ()
