"""GuideLLM: its own report, ``benchmarks.json`` or ``guidellm.json``, of version 2 (GuideLLM 0.6 and later).

Its statistics of completed requests are taken. Its time per output token has the wait for the first token in it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference_tools.loadtest_report.readers.fields import Fields, Reader
from eks_inference_tools.loadtest_report.record import Run, Spread

_METRICS = {
    "ttft_ms": ("time_to_first_token_ms", 1),
    "itl_ms": ("inter_token_latency_ms", 1),
    "tpot_ms": ("time_per_output_token_ms", 1),
    "e2e_ms": ("request_latency", 1000),
    "input_tokens": ("prompt_token_count", 1),
    "output_tokens": ("output_token_count", 1),
}
_PERCENTILES = ("p25", "p50", "p75", "p90", "p95", "p99")


def _recognises(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("benchmarks"), list) and "metadata" in document


def _read(report: Fields) -> Iterator[Run]:
    version = report.number("metadata", "version")
    if version != 2:
        report.faults.append(f"metadata.version: {report.at('metadata', 'version').value} is not 2")
        return
    if not report.at("benchmarks").value:
        report.faults.append("benchmarks: empty")
    for benchmark in report.at("benchmarks"):
        yield _run(report, benchmark)


def _run(report: Fields, benchmark: Fields) -> Run:
    made = benchmark.at("scheduler_metrics", "requests_made")
    completed, duration = benchmark.needed("scheduler_metrics", "requests_made", "successful"), benchmark.needed("duration")
    metrics: dict[str, Spread] = {}
    # Without any completed request every figure is 0.
    for name, (key, factor) in _METRICS.items() if completed else ():
        figures = benchmark.at("metrics", key, "successful")
        figures.needed("mean")
        spread = figures.spread({"mean": "mean", "min": "min", "max": "max", "stddev": "std_dev"}, factor)
        metrics[name] = {**spread, **figures.at("percentiles").spread({name: name for name in _PERCENTILES}, factor)}
    tokens = benchmark.number("metrics", "output_token_count", "successful", "total_sum") if completed else 0
    strategy = benchmark.at("config", "strategy")
    return Run(
        tool="GuideLLM",
        tool_version=report.text("metadata", "guidellm_version"),
        model=benchmark.text("config", "backend", "model"),
        users={"concurrent": strategy.count("streams"), "synchronous": 1}.get(strategy.text("type_")),
        asked=benchmark.count("config", "constraints", "max_requests", "args", "count"),
        launched=made.count("total"),
        completed=None if completed is None else round(completed),
        failed=made.count("errored"),
        duration_s=duration,
        completed_per_min=60 * completed / duration if completed is not None and duration else None,
        output_tokens_per_s=tokens / duration if tokens is not None and duration else None,
        metrics=metrics,
        basis={"itl_ms": "request", "tpot_ms": "request_with_ttft"} if metrics else {},
    )


READER = Reader("GuideLLM", "benchmarks.json, guidellm.json", _recognises, _read)
