"""Rules about the traffic of servers. Ids TRF…"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any, ClassVar

from eks_inference.observability.spec import Objectives
from eks_inference.rules import Judgement, Path, not_judged, rule
from eks_inference.scaling.spec import KEDA_SIGNALS, HpaSpec
from eks_inference.serving.facts import ScalingFacts, ServingFacts
from eks_inference.serving.features import most
from eks_inference.serving.memory import MemoryUse, server_memory
from eks_inference.serving.traffic import TrafficSpec
from eks_inference.speed.queue import Routing
from eks_inference.speed.step import step_times
from eks_inference.speed.takes import NO_PODS, PERCENT, TOO_LONG, Takes, amount, takes


@dataclass(frozen=True)
class TrafficFacts:
    """What is asked of one server, and what leads requests to its pods."""

    about: ClassVar[str] = "servers with traffic"

    server: ServingFacts
    traffic: TrafficSpec
    objectives: Objectives
    routing: Routing = "random"
    endpoint: Path = ()
    """The key that says the traffic of an endpoint, of which this is the server's part."""

    @property
    def path(self) -> Path:
        return self.endpoint or self.server.at("traffic")

    @cached_property
    def found(self) -> Takes | str:
        """What the server takes, or why nobody can tell."""
        return takes(self.server, self.traffic, self.objectives, self.routing)

    @property
    def document(self) -> dict[str, Any]:
        """What a platform tells of it: a preview then shows what a change does."""
        if isinstance(self.found, str):
            return {"says": f"traffic is not judged: {self.found}"}
        found, traffic = self.found, self.traffic
        tokens = found.output_tokens_per_second if found.most else 0
        told = {"says": found.told, "tokensPerSecond": float(f"{tokens:.4g}"), "unit": found.unit}
        told["curve"] = "; ".join(found.curve)
        least, most = self.server.pods_min, self.server.pods_max
        if least < most:
            pods = [min(max(least, ceil(part * most)), most) for part in (found.needed, *map(found.part, traffic.hours))]
            told |= {"pods": [least, pods[0], most]} | ({"hours": pods[1:]} if traffic.hours else {})
        return told


@rule(
    "TRF001",
    "A server takes its traffic within its objectives.",
    severity="warning",
    fix="raise replicas or autoscaling.max, or take another instance type: eks-inference plan shows them",
    source="speed/step.py, fitted to published measurements (catalog/speeds.toml); speed/queue.py, as vLLM's scheduler",
)
def takes_its_traffic(asked: TrafficFacts) -> Iterator[Judgement]:
    found, path = asked.found, asked.path
    if found == TOO_LONG:  # LT001 and the rules about memory tell
        return
    if isinstance(found, str):
        fix = "raise replicas" if found == NO_PODS else "measure it with a load test"
        yield not_judged("traffic", asked.server.model_id, path, why=found, fix=fix)
        return
    low, _ = found.range
    if found.traffic.users and found.asked > found.most >= found.played:
        why = f"no more than {amount(found.played)} users are played, and it takes them"
        yield not_judged("traffic", asked.server.model_id, path, why=why, fix="measure it with a load test")
        return
    yield Judgement(
        holds=found.asked <= found.most,
        path=path,
        working=tuple(_working(asked, found)),
        message=f"{asked.server.path[1]}: {found.told}" if asked.endpoint else found.told,
        given=f"{amount(found.asked)} {found.unit}",
        allowed=f"at most {amount(found.most)}; {amount(low)} to be sure",
    )


@rule(
    "TRF002",
    "Requests have no more pictures than the server accepts.",
    severity="warning",
    fix="leave pictures out of the traffic, raise limit_mm_per_prompt, or serve a model that sees",
    source="vLLM 0.30.0, multimodal/processing/context.py: a request with more of them fails",
)
def takes_its_pictures(asked: TrafficFacts) -> Iterator[Judgement]:
    server, pictures = asked.server, asked.traffic.pictures
    if not pictures or server.model is None:
        return
    limit = most(server.arguments, "image") if server.model.sees else 0
    yield Judgement(
        holds=pictures <= limit,
        path=asked.path,
        working=(f"pictures of a request: {pictures:g}; of a prompt of {server.model_id}: at most {limit}",),
        message=f"{server.model_id} takes {limit or 'no'} pictures a request, and {pictures:g} are asked on average",
        given=f"{pictures:g}",
        allowed=f"at most {limit}",
    )


@rule(
    "SCL012",
    "What an autoscaler waits for can come about, and does not while a server is idle.",
    severity="warning",
    fix="change it, or scale by concurrent_requests, below max_num_seqs and what is asked at once",
    source="Kubernetes, HorizontalPodAutoscaler: pods are added where the mean over them is a tenth above its target; vLLM: at "
    "most max_num_seqs sequences use the KV cache; speed/step.py",
)
def thresholds_are_reached(scaling: ScalingFacts) -> Iterator[Judgement]:
    for key, holds, working, message in _thresholds(scaling, server_memory(scaling.server)):
        given = f"{getattr(scaling.spec, key):g}"
        yield Judgement(holds, (*scaling.path, key), (f"{working}; {key}: {given}",), message=message, given=given)


def _thresholds(scaling: ScalingFacts, memory: MemoryUse | None) -> Iterator[tuple[str, bool, str, str]]:
    spec, server, least = scaling.spec, scaling.server, max(scaling.spec.min, 1)
    for key in ("waiting_requests", "concurrent_requests"):
        if (target := getattr(spec, key, None)) and (most := scaling.at_once):
            told = f"it adds no pod to {least}: at most {most} requests are there at once"
            yield key, most > target * least * 1.1, f"at most {most} requests at once on {least} pods", told
    if memory is None or not memory.engine.generation.paged:
        return
    if (target := getattr(spec, "kv_cache_use", None)) and memory.kv_one and memory.pool > 0:
        use = min(server.max_num_seqs * memory.kv_one / memory.pool, 1.0)
        # Others keep the pods that the queue has added, once it is empty.
        kept = any(getattr(spec, one) is not None for one in KEDA_SIGNALS[2:]) and "kv_cache_use" not in spec.model_fields_set
        of = f"max_num_seqs {server.max_num_seqs} of {memory.max_model_len} tokens use {use:.0%} of the KV cache"
        yield "kv_cache_use", use >= target or kept, of, f"{of} at most: pods that a queue adds go once it is empty"
    times = "" if server.part else step_times(memory)
    if not isinstance(times, str):
        fast, first, step = times.range[0], times.first_token(1), times.seconds(decoding=1, context_tokens=1, prefill_tokens=0)
        latency = isinstance(spec, HpaSpec) and spec.metric == "vllm_time_to_first_token_ms"
        for key, least_s in (("target", first * 1000 if latency else 0), ("first_token_seconds", first), ("token_seconds", step)):
            if least_s and (target := getattr(spec, key, None)) is not None:
                alone = f"of a request alone: {fast * least_s:.3g} or more"
                yield key, target > fast * least_s, alone, f"{alone}, so there are always {spec.max} pods"


def _working(asked: TrafficFacts, found: Takes) -> Iterator[str]:
    limits, traffic = found.limits, found.traffic  # with the tokens of pictures
    computed = max(1, round(traffic.input_tokens * (1 - traffic.cached_share)))  # the last token is computed in any case
    batch = min(limits.max_num_seqs, max(1, limits.kv_tokens // (traffic.input_tokens + traffic.output_tokens)))
    context = batch * (traffic.input_tokens + traffic.output_tokens // 2)
    step = found.times.seconds(decoding=batch, context_tokens=context, prefill_tokens=0)
    prompt = found.times.first_token(computed)
    yield (
        f"{traffic.input_tokens} + {traffic.output_tokens} tokens a request; at once: {batch} of max_num_seqs "
        f"{limits.max_num_seqs}, KV cache {limits.kv_tokens} tokens"
    )
    yield f"a step with {batch} sequences: {_ms(step)}; a prompt of {computed} tokens: {_ms(prompt)}"
    served = found.at(found.asked)
    yield (
        f"at {amount(found.asked)} {found.unit} on {found.replicas} copies: first token p50 {_ms(served.first_token(50))}, "
        f"p{PERCENT} {_ms(served.first_token(PERCENT))}; between tokens p50 {_ms(served.token(50))}, "
        f"p{PERCENT} {_ms(served.token(PERCENT))}" + ("" if served.keeps_up else "; the queue grows without end")
    )
    low, high = found.range
    fast, slow = found.times.range
    yield (
        f"takes {found.said(found.most)} {found.unit}{found.within}; {found.said(low)} to {found.said(high)} where steps take "
        f"{fast:.2g} to {slow:.2g} times as long, as nine of ten measurements do"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
