"""Plays the requests of one server: they come at random times, and each ends as served, late or lost. Pure.

Engines are those of ``speed/batching.py``. A request is lost when it goes to a pod whose node is gone, when the pod goes before
the answer is whole, and when the Service has no pod. Pods that end have a grace. Clients do not try again; the proxy of an
endpoint does, as its configuration says (``endpoints/routing.py``), where a pod takes no connection.
"""

import heapq
import math
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from eks_inference.endpoints.proxy import CONNECT_SECONDS
from eks_inference.endpoints.routing import REST_SECONDS, RETRIES
from eks_inference.scaling.plan import QUEUE_COUNTER
from eks_inference.speed.batching import Limits, Replica, Request, Steps
from eks_inference.speed.queue import Routing

Fate = Literal["served", "late", "lost"]
Rates = tuple[tuple[float, float], ...]
NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Load:
    """What comes, and what is late: ``late_seconds`` without a first token.

    ``rates`` are requests a second, each from a second on; the first from the beginning.
    """

    rates: Rates
    input_tokens: int
    output_tokens: int
    late_seconds: float
    prefix: float = 0.0


@dataclass
class Requests:
    """The requests of a server and the engines of its pods. ``fates`` has the time at which each request came, and its end."""

    steps: Steps
    limits: Limits
    load: Load
    routing: Routing = "random"
    """Any but "random" is that of an endpoint's proxy."""
    copies: int = 1
    """Engines of one pod."""
    picked: bool = True
    """Whether requests find the pod that knows their beginning; else one of all of them, by chance."""
    seed: int = 0
    came: int = 0
    fates: list[tuple[float, Fate]] = field(default_factory=list[tuple[float, Fate]])

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._next = self._after(0.0)
        self._pods: dict[str, list[Replica]] = {}
        self._told: dict[str, _Told] = {}
        self._open: dict[int, float] = {}
        """When each request came that has no end yet."""
        self._at: dict[str, set[int]] = {}
        """The numbers of those that each pod has."""
        self._connecting: list[tuple[float, int, int, str]] = []
        """When the proxy gives up a connection, for which request, at which attempt and to which pod: a heap."""
        self._rests: dict[str, tuple[int, float]] = {}
        """How often the proxy has let a pod rest, and until when."""

    @property
    def unanswered(self) -> int:
        return len(self._open)

    def counts(self) -> Counter[Fate]:
        return Counter(fate for _, fate in self.fates)

    def advance(self, now: float, listed: Sequence[str], alive: Collection[str], graces: Mapping[str, float] = NONE) -> None:
        """Lets time pass until ``now``. Requests go to the pods that the Service has ``listed``, ``alive`` or not.

        Of those that are not alive any more, some have ended by themselves: these answer what they have, for ``graces`` seconds.
        """
        for gone in self._pods.keys() - set(alive):
            self._answer(gone, now + graces.get(gone, -math.inf))
            del self._pods[gone]
            for number in self._at.pop(gone):
                self.fates.append((self._open.pop(number), "lost"))
        while (at := min(self._next, self._connecting[0][0] if self._connecting else math.inf)) <= now:
            self._work(at)
            if at == self._next:
                self.came += 1
                self._open[self.came] = at
                self._next = self._after(at)
                self._send(self.came, 1, at, listed, alive)
            else:
                _, number, attempt, pod = heapq.heappop(self._connecting)
                times, until = self._rests.get(pod, (0, 0.0))
                if until <= at:
                    self._rests[pod] = times + 1, at + REST_SECONDS * (times + 1)
                self._send(number, attempt + 1, at, listed, alive)
        self._work(now)

    def _after(self, at: float) -> float:
        """When the next request comes."""
        left, ends = self._chance.expovariate(1.0), [start for start, _ in self.load.rates[1:]]
        for (_, rate), end in zip(self.load.rates, [*ends, math.inf], strict=True):
            if end > at and rate:
                if (there := at + left / rate) <= end:
                    return there
                left -= (end - at) * rate
            at = max(at, end)
        return math.inf

    def finish(self) -> None:
        """Lets the pods that are there answer what they have. What has no connection yet gets none."""
        self._work(math.inf)
        self.fates.extend((self._open.pop(number), "lost") for _, number, *_ in self._connecting)

    def page(self, pod: str) -> str:
        """What a pod shows Prometheus, with the names that Triton and vLLM have for it."""
        told, engines = self._told.get(pod, _Told()), self._pods.get(pod, ())
        room = max(1, self.limits.kv_tokens // self.limits.block)
        shown = {
            "nv_inference_request_success": told.ended,
            QUEUE_COUNTER: round(1000 * QUEUE_MS * told.ended),
            "vllm:num_requests_waiting": sum(len(engine.waiting) for engine in engines),
            "vllm:num_requests_running": sum(len(engine.running) for engine in engines),
            "vllm:kv_cache_usage_perc": max((1 - engine.free / room for engine in engines), default=0.0),
            "vllm:time_to_first_token_seconds_sum": told.first_seconds,
            "vllm:time_to_first_token_seconds_count": told.ended,
            "vllm:inter_token_latency_seconds_sum": told.between_seconds,
            "vllm:inter_token_latency_seconds_count": told.between,
        }
        return "".join(
            f"{name} {value:g}\n" if isinstance(value, float) else f"{name} {value}\n" for name, value in shown.items()
        )

    def _send(self, number: int, attempt: int, at: float, listed: Sequence[str], alive: Collection[str]) -> None:
        pod = self._chosen([one for one in listed if self._rests.get(one, (0, 0.0))[1] <= at] or listed)
        if pod not in alive:
            if pod and self.routing != "random" and attempt <= RETRIES:
                heapq.heappush(self._connecting, (at + CONNECT_SECONDS, number, attempt, pod))
            else:
                self.fates.append((self._open.pop(number), "lost"))
            return
        if pod not in self._pods:
            self._pods[pod] = [Replica(self.steps, self.limits, self.load.prefix, now=at) for _ in range(self.copies)]
            self._at[pod], self._told[pod] = set(), _Told()
        request = Request(at, self.load.input_tokens, self.load.output_tokens, number)
        self._at[pod].add(number)
        engine = min(self._pods[pod], key=lambda replica: replica.active)
        engine.prefix = self.load.prefix / (1 if self.picked else len(listed))
        engine.arrive(request)

    def _chosen(self, listed: Sequence[str]) -> str:
        """Returns the pod that gets a request; "": the Service has none."""
        if not listed or self.routing == "random":
            return self._chance.choice(sorted(listed)) if listed else ""
        active = {pod: sum(item.active for item in self._pods.get(pod, ())) for pod in listed}
        for *_, pod in self._connecting:
            active[pod] = active.get(pod, 0) + 1
        return min(sorted(listed), key=active.__getitem__)

    def _work(self, until: float) -> None:
        for pod in self._pods:
            self._answer(pod, until)

    def _answer(self, pod: str, until: float) -> None:
        for engine in self._pods[pod]:
            while (event := engine.event()) < math.inf and event <= until:
                for request in engine.step():
                    came = self._open.pop(request.number)
                    self._at[pod].remove(request.number)
                    first = request.first + self.limits.host_seconds
                    told = self._told[pod]
                    told.ended += 1
                    told.first_seconds += first - request.at
                    told.between_seconds += request.last - request.first
                    told.between += request.answer - 1
                    self.fates.append((came, "late" if first - came > self.load.late_seconds else "served"))


QUEUE_MS = 1.51
"""That a request waits in Triton before its engine has it. No document tells it. The source's autoscaler, with a target of 10 ms
a second, left one pod with 16 users, who ended 6.62 requests a second (loadtest_report/published.toml, gpu-opt350m): at the
target, at most.
"""


@dataclass
class _Told:
    """What the engines of a pod count."""

    ended: int = 0
    first_seconds: float = 0.0
    between_seconds: float = 0.0
    between: int = 0


def bad_until(fates: Collection[tuple[float, Fate]], since: float) -> float:
    """Returns when the last request came that was lost or late, of those that came at or after ``since``; else ``since``."""
    return max([since, *(at for at, fate in fates if fate != "served")])
