"""Calculates what a server takes of the traffic that is asked of it, with the range of the measured speeds. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from eks_inference.observability.spec import Objectives as Wanted
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.memory import MemoryUse, server_memory
from eks_inference.serving.traffic import TrafficSpec
from eks_inference.speed.batching import Limits, Steps
from eks_inference.speed.queue import Objectives, Routing, Served, Traffic, capacity, served
from eks_inference.speed.step import StepTimes, step_times

PERCENT = 95
"""Requests and tokens of 100 that keep an objective; as the alert FirstTokenLate counts."""
_FEWEST, _MOST = 400, 2000
"""Requests of one calculation."""
_DRAWN = (0.1, 0.3, 0.5, 0.7, 0.85, 1.0)
"""Shares of the most load at which a curve has a point."""
_SHOWN = 2
"""Replicas that are calculated, each with its part of the load; more of them queue as these do. By chance, one is enough."""


@dataclass(frozen=True)
class Slower:
    """Steps that take longer, or shorter, by a factor."""

    steps: Steps
    factor: float

    def seconds(self, **work: float) -> float:
        return self.factor * self.steps.seconds(**work)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Takes:
    """What the replicas of a server take. ``replicas`` is the most there may be: copies in all pods."""

    times: StepTimes
    limits: Limits
    traffic: TrafficSpec
    objectives: Objectives
    replicas: int
    routing: Routing = "fewest"
    near: float = 0.0
    """The most load by an estimate, from which that by queues is found sooner. 0: there is none."""

    @property
    def unit(self) -> str:
        return "users" if self.traffic.users else "requests/s"

    @property
    def asked(self) -> float:
        return self.traffic.users or self.traffic.rate or 0.0

    @cached_property
    def most(self) -> float:
        """The most load that it takes, in ``unit``."""
        return self._capacity(1, self.near)

    @cached_property
    def range(self) -> tuple[float, float]:
        """The least and the most load that it takes if steps are as slow, and as fast, as nine of ten measurements are.

        Users who begin at once also wait at once for places in the batch; at the most, they begin one after the other.
        """
        fast, slow = self.times.range
        least, most = (self._capacity(factor, self.most / factor, apart=factor == fast) for factor in (slow, fast))
        return min(least, self.most), max(most, self.most)

    def said(self, load: float) -> str:
        """A load in words. More users than requests are played are not told apart."""
        return amount(load) + (" or more" if self.traffic.users and load >= self.played else "")

    @property
    def played(self) -> float:
        """Users who can be played."""
        return self._traffic(1).requests * self._part

    @property
    def within(self) -> str:
        """The objectives in words."""
        wanted = {"first token": self.objectives.first_token, "between tokens": self.objectives.token}
        said = [f"p{PERCENT} {what} {seconds:g} s" for what, seconds in wanted.items() if seconds is not None]
        return f" at {', '.join(said)}" if said else " with any wait"

    @property
    def told(self) -> str:
        """What it takes in words: ``takes 7.2 requests/s (5.1 to 9.3) at p95 first token 1 s; asked: 10``."""
        low, high = self.range
        sure = ", which is not sure" if low < self.asked <= self.most else ""
        return (
            f"takes {self.said(self.most)} {self.unit} ({self.said(low)} to {self.said(high)}){self.within}; "
            f"asked: {amount(self.asked)}{sure}"
        )

    def at(self, load: float) -> Served:
        """Returns how so much load is served."""
        return served(self.times, self.limits, self._traffic(load), replicas=self._shown, routing=self.routing)

    @property
    def curve(self) -> Iterator[str]:
        """Loads up to the most, each with the seconds of p95 to the first token and between tokens: ``3.56 0.0623 0.016``."""
        for load in (share * self.most for share in _DRAWN if self.most):
            found = self.at(load)
            yield f"{load:.3g} {found.first_token(PERCENT):.3g} {found.token(PERCENT):.3g}"

    @property
    def needed(self) -> float:
        """The part of the replicas that the load of a whole day needs on average."""
        return self.part(self.traffic.mean_share)

    def part(self, share: float) -> float:
        """The part of the replicas that a share of the load needs."""
        return self.asked * share / self.most if self.most else 1.0

    @cached_property
    def output_tokens_per_second(self) -> float:
        """Output tokens of a whole day, as asked or as it takes, whichever is less."""
        load = min(self.asked, self.most)
        rate = load if self.traffic.rate else self.at(load).tokens_per_second / self.traffic.output_tokens * self._part
        return rate * self.traffic.mean_share * self.traffic.output_tokens

    @property
    def _shown(self) -> int:
        return 1 if self.routing == "random" else min(self.replicas, _SHOWN)

    @property
    def _part(self) -> float:
        """Replicas for each of those that are calculated."""
        return self.replicas / self._shown

    def _traffic(self, load: float) -> Traffic:
        of_shown, asked = load / self._part, self.traffic
        requests = min(max(_FEWEST, 2 * self.limits.max_num_seqs * self._shown), _MOST)
        found = Traffic(
            input_tokens=asked.input_tokens, output_tokens=asked.output_tokens, prefix=asked.cached_share, requests=requests
        )
        return replace(found, users=max(1, math.ceil(of_shown))) if asked.users else replace(found, rate=of_shown)

    def _capacity(self, factor: float, near: float, apart: bool = False) -> float:
        steps = Slower(self.times, factor)
        of, shown = self._traffic(1), {"replicas": self._shown, "routing": self.routing}
        if apart and of.users:
            of = replace(of, begins_over=self.at(self.most).end_to_end(50))
        return capacity(steps, self.limits, of, self.objectives, **shown, near=near / self._part) * self._part


def amount(load: float) -> str:
    return f"{load:.3g}" if load < 1000 else f"{load:.0f}"


TOO_LONG = "a request is longer than max_model_len, or than the KV cache"
NO_PODS = "it has no pods"


def takes(server: ServingFacts, traffic: TrafficSpec, wanted: Wanted, routing: Routing = "fewest") -> Takes | str:
    """Returns what a server takes, or why nobody can tell."""
    if traffic.users and wanted == Wanted():
        return "users wait as long as it takes: without objectives no number of users is too large"
    return modelled(server, traffic, wanted, routing)


def modelled(server: ServingFacts, traffic: TrafficSpec, wanted: Wanted, routing: Routing = "fewest") -> Takes | str:
    """The same for a load that need not have a limit."""
    if not server.pods_max:
        return NO_PODS
    if server.part or server.copies_per_request > 1:
        return "the queues of prefill and decode servers are not modelled"
    if server.features and server.features.speculation:
        return "how many tokens of a draft are accepted is unknown"
    memory = server_memory(server)
    if memory is None:
        return "the memory of the model is unknown, and with it how many requests it holds"
    if traffic.pictures:
        if memory.model.tower is None:
            return f"how many tokens {memory.model.name} makes of a picture is unknown, or it takes none"
        traffic = traffic.with_tokens_of_pictures(memory.model.tower.tokens(traffic.picture_size))
    times = step_times(memory)
    if isinstance(times, str):
        return times
    limits = _limits(server, memory, times, traffic)
    if traffic.input_tokens + traffic.output_tokens > min(memory.max_model_len, limits.kv_tokens):
        return TOO_LONG
    objectives = Objectives(wanted.time_to_first_token_seconds, wanted.time_between_tokens_seconds, PERCENT)
    return Takes(times, limits, traffic, objectives, server.pods_max * server.copies, routing)


def _limits(server: ServingFacts, memory: MemoryUse, times: StepTimes, traffic: TrafficSpec) -> Limits:
    """What one copy of a model takes at once; of data parallel ranks, all together."""
    ranks = times.work.ranks
    length = min(traffic.input_tokens + traffic.output_tokens, memory.max_model_len)
    if server.engine.generation.paged:
        tokens = int(memory.pool / memory.of(1, length).kv_one * length)
    else:
        tokens = server.max_num_seqs * memory.max_model_len
    return Limits(
        max_num_seqs=server.max_num_seqs * ranks,
        kv_tokens=tokens * ranks,
        step_tokens=memory.step_tokens * ranks,
        mixes=not times.separate,
        ahead=memory.settings.overlaps and server.instance.nvidia,
        host_seconds=times.request_seconds,
    )
