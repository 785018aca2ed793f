"""Rules about load tests. Ids LT…; NEU019 and NEU020 are rules about serving on Neuron, but NEU020 applies to GPUs too."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, nextafter
from typing import ClassVar

from eks_inference.catalog.models import POOLING
from eks_inference.loadtest.spec import LoadTestSpec, TokenCounts
from eks_inference.rules import Judgement, Path, rule
from eks_inference.serving.facts import ServingFacts


@dataclass(frozen=True)
class LoadTestFacts:
    """A load test of the server ``name``. ``path`` is the test's key in the stack; it is empty when a component judges itself."""

    about: ClassVar[str] = "load tests"

    spec: LoadTestSpec
    name: str
    server: ServingFacts
    path: Path = ()


@dataclass(frozen=True)
class RequestFacts:
    """The requests that a load test or another measuring client sends to the server ``name``. ``path`` is the client's key."""

    about: ClassVar[str] = "requests of measuring clients"

    name: str
    server: ServingFacts
    input_tokens: TokenCounts
    output_tokens: TokenCounts
    path: Path


@rule(
    "NEU019",
    "Requests ask for no more candidates (top_k) than the sampler on Neuron devices keeps.",
    fix="lower or remove top_k",
    source="NxD Inference and vLLM on Neuron, on-device sampling: global-topk 256",
)
def candidates_fit_the_sampler(test: LoadTestFacts) -> Iterator[Judgement]:
    top_k, kept = test.spec.sampling.get("top_k"), test.server.engine.generation.largest_top_k
    if kept is None or isinstance(top_k, bool) or not isinstance(top_k, int | float):
        return
    yield Judgement(
        holds=top_k <= kept,
        path=(*test.path, "sampling", "top_k"),
        working=(f"top_k: {top_k}; kept on the device: {kept}",),
        message=f"server '{test.name}' samples on Neuron devices, which keep {kept} candidates",
        given=str(top_k),
        allowed=f"at most {kept}",
    )


@rule(
    "NEU020",
    "A load test has no more users than the server handles at once.",
    severity="warning",
    fix="remove the larger numbers of users, or raise max_num_seqs or the number of pods",
    source="vLLM: requests beyond max_num_seqs wait; the source systems' tests stay below it (22 users of 24, 4 of 4)",
)
def users_fit_the_batches(test: LoadTestFacts) -> Iterator[Judgement]:
    server = test.server
    copies = max(server.copies // server.copies_per_request, 1) * server.pods_max
    room = copies * server.max_num_seqs
    for position, users in enumerate(test.spec.users):
        yield Judgement(
            holds=users <= room,
            path=(*test.path, "users", position),
            working=(f"{copies} engines or pairs of them x max_num_seqs {server.max_num_seqs} = {room}; users: {users}",),
            message=f"{users} users at once on server '{test.name}', which handles {room}: the figures measure the queue",
            given=str(users),
            allowed=f"at most {room}",
        )


@rule(
    "LT001",
    "Measured requests fit the longest sequence of the server.",
    fix="shorten input_tokens or output_tokens, or raise the server's max_model_len",
    source="vLLM refuses a request whose prompt and answer together exceed --max-model-len; of a normal distribution "
    "2.3 % are above its mean plus two standard deviations",
)
def requests_fit_the_sequence(requests: RequestFacts) -> Iterator[Judgement]:
    length, prompt, answer = requests.server.max_model_len, requests.input_tokens, requests.output_tokens
    if not length:
        return
    if requests.server.does in POOLING:
        answer = TokenCounts.model_construct(mean=0)
    mean, deviation = prompt.mean + answer.mean, (prompt.stddev**2 + answer.stddev**2) ** 0.5
    longest = mean + round(2 * deviation)
    yield Judgement(
        holds=longest <= length,
        path=(*requests.path, "input_tokens"),
        working=(
            f"prompt {prompt.mean} + answer {answer.mean} = {mean} tokens, standard deviation {deviation:.0f}: up to {longest}",
            f"max_model_len of '{requests.name}': {length}; a chat template adds a few tokens more",
        ),
        message=f"server '{requests.name}' takes sequences of {length} tokens: it refuses "
        + ("most" if mean > length else "the longest")
        + f" requests, of {mean if mean > length else longest} tokens",
        given=f"{prompt.mean} + {answer.mean}",
        allowed=f"together at most {length - (longest - mean)}",
        severity="error" if mean > length else "warning",
    )


SAMPLING: Mapping[str, tuple[float, float]] = {
    "frequency_penalty": (-2, 2),
    "min_p": (0, 1),
    "min_tokens": (0, inf),
    "presence_penalty": (-2, 2),
    "repetition_penalty": (nextafter(0, 1), inf),
    "temperature": (0, 2),
    "top_k": (-1, inf),
    "top_p": (nextafter(0, 1), 1),
}
"""The least and the most that the engine takes in a request."""


@rule(
    "LT002",
    "Requests sample as the engine allows.",
    fix="correct the value",
    source="vllm 0.30.0, sampling_params.py (SamplingParams._verify_args): other requests are answered with 400",
)
def sampling_is_taken(test: LoadTestFacts) -> Iterator[Judgement]:
    for key, value in test.spec.sampling.items():
        if key not in SAMPLING or value is None:
            continue
        least, most = SAMPLING[key]
        numbers = int if key in ("top_k", "min_tokens") else int | float
        between = f"{'more than 0' if 0 < least < 1 else f'at least {least:g}'}{'' if most == inf else f', at most {most:g}'}"
        yield Judgement(
            holds=isinstance(value, numbers) and not isinstance(value, bool) and least <= value <= most,
            path=(*test.path, "sampling", key),
            working=(f"{key}: {value}; {between}",),
            message=f"server '{test.name}' refuses every request",
            given=str(value),
            allowed=between,
        )


@rule(
    "LT003",
    "A load test waits until the server may answer.",
    severity="warning",
    fix="leave ready_timeout_seconds out, or start the test when the server is up (load_test.run)",
    source="the budget of a cold start that the server's startup probe has (SRV001)",
)
def test_waits_for_the_server(test: LoadTestFacts) -> Iterator[Judgement]:
    given, startup = test.spec.ready_timeout_seconds, test.server.startup
    start = test.server.startup_timeout_s or startup.download_s + startup.load_s
    if given and start:
        yield Judgement(
            holds=given >= start,
            path=(*test.path, "ready_timeout_seconds"),
            working=(f"ready_timeout_seconds: {given}; '{test.name}' may take {start} s to start",),
            message=f"the test of a new stack gives up after {given} s, and '{test.name}' may take {start} s to answer",
            given=str(given),
            allowed=f"at least {start}",
        )
