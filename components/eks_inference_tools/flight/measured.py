"""Results of load tests as a user's own measurements, which predictions follow before published ones: files of load test tools,
and bundles of `first-flight`, whose rows belong to nobody.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.models import find_model
from eks_inference.catalog.speeds import Measured, count, speed
from eks_inference_tools.flight.bundle import read_bundle
from eks_inference_tools.flight.evidence import LOAD_METRICS, LOAD_STATISTICS
from eks_inference_tools.loadtest_report.readers.detection import read_all
from eks_inference_tools.loadtest_report.record import Run
from stackgraph.problems import Problem, ProblemsFound

OPTION = "--measured"


def count_files(paths: Sequence[Path]) -> None:
    """Makes the load tests of these files count. Raises ``ProblemsFound`` with each that cannot be a measurement of anything."""
    rows: list[Measured] = []
    problems: list[Problem] = []
    for path in paths:
        found, faults = list[Measured](), dict[str, None]()
        for run in _runs(path):
            row = _row(path, run)
            faults |= {row: None} if isinstance(row, str) else {}
            found += [] if isinstance(row, str) else [row]
        if not found:
            why = "; ".join(faults) or "it contains no load test"
            problems.append(Problem(f"predicts nothing: {why}", file=str(path), key=OPTION))
        rows += found
    if problems:
        raise ProblemsFound(problems)
    count(rows)


def _runs(path: Path) -> Iterator[Run]:
    with suppress(ProblemsFound):
        yield from (_of_bundle(row) for row in read_bundle(path)["rows"] if row["kind"] == "load")
        return
    (runs,) = read_all([path])
    yield from runs


def _of_bundle(row: Mapping[str, Any]) -> Run:
    metrics = {name: {one: row[f"{name}_{one}"] for one in LOAD_STATISTICS if f"{name}_{one}" in row} for name in LOAD_METRICS}
    metrics |= {name: {"mean": row[name]} for name in ("input_tokens", "output_tokens") if name in row}
    return Run(
        tool=row["tool"],
        model=row.get("model", ""),
        instance_type=row.get("type", ""),
        chips=int(row["chips"]) if "chips" in row else None,
        users=int(row["users"]) if "users" in row else None,
        metrics=metrics,
    )


def _row(path: Path, run: Run) -> Measured | str:
    """The measurement; as a text what the file does not tell."""
    model, instance = find_model(run.model), instance_types().get(run.instance_type)
    known = speed(instance) if instance else None
    first = run.metrics.get("ttft_ms", {})
    if model is None:
        return f"the catalog has no model '{run.model}'"
    if known is None or instance is None:
        return f"the speed of instance type '{run.instance_type}' is not known" if run.instance_type else "it lacks instance_type"
    if not (run.asking and run.chips and run.lengths and run.token_ms):
        needed = {
            "users": run.asking,
            "chips": run.chips,
            "tokens of prompts and answers": run.lengths,
            "the time between tokens": run.token_ms,
        }
        return f"it lacks {', '.join(name for name, value in needed.items() if not value)}"
    return Measured(
        source=path.name,
        model=model.name,
        precision="as served",
        device=known.name,
        tensor=run.chips * (instance.cores_per_device or 1),
        stages=1,
        ranks=1,
        engine=run.tool,
        compiled=None,
        prompt=run.lengths[0],
        answer=run.lengths[1],
        users=run.asking,
        load="",
        ttft_ms=first.get("mean", first.get("p50")),
        itl_ms=float(f"{run.token_ms:.4g}"),
        tokens_s=run.output_tokens_per_s,
    )
