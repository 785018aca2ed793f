"""How fast a place serves, how many replicas traffic takes there, and what a token costs. Pure.

Prices are of whole nodes, as they are rented. Without traffic they are divided by the tokens of one pod under one usual load, so
that places can be compared; with it, by those of the traffic.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import Any

from eks_inference.catalog.models import find_model
from eks_inference.catalog.speeds import Measured, measured, own, speed
from eks_inference.observability.spec import Objectives
from eks_inference.serving.choosing import largest
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.memory import MemoryUse
from eks_inference.serving.traffic import TrafficSpec
from eks_inference.speed.queue import Answered, answered
from eks_inference.speed.slow_causes import TRY, walls
from eks_inference.speed.step import StepTimes, step_times
from eks_inference.speed.takes import modelled, takes

USUAL_USERS, USUAL_INPUT, USUAL_OUTPUT = 32, 1000, 250
"""The load that places are compared under if nobody says one: so many requests at once on one pod, or as many as it holds."""
_MOST_REPLICAS = 4096
CALM = 0.8
"""Share of what replicas take beyond which first tokens come late, and which is not used if nobody says how late they may be."""
_STEP_TOKENS = (4096, 2048, 1024, 512)
"""What is tried for one step of an engine. The last is twice ``max_num_seqs``, below which vLLM does not start."""
_MILLION = 1e6
_LIKE = 2
"""Times as many weights as another model has, beyond which its measurements are not near."""
PERCENTS, TOLD = (50, 95), (50, 95, 99)
"""Shown, and in documents."""


@dataclass(frozen=True)
class Traffic:
    """What clients ask, and what they are to get."""

    rate: float
    """Requests a second."""
    input: int = USUAL_INPUT
    output: int = USUAL_OUTPUT
    """Tokens of a prompt and of an answer."""
    first_token_s: float | None = None
    token_s: float | None = None
    """What so many of a hundred requests are to have at most: time to the first token, time between tokens."""
    percent: int = 95
    spare: int = 1
    """Replicas that may be lost."""


@dataclass(frozen=True)
class Pace:
    """How fast one pod serves."""

    times: StepTimes
    most: int
    """Sequences that it holds at once."""

    def tokens_a_second(self, users: int, prompt: int, answer: int) -> float:
        """Tokens of answers, while so many users ask again and again."""
        at_once = max(min(users, self.most), 1)
        return at_once / self.times.between_tokens(at_once, prompt, answer)

    def step_tokens(self, prompt: int, token_s: float) -> int | None:
        """Tokens of a step for which answers wait only so long. None: they do as it is, or no number of tokens does it."""

        def keeps(tokens: int) -> bool:
            beside = {"decoding": 1, "context_tokens": prompt}
            return self.times.seconds(**beside, prefill_tokens=tokens, prefill_pairs=tokens * prompt) <= token_s

        if self.times.separate or keeps(min(self.times.chunk, prompt)):
            return None
        return next((one for one in _STEP_TOKENS if one < min(self.times.chunk, prompt) and keeps(one)), None)

    @property
    def usual(self) -> float:
        """Tokens a second under the usual load."""
        return self.tokens_a_second(USUAL_USERS, USUAL_INPUT, USUAL_OUTPUT)


@dataclass(frozen=True)
class Sized:
    """What traffic takes in one place."""

    replicas: int
    """With those to spare."""
    answered: Answered
    """While those to spare are lost."""
    simulated: bool = False
    """Whether the queues were played (``speed/queue.py``), as the rule TRF001 does, rather than estimated."""
    nodes: int = 0
    usd_per_hour: float = 0.0
    usd_per_million: float = 0.0
    """Price of a million tokens of answers, at this traffic."""


def pace_of(use: MemoryUse, length: int) -> Pace | str:
    """Returns how fast a server is, for requests of ``length`` tokens; as a text why nobody knows."""
    times = step_times(use)
    if isinstance(times, str):
        return times
    held = int(use.pool * use.max_model_len / use.kv_one / length) if use.engine.generation.paged else use.sequences
    return Pace(times, max(min(held, use.settings.max_num_seqs), 1))


@lru_cache(maxsize=1024)  # nodes that differ in size only have pods that do not differ
def sized(pace: Pace, traffic: Traffic) -> Sized | str:
    """Returns the fewest replicas that keep the objectives, without a price; as a text why no number does."""

    def share(replicas: int) -> Answered | None:
        return answered(pace.times, pace.most, traffic.rate / replicas, traffic.input, traffic.output)

    def late(replicas: int) -> str:
        found = share(replicas)
        if found is None:
            return "does not keep up"
        if traffic.first_token_s is None and found.busy > CALM:
            return f"is more than {CALM:.0%} busy"
        asked = (("first token", found.first_token, traffic.first_token_s), ("tokens", found.token, traffic.token_s))
        return "; ".join(
            f"p{traffic.percent} of {what} {took[traffic.percent] * 1e3:.0f} ms, asked {most * 1e3:g} ms"
            for what, took, most in asked
            if most is not None and took[traffic.percent] > most
        )

    if why := late(_MOST_REPLICAS):
        return f"{why}, also with {_MOST_REPLICAS} replicas"
    needed = largest(lambda replicas: bool(late(replicas))) + 1
    found = share(needed)
    assert found is not None
    return Sized(needed + traffic.spare, found)


def simulated(server: ServingFacts, traffic: Traffic, pods: int, usd: float, replicas: int) -> Sized | str:
    """As ``sized``, by queues that are played: what the rule TRF001 says of the stack, and dozens of times slower. An estimate
    was so many replicas."""
    wanted = Objectives(time_to_first_token_seconds=traffic.first_token_s, time_between_tokens_seconds=traffic.token_s)
    asked = TrafficSpec(rate=traffic.rate, input_tokens=traffic.input, output_tokens=traffic.output)
    found = takes(server, asked, wanted, "random")
    if isinstance(found, str):
        return found
    found = replace(found, replicas=1, near=traffic.rate / replicas)
    if not found.most:
        return f"a lone request is not answered{found.within}"
    needed = ceil(traffic.rate / found.most / (CALM if traffic.first_token_s is None else 1))
    if needed > _MOST_REPLICAS:
        return f"takes {found.most:.3g} requests/s a replica{found.within}, also with {_MOST_REPLICAS} replicas"
    at = found.at(traffic.rate / needed)
    first, token = ({percent: of(percent) for percent in TOLD} for of in (at.first_token, at.token))
    played = Answered(first, token, at.active, traffic.rate / needed / found.most)
    return priced(Sized(needed + traffic.spare, played, simulated=True), traffic, pods, usd)


@dataclass(frozen=True)
class Explained:
    """Where the time of one pod goes, in seconds by wall."""

    first_token: Mapping[str, float]
    """Seconds by wall at the 95th percentile."""
    token: Mapping[str, float]
    """Mean seconds by wall."""
    wall: str
    tries: str
    """The setting to try."""


def explained(server: ServingFacts, traffic: Traffic | None, replicas: int) -> Explained | str:
    """Returns where the time goes, at the traffic on so many replicas, or at the usual load; as a text why nobody knows."""
    asked = traffic or Traffic(0)
    load: dict[str, Any] = {"rate": asked.rate / replicas} if traffic else {"users": USUAL_USERS}
    of = TrafficSpec(**load, input_tokens=asked.input, output_tokens=asked.output)
    model = modelled(server, of, Objectives(), "random")
    if isinstance(model, str):
        return model
    first, token = walls(model, model.asked)
    late = asked.first_token_s and sum(first.values()) / asked.first_token_s > sum(token.values()) / (asked.token_s or math.inf)
    of_late = first if late else token
    wall = max(of_late, key=lambda one: of_late[one])
    return Explained(first, token, wall, TRY[wall])


def priced(found: Sized, traffic: Traffic, pods: int, usd: float) -> Sized:
    """Returns the same replicas on nodes with so many pods, at that price."""
    nodes = ceil(found.replicas / pods)
    total = nodes * usd
    return replace(
        found, nodes=nodes, usd_per_hour=total, usd_per_million=total * _MILLION / (traffic.rate * traffic.output * 3600)
    )


def nearest(use: MemoryUse, count: int = 3) -> list[Measured]:
    """Returns the measurements nearest to a server, on its accelerator: a user's own, of its model or one of like size, then of
    its split."""
    found = speed(use.instance)
    name, size = use.model.name, use.model.parameters

    def like(one: Measured) -> bool:
        shape = find_model(one.model)
        return one.model == name or bool(shape and 1 / _LIKE < shape.parameters / size < _LIKE)

    def distance(one: Measured) -> tuple[bool, bool, bool, int, int]:
        split = abs(one.tensor - use.tensor_parallel)
        return (one not in own(), one.model != name, one.engine not in ("vllm", "nxdi"), split, one.users)

    there = [one for one in (*own(), *measured()) if found and one.device == found.name and one.itl_ms and like(one)]
    return sorted(there, key=distance)[:count]
