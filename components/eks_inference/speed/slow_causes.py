"""Why a server is slow: what its predicted times consist of, and which one fault explains times that were measured. Pure.

A fault is a change to the model of the server. That under which the model does what was measured is the cause: the queues are
played again with each fault, in several sizes, so how large it is comes out too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, log, sqrt

from eks_inference.speed.batching import Steps
from eks_inference.speed.queue import Served, Traffic, served
from eks_inference.speed.takes import Slower, Takes

_SLOW = {"token": 1.25, "rate": 1.25, "first p50": 1.5, "first p95": 1.5}
"""Figures of a load → how much worse than the slow end of their range they are before anything is told of them: loads are
measured within a fifth, and times to the first token are predicted worse than those between tokens (docs/speed.md)."""
_EXPLAINED = 0.25
"""Distance between a fault and what was measured, as a logarithm, beyond which it is no explanation."""
_ALIKE = 0.03
"""Difference between two such distances that tells nothing."""
_OF_FEW_SIZES = ("padding", "router", "cold")
"""Faults that come before others that do as well: hardly any size could be chosen for them."""
_SIZES = (1.3, 1.6, 2.0, 2.4, 2.8, 3.3, 4.0, 5.0, 7.0, 10.0)
_FEWEST = 300
"""Requests that a load is played with, if it had as many: more only take longer."""

TRY = {
    "bandwidth": "quantized_weights: fp8; on Neuron or where they are quantized, the next tensor_parallel",
    "compute": "the next tensor_parallel; where prompts begin alike, prefix_caching: true",
    "KV": "quantized_kv: fp8; on Neuron, a smaller max_model_len",
    "exchange": "the tensor_parallel before",
    "queue": "a larger max_num_seqs where the KV cache has room, else one more of replicas",
    "padding": "neuron.prompt_buckets with a bucket near the prompts, and max_num_seqs near the users",
    "host": "a larger cpu, and enforce_eager: false",
    "router": "an endpoint with spread: least_requests",
    "way": "the server without what stands before it, from inside the cluster; a larger cpu",
    "cold": "a load that begins when the server is ready and warm; autoscaling.min",
}
"""What is slow → the setting to try."""


def walls(model: Takes, load: float) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Returns what the 95th percentile of the time to the first token, and the mean time between tokens, consist of at a load."""
    found, asked, host = model.at(load), model.traffic, model.limits.host_seconds
    first = {"queue": found.queue(95), "host": host}
    first["compute"] = max(found.first_token(95) - sum(first.values()), 0.0)
    batch = max(found.active, 1.0)
    token = model.times.walls(batch, batch * (asked.input_tokens + asked.output_tokens / 2))
    # What remains are prompts that are computed beside or before tokens of others.
    return first, token | {"compute": token.get("compute", 0.0) + max(found.mean_token - sum(token.values()), 0.0)}


@dataclass(frozen=True)
class Seen:
    """A measured load: users who ask again once they have an answer. Times are in seconds; what nobody reported is absent."""

    users: int
    requests: int
    input_tokens: int
    output_tokens: int
    figures: Mapping[str, float]
    """``first p50``, ``first p95``: times to the first token; ``token``: mean time between tokens; ``rate``: tokens a second."""


@dataclass(frozen=True)
class Cause:
    """What makes loads slow."""

    wall: str
    says: str
    distance: float
    """How far the model with this fault is from what was measured: 0.1 is about 10 percent."""
    tries: str
    """The setting to try."""


@dataclass(frozen=True)
class _Fault:
    """A model with a fault."""

    wall: str
    says: str
    model: Takes
    steps: Steps
    ready: float = 0.0
    """When the pods began to answer."""
    tries: str = ""
    """The row of ``TRY``; default: that of the wall."""


@dataclass(frozen=True)
class _Padded:
    """Steps that compute every prompt as one of ``bucket`` tokens."""

    steps: Steps
    bucket: int

    def seconds(self, **work: float) -> float:
        if work["prefill_tokens"]:
            work |= {"prefill_tokens": self.bucket, "prefill_pairs": self.bucket**2 / 2}
        return self.steps.seconds(**work)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Diagnosis:
    """Measured loads of one server beside its model."""

    model: Takes
    loads: tuple[Seen, ...]

    @cached_property
    def predicted(self) -> tuple[Served, ...]:
        return tuple(_played(load, _Fault("", "", self.model, self.model.times)) for load in self.loads)

    @cached_property
    def slow(self) -> tuple[tuple[Seen, str, float], ...]:
        """Figures that are worse than the model has them anywhere in its range: load, name, how many times."""
        slowest = self.model.times.range[1]
        return tuple(
            (load, name, times)
            for load, found in zip(self.loads, self.predicted, strict=True)
            for name, times in _worse(load, found)
            if times > slowest * _SLOW[name]
        )

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """The faults that explain slow loads, the best one first, and others that do as well; empty where nothing is slow."""
        best: dict[str, Cause] = {}
        low, high = self.model.times.range
        tokens = (
            by for one, of in zip(self.loads, self.predicted, strict=True) for name, by in _worse(one, of) if name == "token"
        )
        usual = min(max(min(tokens, default=1.0), low), high)  # what the predicted steps may be off by, without a fault
        for fault in self._faults() if self.slow else ():
            found = Cause(
                fault.wall, fault.says, min(self._distance(fault, off) for off in {1.0, usual}), TRY[fault.tries or fault.wall]
            )
            if found.distance < _EXPLAINED and (fault.wall not in best or found.distance < best[fault.wall].distance):
                best[fault.wall] = found
        least = min((cause.distance for cause in best.values()), default=0.0)
        alike = (cause for cause in best.values() if cause.distance < least + _ALIKE)
        return tuple(sorted(alike, key=lambda cause: (cause.wall not in _OF_FEW_SIZES, cause.distance)))

    def _distance(self, fault: _Fault, off: float) -> float:
        """How far the model with a fault, and with steps that take ``off`` times as long, is from what was measured."""
        fault = replace(fault, steps=Slower(fault.steps, off))
        far = [log(times) ** 2 for load in self.loads for _, times in _worse(load, _played(load, fault))]
        return sqrt(sum(far) / len(far))

    def _faults(self) -> Iterator[_Fault]:
        model, times, limits = self.model, self.model.times, self.model.limits

        def steps(wall: str, says: str, **changed: float) -> _Fault:
            return _Fault(wall, says, model, replace(times, constants=replace(times.constants, **changed)))

        def limited(wall: str, says: str, **changed: float) -> _Fault:
            return _Fault(wall, says, replace(model, limits=replace(limits, **changed)), times)

        for pods in range(1, model.replicas):
            yield _Fault("router", f"requests reach {pods} of {model.replicas} pods", replace(model, replicas=pods), times)
        if (late := min(self._late(50), default=0.0)) > 0:
            says = f"a request takes {late * 1e3:.0f} ms more before or beside its engine"
            yield replace(limited("router", says, host_seconds=limits.host_seconds + late), tries="way")
        if (late := max(self._late(95), default=0.0)) > 0:
            yield _Fault("cold", f"the first requests waited {late:.1f} s for the engine", model, times, late)
        if times.separate and times.compiled_batch:
            for size in _SIZES:
                more = ceil(size * times.compiled_batch)
                yield _Fault("padding", f"steps take what {more} sequences take", model, replace(times, compiled_batch=more))
            bucket = 1 << max(load.input_tokens for load in self.loads).bit_length()
            for longer in (bucket, 2 * bucket, 4 * bucket, 8 * bucket):
                yield _Fault("padding", f"prompts are computed as {longer} tokens", model, _Padded(times, longer))
        own, token = times.constants, max(one.mean_token for one in self.predicted)
        at_once = max(min(ceil(load.users / model.replicas), limits.max_num_seqs) for load in self.loads)
        longest = max(load.input_tokens + load.output_tokens for load in self.loads)
        for size in _SIZES:
            longer = f"{size:g} times as long as predicted"
            yield steps("bandwidth", f"weights take {longer} to read", weights=own.weights / size, experts=own.experts / size)
            yield steps("compute", f"prompts take {longer} to compute", compute=own.compute / size, narrow=own.narrow / size)
            more = (size - 1) * token / at_once
            says = f"a step takes {more * 1e3:.2g} ms more for each sequence in it"
            yield steps("host", says, sequence_us=own.sequence_us + more * 1e6)
            if (most := int(at_once / size)) >= 1:
                yield limited("queue", f"a pod works on {most} requests at once, not {limits.max_num_seqs}", max_num_seqs=most)
            if not times.separate and (held := int(min(at_once * longest, limits.kv_tokens) / size)) > longest + limits.block:
                yield limited("KV", f"the KV cache holds {held} tokens, not {limits.kv_tokens}", kv_tokens=held)

    def _late(self, percent: int) -> Iterator[float]:
        """By how much first tokens are later than predicted."""
        for load, found in zip(self.loads, self.predicted, strict=True):
            if (measured := load.figures.get(f"first p{percent}")) is not None:
                yield measured - found.first_token(percent)


def _played(load: Seen, fault: _Fault) -> Served:
    model, requests = fault.model, max(load.requests, load.users)
    asked = Traffic(
        users=load.users,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        prefix=model.traffic.cached_share,
        requests=min(requests, max(_FEWEST, 4 * load.users)),
    )
    return served(fault.steps, model.limits, asked, replicas=model.replicas, routing=model.routing, ready=fault.ready)


def _worse(load: Seen, found: Served) -> Iterator[tuple[str, float]]:
    """Yields how many times worse each measured figure is."""
    had = {f"first p{percent}": found.first_token(percent) for percent in (50, 95)} | {"token": found.mean_token}
    for name, measured in load.figures.items():
        yield name, found.tokens_per_second / measured if name == "rate" else measured / had[name]
