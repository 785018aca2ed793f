"""genai-perf: ``profile_export_genai_perf.json``. Also the form of a metric, which aiperf has kept.

The settings under ``input_config`` were flat until March 2025, as in the Triton 24.07 SDK image; both forms are read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference_tools.loadtest_report.readers.fields import Fields, Reader
from eks_inference_tools.loadtest_report.record import Run, Spread

_KEYS = {"mean": "avg", "stddev": "std"} | {name: name for name in ("p25", "p50", "p75", "p90", "p95", "p99", "min", "max")}
_METRICS = {
    "ttft_ms": "time_to_first_token",
    "second_token_ms": "time_to_second_token",
    "itl_ms": "inter_token_latency",
    "e2e_ms": "request_latency",
    "request_tokens_per_s": "e2e_output_token_throughput",  # aiperf's; the one "per user" is the inverse of the latency
    "input_tokens": "input_sequence_length",
    "output_tokens": "output_sequence_length",
}
_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}
_NO_STREAM = "No time to first token: the answers were not streamed."


def metrics(export: Fields) -> dict[str, Spread]:
    """Every metric that is there, in the record's units. A unit that is not known is a fault."""
    found: dict[str, Spread] = {}
    for name, key in _METRICS.items():
        metric = export.at(key)
        if metric.value is None:
            continue
        unit = metric.text("unit")
        if name.endswith("_ms") and unit not in _MS:
            export.faults.append(f"{key}.unit: '{unit}' is none of {', '.join(_MS)}")
            continue
        found[name] = metric.spread(_KEYS, _MS[unit] if name.endswith("_ms") else 1)
    return found


def run(export: Fields, **about: Any) -> Run:
    """What genai-perf and aiperf tell in the same way."""
    found = metrics(export)
    rate = export.needed("request_throughput", "avg")
    remarks = about.pop("remarks", ())
    return Run(
        completed_per_min=None if rate is None else 60 * rate,
        output_tokens_per_s=export.needed("output_token_throughput", "avg"),
        metrics=found,
        # (request latency - TTFT) / (output tokens - 1), also in the release of the source system, Triton 24.07.
        basis={"itl_ms": "request"} if "itl_ms" in found else {},
        remarks=remarks if "ttft_ms" in found else (*remarks, _NO_STREAM),
        **about,
    )


def _recognises(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("request_throughput"), Mapping) and "input_config" in document


def _read(export: Fields) -> Iterator[Run]:
    export.needed("request_latency", "avg")
    settings = export.at("input_config")
    names = settings.at("model_names") if settings.at("model_names").value else settings.at("model")
    completed, rate = export.count("request_count", "avg"), export.number("request_throughput", "avg")
    users = settings.count("perf_analyzer", "stimulus", "concurrency")
    yield run(
        export,
        tool="genai-perf",
        model=names.text(0) or names.text(),
        users=settings.count("concurrency") if users is None else users,
        completed=completed,
        duration_s=completed / rate if completed and rate else None,
        remarks=("genai-perf does not tell how many requests failed.",),
    )


READER = Reader("genai-perf", "profile_export_genai_perf.json", _recognises, _read)
