"""Rules about servers that hand KV caches over by NIXL, as a group plans them or a user's flags say. Ids DI016 to DI023.

Sources: vLLM 0.30.0 (wheel), ``distributed/kv_transfer``, and its documentation (NixlConnector Usage Guide); Neuron
documentation, disaggregated inference of the vLLM plugin; those of each row of ``catalog/nixl.toml``.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from eks_inference.catalog.nixl import Leases, NixlProfile, leases, nixl_connectors, nixl_profile
from eks_inference.rules import Judgement, Rule, Severity, not_judged, rule
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flag, object_flag
from eks_inference.serving.pods import vllm_release

FLAG = "kv-transfer-config"
"""The flag that names the connector and has its settings."""

_ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
GUIDE = "Neuron documentation, vLLM on Neuron, disaggregated inference (features guide, tutorial 1P1D and xPyD)"

Transfer = Mapping[str, Any]


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
