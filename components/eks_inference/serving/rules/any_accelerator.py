"""Judges that the rules for Neuron devices (``neuron.py``) and for GPUs (``gpu.py``) share, and how both declare their rules."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from eks_inference.catalog.instances import Accelerator
from eks_inference.catalog.models import Model, find_model
from eks_inference.place.nodes import DAEMONS_CPU_MILLIS, DAEMONS_MEMORY_MIB
from eks_inference.rules import Judgement, Rule, Severity, not_judged, rule
from eks_inference.serving.choosing import engines_for, largest
from eks_inference.serving.facts import ServingFacts, room
from eks_inference.serving.features import sees
from eks_inference.serving.flags import flag, flag_names, only_lengths
from eks_inference.serving.memory import GIB, Limit, MemoryUse, gib, percent, server_memory

ACCELERATORS: dict[Accelerator, str] = {"neuron": "Neuron devices", "nvidia": "NVIDIA GPUs"}

UNCOUNTED = {
    "cpu-offload-gb": "part of the weights is kept in the memory of the host",
    "data-parallel-size": "the ranks are copies of the model",
    "data-parallel-size-local": "the other ranks are in pods that are not there",
    "enable-eplb": "redundant experts take memory of their own",
    "hf-config-path": "another configuration may have other layers and heads",
    "hf-overrides": "it may change layers and heads",
    "kv-cache-memory-bytes": "it replaces the share of memory that the KV cache gets",
    "mm-processor-kwargs": "it changes how many tokens a picture has",
    "nnodes": "the model is split over pods that are not there",
    "spec-model": "a draft model takes memory of its own",
    "speculative-config": "a draft model takes memory of its own",
    "speculative-model": "a draft model takes memory of its own",
}
"""Flags with memory that ``serving/memory.py`` does not count, and what that is (vLLM documentation, engine arguments)."""

_BESIDE_STATES = (
    *("block-size", "compilation-config", "cudagraph-mode", "decode-context-parallel-size", "disable-chunked-mm-input"),
    *("disable-hybrid-kv-cache-manager", "enable-chunked-prefill", "enable-dbo", "kv-events-config", "kv-offloading-size"),
    *("kv-transfer-config", "prefix-match-unit-tokens", "speculative-config", "use-replayssm"),
)
"""Flags that change pages or states of the KV cache, or that the engine refuses beside states."""
_JUDGED_BESIDE_STATES = ("fp8", "fp8-blocks", "modelopt", "modelopt_fp4")
"""Forms of quantized checkpoints whose bytes beside states are those of the engine's own construction (vLLM 0.30.0)."""

_PARTITION = "VLLM_PP_LAYER_PARTITION"
"""vLLM, ``get_pp_indices``: layers of each stage, in place of equal parts."""

Judge = Callable[[ServingFacts], Iterable[Judgement]]


def accelerator_rule(
    accelerator: Accelerator, id_: str, meaning: str, *, fix: str, source: str, severity: Severity = "error"
) -> Callable[[Judge], Rule[ServingFacts]]:
    """Declares a rule, like ``rule``, that applies only to servers on instance types with this accelerator."""

    def declare(judge: Judge) -> Rule[ServingFacts]:
        def judge_if_present(server: ServingFacts) -> Iterable[Judgement]:
            return judge(server) if server.instance.accelerator == accelerator else ()

        about = f"{ServingFacts.about} on {ACCELERATORS[accelerator]}"
        return rule(id_, meaning, fix=fix, source=source, severity=severity, about=about)(judge_if_present)

    return declare


gpu_rule = partial(accelerator_rule, "nvidia")


def heads(server: ServingFacts) -> Iterator[Judgement]:
    """Tensor parallelism splits attention by heads, so every core or GPU must hold the same number of them."""
    if server.model is None:
        yield server.unknown_model("heads")
        return
    model, degree, units = server.model, server.tensor_parallel, "cores" if server.neuron else "GPUs"
    pads = server.engine.generation.pads_heads
    # NxD Inference expands them (Model.kv_heads_at).
    kv_uneven = not server.neuron and not model.kv_splits_over(degree)
    message = f"{model.heads} attention heads of {model.name} do not divide evenly among {degree} {units}"
    if model.splits_over(degree):
        message = f"{model.kv_heads} KV heads of {model.name} do not divide evenly among {degree} {units}, nor these among them"
    elif pads:
        message += f": the engine pads them to {model.padded_heads(degree)}, against its documents"
    counts = {"heads": model.heads, **({"KV heads": model.kv_heads} if kv_uneven else {})}
    yield Judgement(
        holds=model.splits_over(degree) and not kv_uneven,
        path=server.at("tensor_parallel"),
        working=tuple(f"{what} mod tensor_parallel = {count} mod {degree} = {count % degree}" for what, count in counts.items()),
        message=message,
        severity="warning" if pads else "error",
        given=str(degree),
        allowed=", ".join(
            str(divisor)
            for divisor in range(1, model.heads + 1)
            if model.splits_over(divisor) and (server.neuron or model.kv_splits_over(divisor))
        ),
    )


def memory(server: ServingFacts) -> Iterator[Judgement]:
    """Compares what a core or GPU holds with its memory; warns where the margin decides."""
    use = server_memory(server)
    if use is None:
        yield from _memory_unjudged(server)
        return
    counted = {"hf-overrides"} if only_lengths(server.model, server.arguments) else set[str]()
    counted |= set() if server.instance.neuron else {"data-parallel-size"}
    for uncounted in (name for name in UNCOUNTED if name not in counted and server.extra_args.get(name, False) is not False):
        yield not_judged(
            "memory",
            f"{use.model.name} with --{uncounted}",
            server.under("extra_args", uncounted),
            why=f"{UNCOUNTED[uncounted]}, which the calculation leaves out",
            fix="measure it: the log of vLLM says how much memory is left for the KV cache",
        )
    if _PARTITION in server.environment:
        yield not_judged(
            "memory",
            f"{use.model.name} with {_PARTITION}",
            server.under("extra_env", _PARTITION),
            why="it says how many layers each pipeline stage has",
            fix="measure it: the log of vLLM says how much memory is left for the KV cache",
        )
    if use.adapters is None:
        yield not_judged(
            "memory",
            f"adapters of {use.model.name}",
            server.at_flag("enable-lora"),
            why="what they take beside padded experts, latent attention or what sees or hears is not known here",
            fix="measure it: the log of vLLM says how much memory is left for the KV cache",
        )
    yield from _draft_unjudged(server)
    yield from _states_unjudged(server, use.model)
    yield from _parts_unjudged(server, use.model)
    whole, *others = use.limits
    tightest = max((whole, *others), key=lambda limit: limit.fraction)
    fits, holds = use.fits, use.surely_fits
    what = "" if tightest is whole else f" of {tightest.what}"
    yield Judgement(
        holds=holds,
        path=server.at("max_model_len" if server.engine.generation.paged else "max_num_seqs"),
        working=use.working,
        message=f"{use.model.name} needs {gib(tightest.used)} GiB{what} a {use.unit}, but only {tightest.available / GIB:.4g} "
        "are available"
        if not fits
        else f"{use.model.name} takes {percent(tightest.fraction, 1)} of the memory{what} a {use.unit}: {_doubt(tightest)}",
        given=f"tensor_parallel {use.tensor_parallel}, max_num_seqs {server.max_num_seqs}, max_model_len {use.max_model_len}",
        allowed="" if holds else _that_fits(use),
        severity="error" if not fits else "warning",
    )


def _doubt(limit: Limit) -> str:
    """Why a limit may not be kept."""
    if limit.margin is None:
        return "what cannot be calculated (buffers, compiled graphs) may not fit beside it"
    return f"what the engine takes beside weights and KV cache is known within {gib(limit.margin)} GiB"


def _draft_unjudged(server: ServingFacts) -> Iterator[Judgement]:
    """Says that the size of a draft model is unknown."""
    speculation = server.features.speculation if server.features else None
    if speculation and speculation.draft and speculation.draft_gib is None and find_model(speculation.draft) is None:
        yield not_judged(
            "memory",
            f"draft {speculation.draft}",
            server.at("speculation"),
            why="the size of the draft's weights is not known here",
            fix="give speculation.draft_gib: the size of its weights on the Hub",
        )


def _states_unjudged(server: ServingFacts, model: Model) -> Iterator[Judgement]:
    """Says what nobody compared with the engine, of a model whose layers keep states."""
    if not model.state_layers:
        return
    given = [one for one in flag_names(server.arguments) if one in _BESIDE_STATES or one.startswith("mamba")]
    found = [(f"--{one}", server.at_flag(one)) for one in sorted(given)]
    if model.quantization and (model.quantization.plain_states or model.quantization.form not in _JUDGED_BESIDE_STATES):
        found.append((f"quantized to {model.quantization.method}", (*server.path, "model", "id")))
    for what, path in found:
        yield not_judged(
            "memory",
            f"{model.name}, {what}",
            path,
            why="what its layers with a state, and the pages of their states, take beside it is not known here",
            fix="leave it out; or measure it: the log of vLLM says how much memory is left for the KV cache",
        )


def _parts_unjudged(server: ServingFacts, model: Model) -> Iterator[Judgement]:
    """Says which parts of the model no formula counts (vLLM documentation, "Text-only mode": they are then not loaded)."""
    if model.sees and sees(server.arguments, model) and not server.engine.standalone:
        why = f"how {server.engine.server} hands pictures to vLLM was not examined here"
        fix = "serve it with kind vllm; or serve texts only: extra_args.language-model-only"
        yield not_judged("pictures", model.name, (*server.path, "model", "id"), why=why, fix=fix)
    if model.uncounted and sees(server.arguments, model):
        yield not_judged(
            "memory",
            f"{' and '.join(model.uncounted)} of {model.name}",
            (*server.path, "model", "id"),
            why="no formula counts its weights and its working memory",
            fix="measure it: the log of vLLM says how much memory is left for the KV cache; or serve texts only: "
            "extra_args.language-model-only",
        )


def _memory_unjudged(server: ServingFacts) -> Iterator[Judgement]:
    """Says why ``server_memory`` has no numbers. Other rules refuse a server without length or degree."""
    if server.model is None:
        yield server.unknown_model("memory")
    elif quantization := flag(server.arguments, "quantization"):
        yield not_judged(
            "memory",
            f"{server.model.name} in {quantization}",
            server.at_flag("quantization"),
            why=f"the size of weights in {quantization} is not known here; those in fp8 take 1 byte",
            fix="measure it: the log of vLLM says how much memory the weights take",
        )


def _that_fits(use: MemoryUse) -> str:
    """Returns the batch size or sequence length that would fit with all other settings unchanged."""
    sequences = largest(lambda count: use.of(count, use.max_model_len).surely_fits)
    if sequences and not use.engine.generation.paged:
        return f"max_num_seqs up to {sequences} at this length"
    if use.model.state_layers and not use.fits:
        most = largest(lambda count: use.with_most(count).surely_fits) or largest(lambda count: use.with_most(count).fits)
        if most:
            return f"max_num_seqs up to {most} at this length"
        return f"max_num_seqs up to {most} at this length"
    tokens = min(largest(lambda length: use.of(1, length).surely_fits), use.model.max_positions)
    if not tokens:
        return "no length is sure to fit" if use.of(1, 1).fits else f"nothing: the weights leave no room on a {use.unit}"
    return f"max_model_len up to {tokens}{'' if use.engine.generation.paged else ' with one sequence'}"


def engine(server: ServingFacts) -> Iterator[Judgement]:
    """An engine profile supports certain chips."""
    profile, instance = server.engine, server.instance
    yield Judgement(
        holds=profile.serves(instance),
        path=server.at("engine"),
        working=(f"{profile.name} is for {', '.join(profile.tensor_parallel)}; the pods run on {instance.name}",),
        message=f"engine {profile.name} is not for {instance.name}",
        given=profile.name,
        allowed=", ".join(one.name for one in engines_for(instance, server.model)) or "no profile of the catalog",
    )


def architecture(server: ServingFacts) -> Iterator[Judgement]:
    """An engine serves only the model architectures that it implements."""
    if server.model is None:
        yield server.unknown_model("architecture")
        return
    profile, model = server.engine, server.model
    if model.architecture in profile.listed:
        why, fix = "documents list it, but how it is served was not examined here", "follow their guide, and try it first"
        yield not_judged("architecture", f"{model.name} ({model.architecture})", server.at("engine"), why=why, fix=fix)
        return
    yield Judgement(
        holds=model.architecture in profile.architectures,
        path=server.at("engine"),
        working=(
            f"{model.name} is of architecture {model.architecture}; {profile.name}: {', '.join(profile.architectures)}",
            f"by {profile.source}",
        ),
        message=f"engine {profile.name} does not serve {model.name}",
        given=f"architecture {model.architecture}",
        allowed=", ".join(one.name for one in engines_for(server.instance, model)) or "no profile of the catalog on these chips",
    )


def pod(server: ServingFacts) -> Iterator[Judgement]:
    """One pod must fit an empty node; warns where CPU or memory keeps further pods from using free devices."""
    instance = server.instance
    if not 0 < server.devices <= instance.devices:
        return
    usable, together = room(server.placement), min(instance.devices // server.devices, max(server.pods_max, 1))
    for fact, unit, factor, asked, there, daemons in (
        ("cpu", "CPU", 1000, server.cpu_millis, usable.cpu_millis, DAEMONS_CPU_MILLIS),
        ("memory", "GiB", 1024, server.memory_mib, usable.memory_mib, DAEMONS_MEMORY_MIB),
    ):
        if not asked:
            continue
        pods = there // asked
        yield Judgement(
            holds=pods >= together,
            path=server.at(fact),
            working=(
                f"{instance.name}: {(there + daemons) / factor:.1f} {unit} for pods, less {daemons / factor:g} for DaemonSets = "
                f"{there / factor:.1f} {unit}",
                f"devices for {together} pod{'' if together == 1 else 's'} x {asked / factor:g} {unit} = "
                f"{together * asked / factor:g} {unit}",
            ),
            message=f"no {instance.name} has {asked / factor:g} {unit} for a pod"
            if not pods
            else f"{pods} of {together} pods fit a node: the devices of the others stay idle",
            given=f"{asked / factor:g} {unit}",
            allowed=f"at most {there // together / factor:.1f} {unit} for {together} pod{'' if together == 1 else 's'} a node",
            severity="error" if not pods else "warning",
        )


def ports(server: ServingFacts) -> Iterator[Judgement]:
    """The process, its container and the Service must use the same port."""
    listens = flag(server.arguments, "port") or str(server.engine.port)
    yield Judgement(
        holds=listens == str(server.container_port) == str(server.service_port),
        path=server.at_flag("port"),
        working=(f"engine: {listens}; container: {server.container_port}; Service: {server.service_port}",),
        message=f"the engine listens on {listens}, and the Service leads to {server.service_port}",
        given=f"--port={listens}",
        allowed=str(server.service_port),
    )
