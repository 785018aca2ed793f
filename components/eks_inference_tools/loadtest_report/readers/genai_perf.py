"""Reads ``profile_export_genai_perf.json`` of genai-perf, and the metrics of aiperf, which have the same form.

The settings under ``input_config`` were flat until March 2025, as in the Triton 24.07 SDK image; the reader supports both forms.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference_tools.loadtest_report.readers.fields import Fields, Reader
from eks_inference_tools.loadtest_report.record import STATISTICS, Run, Spread

_KEYS = {name: name for name in STATISTICS} | {"mean": "avg", "stddev": "std"}
_METRICS = {
    "ttft_ms": "time_to_first_token",
    "second_token_ms": "time_to_second_token",
    "itl_ms": "inter_token_latency",
    "e2e_ms": "request_latency",
    "request_tokens_per_s": "e2e_output_token_throughput",  # aiperf only; "per user" is the inverse of the latency
    "input_tokens": "input_sequence_length",
    "output_tokens": "output_sequence_length",
}
_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}
_NOT_STREAMED = "No time to first token: the responses were not streamed."


def _metrics(export: Fields) -> dict[str, Spread]:
    """Returns all present metrics in the record's units. An unknown unit is a fault."""
    found: dict[str, Spread] = {}
    for name, key in _METRICS.items():
        metric = export.at(key)
        if metric.value is None:
            continue
        unit = metric.text("unit")
        if name.endswith("_ms") and unit not in _MS:
            export.faults.append(f"{key}.unit: '{unit}' is not one of {', '.join(_MS)}")
            continue
        found[name] = metric.spread(_KEYS, _MS[unit] if name.endswith("_ms") else 1)
    return found


def run(export: Fields, **about: Any) -> Run:
    """Returns the run, with the properties that genai-perf and aiperf export in the same form."""
    found = _metrics(export)
    rate = export.needed("request_throughput", "avg")
    remarks = about.pop("remarks", ())
    return Run(
        completed_per_min=None if rate is None else 60 * rate,
        output_tokens_per_s=export.needed("output_token_throughput", "avg"),
        metrics=found,
        # (request latency - TTFT) / (output tokens - 1), also in the source system's release, Triton 24.07.
        basis={"itl_ms": "request"} if "itl_ms" in found else {},
        remarks=remarks if "ttft_ms" in found else (*remarks, _NOT_STREAMED),
        **about,
    )


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
        remarks=("genai-perf does not report failed requests.",),
    )


READER = Reader(
    "genai-perf",
    "profile_export_genai_perf.json",
    lambda document: isinstance(document.get("request_throughput"), Mapping) and "input_config" in document,
    _read,
)
