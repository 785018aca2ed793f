"""aiperf: ``profile_export_aiperf.json``, schema 1.x."""

from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference_tools.loadtest_report.readers import genai_perf
from eks_inference_tools.loadtest_report.readers.fields import Fields, Reader
from eks_inference_tools.loadtest_report.record import Run


def _recognises(document: Mapping[str, Any]) -> bool:
    return "aiperf_version" in document


def _read(export: Fields) -> Iterator[Run]:
    version = export.text("schema_version")
    if version.partition(".")[0] != "1":
        export.faults.append(f"schema_version: '{version}' is none of 1.x")
        return
    # A metric nobody measured is left out: no request failed, or none completed.
    completed, failed = export.count("request_count", "avg") or 0, export.count("error_request_count", "avg") or 0
    if completed == 0:
        yield Run(tool="aiperf", tool_version=export.text("aiperf_version"), completed=0, failed=failed, **_settings(export))
        return
    export.needed("request_latency", "avg")
    yield genai_perf.run(
        export,
        tool="aiperf",
        tool_version=export.text("aiperf_version"),
        launched=completed + failed,
        completed=completed,
        failed=failed,
        duration_s=export.number("benchmark_duration", "avg"),
        remarks=("The run was cancelled.",) if export.at("was_cancelled").value is True else (),
        **_settings(export),
    )


def _settings(export: Fields) -> dict[str, Any]:
    settings = export.at("input_config")
    phases = [phase for phase in settings.at("phases") if phase.text("kind") == "profiling"]
    measured = phases[0] if phases else Fields(None)
    return {
        "model": settings.text("models", "items", 0, "name"),
        "users": measured.count("concurrency"),
        "asked": measured.count("requests"),
    }


READER = Reader("aiperf", "profile_export_aiperf.json", _recognises, _read)
