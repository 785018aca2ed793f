"""Rules about what vLLM's plugin for Neuron checks when it starts, and what it ignores. Ids NEU…"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.catalog.engines import Fp8Kv, PluginSettings
from eks_inference.catalog.tables import nearest
from eks_inference.rules import Judgement, not_judged
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.features import checkpoint_method, kv_in_fp8
from eks_inference.serving.flags import flag, object_flag, plugin_settings, switched
from eks_inference.serving.rules import kv_flags
from eks_inference.serving.rules.neuron import neuron_rule

_PLUGIN = "vLLM's plugin for Neuron 0.24.0.1.1.0 (jinhuang12/vllm-neuron ed3580d)"


@neuron_rule(
    "NEU027",
    "Workers look for the EFA interface beside their device only where there is one.",
    fix="leave the variable out",
    source=f"{_PLUGIN}, worker/neuron_worker.py, utils/hardware_config.py; AWS Neuron documentation, deploying the DLC",
)
def workers_find_their_interface(server: ServingFacts) -> Iterator[Judgement]:
    affinity = server.engine.generation.efa_affinity
    if affinity is None:
        return
    seeks = server.environment.get(affinity.switch, affinity.seeks) == affinity.seeks
    finds = affinity.finds(server.instance.name, server.efa_interfaces)
    interfaces = f"{server.efa_interfaces or 'no'} EFA interface{'' if server.efa_interfaces == 1 else 's'}"
    yield Judgement(
        holds=finds or not seeks,
        path=server.under("extra_env", affinity.switch),
        working=(
            f"a pod on {server.instance.name} with {interfaces}; addresses are known on {', '.join(affinity.instance_types)}",
            f"{affinity.switch}: {'looks for them' if seeks else 'does not look'}",
        ),
        message="each worker looks for an EFA interface that it does not find: the server does not start",
        given=f"{affinity.switch}={affinity.seeks}",
        allowed=affinity.skips,
    )


@neuron_rule(
    "NEU028",
    "Settings of vLLM's plugin stand where the plugin reads them.",
    fix="correct the key: the plugin ignores others without a word",
    source=f"{_PLUGIN}, worker/neuron_model_runner.py, model/neuron_config.py; vllm-project/vllm-neuron a5ef7c8, "
    "neuronx_distributed_model_loader.py (NxD Inference)",
)
def settings_are_read(server: ServingFacts) -> Iterator[Judgement]:
    known = server.engine.generation.settings
    if known is None or (text := flag(server.arguments, known.flag)) is None:
        return
    path = server.at_flag(known.flag)
    given = object_flag(server.arguments, known.flag)
    settings = plugin_settings(server.engine, server.arguments)
    wrong = [one for one in given if one not in (known.key, *known.beside)]
    yield Judgement(
        holds=settings is not None and not wrong,
        path=path,
        working=(f"--{known.flag}: {', '.join(given) or text}; {server.engine.name} reads {_read(known)}",),
        message=f"engine {server.engine.name} does not read '{wrong[0]}': what stands there has no effect"
        if wrong
        else f"--{known.flag} is not a JSON object that contains an object '{known.key}'",
        given=", ".join(wrong) or text,
        allowed=_read(known),
        fix=f"write {known.key}" if wrong else "",
    )
    for setting in settings or () if known.keys else ():
        if setting not in known.keys:
            yield not_judged(
                "setting",
                f"{known.key}.{setting}",
                path,
                why=f"release {server.engine.vllm} of the plugin is not known to read it; nearest: "
                f"{', '.join(nearest(setting, known.keys)) or 'none'}",
                fix="correct it: the plugin ignores what it does not know",
            )


def _read(known: PluginSettings) -> str:
    return ", ".join((known.key, *known.beside))


@neuron_rule(
    "NEU029",
    "A KV cache in FP8 has the form that the plugin reads, and scales.",
    fix="leave the flag out: what an FP8 cache needs is set with quantized_kv, or with the checkpoint",
    source=f"{_PLUGIN}, utils/dtype_utils.py, model/llama3; AWS Neuron documentation, KV cache quantization and Llama 3.3 70B",
)
def fp8_caches_are_read(server: ServingFacts) -> Iterator[Judgement]:
    known, given = server.engine.generation.fp8_kv, flag(server.arguments, "kv-cache-dtype") or ""
    features = server.features.chosen if server.features else {}
    if known is None or not kv_in_fp8(server.engine, given, server.model, features):
        return
    yield Judgement(
        holds=given in ("", "auto", *known.types),
        path=server.at_flag("kv-cache-dtype"),
        working=(f"--kv-cache-dtype={given or 'auto'}; of FP8 the plugin has {', '.join(known.types)}",),
        message=f"the plugin has no KV cache of type {given}: the server does not start",
        given=given,
        allowed=", ".join(known.types),
    )
    if server.model and server.model.architecture not in known.architectures:
        why = f"no document says that {server.model.architecture} keeps its KV cache in FP8; some models ignore the setting"
        yield not_judged("KV cache", server.model.name, server.at_flag("kv-cache-dtype"), why=why, fix="leave it out")
        return
    method = checkpoint_method(server.engine, server.model, features)
    yield from _packed(server, known, method)
    yield from _scaled(server, method)


def _packed(server: ServingFacts, known: Fp8Kv, method: str) -> Iterator[Judgement]:
    settings = plugin_settings(server.engine, server.arguments) or {}
    packed, segments = settings.get(known.packed) is True, kv_flags.in_segments(server)
    yield Judgement(
        holds=packed or not segments,
        path=server.at_flag("additional-config"),
        working=(f"KV cache in FP8, {'packed' if packed else 'not packed'}; prompts {'in segments' if segments else 'whole'}",),
        message="prompts are processed in segments, whose kernel reads FP8 only packed: the server does not start",
        given=f"{known.packed}: {json.dumps(settings.get(known.packed, False))}",
        allowed=f"{known.packed}: true",
    )
    block, batches = flag(server.arguments, "block-size"), settings.get(known.batches)
    if packed and block != str(known.block_size):
        why = f"AWS validated the packed form with blocks of {known.block_size} tokens; here they have {block or 'the default'}"
        yield not_judged("KV cache", "its blocks", server.at_flag("block-size"), why=why, fix=f"block-size: {known.block_size}")
    even = isinstance(batches, list) and not any(batch % 2 for batch in batches if isinstance(batch, int))
    if packed and not even and method not in server.engine.fp8_kv_checkpoints:
        why = "with weights in 16 bits the kernel packs batches of an even number; no source says what it does with others"
        yield not_judged(
            "KV cache", f"batches of {batches}", server.at("max_num_seqs"), why=why, fix="choose an even max_num_seqs"
        )


def _scaled(server: ServingFacts, method: str) -> Iterator[Judgement]:
    scaled = method in server.engine.fp8_kv_checkpoints
    path = server.at_flag("kv-cache-dtype")
    if server.model is None and not scaled:
        why = "whether the checkpoint has scales for a KV cache in FP8 is not known here: without, answers degrade"
        yield not_judged("scales", server.model_id, path, why=why, fix="look for k_scale and v_scale in the repository")
        return
    yield Judgement(
        holds=scaled,
        path=path,
        working=(f"{server.model_id}: {method or 'not quantized'}; scales of the KV cache: {'its own' if scaled else '1'}",),
        message=f"{server.model_id} has no scales for a KV cache in FP8: answers degrade, by AWS's documents substantially",
        given="FP8 with scales of 1",
        severity="warning",
        fix="name a checkpoint with scales, or leave the KV cache as it is",
    )


@neuron_rule(
    "NEU030",
    "The engine loads checkpoints with this quantization.",
    fix="name the repository that is not quantized, or a checkpoint that the engine loads",
    source=f"{_PLUGIN}, platform.py, model/llama3/quantization.py; neuronx-distributed-inference 4bcdc54, qwen3_moe",
)
def quantized_checkpoints_are_loaded(server: ServingFacts) -> Iterator[Judgement]:
    published = server.model.quantization if server.model else None
    if server.model is None:
        yield server.unknown_model("quantization")
    if server.model is None or published is None:
        return
    engine, method, architecture = server.engine, published.method, server.model.architecture
    path = (*server.path, "model", "id")
    known = engine.checkpoints.get(method, ())
    loads = ", ".join(f"{one} of {' and '.join(of)}" for one, of in engine.checkpoints.items()) or "none"
    if architecture not in known and (known or not engine.generation.refuses_other_checkpoints):
        why = f"no source says that {engine.name} loads {method} of {architecture}; known: {loads}"
        yield not_judged("quantization", server.model_id, path, why=why, fix="name the repository that is not quantized")
        return
    yield Judgement(
        holds=architecture in known,
        path=path,
        working=(f"{server.model_id}: {method} of {architecture}; {engine.name} loads {loads}",),
        message=f"engine {engine.name} does not load checkpoints quantized with {method}: the server does not start",
        given=method,
        allowed=loads,
    )


@neuron_rule(
    "NEU031",
    "The plugin takes the values of its settings.",
    fix="correct the setting, or leave it out",
    source=f"{_PLUGIN}, model/neuron_config.py, platform.py, worker/neuron_worker.py, worker/neuron_model_runner.py; AWS Neuron "
    "documentation, features guide (MXFP4)",
)
def settings_have_their_values(server: ServingFacts) -> Iterator[Judgement]:
    known = server.engine.generation.settings
    settings = plugin_settings(server.engine, server.arguments)
    if known is None or not known.keys or not settings:
        return
    for setting, value, why in _refused(server, settings):
        yield Judgement(
            holds=not why,
            path=server.at_flag(known.flag),
            working=(f"{known.key}.{setting}: {json.dumps(value)}{': ' if why else ''}{why}",),
            message=f"{setting}: {why}: the server does not start",
            given=json.dumps(value),
        )


_DEGREES = ("ep_degree", "attention_dp_size", "embedding_dp_size", "lm_head_dp_size", "mlp_dp_size")
_OF_DECODE = _DEGREES[1:]


def _refused(server: ServingFacts, settings: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yields settings with their values, each with why the plugin refuses it; empty where it does not."""
    arguments = server.arguments
    for one in settings.keys() & {*_DEGREES}:
        value = settings[one]
        yield one, value, "" if isinstance(value, int) and value >= 1 else "it has to be a positive whole number"
    if settings.get("ep_degree", 1) != 1:
        able = switched(arguments, "enable-expert-parallel", False)
        yield "ep_degree", settings["ep_degree"], "" if able else "it needs --enable-expert-parallel"
    for one in _OF_DECODE:
        if settings.get(one, 1) != 1:
            role = object_flag(arguments, "kv-transfer-config").get("kv_role")
            copies = (flag(arguments, "data-parallel-size") or "1").strip()
            able = role in ("kv_consumer", "kv_both") and copies.isdecimal() and int(copies) >= 2
            yield one, settings[one], "" if able else "it is for decode servers with --data-parallel-size of 2 or more"
    if "enable_structured_outputs" in settings:
        value = settings["enable_structured_outputs"]
        yield "enable_structured_outputs", value, "" if isinstance(value, bool) else "it has to be true or false"
    if "on_device_sampling_config" in settings:
        value = settings["on_device_sampling_config"]
        speculates = flag(arguments, "speculative-config") is not None
        waits = speculates or not switched(arguments, "async-scheduling", True)
        yield "on_device_sampling_config", value, "" if value is not None or waits else "without it, add --no-async-scheduling"
    if settings.get("quantization") == "mxfp4":
        yield "quantization", "mxfp4", f"{server.instance.family} has no MXFP4, which is for Trn3"


@neuron_rule(
    "NEU032",
    "AWS supports the model with the batch.",
    severity="warning",
    fix="raise max_num_seqs; AWS does not say how smaller batches fail",
    source="release notes of NxD Inference 0.8.16251 (SDK 2.28), known issues; its tutorial of Qwen3 MoE",
)
def batch_is_supported(server: ServingFacts) -> Iterator[Judgement]:
    if server.model is None or server.model.architecture not in server.engine.smallest_batch:
        return
    least, name = server.engine.batch_for(1, server.model), server.model.name
    yield Judgement(
        holds=server.max_num_seqs >= least,
        path=server.at("max_num_seqs"),
        working=(f"{server.engine.name} with {name}: at least {least} sequences; max_num_seqs: {server.max_num_seqs}",),
        message=f"AWS supports {name} with this engine only in batches of {least} sequences or more",
        given=str(server.max_num_seqs),
        allowed=f"at least {least}",
    )
