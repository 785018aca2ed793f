"""Rules for model servers on any accelerator. Ids SRV…"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eks_inference.catalog.engines import reports
from eks_inference.catalog.models import APART, Task, listens
from eks_inference.rules import Judgement, Rule, not_judged, rule
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flag, longest, overridden, scaled, switched
from eks_inference.serving.rules import claim_rules, engine_features, engine_flags, gpu_arithmetic, neuron_plugin, nixl
from eks_inference.serving.rules import gpu as gpu_rules
from eks_inference.serving.rules import neuron as neuron_rules

# Tags of the public images behind the engine profiles: vLLM release, Neuron SDK, Triton release. The tag of a custom image says
# nothing.
_TAGS = {
    "vLLM": re.compile(r"-vllm-neuronx:v?(\d+\.\d+)\.|/vllm-openai:v?(\d+\.\d+)\.|/vllm:(\d+\.\d+)\.\d+-"),
    "Neuron SDK": re.compile(r":[^/]*-sdk(\d+\.\d+)\."),
    "Triton": re.compile(r"/tritonserver:(\d+\.\d+)-"),
}

# EC2 announces a spot interruption two minutes ahead (EC2 user guide, "Spot Instance interruption notices").
_SPOT_NOTICE_S = 120

_LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
"""Makes vLLM accept sequences longer than the model was trained for."""


_ANSWERED: Mapping[Task, tuple[Task, ...]] = {
    "rerank": ("rerank", "classify"),
    "classify": ("classify",),
    "transcribe": ("transcribe",),
}
"""What a model of a task is asked for beside embeddings, of which vLLM scores pairs, too (vLLM 0.30.0, pooling/factories.py)."""


@rule(
    "SRV020",
    "A server's model and engine do what its clients ask for.",
    fix="leave out task, or choose another model; for embed, rerank, classify and transcribe a server of kind vllm on GPUs",
    source="vLLM documentation, Pooling Models (--runner pooling); vLLM 0.30.0, models/registry.py, pooling/factories.py and "
    "supports_transcription_only; the Neuron plugin's registry has models that generate only",
)
def tasks_are_done(server: ServingFacts) -> Iterator[Judgement]:
    apart, model = server.does in APART, server.model
    if model is None and not apart:
        if listens(f"{server.model_id} {server.no_formula}"):
            called = "it is called like a model of speech, which is asked to transcribe unless its documents say otherwise"
            path = server.at("task") if server.has_task else (*server.path, "model", "id")
            yield Judgement(False, path, (server.does,), called, server.model_id, "task: transcribe", severity="warning")
        return
    writes, hears = model is None or model.writes, bool(model and model.heard)
    yield Judgement(
        holds=server.pools if apart else writes and not hears,
        path=server.at("task") if server.has_task else (*server.path, "model", "id"),
        working=(
            f"task {server.does}; the model writes {('what it hears' if hears else 'text') if writes else 'nothing'}",
            f"such a server {'may' if server.pools else 'does not'} embed, rerank, classify and transcribe",
        ),
        message=f"{server.model_id} is for {server.does}, which {server.engine.name} does not serve so"
        if apart
        else f"{server.model_id} {'writes what it hears' if hears else 'reads texts and writes none'}: it does not {server.does}",
        given=server.does,
        allowed="chat, complete" if apart else "transcribe" if hears else "embed, rerank, classify",
    )
    if model and hears:
        caches, steps = switched(server.arguments, "enable-prefix-caching", False), server.max_num_seqs * server.max_model_len
        yield Judgement(
            holds=not caches,
            path=server.at_flag("enable-prefix-caching"),
            working=("what is heard is no prefix (vLLM 0.30.0, CrossAttentionManager); tried with vLLM 0.30.0 for CPUs",),
            message="the first request of a model that hears ends an engine that caches prefixes",
            given="enable-prefix-caching",
            allowed="no prefix caching, as is the default",
            fix="leave prefix caching out",
        )
        yield Judgement(
            holds=not 0 < steps < model.heard or flag(server.arguments, "max-num-batched-tokens") is not None,
            path=server.at("max_num_seqs"),
            working=(f"a step has at most {server.max_num_seqs} x {server.max_model_len} tokens (EngineArgs)",),
            message=f"a step is too short for the {model.heard} tokens that are heard at once: vLLM does not start",
            given=str(server.max_num_seqs),
            allowed=f"at least {-(-model.heard // max(server.max_model_len, 1))}",
            fix=f"raise max_num_seqs, or give max-num-batched-tokens {model.heard} in extra_args",
        )
    # Whoever makes a scorer of a decoder says so there.
    if model and apart and server.pools and not overridden(server.arguments).get("architectures"):
        answered = _ANSWERED.get(model.task, ("embed", "rerank"))
        yield Judgement(
            holds=server.does in answered,
            path=server.at("task"),
            working=(f"task {server.does}; the model was made for {model.task}, of which vLLM answers {', '.join(answered)}",),
            message=f"{server.model_id} was made for {model.task}: vLLM starts it and has no path for {server.does}",
            given=server.does,
            allowed=", ".join(answered),
        )


@rule(
    "SRV023",
    "The image decodes what it is to transcribe.",
    severity="warning",
    fix="image: {kind: in_cluster} builds one that does",
    source="vLLM documentation, Using Docker: images come without optional dependencies, such as vllm[audio]; vLLM 0.30.0, "
    "multimodal/media/audio.py: without them it depends on the image's FFmpeg, of which no document tells",
)
def the_image_decodes_sounds(server: ServingFacts) -> Iterator[Judgement]:
    if server.does == "transcribe" and server.pools:
        plain = server.image == server.engine.image
        yield Judgement(
            holds=not plain,
            path=server.at("image"),
            working=(f"image {server.image}: {'that of the engine profile' if plain else 'of your own'}",),
            message="the engine's own image lacks vllm[audio]: requests may be refused as invalid audio",
            given=server.image,
            allowed="one with vllm[audio]",
        )


@rule(
    "SRV001",
    "A server may take as long to start as it needs.",
    fix="leave the startup timeout out: the engine profile has a budget",
    source="startup budgets of catalog/engines.toml, raised by the model's bytes at the slowest rates of catalog/times.toml, and "
    "for slow disks; probes that kill loading servers: llm-d/llm-d#330, kserve/kserve#5063, vllm-project/vllm#19377",
)
def startup_is_waited_for(server: ServingFacts) -> Iterator[Judgement]:
    startup, given = server.startup, server.startup_timeout_s
    if not given:
        return
    if server.cold_start.reads_at_unknown_speed and given <= startup.engine_s:
        yield not_judged(
            "startup timeout",
            f"{given} s",
            server.at("startup_timeout"),
            why="the speed of the volume with the model is not known here",
            fix="set startup_timeout_seconds to more than a start from it takes",
        )
        return
    warm = startup.download_s + startup.load_s
    disk = sum(phase.disk_s or 0 for phase in server.cold_start.phases)
    yield Judgement(
        holds=given >= startup.engine_s,
        path=server.at("startup_timeout"),
        working=(
            f"download {startup.download_s} + load {startup.load_s} = {warm} s with everything compiled",
            f"+ compilation {startup.compile_s} = {startup.engine_s} s the first time; timeout: {given} s",
            *(f"{phase.working} = {phase.disk_s} s" for phase in server.cold_start.phases if phase.disk_s),
            *([f"the disk alone needs {disk} s of the first answer on a new node"] if disk else []),
        ),
        message=f"{given} s is less than a start takes even with everything compiled: the server never comes up"
        if given < warm
        else f"{given} s may be too short for a start that has to compile",
        given=f"{given} s",
        allowed=f"at least {startup.engine_s} s",
        severity="error" if given < warm else "warning",
    )


_SAME = ("accelerator", "devices", "arguments", "environment")
"""What pods have that may follow from their node."""


@rule(
    "SRV022",
    "The same pods run at each of their alternatives.",
    fix="write the devices and flags that are for both places; or leave the alternative out and make another server of this "
    "model there: an endpoint leads the model's name to both",
    source="Kubernetes documentation, Pods: a Deployment has one template, which does not follow from the node",
)
def places_take_the_same_pods(server: ServingFacts) -> Iterator[Judgement]:
    if server.first is None or server.beside:
        return
    claims = server.placement.claimed or server.first.placement.claimed
    here, there = (_of_pods(serving_facts) for serving_facts in (server, server.first))
    differ = [
        f"{what}: {_but(there[what], here[what])} on {server.first.instance.name}, {_but(here[what], there[what])} here"
        for what in here
        if here[what] != there[what]
    ]
    yield Judgement(
        holds=not differ and not claims,
        path=server.at("place"),
        working=tuple(f"{what}: {'equal' if here[what] == there[what] else 'other'}" for what in here),
        message="claims of devices name the nodes of one pool" if claims else f"pods would differ: {'; '.join(differ)}",
        given=server.instance.name,
        allowed=f"what takes the pods of {server.first.instance.name}",
    )


def _of_pods(server: ServingFacts) -> dict[str, Sequence[str]]:
    env = [f"{name}={value}" for name, value in sorted(server.environment.items())]
    return dict(zip(_SAME, ([str(server.instance.accelerator)], [str(server.devices)], server.arguments, env), strict=True))


def _but(some: Sequence[str], others: Sequence[str]) -> str:
    return " ".join(one for one in some if one not in others) or "nothing"


@rule(
    "SRV002",
    "Sequences are no longer than the model was made for.",
    fix="lower max_model_len; or give hf-overrides the model's own scaling with its max_position_embeddings; or set "
    f"{_LONGER}=1 in extra_env, for answers that get worse beyond it",
    source="max_position_embeddings in config.json of the model; vLLM refuses more unless it is told otherwise "
    "(_get_and_verify_max_len; vLLM documentation, environment variables)",
)
def length_suits_the_model(server: ServingFacts) -> Iterator[Judgement]:
    if server.model is None:
        yield server.unknown_model("length")
        return
    made, arguments = server.model.max_positions, server.arguments
    tokens, why = (made, "") if server.neuron else longest(server.model, arguments)
    beyond = tokens > made and not scaled(arguments)
    yield Judgement(
        holds=server.max_model_len <= (made if beyond else tokens),
        path=server.at("max_model_len"),
        working=(
            f"{server.model.name} was made for {made} tokens; max_model_len: {server.max_model_len}",
            *([f"{why}: {tokens} tokens"] if why else []),
        ),
        message=f"{server.model.name} was made for sequences of {made} tokens"
        if tokens >= made
        else f"the engine takes sequences of at most {tokens} tokens ({why})",
        given=str(server.max_model_len),
        allowed=f"at most {min(made, tokens) if beyond else tokens}",
        severity="warning" if server.environment.get(_LONGER) == "1" or server.max_model_len <= tokens else None,
    )


@rule(
    "SRV003",
    "The engine profile can still be used.",
    fix="choose another engine profile",
    source="catalog/engines.toml, with the source of every row",
)
def engine_is_in_use(server: ServingFacts) -> Iterator[Judgement]:
    profile = server.engine
    yield Judgement(
        holds=not profile.retired,
        path=server.at("engine"),
        working=(f"{profile.name}: {profile.retired or profile.caveat or 'nothing against it'}",),
        message=profile.retired,
        given=profile.name,
    )


@rule(
    "SRV004",
    "The image holds the releases that the engine profile is for.",
    fix="name the engine profile of the image, or the image of the engine profile",
    source="flags of vLLM on Neuron are not compatible between generations (Neuron documentation); tags of the public images",
)
def image_is_the_profiles(server: ServingFacts) -> Iterator[Judgement]:
    profile = server.engine
    releases = {what: (_release(tag, server.image), _release(tag, profile.image)) for what, tag in _TAGS.items()}
    if server.image and not any(given and wanted for given, wanted in releases.values()):
        yield not_judged(
            "releases",
            server.image,
            server.at("image"),
            why=f"the tag does not say which vLLM it holds; engine profile {profile.name} is for vLLM {profile.vllm}",
            fix="give the image a tag like the profile's own, or compare the releases by hand",
        )
    for what, (given, wanted) in releases.items():
        if given and wanted:
            yield Judgement(
                holds=given == wanted,
                path=server.at("image"),
                working=(f"{what}: {given} in the image, {wanted} in engine profile {server.engine.name}",),
                message=f"the image holds {what} {given}, and engine profile {server.engine.name} is for {wanted}",
                given=server.image,
                allowed=f"{what} {wanted}",
            )


@rule(
    "SRV005",
    "A server that takes long to load does not run on spot capacity.",
    severity="warning",
    fix="use on-demand capacity or a reservation for the pool",
    source="EC2 user guide, Spot Instance interruption notices: two minutes",
)
def long_loads_are_not_on_spot(server: ServingFacts) -> Iterator[Judgement]:
    startup = server.startup
    seconds = startup.node_start_s + startup.image_pull_s + startup.download_s + startup.load_s
    yield Judgement(
        holds=not server.placement.spot or seconds <= _SPOT_NOTICE_S,
        path=server.at("pool"),
        working=(
            f"node {startup.node_start_s} + image {startup.image_pull_s} + download {startup.download_s} + load {startup.load_s} "
            f"= {seconds} s without compilation; notice before a spot interruption: {_SPOT_NOTICE_S} s",
        ),
        message=f"pool '{server.placement.pool}' may be spot capacity: its nodes end {_SPOT_NOTICE_S} s after a notice, and "
        f"a replacement takes up to {seconds} s until it answers",
        given=server.placement.pool,
    )


@rule(
    "SRV006",
    "Flags do not contradict the server's own settings.",
    fix="use the setting of that name and leave the flag out",
    source="vLLM takes the last of a flag given twice; everything else in the stack follows the setting",
)
def flags_follow_the_spec(server: ServingFacts) -> Iterator[Judgement]:
    for setting, name, value in (
        ("tensor_parallel", "tensor-parallel-size", server.tensor_parallel),
        ("max_num_seqs", "max-num-seqs", server.max_num_seqs),
        ("max_model_len", "max-model-len", server.max_model_len),
    ):
        given, wanted = flag(server.arguments, name), str(value)
        if given is not None:
            yield Judgement(
                holds=given == wanted,
                path=server.at_flag(name),
                working=(f"{setting}: {wanted}; --{name}={given}",),
                message=f"--{name} says {given}, and {setting} {wanted}",
                given=f"--{name}={given}",
                allowed=wanted,
            )


@rule(
    "SRV019",
    "Shared memory is a part of a pod's memory.",
    severity="warning",
    fix="lower shared_memory_gib, or raise memory",
    source="Kubernetes documentation, emptyDir: what is written to a memory-backed volume counts against the container's limit",
)
def shared_memory_fits(server: ServingFacts) -> Iterator[Judgement]:
    shared, memory = server.shared_memory_mib, server.memory_mib
    if shared and memory and not server.beside:
        yield Judgement(
            holds=shared < memory,
            path=server.at("shared_memory_gib"),
            working=(f"/dev/shm {shared} MiB of the pod's {memory} MiB",),
            message=f"/dev/shm may take {shared} MiB, but the pod has only {memory} MiB in total",
            given=f"{shared / 1024:g} GiB",
            allowed=f"less than {memory / 1024:.1f} GiB",
        )


@rule(
    "SRV017",
    "There is no report that the engine fails with the model on such instances.",
    severity="warning",
    fix="choose another engine or other instances, or try it and see",
    source="reports of users, each with its place: catalog/reported.toml",
)
def nobody_reports_a_failure(server: ServingFacts) -> Iterator[Judgement]:
    found = [report for report in reports() if report.about(server.engine, server.instance, server.model_id, server.model)]
    if not found:
        model = server.model.name if server.model else server.model_id
        where = f"{server.engine.name} with {model} on {server.instance.family}: none of {len(reports())} reports"
        yield Judgement(True, server.at("engine"), (where,))
    for report in found:
        yield Judgement(
            holds=False,
            path=server.at("engine"),
            working=(f"{report.source}: {report.says}",),
            message=f"{report.who} report: {report.says}",
            given=server.engine.name,
        )


def _release(tag: re.Pattern[str], reference: str) -> str:
    found = tag.search(reference)
    return next(filter(None, found.groups()), "") if found else ""


def server_rules() -> tuple[Rule[Any], ...]:
    """Returns every rule about a single model server. Server components apply them before they create anything.

    What users report is for whoever chooses an engine, not for a program that has chosen.
    """
    accelerators = (neuron_rules, neuron_plugin, gpu_rules, gpu_arithmetic)
    modules = (globals(), *map(vars, (claim_rules, engine_flags, engine_features, *accelerators, nixl)))
    return tuple(
        one for module in modules for one in module.values() if isinstance(one, Rule) and one is not nobody_reports_a_failure
    )
