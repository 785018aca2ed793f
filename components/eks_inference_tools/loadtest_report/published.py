"""What the sources published, as runs: ``loadtest/published.toml`` and its typed loader."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from eks_inference.catalog.models import find_model
from eks_inference_tools.loadtest_report.record import METRICS, Run

_FILE = Path(__file__).parent / "published.toml"
_ABOUT = ("users", "asked", "completed", "failed", "chips", "launched_per_min", "completed_per_min", "output_tokens_per_s")


@dataclass(frozen=True)
class Published:
    """The figures of one document. ``measured`` is the day of the test, or what dates it; ``read`` is when they were read."""

    id: str
    """Name of the stack that does what the document does."""
    source: str
    measured: str
    read: str
    models: tuple[str, ...]
    """What the model is called on the Hub, and by the server."""
    remarks: tuple[str, ...]
    runs: tuple[Run, ...]

    def document(self) -> dict[str, Any]:
        """As JSON, with the record of each run."""
        return {
            "id": self.id,
            "source": self.source,
            "measured": self.measured,
            "read": self.read,
            "remarks": list(self.remarks),
            "runs": [run.document() for run in self.runs],
        }

    def is_of(self, model: str) -> bool:
        """Whether it is about this model, by any of the names the catalog has for it."""
        shape = find_model(model)
        return model in self.models or (shape is not None and any(name in shape.repositories for name in self.models))


@cache
def published() -> Mapping[str, Published]:
    """All published figures by id."""
    tables: dict[str, Any] = tomllib.loads(_FILE.read_text("utf-8"))
    return {id_: _published(id_, table) for id_, table in tables.items()}


def _published(id_: str, table: dict[str, Any]) -> Published:
    runs = tuple(_run(id_, table, row, alone=len(table["runs"]) == 1) for row in table["runs"])
    texts = (table["source"], table["measured"], table["read"])
    return Published(id_, *texts, tuple(table["models"]), tuple(table["remarks"]), runs)


def _run(id_: str, table: dict[str, Any], row: dict[str, Any], *, alone: bool) -> Run:
    about = {key: row[key] for key in _ABOUT if key in row}
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
        label=id_ if alone else f"{id_}, {row['users']} users",
        duration_s=60 * completed / per_min if completed and per_min else None,
        metrics=metrics,
        basis={"itl_ms": row["itl_basis"]},
        **about,
    )
