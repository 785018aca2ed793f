"""How long requests take on one replica at a rate, without a simulation: for searches that ask of many machines. Pure.

A sequence finds as many others as come in while one is answered, and their number varies as that of random arrivals. Prompts are
served in turn, as in a queue with one server whose times do not vary (M/D/1); what waits has an exponential tail. ``None``: the
replica does not keep up.
"""

from dataclasses import dataclass
from math import log, sqrt

from eks_inference.speed.step import StepTimes

_BUSIEST = 0.95
"""Share of what a replica can take beyond which a queue has no end that anybody would wait for."""
_BEYOND = {50: 0.0, 95: 1.64, 99: 2.33}
"""Standard deviations above the mean that so many of a hundred stay below."""
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
