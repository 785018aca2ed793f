"""Rules about servers that hand KV caches over by NIXL, as a group plans them or a user's flags say. Ids DI016 to DI023, and
about models and features DI024 to DI029.

Sources: vLLM 0.30.0 (wheel), ``distributed/kv_transfer``, and its documentation (NixlConnector Usage Guide, NixlConnector
Compatibility Matrix); Neuron documentation, disaggregated inference of the vLLM plugin; those of each row of
``catalog/nixl.toml``.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from eks_inference.catalog.nixl import Leases, NixlProfile, leases, nixl_connectors, nixl_profile
from eks_inference.rules import Judgement, Rule, Severity, not_judged, rule
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flag, object_flag, plugin_settings, switched
from eks_inference.serving.pod_parts import vllm_release

FLAG = "kv-transfer-config"
"""The flag that names the connector and has its settings."""

_ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
GUIDE = "Neuron documentation, vLLM on Neuron, disaggregated inference (features guide, tutorial 1P1D and xPyD)"

Transfer = Mapping[str, Any]

_HYBRID = "disable-hybrid-kv-cache-manager"
_METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_MATRIX = "vLLM documentation, NixlConnector Compatibility Matrix"


def transfer_of(arguments: tuple[str, ...]) -> Transfer:
    """Returns ``--kv-transfer-config`` as the engine reads it; empty where there is none, or it is no object."""
    return object_flag(arguments, FLAG)


def connector_settings(transfer: Transfer) -> Transfer:
    """Returns ``kv_connector_extra_config`` of a transfer."""
    found = transfer.get("kv_connector_extra_config")
    return found if isinstance(found, Mapping) else {}


def nixl_rule(
    id_: str, meaning: str, *, fix: str, source: str, severity: Severity = "error"
) -> Callable[[Callable[[ServingFacts, Transfer, NixlProfile], Iterable[Judgement]]], Rule[ServingFacts]]:
    """Declares a rule that applies only to servers with a connector over NIXL."""

    def declare(judge: Callable[[ServingFacts, Transfer, NixlProfile], Iterable[Judgement]]) -> Rule[ServingFacts]:
        def judge_if_nixl(server: ServingFacts) -> Iterable[Judgement]:
            transfer = transfer_of(server.arguments)
            accelerator = server.instance.accelerator
            if not _is_nixl(transfer) or not accelerator:
                return ()
            return judge(server, transfer, nixl_profile(accelerator))

        about = "model servers that hand KV caches over by NIXL"
        return rule(id_, meaning, fix=fix, source=source, severity=severity, about=about)(judge_if_nixl)

    return declare


@rule(
    "DI016",
    "The connector lets decode read KV caches from prefill.",
    fix="use the connector that the library chooses: leave kv_connector out",
    source="vllm-project/vllm#53095, ai-dynamo/nixl#1656, #1862 (push)",
    about="model servers that hand KV caches over by NIXL",
)
def decode_reads(server: ServingFacts) -> Iterator[Judgement]:
    transfer, known = transfer_of(server.arguments), nixl_connectors()
    if not _is_nixl(transfer) and not _is_nixl({"kv_connector": json.dumps(transfer)}):
        return
    name = str(transfer.get("kv_connector", ""))
    pulling = ", ".join(one for one, row in known.items() if not row.refused)
    if name not in known:
        why = "the catalog does not know it" if _is_nixl(transfer) else "NIXL is one of several connectors inside it"
        yield not_judged("the transfer", f"connector {name}", server.at_flag(FLAG), why=why, fix=f"use one of {pulling}")
        return
    reason = known[name].refused
    yield Judgement(
        holds=not reason,
        path=server.at_flag(FLAG),
        working=(f"kv_connector {name}: {reason or 'decode reads, and leases are renewed'}",),
        message=f"{name} lets prefill write: {reason}",
        given=name,
        allowed=pulling,
    )


@nixl_rule(
    "DI017",
    "The connector suits the model, and the engine's image has it and the libraries for EFA.",
    fix="leave kv_connector out, or take an engine profile whose image has the connector",
    source=f"{GUIDE}: NeuronNixlConnector for sliding windows and decode context parallelism; vllm-project/vllm#55635: "
    "vllm-openai has no EFA libraries",
)
def connector_suits(server: ServingFacts, transfer: Transfer, profile: NixlProfile) -> Iterator[Judgement]:
    name, engine, model = str(transfer["kv_connector"]), server.engine, server.model
    row = nixl_connectors().get(name)
    also = row.same_as if row else ""
    if server.image and server.image != engine.image:
        fix = "see that it has NIXL with the backend LIBFABRIC, and fi_info -p efa finds interfaces"
        yield not_judged(
            "libraries", server.image, (*server.path, "image"), why="the contents of this image are not known", fix=fix
        )
    else:
        yield Judgement(
            holds=bool({name, also} & {*engine.kv_connectors}) and engine.efa_userspace,
            path=(*server.path, "engine"),
            working=(
                f"connectors in the image of {engine.name}: {', '.join(engine.kv_connectors) or 'none known'}",
                f"EFA libraries in it: {'yes' if engine.efa_userspace else 'not known'}",
            ),
            message=f"the image of engine {engine.name} is not known to have {name} and the libraries for EFA",
            given=engine.name,
        )
    if model is None:
        yield server.unknown_model("connector")
        return
    parallel = flag(server.arguments, "decode-context-parallel-size") not in (None, "1")
    wanted = profile.connector_for(model.window, context_parallel=parallel)
    yield Judgement(
        # The connector of every model is the only one that does not take all.
        holds=name == wanted or wanted == profile.connector,
        path=server.at_flag(FLAG),
        working=(
            f"{model.name}: {f'windows of {model.window} tokens' if model.window else 'no sliding windows'}, decode context "
            f"parallelism {'on' if parallel else 'off'}: {wanted}",
        ),
        message=f"{name} does not hand over the KV cache of {model.name} with these settings",
        given=name,
        allowed=wanted,
    )


@nixl_rule(
    "DI018",
    "KV caches cross EFA by libfabric.",
    fix="set kv_connector_extra_config.backends to [LIBFABRIC], or leave it to the library",
    source="NVIDIA Dynamo documentation, EFA on EKS: with UCX 1 to 3 GB/s, and 98 s instead of 1 s to the first token; "
    "ai-dynamo/nixl#909; vLLM's default is UCX (vllm-project/vllm#41814)",
)
def backend_is_libfabric(server: ServingFacts, transfer: Transfer, profile: NixlProfile) -> Iterator[Judgement]:
    given = connector_settings(transfer).get("backends")
    chosen = [str(one) for one in given] if isinstance(given, list) else []
    wanted = ", ".join(profile.backends)
    yield Judgement(
        holds=bool(chosen) and all(one in profile.backends for one in chosen),
        path=server.at_flag(FLAG),
        working=(f"backends: {', '.join(chosen) or 'not set, so UCX'}; over EFA: {wanted}",),
        message="over EFA, UCX is as slow as TCP: the first token takes a hundred times as long",
        given=", ".join(chosen) or "not set",
        allowed=wanted,
    )


@nixl_rule(
    "DI019",
    "KV caches are handed over from device memory.",
    fix="leave kv_buffer_device to the library",
    source="the plugin registers NIXL on Neuron for the device 'cuda' only; vLLM 0.30.0, config/kv_transfer.py",
)
def buffers_are_on_devices(server: ServingFacts, transfer: Transfer, profile: NixlProfile) -> Iterator[Judgement]:
    given, wanted = transfer.get("kv_buffer_device"), profile.buffer_device
    yield Judgement(
        holds=given == wanted or (given is None and not profile.buffer_device_required),
        path=server.at_flag(FLAG),
        working=(f"kv_buffer_device: {given or 'not set'}; needed: {wanted}",),
        message=f"NIXL on Neuron knows only '{wanted}', which has to be written"
        if profile.buffer_device_required
        else "KV caches would take the way through the memory of the host",
        given=str(given or "not set"),
        allowed=wanted,
        severity="error" if profile.buffer_device_required else "warning",
    )


@nixl_rule(
    "DI020",
    "The engine's vLLM limits how long prefill keeps what decode never reads.",
    fix="use an engine profile with a newer vLLM",
    source="vllm-project/vllm#41383: leases; before, blocks of lost requests are kept for 480 seconds or for ever",
)
def engine_has_leases(server: ServingFacts, transfer: Transfer, profile: NixlProfile) -> Iterator[Judgement]:
    known = leases()
    yield Judgement(
        holds=_has_leases(server, known),
        path=(*server.path, "engine"),
        working=(f"vLLM {server.engine.vllm}; leases since {_text(known.since)}",),
        message=f"vLLM {server.engine.vllm} has no leases: requests that decode loses fill the KV cache of prefill",
        given=server.engine.name,
        allowed=f"an engine with vLLM {_text(known.since)} or newer",
    )


@nixl_rule(
    "DI021",
    "Prefill keeps KV caches longer than the longest wait for decode, and not much longer.",
    fix="set kv_transfer.lease_seconds between 120 and 300 (without that key: kv_connector_extra_config.kv_lease_duration)",
    source="aws-samples/aws-do-eks#84: with 30 s, 8 of 42 answers came from other requests' blocks, with 300 s none; "
    "vLLM only logs it",
)
def leases_are_long_enough(server: ServingFacts, transfer: Transfer, profile: NixlProfile) -> Iterator[Judgement]:
    known = leases()
    if not _has_leases(server, known):
        return
    given = connector_settings(transfer).get(known.key, known.engine_default_s)
    seconds = given if isinstance(given, int | float) else 0
    own = FLAG in server.extra_args or "lease" not in server.keys
    yield Judgement(
        holds=known.least_s <= seconds <= known.most_s,
        path=server.at_flag(FLAG) if own else server.at("lease"),
        working=(f"lease: {given} s; sensible: {known.least_s} to {known.most_s} s; vLLM's default: {known.engine_default_s} s",),
        message=f"after {given} s prefill gives blocks to other requests, and decode answers from those without an error"
        if seconds < known.least_s
        else f"what decode never reads fills the KV cache of prefill for {given} s",
        given=f"{given} s",
        allowed=f"{known.least_s} to {known.most_s} s",
        severity="error" if seconds < known.least_s else "warning",
    )


@nixl_rule(
    "DI022",
    "Variables leave KV caches on EFA.",
    fix="leave these variables to the library",
    source="catalog/nixl.toml (profiles); libfabric, fi_efa; DI010 judges what is missing on shared nodes",
)
def variables_keep_efa(server: ServingFacts, transfer: Transfer, profile: NixlProfile) -> Iterator[Judgement]:
    for variable, wanted in profile.environment.items():
        given = server.environment.get(variable)
        yield Judgement(
            holds=given in (None, wanted),
            path=server.under("extra_env", variable),
            working=(f"{variable}: {given if given is not None else 'not set'}; needed: {wanted}",),
            message=f"{variable}={given}: KV caches would be wrong or slow",
            given=str(given),
            allowed=wanted,
        )


@nixl_rule(
    "DI023",
    "PyTorch does not move registered memory.",
    fix="leave expandable_segments out",
    source="vllm-project/vllm#41237: moved pages leave stale addresses with the network card; vLLM refuses one of two variables "
    "(#54351)",
)
def memory_stays(server: ServingFacts, transfer: Transfer, profile: NixlProfile) -> Iterator[Judgement]:
    for variable in _ALLOCATORS:
        given = server.environment.get(variable, "")
        options = [one.strip().casefold().partition(":") for one in given.split(",")]
        yield Judgement(
            holds=not any(name == "expandable_segments" and value.strip() == "true" for name, _, value in options),
            path=server.under("extra_env", variable),
            working=(f"{variable}: {given or 'not set'}",),
            message="expandable segments move KV caches that the network card has registered: decode reads other memory",
            given=given,
        )


def _is_nixl(transfer: Transfer) -> bool:
    return "nixl" in str(transfer.get("kv_connector", "")).casefold()


def _has_leases(server: ServingFacts, known: Leases) -> bool:
    return vllm_release(server.engine) >= known.since


def _text(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))


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
