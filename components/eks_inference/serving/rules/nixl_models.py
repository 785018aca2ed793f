"""Rules about models and features of servers that hand KV caches over by NIXL. Ids DI024 to DI029.

Sources: vLLM documentation, NixlConnector Compatibility Matrix; Neuron documentation, disaggregated inference of the vLLM plugin.
"""

from collections.abc import Iterator

from eks_inference.catalog.nixl import NixlProfile
from eks_inference.rules import Judgement
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flag, plugin_settings, switched
from eks_inference.serving.rules.nixl import GUIDE, Transfer, nixl_rule

_HYBRID = "disable-hybrid-kv-cache-manager"
_METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_MATRIX = "vLLM documentation, NixlConnector Compatibility Matrix"


@nixl_rule(
    "DI024",
    "Servers with adapters do not hand KV caches over.",
    fix="serve adapters from aggregated servers (kind vllm)",
    source=f"{_MATRIX}: LoRA is not listed; the Neuron plugin has no adapters",
)
def no_adapters(server: ServingFacts, transfer: Transfer, profile: NixlProfile) -> Iterator[Judgement]:
    on = switched(server.arguments, "enable-lora", False)
    yield Judgement(
        holds=not on,
        path=server.at_flag("enable-lora"),
        working=(f"adapters (LoRA): {'on' if on else 'off'}",),
        message="no source says whether one server's KV cache suits another's adapter",
        given="on",
        allowed="off",
    )


@nixl_rule(
    "DI025",
    "Disaggregated inference is documented for the model.",
    severity="warning",
    fix="compare answers with those of an aggregated server at temperature 0 before you rely on it",
    source=f"{GUIDE}; {_MATRIX}: encoder-decoder models are not supported, multimodal ones not validated",
)
def model_is_documented(server: ServingFacts, transfer: Transfer, profile: NixlProfile) -> Iterator[Judgement]:
    model = server.model
    if model is None:
        yield server.unknown_model("disaggregated inference")
        return
    listed = not profile.models or model.name in profile.models
    proven = model.architecture not in profile.unproven
    yield Judgement(
        holds=listed and proven,
        path=(*server.path, "model", "id"),
        working=(
            f"{model.name} ({model.architecture}): "
            + ("documented" if listed and proven else profile.unlisted if not listed else "its architecture is not validated"),
        ),
        message=f"no document says that {model.name} works with KV caches from another server"
        + (f": {profile.unlisted}" if profile.unlisted else ""),
        given=model.name,
    )


@nixl_rule(
    "DI026",
    "Layers with sliding windows keep KV caches of their own.",
    fix="set extra_args: {disable-hybrid-kv-cache-manager: false}",
    source=f"{GUIDE}: --no-disable-hybrid-kv-cache-manager for gpt-oss; vllm-project/vllm#42024: with a connector, vLLM turned "
    "the hybrid KV cache manager off and kept every token of every layer",
)
def windows_are_kept(server: ServingFacts, transfer: Transfer, profile: NixlProfile) -> Iterator[Judgement]:
    if server.model is None or not 0 < server.model.window < server.max_model_len:
        return
    on = switched(server.arguments, _HYBRID, None) is False
    needed = profile.connector != profile.connector_of_windows
    yield Judgement(
        holds=on,
        path=server.at_flag(_HYBRID),
        working=(
            f"{server.model.name}: windows of {server.model.window} tokens; --no-{_HYBRID} {'given' if on else 'not given'}",
        ),
        message=f"{server.model.name} has sliding windows, which the connector needs as groups of their own"
        if needed
        else "vLLM may keep every token of every layer, up to twice the KV cache, and does not say so",
        given="not given",
        allowed=f"--no-{_HYBRID}",
        severity="error" if needed else "warning",
    )


@nixl_rule(
    "DI027",
    "Decode context parallelism divides the cores and the heads.",
    fix="leave decode-context-parallel-size out, or choose one that divides",
    source="vLLM: dcp divides tp; its plugin for Neuron also: tp >= dcp x KV heads, and dcp divides heads / KV heads",
)
def contexts_divide(server: ServingFacts, transfer: Transfer, profile: NixlProfile) -> Iterator[Judgement]:
    text = flag(server.arguments, "decode-context-parallel-size") or ""
    if not text.isdecimal() or int(text) <= 1:
        return
    parts, degree, model = int(text), server.tensor_parallel, server.model
    if model is None:
        yield server.unknown_model("decode context parallelism")
        return
    each = model.heads // model.kv_heads
    working = [f"tensor_parallel mod dcp = {degree} mod {parts} = {degree % parts}"]
    holds = degree % parts == 0
    if server.neuron:
        working += [
            f"tensor_parallel {degree}, dcp x KV heads = {parts} x {model.kv_heads} = {parts * model.kv_heads}",
            f"heads / KV heads mod dcp = {each} mod {parts} = {each % parts}",
        ]
        holds = holds and degree >= parts * model.kv_heads and each % parts == 0
    yield Judgement(
        holds=holds,
        path=server.at_flag("decode-context-parallel-size"),
        working=tuple(working),
        message=f"the context of {model.name} does not divide into {parts} parts with tensor_parallel {degree}",
        given=str(parts),
    )


@nixl_rule(
    "DI028",
    "KV caches of this form are known to cross NIXL.",
    severity="warning",
    fix="start with BF16, then compare answers at temperature 0 with the packed form",
    source=f"{GUIDE} and the recipe of Llama 3.3 70B (fp8_packed_kv), which say nothing of both together; {_MATRIX}: scales that "
    "are computed at run time are not handed over",
)
def cache_crosses(server: ServingFacts, transfer: Transfer, profile: NixlProfile) -> Iterator[Judgement]:
    known = server.engine.generation.fp8_kv
    packed = bool(known and (plugin_settings(server.engine, server.arguments) or {}).get(known.packed))
    computed = switched(server.arguments, "calculate-kv-scales", False)
    yield Judgement(
        holds=not packed and not computed,
        path=server.at_flag("calculate-kv-scales" if computed else "additional-config"),
        working=(
            f"KV cache: {flag(server.arguments, 'kv-cache-dtype') or 'as the model'}, {'packed' if packed else 'not packed'}, "
            f"scales {'computed at run time' if computed else 'none, or of the checkpoint'}",
        ),
        message="scales that prefill computes stay there: decode reads the KV cache with its own"
        if computed
        else "no document says that packed FP8 KV caches cross NIXL",
        given="--calculate-kv-scales" if computed else "fp8_packed_kv",
        severity="error" if computed else "warning",
    )


@nixl_rule(
    "DI029",
    "Processes of a restarted server find no metrics of the last one.",
    severity="warning",
    fix=f"leave {_METRICS_FOLDER} out: vLLM makes a new folder at each start",
    source="Prometheus client for Python, multiprocess mode: the folder must be empty when a server starts; volumes of a pod "
    "outlive its containers",
)
def metrics_start_empty(server: ServingFacts, transfer: Transfer, profile: NixlProfile) -> Iterator[Judgement]:
    given = server.environment.get(_METRICS_FOLDER)
    yield Judgement(
        holds=not given,
        path=server.under("extra_env", _METRICS_FOLDER),
        working=(f"{_METRICS_FOLDER}: {given or 'not set'}",),
        message="a restarted server would add counters of transfers of the last process to its own",
        given=given or "",
    )
