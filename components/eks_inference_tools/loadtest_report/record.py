"""One run of a load test as the report knows it, whatever tool measured it.

Latencies are in milliseconds, rates per second, in the names. Tools call different things by one name: what a time between tokens
counts is told by its ``Basis``, and only figures of one basis are compared.

Sources: LLMPerf (token_benchmark_ray.py; neuron_perf.patch of the AWS Neuron SDK), genai-perf 0.0.16, AIPerf 0.13.0, vLLM 0.33.0
(benchmarks/serve.py), GuideLLM 0.7.3 and 0.8.1 (request_stats.py), each read and run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

STATISTICS = ("mean", "p25", "p50", "p75", "p90", "p95", "p99", "min", "max", "stddev")

Spread = Mapping[str, float]
"""Statistics of one metric over the requests of a run; what the tool does not tell is absent."""

Basis = Literal["gap", "request", "request_with_ttft"]
"""What a time between output tokens counts.

``gap``: each time between two events of a stream. ``request``: one figure a request, (end to end - TTFT) / (tokens - 1).
``request_with_ttft``: one figure a request, end to end / tokens, so that the wait for the first token is in it.
"""

BASES: Mapping[Basis, str] = {
    "gap": "each gap between two events of a stream",
    "request": "one figure a request without the time to first token",
    "request_with_ttft": "one figure a request with the time to first token in it",
}


class Metric(NamedTuple):
    """How a metric is called, at length and in a table."""

    title: str
    short: str


METRICS: Mapping[str, Metric] = {
    "ttft_ms": Metric("Time to first token, ms", "TTFT ms"),
    "second_token_ms": Metric("From the first token to the second, ms", "1st-2nd token ms"),
    "itl_ms": Metric("Inter-token latency, ms", "ITL ms"),
    "tpot_ms": Metric("Time per output token, ms", "TPOT ms"),
    "e2e_ms": Metric("End to end, ms", "End to end ms"),
    "request_tokens_per_s": Metric("Output tokens per second of a request", "Tokens/s, request"),
    "input_tokens": Metric("Input tokens", "Input tokens"),
    "output_tokens": Metric("Output tokens", "Output tokens"),
}
"""Every metric of a record. The rate of a request counts all of its time, from sending it to its last token.

With prefill and decode apart, the KV cache moves between the first token and the second.
"""

BETWEEN_TOKENS = ("itl_ms", "tpot_ms")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measurement. What the tool does not tell is None or empty.

    ``asked`` requests it was told to make, of which it ``launched`` some, and of those some ``completed`` and some ``failed``.
    ``chips`` is how many Neuron devices or GPUs the servers under test had together.
    """

    tool: str
    tool_version: str = ""
    model: str = ""
    users: int | None = None
    """Requests at once; None where requests came by a rate."""
    asked: int | None = None
    launched: int | None = None
    completed: int | None = None
    failed: int | None = None
    duration_s: float | None = None
    completed_per_min: float | None = None
    launched_per_min: float | None = None
    output_tokens_per_s: float | None = None
    """Of all requests together, over the whole run."""
    metrics: Mapping[str, Spread] = field(default_factory=dict)
    basis: Mapping[str, Basis] = field(default_factory=dict)
    """Of ``itl_ms`` and ``tpot_ms``, where it is known."""
    instance_type: str = ""
    chips: int | None = None
    remarks: tuple[str, ...] = ()
    file: str = ""
    label: str = ""

    @property
    def output_tokens_per_s_per_chip(self) -> float | None:
        return self._of_a_chip(self.output_tokens_per_s)

    @property
    def completed_per_min_per_chip(self) -> float | None:
        return self._of_a_chip(self.completed_per_min)

    def _of_a_chip(self, rate: float | None) -> float | None:
        return None if rate is None or not self.chips else rate / self.chips

    @property
    def itl_includes_ttft(self) -> bool | None:
        """Whether the time to first token is in ``itl_ms``; None: there is none, or it cannot be told."""
        basis = self.basis.get("itl_ms")
        return None if basis is None else basis == "request_with_ttft"

    def value(self, metric: str, statistic: str) -> float | None:
        return self.metrics.get(metric, {}).get(statistic)

    def document(self) -> dict[str, Any]:
        """As JSON: every key is always there, null where the tool does not tell."""
        return {
            "label": self.label,
            "file": self.file,
            "tool": self.tool,
            "tool_version": self.tool_version or None,
            "model": self.model or None,
            "instance_type": self.instance_type or None,
            "chips": self.chips,
            "users": self.users,
            "requests": {
                "asked": self.asked,
                "launched": self.launched,
                "completed": self.completed,
                "failed": self.failed,
            },
            "duration_s": self.duration_s,
            "completed_per_min": self.completed_per_min,
            "completed_per_min_per_chip": self.completed_per_min_per_chip,
            "launched_per_min": self.launched_per_min,
            "output_tokens_per_s": self.output_tokens_per_s,
            "output_tokens_per_s_per_chip": self.output_tokens_per_s_per_chip,
            "itl_includes_ttft": self.itl_includes_ttft,
            "metrics": {
                name: {statistic: self.value(name, statistic) for statistic in STATISTICS}
                | ({"basis": self.basis.get(name)} if name in BETWEEN_TOKENS else {})
                for name in METRICS
            },
            "remarks": list(self.remarks),
        }
