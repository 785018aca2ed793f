"""Rules about what the engine computes with on GPUs: types, kernels, shards and attention. Ids GPU…

What a release has is data: ``catalog/engine_facts/``, ``catalog/kernels.toml``.
"""

from collections.abc import Iterator

from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.engine_facts import (
    Capability,
    EngineFacts,
    Failing,
    Need,
    engine_facts,
    resolved_dtype,
    said_from,
    since,
)
from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.models import Model
from eks_inference.catalog.quantization import Quantization
from eks_inference.catalog.tables import version_numbers
from eks_inference.rules import Judgement, Path, not_judged
from eks_inference.serving import flag_values
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.features import sees
from eks_inference.serving.flags import attention_backend, flag
from eks_inference.serving.pod_parts import vllm_release
from eks_inference.serving.rules.any_accelerator import gpu_rule
from eks_inference.serving.split import inputs_in_groups, parallel

_CONVERTS_BFLOAT16 = (0, 9)  # first vLLM release that falls back to another type on GPUs without bfloat16


@gpu_rule(
    "GPU004",
    "The GPU, the model and its quantization have the arithmetic that the engine takes: bfloat16 needs compute capability 8.0.",
    fix="say another dtype, or choose a GPU of compute capability 8.0 or later",
    source="vLLM: CudaPlatform.check_if_supports_dtype, _resolve_auto_dtype, VllmConfig._get_quantization_config, as "
    "catalog/engine_facts keeps them; NVIDIA, CUDA GPU compute capability: T4 7.5",
)
def gpu_has_the_dtype(server: ServingFacts) -> Iterator[Judgement]:
    has, model = server.instance.compute_capability, server.model
    assert has is not None
    said = flag(server.arguments, "dtype") or "auto"
    converts = vllm_release(server.engine) >= _CONVERTS_BFLOAT16
    if model is None and said == "auto" and not server.instance.has_bfloat16 and not converts:
        yield server.unknown_model("dtype")
        return
    computed = {"half": "float16", "float": "float32"}.get(said, said)
    how = f"dtype {said}"
    if model is not None and said == "auto":
        computed = resolved_dtype(server.engine.vllm, said, model, has) if converts else model.dtype
        how = f"dtype auto: {model.name} is published in {model.dtype}"
        how += f", vLLM {server.engine.vllm} falls back to {computed}" if computed != model.dtype else ""
    yield Judgement(
        holds=computed != "bfloat16" or server.instance.has_bfloat16,
        path=server.at_flag("dtype"),
        working=(how, f"{server.instance.name}: compute capability {_text(has)}; bfloat16 from 8.0"),
        message=f"the GPUs of {server.instance.name} have no bfloat16: vLLM does not start",
        given=how,
        allowed="float16",
    )
    facts = engine_facts(server.engine.vllm)
    if facts and model:
        yield from _taken(server, facts, model, computed, how)


def _taken(server: ServingFacts, facts: EngineFacts, model: Model, computed: str, how: str) -> Iterator[Judgement]:
    """Whether the architecture takes the type, and the quantization the type and the GPU."""
    method = model.quantization.method if model.quantization else flag(server.arguments, "quantization") or ""
    has, by_gpu = server.instance.compute_capability, facts.quantization.get(method, {})
    taken_by: dict[str, tuple[str, ...]] = (
        {model.architecture: ("bfloat16", "float32")} if model.architecture in facts.no_float16 else {}
    )
    if has and by_gpu:
        taken_by[f"weights in {method}"] = since(by_gpu, has) or ()
    for what, taken in taken_by.items():
        on = "" if taken else f" on the GPUs of {server.instance.name}"
        yield Judgement(
            holds=computed in taken,
            path=server.at_flag("dtype") if taken else _of_weights(server),
            working=(how, f"vLLM {facts.name}, {what}{on}: {', '.join(taken) or 'nothing'}"),
            message=f"vLLM {facts.name} does not run {what} in {computed}{on}: the server does not start",
            given=how,
            allowed=", ".join(taken) or f"GPUs of compute capability {min(by_gpu, key=version_numbers)} or later",
        )


@gpu_rule(
    "GPU010",
    "vLLM has a kernel for the quantization of the weights on the GPU.",
    fix="choose another instance type, or weights that are quantized otherwise or not at all",
    source="vLLM: the kernels that each release selects (catalog/engine_facts), and where those fail (catalog/kernels.toml)",
)
def gpu_has_a_kernel(server: ServingFacts) -> Iterator[Judgement]:
    if (found := flag_values.quantized_weights(server.arguments, server.model)) is not None:
        yield from _kernel(server, found, _of_weights(server), experts=bool(server.model and server.model.experts))
    if (found := flag_values.quantized_draft(server.arguments)) is not None:
        yield from _kernel(server, found, server.at_flag("speculative-config"), experts=False)
    named = flag(server.arguments, "moe-backend") or "auto"
    if named != "auto" and (server.model is None or server.model.experts):
        why = f"which experts {named} computes on which GPUs is not known here"
        path = server.at_flag("moe-backend")
        yield not_judged("moe-backend", named, path, why=why, fix="leave it out, or look at the log of vLLM when it starts")


def _of_weights(server: ServingFacts) -> Path:
    """The path of what says how the weights are quantized."""
    online = server.model is None or server.model.quantization is None
    return server.at_flag("quantization") if online else (*server.path, "model", "id")


def _kernel(server: ServingFacts, quantization: Quantization, path: Path, *, experts: bool) -> Iterator[Judgement]:
    has, facts = server.instance.compute_capability, engine_facts(server.engine.vllm)
    assert has is not None
    form, fix = quantization.form, "look at the log of vLLM when it starts"
    selected = facts.selected(quantization, has, experts=experts) if facts else None
    if facts is None or selected is None:
        why = f"which GPUs vLLM {server.engine.vllm} has a kernel for is not known here"
        yield not_judged("kernel", form, path, why=why, fix=fix)
        return
    what = ", ".join(one or "none" for one in selected)
    allowed = [capability for capability in _capabilities() if _has_a_kernel(facts, quantization, capability, experts=experts)]
    yield Judgement(
        holds=has in allowed,
        path=path,
        working=(f"{form} on vLLM {server.engine.vllm}, {server.instance.name} (compute capability {_text(has)}): {what}",),
        message=f"vLLM {server.engine.vllm} has no kernel for {form} on the GPUs of {server.instance.name}",
        given=f"compute capability {_text(has)}",
        allowed=", ".join(map(_text, allowed)),
    )
    if has in allowed and has < (said_from(form) or has):
        yield not_judged("kernel", form, path, why="no source says that the one that vLLM selects works", fix=fix)
    if (failing := flag_values.failing_kernel(server.engine.vllm, has, quantization)) and failing.backend:
        yield _selected(server, form, failing, path)
    elif (given := flag_values.linear_backend(server.arguments)) != "auto" and (
        quantization.bits < 8 or (quantization.group and given != "marlin")  # which computes FP8 everywhere
    ):
        why = f"which kernels of {given} compute {form} on which GPUs is not known here"
        path = server.at_flag("linear-backend")
        yield not_judged("linear-backend", given, path, why=why, fix="leave it out, or look at the log of vLLM when it starts")


def _has_a_kernel(facts: EngineFacts, quantization: Quantization, capability: Capability, *, experts: bool) -> bool:
    """Whether a release selects one on a GPU, and it works or another can be named."""
    selected, failing = (
        facts.selected(quantization, capability, experts=experts),
        flag_values.failing_kernel(facts.name, capability, quantization),
    )
    return all(selected or ()) and (failing is None or bool(failing.backend))


def _capabilities() -> list[Capability]:
    return sorted({one.compute_capability for one in instance_types().values() if one.compute_capability})


def _selected(server: ServingFacts, form: str, needed: Failing, path: Path) -> Judgement:
    """The kernel that the engine selects among those that it has."""
    vllm, given = server.engine.vllm, flag_values.linear_backend(server.arguments)
    path = next(
        (server.under("extra_args", one) for one in ("linear-backend", "kernel-config") if one in server.extra_args), path
    )
    fix = f"say linear-backend: {needed.backend}, or leave it out"
    if given != needed.backend and (given in needed.unsaid or server.model is None):
        why = "the weights of a repository that is unknown here may have other kernels" if server.model is None else ""
        why = why or f"no source says whether it computes {form} on these GPUs"
        return not_judged("linear-backend", given, path, why=why, fix=fix)
    return Judgement(
        holds=given == needed.backend,
        path=path,
        working=(f"{form} on vLLM {vllm}, {server.instance.name}: linear-backend {needed.backend}",),
        message=f"vLLM {vllm} has no kernel for {form} on the GPUs of {server.instance.name} with linear-backend {given}",
        given=given,
        allowed=needed.backend,
        fix=fix,
    )


@gpu_rule(
    "GPU011",
    "Each GPU gets whole groups of the weights that share a scale, or the engine makes smaller ones for it.",
    fix="split the model over fewer GPUs, take a newer GPU, or choose a checkpoint that is not quantized, or otherwise",
    source="vLLM, create_weights of each method (vllm-project/vllm#52997, #5675), as catalog/engine_facts keeps them",
)
def shards_are_whole_groups(server: ServingFacts) -> Iterator[Judgement]:
    facts, model, has = engine_facts(server.engine.vllm), server.model, server.instance.compute_capability
    if facts is None or model is None or model.quantization is None or has is None:
        return
    found = list(inputs_in_groups(model, parallel(server.arguments, server.tensor_parallel), facts, has))
    spared = model.quantization.partly and any(whole % (parts * unit) for _, whole, parts, unit in found)
    if spared or (found and sees(server.arguments, model) and _divides_groups_of_a_tower(model, server.tensor_parallel)):
        why = "the checkpoint leaves some layers as they are" if spared else "whether its tower is quantized is unknown"
        fix = "look at the log of vLLM when it starts"
        yield not_judged("shards", model.name, server.at("tensor_parallel"), why=why, fix=fix)
    if spared:
        return
    for what, whole, parts, unit in found:
        width, over = whole / parts, f" over {parts} GPUs" if parts > 1 else ""
        yield Judgement(
            holds=width % unit == 0,
            path=server.at("tensor_parallel"),
            working=(f"{what} of {model.name}: {whole} / {parts} = {width:g}; mod {unit} = {width % unit:g}",),
            message=f"{what} of {model.name}{over} are {width:g} wide, no multiple of the {unit} weights that share "
            "a scale: vLLM does not start",
            given=str(parts),
        )


def _divides_groups_of_a_tower(model: Model, parts: int) -> bool:
    """Whether a tower that the checkpoint does not spare has no whole groups: 3420 of Qwen2.5-VL (vLLM 0.30.0 refuses it)."""
    found, widths = model.quantization, dict(model.tower.vision) if model.tower else {}
    unit = found.unit * parts if found and not found.partly and not found.experts_only else 0
    return unit > 0 and any(widths.get(what, 0) % unit for what in ("hidden_size", "intermediate_size"))


@gpu_rule(
    "GPU012",
    "An attention back end of the engine takes the model, its type and its KV cache on the GPU.",
    fix="choose another GPU, leave the flag out, or choose another type of the KV cache",
    source="vLLM, AttentionBackend.validate_configuration and the classes of its back ends, as catalog/engine_facts keeps them",
)
def attention_is_served(server: ServingFacts) -> Iterator[Judgement]:
    facts, model, has = engine_facts(server.engine.vllm), server.model, server.instance.compute_capability
    named = attention_backend(server.arguments)
    assert has is not None
    kv, dtype = flag(server.arguments, "kv-cache-dtype") or "auto", flag(server.arguments, "dtype") or "auto"
    back_ends = facts.attention if facts and model else {}
    kv_types = {one for row in back_ends.values() for types in row.kv.values() for one in types}
    for name, given, known in (("attention-backend", named, back_ends), ("kv-cache-dtype", kv, {"auto"} | kv_types)):
        if given and given not in known:
            why = f"what vLLM {server.engine.vllm} has it for is not known here"
            yield not_judged("attention", given, server.at_flag(name), why=why, fix="look at the log of vLLM when it starts")
    if facts is None or model is None:
        return
    computed, needs = resolved_dtype(facts.name, dtype, model, has), tuple(_needs(server, facts, model))
    method = model.quantization.method if model.quantization else ""
    other_scales = method in facts.no_e5m2 and kv == "fp8_e5m2"
    able = [name for name, one in facts.attention.items() if one.takes(model, has, computed, kv, needs) and not other_scales]
    # Without FlashAttention 4, vLLM gives layers whose heads differ no other back end (vLLM 0.30.0, Gemma4Config).
    usual = "TRITON_ATTN" if model.full_head_dim and has < (9, 0) else None
    fitting = [one for one in able if (named or usual) in (None, one)]
    heads = f"heads of {model.head_dim}" + (f" and {model.full_head_dim}" if model.full_head_dim else "")
    latent = f"{'sparse ' * bool(model.index_dim)}latent attention" if model.kv_rank else heads
    words = ", ".join([f"{latent} in {computed}", f"KV cache {kv}", *(need.replace("_", " ") for need in needs)])
    words += f" beside weights in {method}" if other_scales else ""
    here = f"{server.instance.name} (compute capability {_text(has)})"
    if able and kv in facts.needs_downloads:
        why = "the back end takes it only with kernels that FlashInfer downloads from NVIDIA when it starts"
        fix = "look at the log of vLLM when it starts"
        yield not_judged("attention", f"KV cache {kv}", server.at_flag("kv-cache-dtype"), why=why, fix=fix)
    elif fitting and all(facts.attention[one].compiles for one in fitting):
        why = "whether the image has the kernels of FlashInfer, or the compiler, that its only back end there needs is unknown"
        yield not_judged("attention", model.name, server.at("engine"), why=why, fix="look at the log of vLLM when it starts")
    elif kv in kv_types and (named is None or named in back_ends):
        yield Judgement(
            holds=bool(fitting),
            path=server.at_flag("attention-backend" if named else "kv-cache-dtype" if kv != "auto" else "dtype"),
            working=(f"{words} on {here}: {', '.join(able) or 'no back end'}" + (f"; given: {named}" if named else ""),),
            message=f"vLLM {facts.name} has no attention back end for {words} on {here}"
            if not named
            else f"attention back end {named} does not take {words} on {here}: vLLM {facts.name} does not start",
            given=named or kv,
            allowed=", ".join(able),
        )
    block = flag(server.arguments, "block-size") or "64"
    unasked = [*needs, *([] if block.isdigit() and int(block) % 64 == 0 else [f"blocks of {block} tokens"])]
    if model.index_dim and able and unasked:
        why, what = "some back ends of sparse attention do not take it", ", ".join(unasked).replace("_", " ")
        yield not_judged("attention", what, server.path, why=why, fix="look at the log of vLLM when it starts")
    if model.kv_rank:
        yield Judgement(
            holds=has >= facts.mla_prefill,
            path=(*server.path, "model", "id"),
            working=(f"prompts of latent attention: compute capability {_text(facts.mla_prefill)}; {here}",),
            message=f"vLLM {facts.name} cannot process prompts of {model.name} on {here}: its kernels for latent attention need "
            f"{_text(facts.mla_prefill)}",
            given=f"compute capability {_text(has)}",
            allowed=f"{_text(facts.mla_prefill)} or later",
            fix="choose another instance type",
        )


def _needs(server: ServingFacts, facts: EngineFacts, model: Model) -> Iterator[Need]:
    kind, split = architectures().get(model.architecture), parallel(server.arguments, server.tensor_parallel)
    if kind and kind.sinks:
        yield "sinks"
    if model.architecture in facts.images and sees(server.arguments, model):
        yield "images"
    if split.prefill_context > 1:
        yield "prefill_context"
    if split.decode_context > 1:
        yield "decode_context"


def _text(capability: Capability) -> str:
    return f"{capability[0]}.{capability[1]}"
