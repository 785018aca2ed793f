"""Result files as runs. Whatever is wrong with any of them is told at once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eks_inference_tools.loadtest_report.readers import aiperf, genai_perf, guidellm, llmperf, runner, vllm_bench
from eks_inference_tools.loadtest_report.readers.fields import Fields
from eks_inference_tools.loadtest_report.record import Run
from stackgraph.graph.values import text
from stackgraph.problems import Problem, ProblemsFound

READERS = (llmperf.READER, aiperf.READER, genai_perf.READER, vllm_bench.READER, guidellm.READER, runner.READER)

UNDERSTOOD = "; ".join(f"{reader.tool} ({reader.files})" for reader in READERS)

_MOST_KEYS = 8
_MOST_FAULTS = 6
_OTHER_FILES = {
    # A key of an object, or of the first object of a list, that only files beside the wanted one have.
    "experiments": "this is what perf_analyzer measured; genai-perf's summary is profile_export_genai_perf.json beside it",
    "error_code": "these are LLMPerf's single responses; its summary is *_summary.json beside it",
}


def read_all(paths: Sequence[Path]) -> list[list[Run]]:
    """The runs of each file, in its order. Raises ``ProblemsFound`` with the problems of all files."""
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


def _read(path: Path) -> list[Run]:
    runs: list[Run] = []
    problems: list[Problem] = []
    for document in _documents(path):
        reader = next((one for one in READERS if isinstance(document, Mapping) and one.recognises(document)), None)
        if reader is None:
            raise ProblemsFound([_unknown(path, document)])
        fields = Fields(document)
        runs += [replace(run, file=str(path)) for run in reader.read(fields)]
        if fields.faults:
            faults = list(dict.fromkeys(fields.faults))
            more = f"; and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
            problems.append(
                Problem(
                    f"results of {reader.tool}, but not all that they have to hold",
                    file=str(path),
                    given="; ".join(faults[:_MOST_FAULTS]) + more,
                    allowed=f"{reader.files}, whole and unchanged",
                )
            )
    if problems:
        raise ProblemsFound(problems)
    return runs


def _documents(path: Path) -> list[Any]:
    """The JSON values of a file: one, or one a line. Records of the library's own test are gathered into one."""
    try:
        content = path.read_text("utf-8-sig")
    except IsADirectoryError:
        raise ProblemsFound([Problem("this is a folder", file=str(path), allowed=UNDERSTOOD)]) from None
    except OSError as error:
        raise ProblemsFound([Problem(f"cannot be read: {error.strerror}", file=str(path))]) from None
    except UnicodeDecodeError:
        raise ProblemsFound([Problem("this is no text", file=str(path), allowed=UNDERSTOOD)]) from None
    try:
        found = [json.loads(content)]
    except ValueError as error:
        found = _lines(path, content, error)
    records = [each for each in found if isinstance(each, Mapping) and "record" in each]
    if not records:
        return found
    return [{"records": [*_beside(path, records), *records]}]


def _lines(path: Path, content: str, error: ValueError) -> list[Any]:
    """JSON lines. Where the first line is no JSON of its own, the fault is the whole file's."""
    lines = [(number, line) for number, line in enumerate(content.splitlines(), start=1) if line.strip()]
    if any(line.startswith('{"record":') for _, line in lines):
        # The log of the library's Job: no other line of it begins with a brace.
        lines = [(number, line) for number, line in lines if line.startswith("{")]
    found: list[Any] = []
    for number, line in lines:
        try:
            found.append(json.loads(line))
        except ValueError as of_line:
            fault, place = (of_line, number) if found else (error, getattr(error, "lineno", 1))
            shown = text(line if found else lines[0][1])[:60]
            raise ProblemsFound(
                [
                    Problem(
                        f"not JSON: {getattr(fault, 'msg', fault)}", file=str(path), line=place, given=shown, allowed=UNDERSTOOD
                    )
                ]
            ) from None
    if not found:
        raise ProblemsFound([Problem("the file is empty", file=str(path), allowed=UNDERSTOOD)])
    return found


def _beside(path: Path, records: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The record of the run, which is a file of its own beside ``summary.jsonl`` and in the log already."""
    if any(record["record"] == "run" for record in records):
        return []
    try:
        return [json.loads(path.with_name("run.json").read_text("utf-8"))]
    except (OSError, ValueError):
        return []


def _unknown(path: Path, document: Any) -> Problem:
    first = document[0] if isinstance(document, list) and document else document
    keys = list(first) if isinstance(first, Mapping) else []
    shown = ", ".join(map(text, keys[:_MOST_KEYS])) + (", …" if len(keys) > _MOST_KEYS else "")
    kind = {dict: "a JSON object", list: "a JSON list"}.get(type(document), "a JSON value")
    return Problem(
        "no results of a load test that are understood",
        file=str(path),
        given=f"{kind} with {shown}" if keys else kind,
        allowed=UNDERSTOOD,
        hint=next((hint for key, hint in _OTHER_FILES.items() if key in keys), ""),
    )
