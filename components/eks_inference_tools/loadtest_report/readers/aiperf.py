"""Reads ``profile_export_aiperf.json`` of aiperf, schema 1.x."""

from collections.abc import Iterator
from typing import Any

from eks_inference_tools.loadtest_report.readers import genai_perf
from eks_inference_tools.loadtest_report.readers.fields import Fields, Reader
from eks_inference_tools.loadtest_report.record import Run


def _read(export: Fields) -> Iterator[Run]:
    version = export.text("schema_version")
    if version.partition(".")[0] != "1":
        export.faults.append(f"schema_version: '{version}' is not 1.x")
        return
    settings = export.at("input_config")
    measured = next((phase for phase in settings.at("phases") if phase.text("kind") == "profiling"), Fields(None))
    # The export omits a count of zero.
    completed, failed = export.count("request_count", "avg") or 0, export.count("error_request_count", "avg") or 0
    about: dict[str, Any] = {
        "tool": "aiperf",
        "tool_version": export.text("aiperf_version"),
        "model": settings.text("models", "items", 0, "name"),
        "users": measured.count("concurrency"),
        "asked": measured.count("requests"),
        "completed": completed,
        "failed": failed,
    }
    if completed == 0:
        yield Run(**about)
        return
    export.needed("request_latency", "avg")
    yield genai_perf.run(
        export,
        launched=completed + failed,
        duration_s=export.number("benchmark_duration", "avg"),
        remarks=("The run was cancelled.",) if export.at("was_cancelled").value is True else (),
        **about,
    )


READER = Reader("aiperf", "profile_export_aiperf.json", lambda document: "aiperf_version" in document, _read)
