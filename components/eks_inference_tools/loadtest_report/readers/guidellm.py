"""Reads GuideLLM's report, ``benchmarks.json`` or ``guidellm.json``, version 2 (GuideLLM 0.6 and later).

The figures are those of completed requests. GuideLLM's time per output token includes the wait for the first token.
"""

from collections.abc import Iterator

from eks_inference_tools.loadtest_report.readers.fields import Fields, Reader
from eks_inference_tools.loadtest_report.record import PERCENTILES, Run, Spread

_METRICS = {
    "ttft_ms": ("time_to_first_token_ms", 1),
    "itl_ms": ("inter_token_latency_ms", 1),
    "tpot_ms": ("time_per_output_token_ms", 1),
    "e2e_ms": ("request_latency", 1000),
    "input_tokens": ("prompt_token_count", 1),
    "output_tokens": ("output_token_count", 1),
}


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
    completed, duration = made.needed("successful"), benchmark.needed("duration")
    metrics: dict[str, Spread] = {}
    # If no request completed, every figure is 0.
    for name, (key, factor) in _METRICS.items() if completed else ():
        figures = benchmark.at("metrics", key, "successful")
        figures.needed("mean")
        spread = figures.spread({"mean": "mean", "min": "min", "max": "max", "stddev": "std_dev"}, factor)
        metrics[name] = {**spread, **figures.at("percentiles").spread({name: name for name in PERCENTILES}, factor)}
    tokens = benchmark.number("metrics", "output_token_count", "successful", "total_sum") if completed else 0
    strategy = benchmark.at("config", "strategy")
    return Run(
        tool="GuideLLM",
        tool_version=report.text("metadata", "guidellm_version"),
        model=benchmark.text("config", "backend", "model"),
        users={"concurrent": strategy.count("streams"), "synchronous": 1}.get(strategy.text("type_")),
        asked=benchmark.count("config", "constraints", "max_requests", "args", "count"),
        launched=made.count("total"),
        completed=made.count("successful"),
        failed=made.count("errored"),
        duration_s=duration,
        completed_per_min=60 * completed / duration if completed is not None and duration else None,
        output_tokens_per_s=tokens / duration if tokens is not None and duration else None,
        metrics=metrics,
        basis={"itl_ms": "request", "tpot_ms": "request_with_ttft"} if metrics else {},
    )


READER = Reader(
    "GuideLLM",
    "benchmarks.json, guidellm.json",
    lambda document: isinstance(document.get("benchmarks"), list) and "metadata" in document,
    _read,
)
