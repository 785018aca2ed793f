"""Reads the library's own load test: ``summary.jsonl`` with ``run.json`` in the same folder, or the JSON lines of the Job's log.

Both contain records (``assets/load_test.py`` defines them), here collected under the key ``records``. Latencies are in
milliseconds. GuideLLM measures them, so its definitions apply.
"""

from collections.abc import Iterator

from eks_inference.loadtest.plan import SCHEMA
from eks_inference_tools.loadtest_report.readers.fields import Fields, Reader
from eks_inference_tools.loadtest_report.record import STATISTICS, Run

_METRICS = ("ttft_ms", "itl_ms", "e2e_ms", "input_tokens", "output_tokens")


def _read(file: Fields) -> Iterator[Run]:
    records = file.at("records")
    about = {record.text("id"): record for record in records if record.text("record") == "run"}
    summaries = [record for record in records if record.text("record") == "summary"]
    if not summaries:
        file.faults.append('no record "summary"')
    for summary in summaries:
        if summary.number("schema") != SCHEMA:
            file.faults.append(f"schema: {summary.at('schema').value} is not {SCHEMA}")
            continue
        run = about.get(summary.text("run"), Fields(None))
        yield _run(summary, run)


def _run(summary: Fields, run: Fields) -> Run:
    completed = summary.needed("completed")
    server = run.at("servers", summary.text("server"))
    counts = {key: summary.count(key) for key in ("completed", "incomplete", "failed")}
    names = () if not completed else ("e2e_ms", "input_tokens") if server.text("task") == "embed" else _METRICS
    for name in names:
        summary.needed(name, "mean")
    metrics = {name: summary.at(name).spread({one: one for one in STATISTICS}) for name in names}
    rate = summary.needed("requests_per_s") if completed else 0
    # ghcr.io/vllm-project/guidellm:v0.7.3
    version = run.text("image").rpartition(":")[2]
    return Run(
        tool="GuideLLM",
        tool_version=version.removeprefix("v"),
        label=summary.text("server"),
        server=summary.text("server"),
        model=server.text("model"),
        users=summary.count("users"),
        asked=summary.count("requests"),
        launched=sum(value or 0 for value in counts.values()),
        completed=counts["completed"],
        failed=counts["failed"],
        duration_s=summary.number("duration_s"),
        completed_per_min=None if rate is None else 60 * rate,
        output_tokens_per_s=summary.needed("output_tokens_per_s") if "itl_ms" in metrics else None if completed else 0,
        metrics=metrics,
        basis={"itl_ms": "request"} if "itl_ms" in metrics else {},
        instance_type=server.text("instance_type"),
        chips=server.count("devices"),
        remarks=() if run.value else ("No run.json next to the file: model and instance type are unknown.",),
    )


READER = Reader("this library's load test", "summary.jsonl, or the Job's log", lambda document: "records" in document, _read)
