"""Rules for Triton servers with the vLLM back end, and the facts that they judge: those of all servers, and a model repository.
Ids TRI…, OBS…
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, ClassVar

from eks_inference.catalog.vllm_arguments import known_arguments, successors
from eks_inference.place.placement import Placement
from eks_inference.rules import Judgement, Path, Rule, rule
from eks_inference.scaling.spec import HpaSpec, KedaSpec
from eks_inference.serving.facts import ServingFacts, replicated_facts
from eks_inference.serving.flags import flags
from eks_inference.serving.triton import plan
from eks_inference.serving.triton.plan import triton_release
from eks_inference.serving.triton.spec import TritonServerSpec

_BACK_END = "triton-inference-server/vllm_backend"
_LONGEST_FIRST_TOKEN_S = 10


@dataclass(frozen=True)
class TritonFacts:
    """A Triton server as it will run."""

    about: ClassVar[str] = "Triton servers"

    spec: TritonServerSpec
    serving: ServingFacts
    settings: Mapping[str, Any]
    """Content of model.json."""
    instance_kind: str
    """``KIND_GPU`` or ``KIND_MODEL``."""
    world_size: int
    """GPUs of one copy of the model."""

    def at(self, *keys: str) -> Path:
        """Returns the path of a key of the server in the stack."""
        return (*self.serving.path, *keys)


def facts_of_places(spec: TritonServerSpec, placement: Placement, *, path: Path = ()) -> Iterator[TritonFacts]:
    """Yields the facts about each model, for each place of the pods."""
    first, *others = ([triton_facts(spec, one, path=path), *further_facts(spec, one, path=path)] for one in placement.places)
    yield from first
    for number, found in enumerate(others):
        for one, before in zip(found, first, strict=True):
            there = {"first": before.serving, "keys": {**one.serving.keys, "place": ("alternatives", str(number))}}
            yield replace(one, serving=replace(one.serving, **there))


def triton_facts(spec: TritonServerSpec, placement: Placement, *, path: Path = ()) -> TritonFacts:
    """Returns all facts about a server. ``path`` is its key in the stack."""
    shape = placement.instance_type
    return TritonFacts(
        spec=spec,
        serving=serving_facts(spec, placement, path=path),
        settings=plan.engine_settings(spec, shape),
        instance_kind=plan.instance_kind(spec, shape),
        world_size=plan.world_size(spec, shape),
    )


def further_facts(spec: TritonServerSpec, placement: Placement, *, path: Path = ()) -> tuple[TritonFacts, ...]:
    """Returns the facts about each further model, as if it were alone in its share of the memory; the pod is the first one's."""
    return tuple(
        replace(found, serving=replace(found.serving, beside=True))
        for name in spec.further_models
        for found in [triton_facts(spec.alone(name), placement, path=(*path, "further_models", name))]
    )


def serving_facts(spec: TritonServerSpec, placement: Placement, *, path: Path = ()) -> ServingFacts:
    """Returns the facts that all servers have."""
    shape = placement.instance_type
    return replicated_facts(
        spec,
        placement,
        path=path,
        scheduler=False,
        tensor_parallel=plan.tensor_parallel(spec, shape),
        max_num_seqs=plan.max_num_seqs(spec, shape),
        max_model_len=plan.max_model_len(spec),
        copies=plan.copies(spec, shape),
        # Rules about all servers read flags of ``vllm serve``.
        arguments=tuple(flags(plan.engine_settings(spec, shape))),
        environment=plan.environment(spec),
        container_port=plan.PORTS["http"],
        service_port=plan.PORTS["http"],
    )


@rule(
    "TRI001",
    "vLLM knows every key of model.json.",
    fix="correct the key, or leave it out",
    source=f"{_BACK_END}, src/model.py: the keys go into AsyncEngineArgs as they are, and an unknown one keeps the model from "
    "loading; catalog/vllm_arguments.toml",
)
def keys_are_known(server: TritonFacts) -> Iterator[Judgement]:
    release, known = _arguments(server)
    if known is None:
        return
    unknown = [key for key in server.settings if key not in known and not _dropped(key, release)]
    if not unknown:
        yield _keys_hold(server, f"arguments of vLLM {release}, which takes {len(known)}")
    for key in unknown:
        nearest = get_close_matches(key, known, n=1)
        newer = sorted(other for other, keys in known_arguments().items() if key in keys)
        yield Judgement(
            holds=False,
            path=server.at("extra_args", _flag(key)),
            working=(f"vLLM {release} takes {len(known)} arguments, none with this name",),
            message=f"vLLM {release} has no argument of this name: the model does not load",
            given=_flag(key),
            allowed=_flag(nearest[0]) if nearest else f"an argument of vLLM {release}",
            fix=f"vLLM {', '.join(newer)} has it: choose that engine, or leave the key out" if newer else "",
        )


@rule(
    "TRI002",
    "A copy of the model takes GPUs of one pod, and Triton makes its instances accordingly.",
    fix="ask for more devices, or lower tensor_parallel or extra_args.pipeline-parallel-size",
    source=f"{_BACK_END}, src/model.py: KIND_GPU is refused for copies of several GPUs",
)
def copies_fit_the_pod(server: TritonFacts) -> Iterator[Judgement]:
    degree, gpus = server.serving.tensor_parallel, server.serving.devices
    pipeline = server.world_size // degree
    yield Judgement(
        holds=server.world_size <= gpus,
        path=server.at("extra_args", "pipeline-parallel-size") if pipeline > 1 else server.at("tensor_parallel"),
        working=(
            f"tensor_parallel {degree} x pipeline_parallel_size {pipeline} = {server.world_size} GPUs a copy",
            f"GPUs of a pod: {gpus}; instances are {server.instance_kind}",
        ),
        message=f"a copy of the model takes {server.world_size} GPUs, and a pod has {gpus}",
        given=str(server.world_size),
        allowed=f"at most {gpus}",
    )


@rule(
    "TRI003",
    "What vLLM counts reaches Prometheus.",
    severity="warning",
    fix="leave log_stats and report_custom_metrics on, with an engine of Triton 24.08 or later",
    source=f"{_BACK_END}, README (Triton Metrics): both are needed, since 24.08",
)
def metrics_are_reported(server: TritonFacts) -> Iterator[Judgement]:
    spec, release = server.spec, triton_release(server.spec.profile)
    since = "24.08"
    reasons = {
        "log_stats": "" if spec.log_stats else "log_stats is off",
        "report_custom_metrics": "" if spec.report_custom_metrics else "report_custom_metrics is off",
        "engine": "" if release >= since else f"Triton {release} does not report vLLM metrics",
    }
    scaled = isinstance(spec.autoscaling, KedaSpec)
    wrong = {key: reason for key, reason in reasons.items() if reason}
    yield Judgement(
        holds=not wrong,
        path=server.at(*list(wrong)[:1]),
        working=(
            f"log_stats {_on(spec.log_stats)}, report_custom_metrics {_on(spec.report_custom_metrics)}, Triton {release} "
            f"(reports since {since})",
        ),
        message=f"no vLLM metrics are exported: {', '.join(wrong.values())}" + (", and KEDA scales by them" if scaled else ""),
        severity="error" if scaled else "warning",
    )


@rule(
    "TRI004",
    "model.json has no key that vLLM dropped.",
    fix="leave the key out, or say what replaced it",
    source="vllm 0.5.0.post1 and 0.27.1, vllm/engine/arg_utils.py; the source system's model.json has disable_log_requests",
)
def keys_are_of_this_release(server: TritonFacts) -> Iterator[Judgement]:
    release, known = _arguments(server)
    if known is None:
        return
    dropped = {key: older for key in server.settings if (older := _dropped(key, release))}
    if not dropped:
        yield _keys_hold(server, f"none that only a vLLM older than {release} takes")
    for key, older in dropped.items():
        instead = successors().get(key, "nothing")
        yield Judgement(
            holds=False,
            path=server.at("extra_args", _flag(key)),
            working=(f"an argument of vLLM {older}, and no longer of {release}",),
            message=f"vLLM {release} dropped this argument: the model does not load",
            given=_flag(key),
            allowed=instead,
            fix="" if instead.startswith("nothing") else f"say it by {instead}",
        )


@rule(
    "TRI005",
    "An autoscaler looks at the queue that requests wait in.",
    severity="warning",
    fix="scale by vllm_time_to_first_token_ms",
    source=f"{_BACK_END}, src/model.py: a request goes to vLLM as it comes, and waits there; tried with a stand-in for Triton: "
    "the source system's metric stood at its target while 60 requests a pod waited inside vLLM",
)
def queue_is_the_right_one(server: TritonFacts) -> Iterator[Judgement]:
    scaling = server.spec.autoscaling
    if not isinstance(scaling, HpaSpec):
        return
    inside = scaling.metric.startswith("vllm_")
    yield Judgement(
        holds=inside,
        path=server.at("autoscaling", "metric"),
        working=(f"{scaling.metric}: {'of vLLM, where requests wait' if inside else 'of a queue that vLLM empties at once'}",),
        message="requests wait inside vLLM, and this metric counts only those that have not reached it",
        given=scaling.metric,
        allowed="vllm_time_to_first_token_ms",
    )


@rule(
    "OBS011",
    "The objective for the first token lies within the histogram that Triton exports.",
    fix=f"lower the objective below {_LONGEST_FIRST_TOKEN_S:g} seconds, or leave it out",
    source=f"{_BACK_END}, src/utils/metrics.py: the last bucket of vllm:time_to_first_token_seconds; Prometheus documentation, "
    "histogram_quantile: what lies above the last bucket counts as its bound",
)
def objective_is_measured(server: TritonFacts) -> Iterator[Judgement]:
    seconds = server.spec.objectives.time_to_first_token_seconds
    if seconds is not None:
        yield Judgement(
            holds=seconds < _LONGEST_FIRST_TOKEN_S,
            path=server.at("objectives", "time_to_first_token_seconds"),
            working=(f"objective {seconds:g} s; the last bucket ends at {_LONGEST_FIRST_TOKEN_S:g} s",),
            message="the alert never fires: no first token counts as later than the last bucket",
            given=f"{seconds:g}",
            allowed=f"less than {_LONGEST_FIRST_TOKEN_S:g}",
        )


@rule(
    "TRI006",
    "An autoscaler of Triton reads metrics that Triton has.",
    fix="scale by {kind: hpa, metric: vllm_time_to_first_token_ms}, or serve the model by kind: vllm, which has the gauges",
    source=f"{_BACK_END}, src/utils/metrics.py of r24.08 to r26.01: counters and histograms of vLLM, none of its gauges (pull "
    "request 92, which adds them, is open)",
)
def autoscaler_has_its_metrics(server: TritonFacts) -> Iterator[Judgement]:
    scaling = server.spec.autoscaling
    if scaling is None:
        return
    wanted = ("vllm:num_requests_waiting", "vllm:kv_cache_usage_perc") if isinstance(scaling, KedaSpec) else (scaling.metric,)
    yield Judgement(
        holds=isinstance(scaling, HpaSpec),
        path=server.at("autoscaling", "kind"),
        working=(f"{scaling.kind} reads {', '.join(wanted)}",),
        message="Triton exports none of vLLM's gauges: KEDA would see nothing and never add a pod",
        given=scaling.kind,
        allowed="hpa",
    )


@rule(
    "TRI008",
    "The models of a server share the memory of its GPUs.",
    fix="lower gpu_memory_utilization of some of them",
    source="vllm 0.27.1, v1/worker/gpu_worker.py: an engine does not start where less memory is free than its share",
)
def shares_fit(server: TritonFacts) -> Iterator[Judgement]:
    spec = server.spec
    if not spec.further_models:
        return
    shares = {
        spec.served_name: spec.gpu_memory_utilization,
        **{name: one.gpu_memory_utilization for name, one in spec.further_models.items()},
    }
    # Of hundredths, because 0.6 + 0.3 + 0.1 is more than 1.
    together = round(sum(shares.values()), 2)
    yield Judgement(
        holds=together <= 1,
        path=server.at("gpu_memory_utilization"),
        working=(" + ".join(f"{name} {share:g}" for name, share in shares.items()) + f" = {together:g} of a GPU",),
        message=f"the models together would take {together:g} of each GPU: the last one does not start",
        given=f"{together:g}",
        allowed="at most 1",
    )


@rule(
    "TRI009",
    "A server has the time to load its models one after the other.",
    fix="raise startup_timeout_seconds",
    source="Triton listens after all models are loaded; --model-load-thread-count=1; startup budget of each model, as SRV001",
)
def models_load_in_time(server: TritonFacts) -> Iterator[Judgement]:
    further = further_facts(server.spec, server.serving.placement)
    each = [one.startup.engine_s for one in (server.serving, *(triton_facts.serving for triton_facts in further))]
    if further:
        yield Judgement(
            holds=server.serving.startup_timeout_s >= sum(each),
            path=server.at("startup_timeout_seconds"),
            working=(f"{' + '.join(map(str, each))} = {sum(each)} s; given {server.serving.startup_timeout_s} s",),
            message=f"a pod is killed before its {len(each)} models are loaded, if each takes as long as one may",
            given=str(server.serving.startup_timeout_s),
            allowed=f"at least {sum(each)}",
        )


def _arguments(server: TritonFacts) -> tuple[str, frozenset[str] | None]:
    """Returns the engine's vLLM release and its arguments; None where the catalog has no list for that release."""
    release = server.spec.profile.vllm
    return release, known_arguments().get(release)


def _dropped(key: str, release: str) -> str:
    """Returns the newest older release that took a key that this release does not take; empty if there is none."""
    lists = list(known_arguments())  # oldest first
    older = [other for other in lists[: lists.index(release)] if key in known_arguments()[other]]
    return older[-1] if older and key not in known_arguments()[release] else ""


def _keys_hold(server: TritonFacts, why: str) -> Judgement:
    return Judgement(True, server.at("extra_args"), (f"{', '.join(server.settings)}: {why}",))


def _flag(key: str) -> str:
    return key.replace("_", "-")


def _on(setting: bool) -> str:
    return "on" if setting else "off"


def triton_rules() -> tuple[Rule[Any], ...]:
    """Returns every rule for Triton servers only."""
    return tuple(one for one in globals().values() if isinstance(one, Rule))
