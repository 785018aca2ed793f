"""Models one engine that batches continuously, event by event: vLLM's scheduler. Pure.

Each step computes one token of every sequence that decodes, and with what is left of the step's tokens the prompts that came
first (vLLM 0.30, ``v1/core/sched/scheduler.py``: running requests first; a new one only if the KV cache holds its whole prompt;
where the cache is full, the one admitted last gives its blocks back and is computed anew). Engines that do not mix compute a
prompt in a step of its own, while the others wait. Steps between two events differ only by the KV cache that they read, which
grows evenly, so they are computed together.
"""

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol


class Steps(Protocol):
    """What one step of an engine takes (``step.py``)."""

    def seconds(self, *, decoding: int, context_tokens: int, prefill_tokens: int, prefill_pairs: float = 0) -> float: ...


@dataclass(frozen=True)
class Limits:
    """What one replica takes at once."""

    max_num_seqs: int
    kv_tokens: int
    """Tokens that the KV cache holds."""
    step_tokens: int = 8192
    """Tokens that one step computes (``max_num_batched_tokens``)."""
    block: int = 16
    """Tokens of one block of the KV cache."""
    mixes: bool = True
    """Whether a step computes prompts beside tokens of other answers (chunked prefill)."""
    ahead: bool = True
    """Whether a step is scheduled while the one before is computed: what comes meanwhile waits for one more."""
    host_seconds: float = 0.0
    """Time before the first token that is none of the engine's steps."""


@dataclass(slots=True, eq=False)
class Request:
    at: float
    prompt: int
    answer: int
    number: int
    done: int = 0
    """Tokens of the answer that were there when it last lost its blocks."""
    missing: int = 0
    """Tokens to compute before the next one of the answer."""
    began: float = math.inf
    first: float = math.inf
    last: float = 0.0
    """When the engine first took it, and when its first and its latest known token came."""
    ends: int = 0
    """The step of the replica that computes its last token."""

    @property
    def context(self) -> int:
        """Tokens in the KV cache once it is computed."""
        return self.prompt + self.done


@dataclass
class Replica:
    """One engine. ``planned`` are the next steps, in which nothing happens but decoding; an arrival cuts them."""

    steps: Steps
    limits: Limits
    prefix: float
    now: float = 0.0
    """When its next step begins."""
    before: float = 0.0
    """When the last step began."""
    number: int = 0
    """Steps so far that decoded."""
    busy: float = 0.0
    context: int = 0
    """Tokens in the KV cache."""
    free: int = 0
    """Blocks of it that nobody has."""
    phases: list[int] = field(default_factory=list[int])
    """How many sequences take their next block when the number of a step, taken negative, has this rest by tokens of a block."""
    held: int = 0
    later: int = 0
    """Sequences that ended in the last step, and their blocks: a step that was scheduled before does not have their places."""
    stalled: float = 0.0
    """How long sequences that decode have waited for a prompt of another."""
    waiting: deque[Request] = field(default_factory=deque[Request])
    running: dict[int, Request] = field(default_factory=dict[int, Request])
    """The sequences, in the order in which they were admitted."""
    prefilling: Request | None = None
    decoding: int = 0
    ending: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    planned: tuple[int, float, float] | None = None
    """Their number, the time of the first, and by how much each takes longer than the one before."""
    gaps: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    preemptions: int = 0

    @property
    def active(self) -> int:
        return len(self.waiting) + len(self.running)

    def __post_init__(self) -> None:
        self.free = self.limits.kv_tokens // self.limits.block
        self.phases = [0] * self.limits.block

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.limits.block)

    def _taken(self, steps: int) -> int:
        """Returns the blocks that sequences take in the next steps."""
        cycles, more = divmod(steps, self.limits.block)
        return cycles * self.decoding + sum(self.phases[(-self.number - one) % self.limits.block] for one in range(more))

    def _lasting(self) -> int:
        """Returns for how many steps there are blocks."""
        steps = max(self.free, 0) // self.decoding * self.limits.block
        left = self.free - self._taken(steps + 1)
        while left >= 0:  # the phases of a cycle are all that decode
            steps += 1
            left -= self.phases[(-self.number - steps) % self.limits.block]
        return steps

    def event(self) -> float:
        """Returns when something happens next: planned steps end, or a step begins that is none of them."""
        if not self.active:
            return math.inf
        self._plan()
        return self.now + (self._lasts(self.planned[0]) if self.planned else 0.0)

    def _plan(self) -> None:
        if self.planned or self.prefilling or not self.decoding:
            return
        first = self.waiting[0] if self.waiting else None
        if first and self._takes(first):
            return
        number = min(self.ending[0][0] - self.number, self._lasting())
        if first and (self.held or not self._seen(first)):  # the step after the next one may admit it
            number = min(number, 1)
        if number > 0:
            shortest = self._decoding_seconds(self.context)
            longest = self._decoding_seconds(self.context + self.decoding * (number - 1)) if number > 1 else shortest
            self.planned = (number, shortest, (longest - shortest) / max(number - 1, 1))

    def _decoding_seconds(self, context: int) -> float:
        return self.steps.seconds(decoding=self.decoding, context_tokens=context, prefill_tokens=0)

    def _lasts(self, steps: int) -> float:
        """Returns what the first of the planned steps take."""
        assert self.planned
        _, first, more = self.planned
        return steps * first + more * steps * (steps - 1) / 2

    def _seen(self, request: Request) -> bool:
        """Whether the scheduler of the next step has seen a request."""
        return request.at <= (self.before if self.limits.ahead and self.running else self.now)

    def _takes(self, request: Request) -> bool:
        """Whether the next step admits a request."""
        if not self._seen(request) or len(self.running) + self.held >= self.limits.max_num_seqs:
            return False
        return not self.running or self._blocks(request.context) <= self.free

    def arrive(self, request: Request) -> None:
        if not self.active:
            self.now = max(self.now, request.at)
        elif self.planned:
            low, high = 0, self.planned[0]
            while low < high:
                half = (low + high) // 2
                low, high = (half + 1, high) if self.now + self._lasts(half) < request.at else (low, half)
            # Steps that begin before go on without it; with steps ahead, the next one as well.
            if (on := low + self.limits.ahead) < self.planned[0]:
                self._decode(on)
        self.waiting.append(request)

    def _decode(self, number: int) -> None:
        """Computes so many of the planned steps."""
        assert self.planned
        if number:
            lasts = self._lasts(number)
            self._gap(lasts, number)
            self.before = self.now + self._lasts(number - 1)
            self._passed(lasts)
            self.free += self.later - self._taken(number)
            self.number += number
            self.context += number * self.decoding
            self.held = self.later = 0
        self.planned = None

    def _gap(self, lasts: float, number: int) -> None:
        """Notes the times between tokens of some steps: the first includes what a prompt took alone."""
        if self.stalled:
            self.gaps.append((lasts / number + self.stalled, self.decoding))
            self.stalled, number = 0.0, number - 1
            lasts -= lasts / (number + 1)
        if number:
            self.gaps.append((lasts / number, number * self.decoding))

    def _passed(self, seconds: float) -> None:
        self.now += seconds
        self.busy += seconds

    def step(self) -> list[Request]:
        """Goes on to the next event, and returns the requests whose answers are whole."""
        if self.planned:
            self._decode(self.planned[0])
            return self._ended()
        preempted = self._preempts()
        limits = self.limits
        budget = limits.step_tokens - (self.decoding if limits.mixes else 0)
        if limits.mixes and self.prefilling and (number := self._alike(self.prefilling, budget)) > 1:
            self._compute(self.prefilling, budget, number)
            return self._ended()
        begun = self.prefilling.context - self.prefilling.missing if self.prefilling else 0
        read, prefill, pairs, computed = self.context - begun, 0, 0.0, list[Request]()
        while budget > 0:
            one = self.prefilling
            if one is None:
                if preempted or not self.waiting or not self._takes(self.waiting[0]):
                    break
                one = self._admit()
            part = min(one.missing, budget)
            pairs += part * (one.context - one.missing + part / 2)
            one.missing -= part
            self.context += part
            prefill, budget = prefill + part, budget - part
            if one.missing:
                self.prefilling = one
            else:
                self.prefilling = None
                computed.append(one)
            if not limits.mixes:
                break
        decodes = self.decoding if limits.mixes or not prefill else 0
        reads = read if decodes else 0
        lasts = self.steps.seconds(decoding=decodes, context_tokens=reads, prefill_tokens=prefill, prefill_pairs=pairs)
        self.before = self.now
        self.free += self.later
        self.held = self.later = 0
        self._passed(lasts)
        if decodes:
            self._gap(lasts, 1)
            self.free -= self._taken(1)
            self.number += 1
            self.context += decodes
        elif self.decoding:
            self.stalled += lasts
        for one in computed:
            if one.done:
                self.gaps.append((self.now - one.last, 1))
            else:
                one.first = self.now
            one.ends = self.number + one.answer - one.done - 1
            self.decoding += 1
            self.phases[self._phase(one)] += 1
            heapq.heappush(self.ending, (one.ends, one.number))
        return self._ended()

    def _alike(self, one: Request, budget: int) -> int:
        """Returns for how many steps nothing happens but that a long prompt is computed: what comes meanwhile waits."""
        number = (one.missing - 1) // budget if budget > 0 else 0
        return min(number, self.ending[0][0] - self.number, self._lasting()) if self.decoding else number

    def _compute(self, one: Request, budget: int, number: int) -> None:
        """Computes a prompt in so many steps, each of which takes longer than the one before by as much."""
        begun, read = one.context - one.missing, self.context - (one.context - one.missing)

        def seconds(step: int) -> float:
            context = read + step * self.decoding if self.decoding else 0
            pairs = budget * (begun + (step + 0.5) * budget)
            tokens = {"decoding": self.decoding, "context_tokens": context, "prefill_tokens": budget}
            return self.steps.seconds(**tokens, prefill_pairs=pairs)

        last = seconds(number - 1)
        lasts = number * (seconds(0) + last) / 2
        one.missing -= number * budget
        self.context += number * (budget + self.decoding)
        self.before = self.now + lasts - last
        self.free += self.later
        self.held = self.later = 0
        self._passed(lasts)
        if self.decoding:
            self._gap(lasts, number)
            self.free -= self._taken(number)
            self.number += number

    def _phase(self, one: Request) -> int:
        """The phase of a sequence, which has ``prompt + answer - 1`` tokens when it ends."""
        return (one.prompt + one.answer - 1 - one.ends) % self.limits.block

    def _admit(self) -> Request:
        one = self.waiting.popleft()
        one.began = min(one.began, self.now)
        one.missing = max(1, one.context - int(one.prompt * self.prefix))
        self.context += one.context - one.missing
        self.free -= self._blocks(one.context)
        self.running[one.number] = one
        return one

    def _preempts(self) -> bool:
        """Takes blocks back until every sequence has room for its next token."""
        before = self.preemptions
        while self._taken(1) > self.free and len(self.running) > 1:
            number, last = self.running.popitem()
            if last is self.prefilling:
                self.prefilling = None
                self.context -= last.context - last.missing
                self.free += self._blocks(last.context)
            else:
                last.done = last.answer - (last.ends - self.number)
                last.last = self.now
                self.context -= last.context - 1
                self.free += self._blocks(last.context - 1)
                self.decoding -= 1
                self.phases[self._phase(last)] -= 1
                self.ending.remove((last.ends, number))
                heapq.heapify(self.ending)
            self.waiting.appendleft(last)
            self.preemptions += 1
        return self.preemptions > before

    def _ended(self) -> list[Request]:
        found, freed = list[Request](), 0
        while self.ending and self.ending[0][0] <= self.number:
            one = self.running.pop(heapq.heappop(self.ending)[1])
            one.last = self.now
            self.context -= one.prompt + one.answer - 1
            freed += self._blocks(one.prompt + one.answer - 1)
            self.phases[self._phase(one)] -= 1
            self.decoding -= 1
            found.append(one)
        if self.limits.ahead and self.running:
            self.held, self.later = len(found), freed
        else:
            self.free += freed
        return found
