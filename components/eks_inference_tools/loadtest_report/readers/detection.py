"""Reads result files as runs, and reports the problems of all files at once."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from eks_inference_tools.loadtest_report.readers import aiperf, genai_perf, guidellm, runner, vllm_bench
from eks_inference_tools.loadtest_report.readers.fields import Fields
from eks_inference_tools.loadtest_report.record import Run
from stackgraph.graph.values import text
from stackgraph.problems import Problem, ProblemsFound, content

READERS = (aiperf.READER, genai_perf.READER, vllm_bench.READER, guidellm.READER, runner.READER)

SUPPORTED = "; ".join(f"{reader.tool} ({reader.files})" for reader in READERS)

_RECORD = '{"record":'
_MAX_KEYS = 8
_MAX_FAULTS = 6
_LLMPERF = (
    "LLMPerf made this file; it has been unmaintained since December 2024: measure with `vllm bench serve` or the key load_test"
)
_OTHER_FILES = {
    # Keys of an object, or of a list's first object, that identify other files.
    "experiments": "this is raw data of perf_analyzer; genai-perf's summary is profile_export_genai_perf.json in the same folder",
    "num_concurrent_requests": _LLMPERF,
    "error_code": _LLMPERF,
}


def read_all(paths: Sequence[Path]) -> list[list[Run]]:
    """Returns the runs of each file in order. Raises ``ProblemsFound`` with the problems of all files."""
    found: list[list[Run]] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            found.append(_read(path))
        except ProblemsFound as error:
            problems += error.problems
    if problems:
        raise ProblemsFound(problems)
    return found


def runs_of_log(log: str) -> list[Run]:
    """Returns the runs in the log of a Job of this library that measures: those that are whole, as a log may be cut."""
    records: list[Mapping[str, Any]] = []
    for line in log.splitlines():
        if line.startswith(_RECORD):
            with suppress(ValueError):
                records.append(json.loads(line))
    documents = [record.get("report") for record in records if record["record"] == "genai-perf"]
    about = [record for record in records if record["record"] == "run"]
    documents += [{"records": [*about, record]} for record in records if record["record"] == "summary"]
    found: list[Run] = []
    for document in documents:
        fields = Fields(document)
        reader = next((one for one in READERS if isinstance(document, Mapping) and one.recognises(document)), None)
        runs = [*reader.read(fields)] if reader else []
        found += [] if fields.faults else runs
    return found


def _read(path: Path) -> list[Run]:
    runs: list[Run] = []
    problems: list[Problem] = []
    for document in _documents(path):
        reader = next((one for one in READERS if isinstance(document, Mapping) and one.recognises(document)), None)
        if reader is None:
            raise _unknown(path, document)
        fields = Fields(document)
        runs += [replace(run, file=str(path)) for run in reader.read(fields)]
        if fields.faults:
            faults = list(dict.fromkeys(fields.faults))
            more = f"; and {len(faults) - _MAX_FAULTS} more" if len(faults) > _MAX_FAULTS else ""
            problems.append(
                Problem(
                    f"incomplete or invalid results of {reader.tool}",
                    file=str(path),
                    given="; ".join(faults[:_MAX_FAULTS]) + more,
                    allowed=f"{reader.files}, complete and unchanged",
                )
            )
    if problems:
        raise ProblemsFound(problems)
    return runs


def _documents(path: Path) -> list[Any]:
    """Returns the JSON values of a file: one, or one per line. Records of the library's own test become one document."""
    if path.is_dir():
        raise _problem(path, "this is a folder")
    try:
        written = content(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _problem(path, "this is not a text file") from None
    try:
        found = [json.loads(written)]
    except RecursionError:
        raise _problem(path, "not JSON: values nested too deeply") from None
    except ValueError as error:
        found = _lines(path, written, error)
    records = [each for each in found if isinstance(each, Mapping) and "record" in each]
    if not records:
        return found
    return [{"records": [*_run_record(path, records), *records]}]


def _lines(path: Path, written: str, error: ValueError) -> list[Any]:
    """Returns the values of JSON lines. If the first line is not JSON, the error is that of the whole file."""
    lines = [(number, line) for number, line in enumerate(written.splitlines(), start=1) if line.strip()]
    if any(line.startswith(_RECORD) for _, line in lines):
        # In the log of the library's Job, only records begin with a brace.
        lines = [(number, line) for number, line in lines if line.startswith("{")]
    found: list[Any] = []
    for number, line in lines:
        try:
            found.append(json.loads(line))
        except ValueError as of_line:
            fault, place = (of_line, number) if found else (error, getattr(error, "lineno", 1))
            shown = text(line if found else lines[0][1])[:60]
            raise _problem(path, f"not JSON: {getattr(fault, 'msg', fault)}", line=place, given=shown) from None
    if not found:
        raise _problem(path, "the file is empty")
    return found


def _run_record(path: Path, records: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Returns the record of the run: the log contains it, ``summary.jsonl`` has it in a separate file in the same folder."""
    if any(record["record"] == "run" for record in records):
        return []
    try:
        return [json.loads(content(path.with_name("run.json")))]
    except (ProblemsFound, ValueError, RecursionError):
        return []


def _unknown(path: Path, document: Any) -> ProblemsFound:
    first = document[0] if isinstance(document, list) and document else document
    keys = list(first) if isinstance(first, Mapping) else []
    shown = ", ".join(map(text, keys[:_MAX_KEYS])) + (", …" if len(keys) > _MAX_KEYS else "")
    kind = {dict: "a JSON object", list: "a JSON list"}.get(type(document), "a JSON value")
    hint = next((hint for key, hint in _OTHER_FILES.items() if key in keys), "")
    return _problem(path, "no known results of a load test", given=f"{kind} with {shown}" if keys else kind, hint=hint)


def _problem(path: Path, message: str, **details: Any) -> ProblemsFound:
    return ProblemsFound([Problem(message, file=str(path), **{"allowed": SUPPORTED, **details})])
