"""One run of a load test, independent of the tool that measured it.

Names contain the unit. Tools use one name for different inter-token times: ``Basis`` says what a figure measures, and the report
compares only figures with the same basis.

Sources: genai-perf 0.0.16, AIPerf 0.13.0, vLLM 0.33.0
(benchmarks/serve.py), GuideLLM 0.7.3 and 0.8.1 (request_stats.py), each read and run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

PERCENTILES = ("p25", "p50", "p75", "p90", "p95", "p99")
STATISTICS = ("mean", *PERCENTILES, "min", "max", "stddev")

Spread = Mapping[str, float]
"""Statistics of one metric over the requests of a run. Those the tool does not report are absent."""

Basis = Literal["gap", "request", "request_with_ttft"]
"""What an inter-token time measures.

``gap``: every gap between two stream events. ``request``: one value per request, (end to end - TTFT) / (tokens - 1).
``request_with_ttft``: one value per request, end to end / tokens, which includes the wait for the first token.
"""

BASES: Mapping[Basis, str] = {
    "gap": "every gap between two stream events",
    "request": "one value per request, excluding the time to first token",
    "request_with_ttft": "one value per request, including the time to first token",
}


class Metric(NamedTuple):
    """A metric's long name, and its short one for tables."""

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
"""Every metric of a record. A request's token rate covers its whole time, from sending it to its last token.

With disaggregated prefill and decode, the KV cache moves between the first token and the second.
"""

BETWEEN_TOKENS = ("itl_ms", "tpot_ms")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measurement. Values that the tool does not report are None or empty.

    The tool was to make ``asked`` requests and ``launched`` some, of which some ``completed`` and some ``failed``. ``chips`` is
    the total number of Neuron devices or GPUs of the servers under test.
    """

    tool: str
    tool_version: str = ""
    model: str = ""
    users: int | None = None
    """Concurrent requests; None if requests arrived at a rate."""
    asked: int | None = None
    launched: int | None = None
    completed: int | None = None
    failed: int | None = None
    duration_s: float | None = None
    completed_per_min: float | None = None
    launched_per_min: float | None = None
    output_tokens_per_s: float | None = None
    """Total over all requests and the whole run."""
    metrics: Mapping[str, Spread] = field(default_factory=dict)
    basis: Mapping[str, Basis] = field(default_factory=dict)
    """The basis of ``itl_ms`` and ``tpot_ms``, if known."""
    instance_type: str = ""
    chips: int | None = None
    remarks: tuple[str, ...] = ()
    file: str = ""
    label: str = ""

    @property
    def output_tokens_per_s_per_chip(self) -> float | None:
        return self._per_chip(self.output_tokens_per_s)

    @property
    def completed_per_min_per_chip(self) -> float | None:
        return self._per_chip(self.completed_per_min)

    def _per_chip(self, rate: float | None) -> float | None:
        return None if rate is None or not self.chips else rate / self.chips

    @property
    def itl_includes_ttft(self) -> bool | None:
        """Whether ``itl_ms`` includes the time to first token; None if unknown or without such a metric."""
        return self.basis["itl_ms"] == "request_with_ttft" if "itl_ms" in self.basis else None

    def value(self, metric: str, statistic: str) -> float | None:
        return self.metrics.get(metric, {}).get(statistic)

    def document(self) -> dict[str, Any]:
        """The JSON document. Every key is present, with null for unknown values."""
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
