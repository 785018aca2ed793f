"""Reads ``*_summary.json`` of LLMPerf (ray-project/llmperf, token_benchmark_ray.py). Latencies are in seconds.

The file does not say whether LLMPerf had the ``neuron_perf.patch`` of the AWS Neuron SDK, which changes the inter-token latency:
unpatched, it is (all gaps, including the wait for the first token) / stream events; patched, (gaps between tokens) / (tokens -
1). The reader infers it from the figures, if the time to first token is large enough to matter.
"""

from collections.abc import Iterator, Mapping

from eks_inference_tools.loadtest_report.readers.fields import Fields, Reader
from eks_inference_tools.loadtest_report.record import PERCENTILES, STATISTICS, Basis, Run, Spread

_KEYS = {name: name for name in STATISTICS} | {name: f"quantiles_{name}" for name in PERCENTILES}
_METRICS = {
    "ttft_ms": ("ttft_s", 1000),
    "itl_ms": ("inter_token_latency_s", 1000),
    "e2e_ms": ("end_to_end_latency_s", 1000),
    "request_tokens_per_s": ("request_output_throughput_token_per_s", 1),
    "input_tokens": ("number_input_tokens", 1),
    "output_tokens": ("number_output_tokens", 1),
}
_NEEDED = ("itl_ms", "request_tokens_per_s", "ttft_ms", "e2e_ms", "output_tokens")
_OTHER_EVENTS = 3  # stream events besides tokens: role, finish reason, usage
_MIN_DIFFERENCE = 0.02


def itl_basis(metrics: Mapping[str, Spread]) -> Basis | None:
    """Returns the basis of the inter-token latency; None if the figures are inconclusive.

    A request's token rate is tokens / end-to-end time. Its product with an inter-token latency that includes the time to first
    token is tokens / stream events, about 1; otherwise the product is (1 - TTFT / end to end) x tokens / (tokens - 1).
    """
    medians = [metrics.get(name, {}).get("p50", 0.0) for name in _NEEDED]
    if not all(medians):
        return None
    itl, rate, ttft, e2e, tokens = medians
    if tokens <= 1:
        return None
    product = itl / 1000 * rate
    without, least_with = (1 - ttft / e2e) * tokens / (tokens - 1), tokens / (tokens + _OTHER_EVENTS)
    if least_with - without < _MIN_DIFFERENCE:
        return None
    return "request" if product < (without + least_with) / 2 else "request_with_ttft"


def _read(summary: Fields) -> Iterator[Run]:
    completed = summary.count("results_num_completed_requests")
    per_min = summary.needed("results_num_completed_requests_per_min")
    metrics: dict[str, Spread] = {}
    for name, (key, factor) in _METRICS.items():
        prefix = f"results_{key}_"
        if completed != 0:
            summary.needed(f"{prefix}mean")
        metrics[name] = summary.spread({statistic: prefix + of for statistic, of in _KEYS.items()}, factor)
    basis = itl_basis(metrics)
    remarks = {
        "request_with_ttft": ("The figures imply unpatched LLMPerf: its inter-token latency includes the time to first token.",),
        "request": ("The figures imply patched LLMPerf: its inter-token latency excludes the time to first token.",),
    }
    yield Run(
        tool="LLMPerf",
        model=summary.text("model"),
        users=summary.count("num_concurrent_requests"),
        launched=summary.count("results_num_requests_started"),
        completed=completed,
        failed=summary.count("results_number_errors"),
        duration_s=60 * completed / per_min if completed and per_min else None,
        completed_per_min=per_min,
        output_tokens_per_s=summary.needed("results_mean_output_throughput_token_per_s"),
        metrics=metrics,
        basis={"itl_ms": basis} if basis else {},
        instance_type=summary.text("instance_type"),
        chips=summary.count("chips") or None,
        remarks=remarks.get(basis or "", ("The figures do not reveal whether the ITL includes the time to first token.",)),
    )


READER = Reader(
    "LLMPerf",
    "*_summary.json",
    lambda document: "num_concurrent_requests" in document or any(key.startswith("results_ttft_s_") for key in document),
    _read,
)
