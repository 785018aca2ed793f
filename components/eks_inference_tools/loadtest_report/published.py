"""Loads ``published.toml``: results of the source documents, as runs."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from eks_inference.catalog.models import find_model
from eks_inference_tools.loadtest_report.record import METRICS, Run

_FILE = Path(__file__).parent / "published.toml"
_COLUMNS = ("users", "asked", "completed", "failed", "chips", "launched_per_min", "completed_per_min", "output_tokens_per_s")


@dataclass(frozen=True)
class Published:
    """The figures of one document. ``measured`` dates the test; ``read`` is when the document was read."""

    id: str
    """Name of the stack that reproduces the document."""
    source: str
    measured: str
    read: str
    models: tuple[str, ...]
    """Names of the model on the Hub and on the server."""
    remarks: tuple[str, ...]
    runs: tuple[Run, ...]

    def document(self) -> dict[str, Any]:
        """The JSON document, including its runs."""
        return {
            "id": self.id,
            "source": self.source,
            "measured": self.measured,
            "read": self.read,
            "remarks": list(self.remarks),
            "runs": [run.document() for run in self.runs],
        }

    def is_of(self, model: str) -> bool:
        """Whether the document covers this model, under any name in the catalog."""
        shape = find_model(model)
        return model in self.models or (shape is not None and any(name in shape.repositories for name in self.models))


@cache
def published() -> Mapping[str, Published]:
    """All published figures by id."""
    tables: dict[str, Any] = tomllib.loads(_FILE.read_text("utf-8"))
    return {id_: _published(id_, table) for id_, table in tables.items()}


def _published(id_: str, table: dict[str, Any]) -> Published:
    about = {key: table[key] for key in ("source", "measured", "read")}
    runs = tuple(_run(id_, table, row) for row in table["runs"])
    return Published(id_, **about, models=tuple(table["models"]), remarks=tuple(table["remarks"]), runs=runs)


def _run(id_: str, table: dict[str, Any], row: dict[str, Any]) -> Run:
    about = {key: row[key] for key in _COLUMNS if key in row}
    if "completed_per_s" in row:
        about["completed_per_min"] = 60 * row["completed_per_s"]
    metrics = {}
    for name in METRICS:
        in_seconds = f"{name.removesuffix('_ms')}_s"
        if name in row:
            metrics[name] = row[name]
        elif name.endswith("_ms") and in_seconds in row:
            metrics[name] = {statistic: 1000 * value for statistic, value in row[in_seconds].items()}
    completed, per_min = about.get("completed"), about.get("completed_per_min")
    return Run(
        tool=table["tool"],
        model=table["models"][0],
        instance_type=table["instance_type"],
        label=id_ if len(table["runs"]) == 1 else f"{id_}, {row['users']} users",
        duration_s=60 * completed / per_min if completed and per_min else None,
        metrics=metrics,
        basis={"itl_ms": row["itl_basis"]},
        **about,
    )
