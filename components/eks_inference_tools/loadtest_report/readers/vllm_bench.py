"""Reads the result of ``vllm bench serve --save-result``: one JSON object without a version. Latencies are in milliseconds.

``--percentile-metrics`` and ``--metric-percentiles`` select its metrics and percentiles; the defaults are ttft,tpot,itl and 99.
"""

from collections.abc import Iterator, Mapping

from eks_inference_tools.loadtest_report.readers.fields import Fields, Reader
from eks_inference_tools.loadtest_report.record import BETWEEN_TOKENS, PERCENTILES, Basis, Run, Spread

_METRICS = {"ttft_ms": "ttft", "itl_ms": "itl", "tpot_ms": "tpot", "e2e_ms": "e2el"}
_BASIS: Mapping[str, Basis] = {"itl_ms": "gap", "tpot_ms": "request"}


def _read(result: Fields) -> Iterator[Run]:
    completed = result.needed("completed")
    rate = result.needed("request_throughput")
    metrics: dict[str, Spread] = {}
    # If no request completed, every figure is 0.
    for name, key in _METRICS.items() if completed else ():
        names = {p: f"{p}_{key}_ms" for p in PERCENTILES}
        names |= {"mean": f"mean_{key}_ms", "stddev": f"std_{key}_ms", "p50": f"median_{key}_ms"}
        if spread := result.spread(names):
            metrics[name] = spread
    for name, key in {"input_tokens": "total_input_tokens", "output_tokens": "total_output_tokens"}.items():
        if completed and (total := result.number(key)) is not None:
            metrics[name] = {"mean": total / completed}
    if completed and not {"ttft_ms", "e2e_ms"} & set(metrics):
        result.faults.extend(("mean_ttft_ms: missing", "mean_e2el_ms: missing"))
    no_e2e = bool(completed) and "e2e_ms" not in metrics
    failed = result.count("failed")
    yield Run(
        tool="vllm bench serve",
        model=result.text("model_id"),
        users=result.count("max_concurrency"),
        asked=result.count("num_prompts"),
        launched=None if completed is None or failed is None else round(completed) + failed,
        completed=result.count("completed"),
        failed=failed,
        duration_s=result.number("duration"),
        completed_per_min=None if rate is None else 60 * rate,
        output_tokens_per_s=result.needed("output_throughput"),
        metrics=metrics,
        basis={name: _BASIS[name] for name in BETWEEN_TOKENS if name in metrics},
        instance_type=result.text("instance_type"),
        chips=result.count("chips") or None,
        remarks=("No end-to-end latency: --percentile-metrics ttft,tpot,itl,e2el adds it.",) if no_e2e else (),
    )


READER = Reader(
    "vllm bench serve",
    "the JSON of --save-result",
    lambda document: "output_throughput" in document and "model_id" in document,
    _read,
)
