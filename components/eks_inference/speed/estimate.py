"""How long requests take on one replica at a rate, without a simulation: for searches that ask of many machines. Pure.

As many sequences decode as come in while one is answered. Prompts are served in turn, as in a queue with one server whose times
do not vary (M/D/1), and what waits has an exponential tail. ``None``: the replica does not keep up.
"""

from dataclasses import dataclass
from math import log

from eks_inference.speed.step import StepTimes

_BUSIEST = 0.95
"""Share of what a replica can take beyond which a queue has no end that anybody would wait for."""
_TAIL = {50: log(2), 95: log(20), 99: log(100)}
"""Times the mean of an exponential distribution that so many of a hundred stay below."""
_ROUNDS = 40


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
    users = min(rate * answer * times.between_tokens(1, prompt, answer), most)
    for _ in range(_ROUNDS):
        wanted = rate * answer * times.between_tokens(max(users, 1), prompt, answer)
        if wanted > most:
            return None
        if abs(wanted - users) < 0.01 * wanted:
            break
        users = (users + wanted) / 2
    own = times.first_token(prompt)
    step = times.between_tokens(max(users, 1), prompt, answer)
    prefill = min(rate * (own - times.request_seconds), _BUSIEST)
    wait = prefill * own / (2 * (1 - prefill)) + step / 2
    full = (rate / largest) ** max(most**0.5, 1)  # how often all places are taken, as in a queue with so many servers
    wait += full * step * answer / most / (1 - rate / largest)
    stalled = prefill_share(times, rate, prompt, step)
    chunk = times.first_token(min(prompt, times.chunk)) - times.request_seconds
    decoding = max(round(users), 1)
    plain = times.seconds(decoding=decoding, context_tokens=round(decoding * (prompt + answer / 2)), prefill_tokens=0)
    return Answered(
        {percent: own + wait * tail for percent, tail in _TAIL.items()},
        {percent: plain + (chunk if stalled > 1 - percent / 100 else 0) for percent in _TAIL},
        users,
        rate / largest,
    )


def prefill_share(times: StepTimes, rate: float, prompt: float, step: float) -> float:
    """Share of the steps that compute a prompt too."""
    return min(rate * -(-prompt // times.chunk) * step, 1.0)
