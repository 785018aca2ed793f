"""LLMPerf (ray-project/llmperf, token_benchmark_ray.py): ``*_summary.json``. Latencies are in seconds.

Nothing in the file tells whether the ``neuron_perf.patch`` of the AWS Neuron SDK was applied, which changes what the inter-token
latency is: unpatched, (all gaps, the wait for the first token among them) / events of the stream; patched, (the gaps between
tokens) / (tokens - 1). It follows from the figures, as far as the time to first token matters in them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference_tools.loadtest_report.readers.fields import Fields, Reader
from eks_inference_tools.loadtest_report.record import Basis, Run, Spread

_KEYS = {
    **{name: f"quantiles_{name}" for name in ("p25", "p50", "p75", "p90", "p95", "p99")},
    **{name: name for name in ("mean", "min", "max", "stddev")},
}
_METRICS = {
    "ttft_ms": ("ttft_s", 1000),
    "itl_ms": ("inter_token_latency_s", 1000),
    "e2e_ms": ("end_to_end_latency_s", 1000),
    "request_tokens_per_s": ("request_output_throughput_token_per_s", 1),
    "input_tokens": ("number_input_tokens", 1),
    "output_tokens": ("number_output_tokens", 1),
}
_TELLING = ("itl_ms", "request_tokens_per_s", "ttft_ms", "e2e_ms", "output_tokens")
_OTHER_EVENTS = 3  # of a stream, beside its tokens: who speaks, why it ends, how many tokens there were
_CLEAR = 0.02


def itl_basis(metrics: Mapping[str, Spread]) -> Basis | None:
    """What the inter-token latency counts; None when the figures cannot tell.

    A request's token rate is tokens / end-to-end time. Multiplied with an inter-token latency that has the time to first token in
    it, it gives tokens / events of the stream, about 1; with one that has not, (1 - TTFT / end to end) x tokens / (tokens - 1).
    """
    medians = [metrics.get(name, {}).get("p50", 0.0) for name in _TELLING]
    if not all(medians):
        return None
    itl, rate, ttft, e2e, tokens = medians
    if tokens <= 1:
        return None
    product = itl / 1000 * rate
    without, least_with = (1 - ttft / e2e) * tokens / (tokens - 1), tokens / (tokens + _OTHER_EVENTS)
    if least_with - without < _CLEAR:
        return None
    return "request" if product < (without + least_with) / 2 else "request_with_ttft"


def _recognises(document: Mapping[str, Any]) -> bool:
    return "num_concurrent_requests" in document or any(key.startswith("results_ttft_s_") for key in document)


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
        "request_with_ttft": ("By its figures LLMPerf was not patched: the time to first token is in its inter-token latency.",),
        "request": ("By its figures LLMPerf was patched: the time to first token is not in its inter-token latency.",),
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
        remarks=remarks.get(basis or "", ("The figures do not tell whether the time to first token is in the ITL.",)),
    )


READER = Reader("LLMPerf", "*_summary.json", _recognises, _read)
