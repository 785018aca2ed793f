"""Calculates how long requests wait on replicas of a server, and how many a second they take (``batching.py``). Pure.

Searches ask of many machines, so one replica at a rate is estimated without a simulation: a sequence finds as many others as come
in while one is answered, and their number varies as that of random arrivals. Prompts are served in turn, as in a queue with one
server whose times do not vary (M/D/1); what waits has an exponential tail. ``None``: the replica does not keep up.
"""

import heapq
import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import log, sqrt
from typing import Literal

from eks_inference.speed.batching import Limits, Replica, Request, Steps
from eks_inference.speed.step import StepTimes

Routing = Literal["fewest", "prefixes", "random"]
"""Which replica gets a request: the one with the fewest; that of its conversation, up to a quarter above its part; any."""

_BALANCE = 1.25
"""What a replica has, of its part, when a conversation goes to another one (``endpoints/routing.py``)."""
_WARMING = 0.1
"""Share of the requests that only fill the servers: nothing is measured by then."""
_BEHIND = 0.05
"""Share of all requests that may wait when the last one comes. More, and the queue grows without end."""
_FASTEST = 1e4
"""Requests a second that no replicas reach."""
_EXACT, _SOON = 0.02, 0.05
"""How exactly the most load is found, as a share of it, and where an estimate says about how much it is."""

_BUSIEST = 0.95
"""Share of what a replica can take beyond which a queue has no end that anybody would wait for."""
_BEYOND = {50: 0.0, 95: 1.64, 99: 2.33}
"""Standard deviations above the mean that so many of a hundred stay below."""
_ROUNDS = 40


@dataclass(frozen=True)
class Traffic:
    """What clients ask: at a rate, at given times, or as users who ask again once they have an answer."""

    rate: float = 0.0
    """Requests a second, at random times (Poisson)."""
    users: int = 0
    arrivals: tuple[float, ...] = ()
    """Seconds at which requests come, in order."""
    input_tokens: int = 1000
    output_tokens: int = 250
    prefix: float = 0.0
    """Share of a prompt that the prefix cache has."""
    requests: int = 2000
    seed: int = 0
    begins_over: float = 0.0
    """Seconds over which the users begin, one after the other; 0: all at once."""


@dataclass(frozen=True)
class Served:
    """What became of the traffic. Times are in seconds."""

    replicas: int
    came: int
    answered: int
    queued: int
    """Requests without their whole answer when the time was over."""
    lost: int
    """Requests that the endpoint refused."""
    seconds: float
    busy: float
    """Share of the time in which an engine computed."""
    preemptions: int
    keeps_up: bool
    """Whether the queue ends."""
    tokens_per_second: float
    first_tokens: tuple[float, ...] = field(repr=False)
    whole: tuple[float, ...] = field(repr=False)
    waits: tuple[float, ...] = field(repr=False)
    """Times of the requests, sorted: to the first token, to the last one, and until the engine took the request."""
    gaps: tuple[tuple[float, int], ...] = field(repr=False)
    """Times between tokens, in order of size, each with its number."""

    @property
    def active(self) -> float:
        """Requests that one replica works on at once, on average (Little's law)."""
        return self.answered / self.seconds * sum(self.whole) / len(self.whole) / self.replicas if self.whole else 0.0

    def first_token(self, percent: float) -> float:
        return _rank(self.first_tokens, percent)

    def end_to_end(self, percent: float) -> float:
        return _rank(self.whole, percent)

    @property
    def mean_token(self) -> float:
        """The mean time between tokens."""
        return sum(gap * count for gap, count in self.gaps) / max(sum(count for _, count in self.gaps), 1)

    def queue(self, percent: float) -> float:
        return _rank(self.waits, percent)

    def token(self, percent: float) -> float:
        """Returns a percentile of the times between tokens, over all tokens."""
        sums = list(accumulate(count for _, count in self.gaps))
        return self.gaps[bisect_left(sums, sums[-1] * percent / 100)][0] if sums else 0.0


def _rank(ordered: Sequence[float], percent: float) -> float:
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else math.inf


@dataclass(frozen=True)
class Objectives:
    """What so many of 100 requests are to have, in seconds; None: as long as it takes."""

    first_token: float | None = None
    token: float | None = None
    percent: float = 95

    def kept(self, found: Served) -> bool:
        first, token = found.first_token(self.percent), found.token(self.percent)
        late = (self.first_token is not None and first > self.first_token) or (self.token is not None and token > self.token)
        return found.keeps_up and not late

    def lost(self, late: int, requests: int) -> bool:
        """Whether so many late first tokens of all requests are too many, whatever comes after."""
        return late > requests - math.ceil(requests * self.percent / 100)


def keeps(own: int, active: int, replicas: int) -> bool:
    """Whether a conversation stays on a replica with so many of all active requests, as Envoy counts: with the new one."""
    return own <= math.ceil(math.ceil(_BALANCE * (active + 1)) / replicas)


class _Servers:
    """All replicas, and what leads requests to them."""

    def __init__(self, replicas: list[Replica], routing: Routing, most: int | None, chance: random.Random) -> None:
        self.replicas, self.routing, self.most, self.chance = replicas, routing, most, chance
        self.events: list[tuple[float, int, int]] = []
        self.versions = [0] * len(replicas)

    def next(self) -> float:
        """Returns when something happens next."""
        while self.events and self.events[0][2] != self.versions[self.events[0][1]]:
            heapq.heappop(self.events)
        return self.events[0][0] if self.events else math.inf

    def step(self) -> list[Request]:
        which = heapq.heappop(self.events)[1]
        found = self.replicas[which].step()
        self._changed(which)
        return found

    def arrive(self, request: Request) -> bool:
        """Leads a request to a replica; False: there are too many already."""
        if self.most is not None and sum(replica.active for replica in self.replicas) >= self.most:
            return False
        which = self._chosen()
        self.replicas[which].arrive(request)
        self._changed(which)
        return True

    def _chosen(self) -> int:
        number = len(self.replicas)
        first = self.chance.randrange(number)
        if number == 1 or self.routing == "random":
            return first
        active = [replica.active for replica in self.replicas]
        if self.routing == "fewest":
            return min(range(number), key=lambda one: (active[one], (one - first) % number))
        order = [one % number for one in range(first, first + number)]
        return next(one for one in order if keeps(active[one], sum(active), number))

    def _changed(self, which: int) -> None:
        self.versions[which] += 1
        if (at := self.replicas[which].event()) < math.inf:
            heapq.heappush(self.events, (at, which, self.versions[which]))


def served(
    steps: Steps,
    limits: Limits,
    traffic: Traffic,
    *,
    replicas: int = 1,
    routing: Routing = "fewest",
    most: int | None = None,
    seconds: float = math.inf,
    within: Objectives | None = None,
    ready: float = 0.0,
) -> Served:
    """Returns what ``replicas`` make of the traffic, at most for so many seconds, or until nothing can keep it ``within``.

    ``most`` are the requests that an endpoint lets to them at once; None: it lets all of them. They compute nothing until they
    are ``ready``.
    """
    chance = random.Random(traffic.seed)
    engines = [Replica(steps, limits, traffic.prefix, ready, ready) for _ in range(replicas)]
    servers = _Servers(engines, routing, most, chance)
    coming = _times(traffic, chance)  # a list in order is a heap
    left, came, lost, behind, now = traffic.requests - len(coming), 0, 0, 0, 0.0
    warming = int(traffic.requests * _WARMING) if traffic.rate else 0
    latest = within.first_token - limits.host_seconds if within and within.first_token is not None else math.inf
    answered, late = list[Request](), 0
    while True:
        event = servers.next()
        at = min(coming[0] if coming else math.inf, event)
        if at == math.inf or at > seconds:
            break
        now = at
        if coming and coming[0] <= event:
            heapq.heappop(coming)
            came += 1
            lost += not servers.arrive(Request(now, traffic.input_tokens, traffic.output_tokens, came))
            if came == warming:
                for engine in engines:
                    engine.gaps.clear()
            if not coming:
                behind = sum(len(engine.waiting) for engine in engines)
            continue
        for request in servers.step():
            answered.append(request)
            late += request.number > warming and request.first - request.at > latest
            if traffic.users and left:
                left -= 1
                heapq.heappush(coming, request.last)
        if within and within.lost(late, traffic.requests - warming):
            break
    ended = min(seconds, max([now, *(request.last for request in answered)]))
    answered = [request for request in answered if request.last <= ended]
    measured = [request for request in answered if request.number > warming]
    host, over = limits.host_seconds, ended or 1.0
    return Served(
        replicas=replicas,
        came=came,
        answered=len(answered),
        queued=came - lost - len(answered),
        lost=lost,
        seconds=ended,
        busy=min(1.0, sum(engine.busy for engine in engines) / (replicas * over)),
        preemptions=sum(engine.preemptions for engine in engines),
        keeps_up=bool(traffic.users) or behind <= max(_BEHIND * came, 1),
        tokens_per_second=sum(request.answer for request in answered) / over,
        first_tokens=tuple(sorted(request.first - request.at + host for request in measured)),
        whole=tuple(sorted(request.last - request.at + host for request in measured)),
        waits=tuple(sorted(request.began - request.at for request in measured)),
        gaps=tuple(sorted(gap for engine in engines for gap in engine.gaps)),
    )


def _times(traffic: Traffic, chance: random.Random) -> list[float]:
    """Returns when the requests come that wait for no answer."""
    if traffic.arrivals:
        return list(traffic.arrivals)
    if traffic.users:
        return [traffic.begins_over * number / traffic.users for number in range(min(traffic.users, traffic.requests))]
    return list(accumulate(chance.expovariate(traffic.rate) for _ in range(traffic.requests)))


def capacity(
    steps: Steps,
    limits: Limits,
    traffic: Traffic,
    objectives: Objectives,
    *,
    replicas: int = 1,
    routing: Routing = "fewest",
    near: float = 0.0,
) -> float:
    """Returns the most load at which replicas keep the objectives: requests a second, or users where the traffic has users.
    It is probably ``near`` some load.

    0: not even one request does. More users than there are requests are not played.
    """
    users = bool(traffic.users)
    most = float(traffic.requests if users else _FASTEST)

    def kept(load: float) -> bool:
        of = {"users": round(load), "requests": max(traffic.requests, 2 * round(load))} if users else {"rate": load}
        asked = replace(traffic, arrivals=(), **of)
        return objectives.kept(served(steps, limits, asked, replicas=replicas, routing=routing, within=objectives))

    alone = served(steps, limits, replace(traffic, users=1, arrivals=(), requests=1))
    if not objectives.kept(alone):
        return 0.0
    low, high = 0.0, min(near or (1.0 if users else replicas / max(alone.end_to_end(100), 1e-9)), most)
    grows = 1.25 if near else 4
    while kept(high):
        if high >= most:
            return most
        low, high = high, min(grows * high, most)
    if near and not low and kept(near / grows):
        low = near / grows
    while high - low > max((_SOON if near else _EXACT) * high, users):
        middle = (low + high) // 2 if users else (low + high) / 2
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Answered:
    """Seconds that requests take, by percentile."""

    first_token: dict[int, float]
    token: dict[int, float]
    at_once: float
    """Sequences that are answered at once, on average."""
    busy: float
    """Share of the largest rate."""


def largest_rate(times: StepTimes, most: float, prompt: float, answer: float) -> float:
    """Returns the requests a second of a replica that always answers ``most``, or a number below which it answers more."""
    return max(users / (answer * times.between_tokens(users, prompt, answer)) for users in (1.0, most / 2, most) if users >= 1)


def answered(times: StepTimes, most: float, rate: float, prompt: float, answer: float) -> Answered | None:
    """Returns how ``rate`` requests a second fare on a replica that holds ``most`` sequences."""
    largest = largest_rate(times, most, prompt, answer) if most >= 1 else 0.0
    if not largest or rate > _BUSIEST * largest:
        return None
    users = min(1 + rate * answer * times.between_tokens(1, prompt, answer), most)
    for _ in range(_ROUNDS):
        wanted = 1 + rate * answer * times.between_tokens(users, prompt, answer)
        if wanted > most + 1:
            return None
        if abs(wanted - users) < 0.01 * wanted:
            break
        users = min((users + wanted) / 2, most)
    step = times.between_tokens(users, prompt, answer)
    chunk = prompt if times.separate else min(prompt, times.chunk)
    pieces = -(-prompt // chunk)

    def gap(decoding: float, computed: float, pairs: float = 0) -> float:
        """One step that computes so much of a prompt beside."""
        there = max(round(min(decoding, most)), 1)
        context = round(there * (prompt + answer / 2))
        return times.seconds(decoding=there, context_tokens=context, prefill_tokens=round(computed), prefill_pairs=pairs)

    own = times.first_token(prompt) - times.request_seconds
    plain, mixed = gap(users - 1, 0), gap(users - 1, chunk, chunk * prompt / 2)
    # Answers go on in the steps that compute prompts; short prompts share them.
    prefill = own if times.separate else prompt / chunk * (mixed - plain) + prompt / max(prompt, times.chunk) * pieces * plain
    prompts, full = rate * prefill, (rate / largest) ** max(most**0.5, 1)  # how often prompts, and all places, are taken
    if prompts > _BUSIEST:
        return None
    stalled = rate * pieces * step  # share of the steps that compute a prompt too
    first, token = dict[int, float](), dict[int, float]()
    for percent, beyond in _BEYOND.items():
        rest = 1 - percent / 100
        waits = ((prompts, prefill / 2 / (1 - prompts)), (full, step * answer / most / (1 - rate / largest)))
        wait = sum(mean * log(chance / rest) for chance, mean in waits if chance > rest)
        first[percent] = times.request_seconds + max(own, prefill) + step / 2 + wait
        pairs = chunk * max(prompt * (1 - rest / stalled), chunk / 2) if stalled > rest else 0.0
        # Of answers of one token none has a time between tokens.
        token[percent] = gap(users + beyond * sqrt(users - 1), chunk if pairs else 0, pairs) if answer > 1 else 0.0
    return Answered(first, token, users - 1, rate / largest)
